// SPDX-License-Identifier: Apache-2.0
// PyTorch's results, as tests/reference/peer/record.sh has recorded them: files that gzip packed.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "data/whole_file.h"
#include "paoding/io.h"
#include "tests/support/source_root.h"

namespace paoding {

inline std::filesystem::path recorded_folder() { return source_root() / "tests" / "reference" / "peer" / "recorded"; }

/// The content of the file, or of the packed file beside it.
inline std::string recorded_bytes(std::filesystem::path path) {
  if (!std::filesystem::exists(path)) path += ".gz";
  return data::gunzipped(data::read_whole(path), path.string());
}

/// The tensors of a safetensors file.
inline std::map<std::string, Tensor> recorded_tensors(const std::filesystem::path& path) {
  const std::string bytes = recorded_bytes(path);
  return parse_safetensors(std::as_bytes(std::span(bytes)), path.string()).tensors;
}

}  // namespace paoding
