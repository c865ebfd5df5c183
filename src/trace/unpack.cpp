// SPDX-License-Identifier: Apache-2.0
#include "trace/unpack.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <limits>
#include <memory>

namespace paoding::trace {

namespace {
constexpr std::size_t kUnpackedAtOnce = std::size_t{1} << 18;
}

bool inflate_all(std::string_view packed, std::size_t most, std::string* to) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 32) != Z_OK) return false;
  const std::unique_ptr<z_stream, int (*)(z_stream*)> closer(&stream, [](z_stream* s) { return inflateEnd(s); });
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(std::min<std::size_t>(packed.size(), std::numeric_limits<uInt>::max()));
  for (int code = Z_OK; code != Z_STREAM_END;) {
    const std::size_t before = to->size();
    if (before + kUnpackedAtOnce > most) return false;
    to->resize(before + kUnpackedAtOnce);
    stream.next_out = reinterpret_cast<Bytef*>(to->data() + before);
    stream.avail_out = static_cast<uInt>(kUnpackedAtOnce);
    code = inflate(&stream, Z_NO_FLUSH);
    to->resize(before + kUnpackedAtOnce - stream.avail_out);
    if (code != Z_OK && code != Z_STREAM_END) return false;
    if (code == Z_OK && stream.avail_in == 0 && stream.avail_out > 0) return false;  // cut off
  }
  return true;
}

bool unpack_zstd(std::string_view packed, std::size_t most, std::string* to) {
  const std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(), ZSTD_freeDStream);
  if (!stream) return false;
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  for (std::size_t left = 1; left != 0;) {
    const std::size_t before = to->size();
    if (before + kUnpackedAtOnce > most) return false;
    to->resize(before + kUnpackedAtOnce);
    ZSTD_outBuffer out{to->data() + before, kUnpackedAtOnce, 0};
    left = ZSTD_decompressStream(stream.get(), &out, &in);
    to->resize(before + out.pos);
    if (ZSTD_isError(left) != 0) return false;
    if (left != 0 && in.pos == in.size && out.pos < kUnpackedAtOnce) return false;  // cut off
  }
  return true;
}

}  // namespace paoding::trace
