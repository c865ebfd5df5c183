// SPDX-License-Identifier: Apache-2.0
// Rules that the reader and the writer of safetensors files must share.
//
// A file is: N, the header's length, as 8 bytes little-endian; N bytes of JSON, padded with spaces; the body.
// The header maps each tensor's name to {"dtype", "shape", "data_offsets": [begin, end]}, offsets counted from the
// start of the body, which the tensors fill without holes. "__metadata__" maps strings to strings instead.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/files.h"
#include "paoding/io.h"
#include "paoding/tensor.h"

namespace paoding::safetensors {

static_assert(std::endian::native == std::endian::little, "the body is little-endian and is not converted");

inline constexpr std::uint64_t kLengthBytes = 8;
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
/// Elements of a shape whose extents of 0 count as 1. With 8 bytes each the byte count, and strides too, fit in 64
/// bits.
inline constexpr std::int64_t kMaxElements = (std::int64_t{1} << 62) / 8;
inline constexpr std::string_view kMetadataKey = "__metadata__";

struct DTypeName {
  std::string_view name;  // as the header spells it
  DType dtype;
};

inline constexpr DTypeName kDTypeNames[kDTypeCount] = {
    {"F64", DType::f64}, {"F32", DType::f32}, {"F16", DType::f16}, {"BF16", DType::bf16},
    {"I64", DType::i64}, {"I32", DType::i32}, {"U8", DType::u8},   {"BOOL", DType::boolean},
};

std::string_view dtype_name(DType dtype);

/// read_safetensors of an open file.
SafetensorsFile read(const files::InputFile& file);

/// `text` made safe for an error message: control characters and broken UTF-8 escaped, long text cut.
std::string shown(std::string_view text);

/// Error (file) when `text` is not UTF-8. Reading needs it too: simdjson checks the JSON, but lets escapes of lone
/// surrogates (\udc00) through, which are not text. The message calls the text by the second argument.
void check_text(std::string_view file, std::string_view what, std::string_view text);

/// The index of the first byte of a bool tensor that is neither 0 nor 1; -1 when there is none or it is no bool.
std::int64_t first_bad_bool(const Tensor& tensor);

using NamedTensor = std::pair<const std::string, Tensor>;

/// Whether a file that begins so is a safetensors file (files::IsOurs).
bool begins_file(std::string_view head);

/// Where everything stands in a file with these tensors, which must outlive it. Errors as save_safetensors, about
/// `file`.
class FileLayout {
 public:
  using Write = std::function<void(const void* bytes, std::size_t size_bytes)>;
  FileLayout(const std::string& file, const std::map<std::string, Tensor>& tensors,
             const std::map<std::string, std::string>& metadata);
  /// Hands over the bytes of the file, from the first to the last.
  void write(const Write& write) const;

 private:
  std::string header_;
  std::vector<const NamedTensor*> order_;
};

}  // namespace paoding::safetensors
