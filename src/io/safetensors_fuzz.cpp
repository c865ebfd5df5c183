// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: whatever the bytes are, parse_safetensors gives tensors that can be read, or Error (file).
// Build: clang++-16 -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc src/io/safetensors_fuzz.cpp
//        src/io/{safetensors,files}.cpp src/base/{error,types,tensor}.cpp -lfmt -lsimdjson
#include <cstdint>
#include <span>

#include "paoding/error.h"
#include "paoding/io.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  std::int64_t total_bytes = 0;
  try {
    auto file = paoding::parse_safetensors(std::as_bytes(std::span(bytes, size_bytes)), "fuzz");
    for (const auto& [name, tensor] : file.tensors) {
      total_bytes += tensor.size_bytes();
      if (tensor.to_doubles().size() != static_cast<std::size_t>(tensor.shape().elements())) __builtin_trap();
    }
  } catch (const paoding::Error& error) {
    if (error.kind() != paoding::ErrorKind::file) __builtin_trap();
  }
  if (total_bytes > static_cast<std::int64_t>(size_bytes)) __builtin_trap();
  return 0;
}
