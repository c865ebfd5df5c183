// SPDX-License-Identifier: Apache-2.0
#include "profile/page_packing.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace paoding::profile {

std::string deflated(std::string_view bytes, int level) {
  z_stream stream{};
  const int problem = deflateInit2(&stream, level, Z_DEFLATED, MAX_WBITS, 9, Z_DEFAULT_STRATEGY);
  PD_ASSERT(problem == Z_OK, "zlib does not start");
  std::string packed;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  int state = Z_OK;
  while (state != Z_STREAM_END) {
    if (stream.avail_in == 0) {  // it counts in 32 bits
      constexpr std::size_t kMost = std::numeric_limits<uInt>::max();
      const auto done = static_cast<std::size_t>(reinterpret_cast<const char*>(stream.next_in) - bytes.data());
      stream.avail_in = static_cast<uInt>(std::min(bytes.size() - done, kMost));
    }
    const auto done = static_cast<std::size_t>(reinterpret_cast<const char*>(stream.next_in) - bytes.data());
    char part[1 << 16];
    stream.next_out = reinterpret_cast<Bytef*>(part);
    stream.avail_out = sizeof(part);
    state = deflate(&stream, done + stream.avail_in == bytes.size() ? Z_FINISH : Z_NO_FLUSH);
    packed.append(part, sizeof(part) - stream.avail_out);
  }
  deflateEnd(&stream);
  return packed;
}

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text((bytes.size() + 2) / 3 * 4, '=');
  const auto at = [&](std::size_t i) {
    return i < bytes.size() ? std::uint32_t{static_cast<unsigned char>(bytes[i])} : 0;
  };
  for (std::size_t i = 0, to = 0; i < bytes.size(); i += 3, to += 4) {
    const std::uint32_t three = at(i) << 16 | at(i + 1) << 8 | at(i + 2);
    const std::size_t digits = std::min<std::size_t>(4, bytes.size() - i + 1);
    for (std::size_t k = 0; k < digits; ++k) text[to + k] = kDigits[three >> (18 - 6 * k) & 63];
  }
  return text;
}

}  // namespace paoding::profile
