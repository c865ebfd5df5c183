// SPDX-License-Identifier: Apache-2.0
// Tensors on disk, in the safetensors format that the other frameworks read and write too.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "paoding/tensor.h"

namespace paoding {

/// The content of a safetensors file.
struct SafetensorsFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;  // free text, the header's "__metadata__"
};

/// The tensors of a safetensors file. Each has memory of its own, 64-byte aligned, and outlives the file.
/// Dtypes: F64 F32 F16 BF16 I64 I32 U8 BOOL.
/// Error (file) when the file cannot be read or is malformed in any way; nothing in it is trusted.
std::map<std::string, Tensor> load_safetensors(const std::filesystem::path& path);

/// The tensors and the metadata of a safetensors file; otherwise as load_safetensors.
SafetensorsFile read_safetensors(const std::filesystem::path& path);

/// The same from memory; the bytes are copied. `name` stands for the file in errors.
SafetensorsFile parse_safetensors(std::span<const std::byte> bytes, std::string_view name);

/// Writes a safetensors file; the same tensors and metadata give the same bytes.
/// The file appears whole or not at all: an error leaves an earlier file at `path` unchanged. A link at `path` is
/// replaced, not followed; a safetensors file that is replaced keeps its permissions.
/// Error (file) when the file cannot be written, when something else is at `path`, when a name or text is not UTF-8,
/// when a tensor is called "__metadata__", and when a tensor has no memory or a bool that is neither 0 nor 1.
void save_safetensors(const std::filesystem::path& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace paoding
