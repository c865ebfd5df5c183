// SPDX-License-Identifier: Apache-2.0
#include "line_reader.h"

#include "base/check.h"

namespace paoding::cli {
namespace {

constexpr std::size_t kPieceBytes = 1 << 16, kMostLineBytes = 16 << 20;

}  // namespace

std::string LineReader::place() const { return fmt::format("{}:{}", stream_.name(), line_); }

bool LineReader::read_more() {
  char piece[kPieceBytes];
  const std::size_t count = stream_.read(piece, sizeof piece);
  if (count == 0) return false;
  buffer_.erase(0, at_);
  at_ = 0;
  buffer_.append(piece, count);
  return true;
}

bool LineReader::next(std::string* line) {
  std::size_t looked = at_;
  while (true) {
    const std::size_t end = buffer_.find('\n', looked);
    if (end != std::string::npos) {
      *line = buffer_.substr(at_, end - at_);
      at_ = end + 1;
      break;
    }
    if (buffer_.size() - at_ > kMostLineBytes) {
      fail(ErrorKind::file, "{}:{}: the line has more than {} bytes", stream_.name(), line_ + 1, kMostLineBytes);
    }
    const std::size_t kept = buffer_.size() - at_;
    if (!read_more()) {
      if (kept == 0) return false;
      *line = buffer_.substr(at_);
      at_ = buffer_.size();
      break;
    }
    looked = kept;  // the kept bytes are at the beginning of the buffer now
  }
  if (!line->empty() && line->back() == '\r') line->pop_back();
  line_ += 1;
  return true;
}

}  // namespace paoding::cli
