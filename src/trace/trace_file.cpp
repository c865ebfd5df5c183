// SPDX-License-Identifier: Apache-2.0
#include "trace/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "base/check.h"
#include "io/files.h"
#include "trace/gzip_member.h"

namespace paoding::trace {

// The bytes that are stored, one after the other.
class TraceFile::Bytes {
 public:
  explicit Bytes(const std::filesystem::path& path) : file_(std::in_place, path), size_(file_->size_bytes()) {}
  explicit Bytes(std::string_view text) : text_(text), size_(text.size()) {}

  std::uint64_t size() const { return size_; }
  void rewind() { at_ = 0; }
  std::size_t read(char* to, std::size_t count) {
    const auto now = static_cast<std::size_t>(std::min<std::uint64_t>(count, size_ - at_));
    if (now == 0) return 0;
    if (file_) {
      file_->read_at(at_, to, now);
    } else {
      std::memcpy(to, text_.data() + at_, now);
    }
    at_ += now;
    return now;
  }

 private:
  std::optional<files::InputFile> file_;
  std::string_view text_;
  std::uint64_t size_ = 0, at_ = 0;
};

// gzip, of as many members as there are.
class TraceFile::Unpacker {
 public:
  explicit Unpacker(Bytes& from) : from_(from), input_(kInputBytes), member_(GzipMember::make()) {}

  std::size_t read(char* to, std::size_t count, std::string* problem) {
    std::size_t made = 0;
    while (made < count && !is_over_) {
      if (at_ == size_ && !has_ended_) {
        at_ = 0, size_ = from_.read(input_.data(), input_.size());
        has_ended_ = size_ == 0;
      }
      if (!is_inside_ && !begin_member(problem)) continue;
      const GzipMember::Step step = member_->step(input_.data() + at_, size_ - at_, to + made, count - made);
      at_ += step.taken, made += step.made;
      if (step.state == GzipMember::State::over) {
        is_inside_ = false;
      } else if (step.state == GzipMember::State::broken) {
        is_over_ = true;
        *problem = "its packed content is broken";
      } else if (has_ended_ && step.made == 0) {  // otherwise it still has some output
        is_over_ = true;
        *problem = "its packed content is cut off";
      }
    }
    return made;
  }

 private:
  static constexpr std::size_t kInputBytes = std::size_t{1} << 18;

  // Another one follows where its mark does; zeros that fill up a file do not count. False where none does, or that is
  // not known yet.
  bool begin_member(std::string* problem) {
    while (members_ > 0 && at_ < size_ && input_[at_] == 0) ++at_;
    is_over_ = has_ended_;
    if (at_ == size_) return false;
    if (members_ > 0 && input_[at_] != 0x1f) {
      is_over_ = true;
      *problem = "something that is not packed follows its packed content";
      return false;
    }
    ++members_;
    is_inside_ = true;
    member_->begin();
    return true;
  }

  Bytes& from_;
  std::vector<char> input_;
  std::size_t at_ = 0, size_ = 0;  // in the input
  const std::unique_ptr<GzipMember> member_;
  bool is_inside_ = false, is_over_ = false, has_ended_ = false;
  std::uint64_t members_ = 0;
};

TraceFile::TraceFile(const std::filesystem::path& path)
    : name_(path.string()), bytes_(std::make_unique<Bytes>(path)), is_on_disk_(true) {
  begin();
}

TraceFile::TraceFile(std::string_view bytes, std::string name)
    : name_(std::move(name)), bytes_(std::make_unique<Bytes>(bytes)) {
  begin();
}

TraceFile::~TraceFile() = default;

void TraceFile::begin() {
  stored_bytes_ = bytes_->size();
  head_.resize(kHeadBytes);
  const std::size_t stored = bytes_->read(head_.data(), head_.size());
  is_packed_ = stored >= 2 && head_[0] == '\x1f' && head_[1] == '\x8b';
  head_.resize(stored);
  if (!is_packed_) return;
  bytes_->rewind();
  unpacker_ = std::make_unique<Unpacker>(*bytes_);
  head_.resize(kHeadBytes);
  head_.resize(fill(head_.data(), head_.size()));
}

std::size_t TraceFile::fill(char* to, std::size_t count) {
  return unpacker_ ? unpacker_->read(to, count, &problem_) : bytes_->read(to, count);
}

std::size_t TraceFile::read(char* to, std::size_t count) {
  const std::size_t of_head = std::min(count, head_.size() - head_given_);
  std::memcpy(to, head_.data() + head_given_, of_head);
  head_given_ += of_head;
  return of_head == count ? count : of_head + fill(to + of_head, count - of_head);
}

void TraceFile::rewind() {
  bytes_->rewind();
  unpacker_.reset();
  problem_.clear();
  head_given_ = 0;
  begin();
}

std::string TraceFile::rest(std::uint64_t most) {
  constexpr std::size_t kAtOnce = std::size_t{1} << 18;  // it stays near until it is written over
  std::string all;
  // The size of a file that is not packed is known, so that nothing has to be moved.
  if (!unpacker_) all.reserve(std::min(stored_bytes_, most) + kAtOnce);
  for (;;) {
    const std::size_t before = all.size();
    if (all.capacity() - before < kAtOnce) all.reserve(std::max(2 * before, before + kAtOnce));
    all.resize(before + kAtOnce);
    const std::size_t more = read(all.data() + before, kAtOnce);
    all.resize(before + more);
    if (all.size() > most) fail(ErrorKind::file, "{}: it is longer than {} bytes", name_, most);
    if (more < kAtOnce) return all;
  }
}

}  // namespace paoding::trace
