// SPDX-License-Identifier: Apache-2.0
// manifest.json of a checkpoint as text.
//
// A JSON object, one member a line: "format" and "version"; the members of Manifest; "files", for every other file of
// the checkpoint its size and CRC-32; last "checksum", the CRC-32 of the text before that line. NaN and the infinities
// are the strings "NaN", "Infinity" and "-Infinity", for JSON has no numbers for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "paoding/checkpoint.h"

namespace paoding::checkpoints {

inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr std::string_view kTensorsFile = "parameters.safetensors";
inline constexpr std::int64_t kVersion = 1;
/// The losses of two million logged steps.
inline constexpr std::uint64_t kMaxManifestBytes = 64 << 20;

/// The end of errors about files that are not as they were written.
inline constexpr std::string_view kWhatToDo =
    "\nload another checkpoint, or copy this one again from where it is whole";

/// Tells whether a file is as it was written.
struct Seal {
  std::uint64_t size_bytes = 0;
  std::uint32_t crc = 0;
  void add(const void* bytes, std::size_t size_bytes);
  friend bool operator==(const Seal&, const Seal&) = default;
};
/// The 8 hexadecimal digits of a CRC.
std::string crc_text(std::uint32_t crc);

struct SealedManifest {
  Manifest manifest;
  std::map<std::string, Seal> files;  // by name; kTensorsFile is one of them
};

/// Why `name` cannot name a model's own file; empty when it can.
std::string name_problem(std::string_view name);
/// Error (argument) when a number of the manifest is below 0 or a text is not UTF-8: it could not be read again.
void check(const Manifest& manifest);

std::string manifest_text(const SealedManifest& sealed);
/// A manifest's text up to its last member, and that member with the end.
std::string with_checksum(std::string text);
/// Error (file) about `file` when the text is not a manifest, or not as it was written.
SealedManifest parse_manifest(std::string_view text, std::string_view file);

}  // namespace paoding::checkpoints
