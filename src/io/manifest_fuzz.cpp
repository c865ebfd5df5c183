// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: whatever the bytes are, with and without a checksum that is right, parse_manifest gives a manifest
// whose text reads back to itself, or Error (file).
// Build: clang++-16 -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc src/io/manifest_fuzz.cpp
//        src/io/{manifest,json_text,safetensors,files}.cpp src/base/{error,types,tensor}.cpp -lfmt -lsimdjson -lz
#include <cstdint>
#include <string>
#include <string_view>

#include "io/manifest.h"
#include "paoding/error.h"

namespace {

using namespace paoding;

void check_text(std::string_view text) {
  checkpoints::SealedManifest sealed;
  try {
    sealed = checkpoints::parse_manifest(text, "fuzz");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::file) __builtin_trap();
    return;
  }
  // A manifest that was read can be written and read: an Error here is a finding too.
  checkpoints::check(sealed.manifest);
  const std::string printed = checkpoints::manifest_text(sealed);
  const checkpoints::SealedManifest again = checkpoints::parse_manifest(printed, "fuzz");
  if (again.files != sealed.files || checkpoints::manifest_text(again) != printed) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes), size_bytes);
  check_text(text);
  check_text(checkpoints::with_checksum(text));
  return 0;
}
