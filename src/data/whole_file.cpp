// SPDX-License-Identifier: Apache-2.0
#include "data/whole_file.h"

#define ZLIB_CONST  // zlib then takes its input as const
#include <fcntl.h>
#include <simdjson.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "base/check.h"
#include "io/files.h"
#include "paoding/cancellation.h"
#include "text/lexer.h"

namespace paoding::data {
namespace {

// Bytes unpacked between two looks at whether the reader was called off.
constexpr std::size_t kMostAtOnce = std::size_t{64} << 20;

/// An inflating zlib stream; window bits of 15 are zlib's format, 16 more are gzip's.
class Inflater {
 public:
  Inflater(std::string_view bytes, std::string_view name, int window_bits) : name_(name), rest_(bytes) {
    if (inflateInit2(&stream_, window_bits) != Z_OK) fail(ErrorKind::file, "{}: no memory to unpack it", name);
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  /// Fills `to` from its `from`th byte on as far as the stream goes; gives the count of bytes there now.
  std::size_t fill(std::string& to, std::size_t from) {
    while (from < to.size() && !is_done_) {
      CancelScope::poll();
      feed();
      const auto room = static_cast<uInt>(std::min<std::size_t>(to.size() - from, kMostAtOnce));
      stream_.next_out = reinterpret_cast<Bytef*>(to.data() + from);
      stream_.avail_out = room;
      const int status = inflate(&stream_, Z_NO_FLUSH);
      from += room - stream_.avail_out;
      if (status == Z_STREAM_END) {
        is_done_ = true;
      } else if (status == Z_BUF_ERROR && stream_.avail_in == 0 && rest_.empty()) {
        fail(ErrorKind::file, "{}: the compressed data is truncated, get the file again", name_);
      } else if (status == Z_MEM_ERROR) {
        fail(ErrorKind::file, "{}: no memory to unpack it", name_);
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        fail(ErrorKind::file, "{}: the compressed data is damaged ({}), get the file again", name_,
             stream_.msg != nullptr ? stream_.msg : "needs a dictionary");
      }
    }
    return from;
  }
  bool is_done() const { return is_done_; }
  /// Begins anew where another gzip member follows the one that is done.
  bool begin_next_member() {
    if (stream_.avail_in + rest_.size() == 0) return false;
    is_done_ = false;
    return inflateReset(&stream_) == Z_OK;
  }

 private:
  void feed() {
    if (stream_.avail_in > 0) return;
    const auto count = std::min<std::size_t>(rest_.size(), std::numeric_limits<uInt>::max());
    stream_.next_in = reinterpret_cast<const Bytef*>(rest_.data());
    stream_.avail_in = static_cast<uInt>(count);
    rest_.remove_prefix(count);
  }

  std::string_view name_, rest_;
  z_stream stream_{};
  bool is_done_ = false;
};

}  // namespace

namespace {
/// Room after the first `used` bytes: as much again, but never more than one byte over the limit, by which it is seen
/// that there is more.
void make_room(std::string* bytes, std::size_t used, std::uint64_t most_bytes) {
  if (used < bytes->size()) return;
  const std::uint64_t wanted = std::max<std::uint64_t>(std::size_t{64} << 10, 2 * used);
  const std::uint64_t size = std::min(wanted, most_bytes + 1);
  std::string larger;
  larger.reserve(size);  // resize() of existing bytes may take twice that
  larger.append(*bytes, 0, used);
  larger.resize(size);
  *bytes = std::move(larger);
}

[[noreturn]] void fail_too_large(std::string_view name, std::uint64_t most_bytes) {
  fail(ErrorKind::file, "{}: is larger than {} bytes, too large for what it should be", name, most_bytes);
}
}  // namespace

std::string read_whole(const std::filesystem::path& path, std::uint64_t most_bytes) {
  const files::InputFile file(path);
  if (file.size_bytes() > most_bytes) fail_too_large(path.string(), most_bytes);
  std::string bytes(file.size_bytes(), '\0');
  file.read_at(0, bytes.data(), bytes.size());
  return bytes;
}

std::string read_stream(const std::filesystem::path& path, std::string_view name, std::uint64_t most_bytes) {
  const files::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  struct stat status {};
  if (!file.is_open() || ::fstat(file.get(), &status) != 0) {
    fail(ErrorKind::file, "{}: cannot open: {}", name, files::reason(errno));
  }
  const bool is_device = S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode);
  if ((is_device && ::isatty(file.get()) != 1) || S_ISDIR(status.st_mode)) {
    fail(ErrorKind::file, "{}: is {}, neither a file nor a pipe", name, files::kind_of(status.st_mode));
  }
  std::string bytes;
  for (std::size_t size = 0;;) {
    CancelScope::poll();
    make_room(&bytes, size, most_bytes);
    const ssize_t count = ::read(file.get(), bytes.data() + size, bytes.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(ErrorKind::file, "{}: cannot be read: {}", name, files::reason(errno));
    size += static_cast<std::size_t>(count);
    if (size > most_bytes) fail_too_large(name, most_bytes);
    if (count > 0) continue;
    bytes.resize(size);
    return bytes;
  }
}

std::string gunzipped(std::string bytes, std::string_view name, std::uint64_t most_bytes) {
  if (!bytes.starts_with("\x1f\x8b")) return bytes;
  Inflater inflater(bytes, name, 15 + 16);
  std::string result;
  std::size_t size = 0;
  do {
    while (!inflater.is_done()) {
      make_room(&result, size, most_bytes);
      size = inflater.fill(result, size);
      if (size > most_bytes) fail(ErrorKind::file, "{}: unpacks to more than {} bytes", name, most_bytes);
    }
  } while (inflater.begin_next_member());
  result.resize(size);
  return result;
}

std::string inflated(std::string_view bytes, std::string_view name, std::size_t size_bytes) {
  // Deflate's best is 1032:1; more than that is not asked for, so that a small file cannot take much memory.
  if (size_bytes / 1032 > bytes.size()) {
    fail(ErrorKind::file, "{}: {} packed bytes cannot hold {}, as the index says", name, bytes.size(), size_bytes);
  }
  Inflater inflater(bytes, name, 15);
  std::string result(size_bytes + 1, '\0');  // one more, so that a stream that goes on is seen
  const std::size_t size = inflater.fill(result, 0);
  if (size != size_bytes) {
    fail(ErrorKind::file, "{}: {} bytes were packed here, the index says {}", name,
         size > size_bytes ? "more" : std::to_string(size), size_bytes);
  }
  result.resize(size);
  return result;
}

std::size_t first_bad_byte(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 0) return at;
    at += length;
  }
  return std::string_view::npos;
}

void check_utf8(std::string_view text, std::string_view name) {
  if (simdjson::validate_utf8(text.data(), text.size())) return;
  const std::size_t at = std::min(first_bad_byte(text), text.size());
  const std::size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;  // npos + 1 is 0
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(begin), '\n');
  fail(ErrorKind::file,
       "{}:{}: byte {} of the line is not UTF-8: {}\n"
       "The text must be UTF-8. When it is Latin-1: iconv -f latin1 -t utf-8 FILE > NEW",
       name, line, at - begin, quote(shortened(text.substr(begin, std::min<std::size_t>(at - begin + 20, 60)))));
}

std::string_view take_line(std::string_view& text) {
  CancelScope::poll();  // every reader of lines is called off here
  const std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace paoding::data
