// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: whatever the bytes are, packed or not, they give images that can be read, or Error (file).
#include <cstdint>
#include <string>

#include "data/image_formats.h"
#include "data/whole_file.h"
#include "paoding/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  const std::string file(reinterpret_cast<const char*>(bytes), size_bytes);
  try {
    const paoding::Tensor picture = paoding::data::parse_pgm(file, "fuzz");
    if (picture.size_bytes() >= static_cast<std::int64_t>(size_bytes)) __builtin_trap();
  } catch (const paoding::Error& error) {
    if (error.kind() != paoding::ErrorKind::file) __builtin_trap();
  }
  for (const int rank : {1, 3}) {
    try {
      const std::string unpacked = paoding::data::gunzipped(file, "fuzz", 1 << 22);
      const paoding::Tensor images = paoding::data::parse_idx(unpacked, "fuzz", rank);
      if (images.size_bytes() >= static_cast<std::int64_t>(unpacked.size())) __builtin_trap();
      if (images.to_doubles().size() != static_cast<std::size_t>(images.size_bytes())) __builtin_trap();
    } catch (const paoding::Error& error) {
      if (error.kind() != paoding::ErrorKind::file) __builtin_trap();
    }
  }
  return 0;
}
