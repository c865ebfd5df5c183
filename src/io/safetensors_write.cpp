// SPDX-License-Identifier: Apache-2.0
// Writing safetensors: into a temporary file beside the target, which takes its place only when it is whole and on
// disk.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "io/safetensors.h"
#include "paoding/io.h"

namespace paoding {
namespace safetensors {
namespace {

namespace fs = std::filesystem;

std::string reason(int code) { return std::generic_category().message(code); }

/// A new file that replaces `path` on commit(), and goes away when it is destroyed before.
class AtomicFile {
 public:
  explicit AtomicFile(const fs::path& path) : name_(path.string()), target_(path) {
    std::error_code ignored;
    if (fs::is_symlink(target_, ignored)) {
      // Else the rename would replace the link. Not weakly_canonical: it leaves a dangling link alone.
      const fs::path resolved = fs::canonical(target_, ignored);
      if (ignored) fail(ErrorKind::file, "{}: cannot follow the link: {}", name_, ignored.message());
      target_ = resolved;
    }
    struct stat old {};
    const bool exists = ::stat(target_.c_str(), &old) == 0;
    if (exists && !S_ISREG(old.st_mode)) fail(ErrorKind::file, "{}: is there and is not a regular file", name_);
    open_beside_target();
    if (exists) ::fchmod(fd_, old.st_mode & 07777);  // as far as we may
  }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!is_committed_) ::unlink(temporary_.c_str());
  }

  void write(const void* bytes, std::size_t size_bytes) {
    const char* from = static_cast<const char*>(bytes);
    while (size_bytes > 0) {
      const ssize_t written = ::write(fd_, from, size_bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(ErrorKind::file, "{}: cannot write: {}", name_, reason(errno));
      from += written;
      size_bytes -= static_cast<std::size_t>(written);
    }
  }

  void commit() {
    if (::fsync(fd_) != 0) fail(ErrorKind::file, "{}: cannot flush to disk: {}", name_, reason(errno));
    const int closed = ::close(fd_);  // file systems over a network may report a full disk only here
    fd_ = -1;
    if (closed != 0) fail(ErrorKind::file, "{}: cannot close: {}", name_, reason(errno));
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
      fail(ErrorKind::file, "{}: cannot move the new file into place: {}", name_, reason(errno));
    }
    is_committed_ = true;
    flush_folder();
  }

 private:
  fs::path folder() const { return target_.has_parent_path() ? target_.parent_path() : fs::path("."); }

  void open_beside_target() {
    // Not mkstemp, which makes files that only the owner can read. The name does not grow with the target's, which
    // may be as long as names can be. Another process may have our number (containers, network folders): try on.
    static std::atomic<unsigned> counter{0};
    for (int attempt = 0; attempt < 1000; ++attempt) {
      temporary_ = folder() / fmt::format(".paoding-{}-{}.tmp", ::getpid(), counter++);
      fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (fd_ >= 0) return;
      if (errno != EEXIST) break;
    }
    fail(ErrorKind::file, "{}: cannot make a file in its folder: {}", name_, reason(errno));
  }

  /// Makes the rename itself survive a power failure. The new file is in place whatever happens here, and folders
  /// that may not be read, or file systems that cannot do it, are no reason to call the save failed.
  void flush_folder() {
    const int fd = ::open(folder().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    ::fsync(fd);
    ::close(fd);
  }

  std::string name_;
  fs::path target_;
  fs::path temporary_;
  int fd_ = -1;
  bool is_committed_ = false;
};

void append_json(std::string* out, std::string_view text) {
  *out += '"';
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      *out += '\\';
      *out += c;
    } else if (byte < 0x20) {
      *out += fmt::format("\\u{:04x}", byte);
    } else {
      *out += c;
    }
  }
  *out += '"';
}

void check_tensor(const std::string& file, const std::string& name, const Tensor& tensor) {
  check_text(file, "tensor name", name);
  if (name == kMetadataKey) {
    fail(ErrorKind::file, "{}: tensor '{}': the format keeps this name for the metadata", file, name);
  }
  if (tensor.size_bytes() > 0 && tensor.bytes() == nullptr) {
    fail(ErrorKind::file, "{}: tensor '{}': {} has no memory", file, shown(name), to_string(tensor.type()));
  }
  // What is written must load again.
  if (std::int64_t bad = first_bad_bool(tensor); bad >= 0) {
    fail(ErrorKind::file, "{}: tensor '{}': bool element {} is {}, must be 0 or 1", file, shown(name), bad,
         std::to_integer<int>(tensor.bytes()[bad]));
  }
}

using NamedTensor = std::pair<const std::string, Tensor>;

/// Wide elements first, then by name, so that every tensor is aligned to its elements without padding, which the
/// format forbids; readers that map the file count on it.
std::vector<const NamedTensor*> body_order(const std::map<std::string, Tensor>& tensors) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return size_bytes(a->second.dtype()) > size_bytes(b->second.dtype());
  });
  return order;
}

std::string header_text(const std::map<std::string, Tensor>& tensors, const std::vector<const NamedTensor*>& order,
                        const std::map<std::string, std::string>& metadata) {
  std::map<std::string_view, std::int64_t> begins;
  std::int64_t offset = 0;
  for (const NamedTensor* entry : order) {
    begins[entry->first] = offset;
    offset += entry->second.size_bytes();
  }
  std::string json = "{";
  if (!metadata.empty()) {
    append_json(&json, kMetadataKey);
    json += ":{";
    for (const auto& [key, text] : metadata) {
      if (json.back() != '{') json += ',';
      append_json(&json, key);
      json += ':';
      append_json(&json, text);
    }
    json += '}';
  }
  for (const auto& [name, tensor] : tensors) {
    if (json.size() > 1) json += ',';
    append_json(&json, name);
    const std::int64_t begin = begins[name];
    json += fmt::format(R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", dtype_name(tensor.dtype()),
                        fmt::join(tensor.shape().dims(), ","), begin, begin + tensor.size_bytes());
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');  // the body starts aligned
  return json;
}

}  // namespace
}  // namespace safetensors

void save_safetensors(const std::filesystem::path& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  using namespace safetensors;
  const std::string file = path.string();
  for (const auto& [name, tensor] : tensors) check_tensor(file, name, tensor);
  for (const auto& [key, text] : metadata) {
    check_text(file, "metadata key", key);
    check_text(file, "metadata", text);
  }
  const std::vector<const NamedTensor*> order = body_order(tensors);
  const std::string header = header_text(tensors, order, metadata);
  if (header.size() > kMaxHeaderBytes) {
    fail(ErrorKind::file, "{}: the header has {} bytes, over the format's limit of {}", file, header.size(),
         kMaxHeaderBytes);
  }
  AtomicFile out(path);
  const std::uint64_t length = header.size();
  out.write(&length, kLengthBytes);
  out.write(header.data(), header.size());
  for (const NamedTensor* entry : order) {
    out.write(entry->second.bytes(), static_cast<std::size_t>(entry->second.size_bytes()));
  }
  out.commit();
}

}  // namespace paoding
