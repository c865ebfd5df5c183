// SPDX-License-Identifier: Apache-2.0
// CMake says whether ISA-L is there (PAODING_WITH_ISAL); zlib always is.
#include "trace/gzip_member.h"

#include <zlib.h>

#if PAODING_WITH_ISAL
#include <isa-l/igzip_lib.h>
#endif

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace paoding::trace {
namespace {

template <class Count>
Count counted(std::size_t size) {
  return static_cast<Count>(std::min<std::size_t>(size, std::numeric_limits<Count>::max() / 2));
}

class ZlibMember final : public GzipMember {
 public:
  ZlibMember() {
    constexpr int kGzip = 15 + 16;
    if (inflateInit2(&stream_, kGzip) != Z_OK) fail(ErrorKind::device, "no memory is left to unpack a file");
  }
  ~ZlibMember() override { inflateEnd(&stream_); }
  ZlibMember(const ZlibMember&) = delete;
  ZlibMember& operator=(const ZlibMember&) = delete;

  void begin() override { inflateReset(&stream_); }
  Step step(const char* from, std::size_t size, char* to, std::size_t room) override {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(from));
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    const uInt in = stream_.avail_in = counted<uInt>(size), out = stream_.avail_out = counted<uInt>(room);
    const int code = inflate(&stream_, Z_NO_FLUSH);
    const bool is_sound = code == Z_OK || code == Z_BUF_ERROR;
    const State state = code == Z_STREAM_END ? State::over : is_sound ? State::inside : State::broken;
    return {state, in - stream_.avail_in, out - stream_.avail_out};
  }

 private:
  z_stream stream_{};
};

#if PAODING_WITH_ISAL
class IsalMember final : public GzipMember {
 public:
  IsalMember() : state_(std::make_unique<inflate_state>()) { isal_inflate_init(state_.get()); }

  void begin() override {
    isal_inflate_reset(state_.get());
    state_->crc_flag = ISAL_GZIP;
  }
  Step step(const char* from, std::size_t size, char* to, std::size_t room) override {
    state_->next_in = reinterpret_cast<std::uint8_t*>(const_cast<char*>(from));
    state_->next_out = reinterpret_cast<std::uint8_t*>(to);
    const auto in = state_->avail_in = counted<std::uint32_t>(size);
    const auto out = state_->avail_out = counted<std::uint32_t>(room);
    const int code = isal_inflate(state_.get());
    const bool is_sound = code == ISAL_DECOMP_OK || code == ISAL_END_INPUT || code == ISAL_OUT_OVERFLOW;
    const State state = !is_sound                                  ? State::broken
                        : state_->block_state == ISAL_BLOCK_FINISH ? State::over
                                                                   : State::inside;
    return {state, in - state_->avail_in, out - state_->avail_out};
  }

 private:
  std::unique_ptr<inflate_state> state_;  // of some 80 KB
};
#endif

}  // namespace

bool has_isal() { return PAODING_WITH_ISAL != 0; }

std::unique_ptr<GzipMember> GzipMember::make(Library library) {
#if PAODING_WITH_ISAL
  if (library == Library::best) return std::make_unique<IsalMember>();
#else
  static_cast<void>(library);
#endif
  return std::make_unique<ZlibMember>();
}

}  // namespace paoding::trace
