// SPDX-License-Identifier: Apache-2.0
// DType and Shape: names, sizes, promotion, broadcasting.
#include "paoding/types.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/check.h"
#include "base/device_name.h"

namespace paoding {
namespace {

struct DTypeRow {
  std::string_view name;
  std::int64_t size_bytes;
  bool is_float;
  bool is_integer;
  DType compute;
};

constexpr DTypeRow kDTypes[kDTypeCount] = {
    {"f64", 8, true, false, DType::f64}, {"f32", 4, true, false, DType::f32},
    {"f16", 2, true, false, DType::f32}, {"bf16", 2, true, false, DType::f32},
    {"i64", 8, false, true, DType::i64}, {"i32", 4, false, true, DType::i32},
    {"u8", 1, false, true, DType::i32},  {"bool", 1, false, false, DType::boolean},
};

const DTypeRow& row(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }

constexpr std::int64_t kMaxElements = std::int64_t{1} << 62;
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 47;  // sums and differences of extents never overflow

}  // namespace

std::int64_t size_bytes(DType dtype) { return row(dtype).size_bytes; }
std::string_view to_string(DType dtype) { return row(dtype).name; }
bool is_float(DType dtype) { return row(dtype).is_float; }
bool is_integer(DType dtype) { return row(dtype).is_integer; }
DType compute_dtype(DType dtype) { return row(dtype).compute; }

bool parse_dtype(std::string_view text, DType* dtype) {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (kDTypes[i].name == text) {
      *dtype = static_cast<DType>(i);
      return true;
    }
  }
  return false;
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  // From least to most general; the two 16-bit floats hold values the other lacks, so they meet in f32.
  constexpr DType order[] = {DType::boolean, DType::u8,  DType::i32, DType::i64,
                             DType::bf16,    DType::f16, DType::f32, DType::f64};
  auto place = [&](DType d) { return std::find(std::begin(order), std::end(order), d) - std::begin(order); };
  if ((a == DType::f16 && b == DType::bf16) || (a == DType::bf16 && b == DType::f16)) return DType::f32;
  return place(a) > place(b) ? a : b;
}

Shape::Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const std::int64_t> dims) {
  for (std::int64_t extent : dims) append(extent);
  elements();  // refuses sizes that overflow
}

void Shape::append(std::int64_t extent) {
  if (rank_ == kMaxRank) fail(ErrorKind::shape, "shape: more than {} axes", kMaxRank);
  if (extent < 0) fail(ErrorKind::shape, "shape: extent {} of axis {} is negative", extent, rank_);
  if (extent > kMaxExtent) fail(ErrorKind::shape, "shape: extent {} of axis {} is over 2^47", extent, rank_);
  dims_[static_cast<std::size_t>(rank_++)] = extent;
}

std::int64_t Shape::elements() const {
  std::int64_t product = 1;
  bool is_empty = false;
  for (std::int64_t extent : dims()) {
    if (extent == 0) {  // the others still must not overflow: strides are products of them
      is_empty = true;
      continue;
    }
    if (product > kMaxElements / extent) {
      fail(ErrorKind::shape, "shape: {} has more than 2^62 elements", to_string(*this));
    }
    product *= extent;
  }
  return is_empty ? 0 : product;
}

Shape Shape::with_inserted(int axis, std::int64_t extent) const {
  std::vector<std::int64_t> dims(begin(), end());
  dims.insert(dims.begin() + axis, extent);
  return Shape(std::span<const std::int64_t>(dims));
}

Shape Shape::with_removed(int axis) const {
  std::vector<std::int64_t> dims(begin(), end());
  dims.erase(dims.begin() + axis);
  return Shape(std::span<const std::int64_t>(dims));
}

Shape Shape::with_dim(int axis, std::int64_t extent) const {
  std::vector<std::int64_t> dims(begin(), end());
  dims[static_cast<std::size_t>(axis)] = extent;
  return Shape(std::span<const std::int64_t>(dims));
}

bool operator==(const Shape& a, const Shape& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape.dims(), ", ")); }

bool broadcast(const Shape& a, const Shape& b, Shape* result) {
  const int rank = std::max(a.rank(), b.rank());
  std::vector<std::int64_t> dims(static_cast<std::size_t>(rank));
  for (int i = 1; i <= rank; ++i) {
    const std::int64_t x = i <= a.rank() ? a[a.rank() - i] : 1;
    const std::int64_t y = i <= b.rank() ? b[b.rank() - i] : 1;
    if (x != y && x != 1 && y != 1) return false;
    dims[static_cast<std::size_t>(rank - i)] = x == 1 ? y : x;  // 1 with 0 gives 0
  }
  *result = Shape(std::span<const std::int64_t>(dims));
  return true;
}

std::array<std::int64_t, Shape::kMaxRank> dense_strides(const Shape& shape) {
  std::array<std::int64_t, Shape::kMaxRank> strides{};
  std::int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[static_cast<std::size_t>(axis)] = stride;
    stride *= shape[axis];
  }
  return strides;
}

std::string to_string(const Type& type) {
  return fmt::format("{}[{}]", to_string(type.dtype), fmt::join(type.shape.dims(), ","));
}

std::int64_t size_bytes(const Type& type) {
  const std::int64_t elements = type.shape.elements();
  if (elements > kMaxExtent / size_bytes(type.dtype)) {
    fail(ErrorKind::shape, "{}: has more than 2^47 bytes", to_string(type));
  }
  return elements * size_bytes(type.dtype);
}

std::string to_string(const Device& device) {
  return device.kind == DeviceKind::cpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

std::optional<Device> device_named(std::string_view text) {
  constexpr std::string_view kFirst = "cuda", kPrefix = "cuda:";
  if (text == "cpu") return Device::cpu();
  if (text == kFirst) return Device::cuda();
  if (!text.starts_with(kPrefix)) return std::nullopt;
  int index = -1;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + kPrefix.size(), end, index);
  if (parsed.ec != std::errc() || parsed.ptr != end || index < 0) return std::nullopt;
  return Device::cuda(index);
}

}  // namespace paoding
