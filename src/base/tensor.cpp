// SPDX-License-Identifier: Apache-2.0
// Tensor: aligned host memory, and conversion from and to double.
#include "paoding/tensor.h"

#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "base/huge_pages.h"
#include "base/memory.h"
#include "base/to_odd.h"

namespace paoding {
namespace {

/// Calls visit(T{}) with the C++ type that stores `dtype`; f16 and bf16 are 16 raw bits.
template <class Visit>
void with_storage_type(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::f64: return visit(double{});
    case DType::f32: return visit(float{});
    case DType::f16:
    case DType::bf16: return visit(std::uint16_t{});
    case DType::i64: return visit(std::int64_t{});
    case DType::i32: return visit(std::int32_t{});
    case DType::u8:
    case DType::boolean: return visit(std::uint8_t{});
  }
}

}  // namespace

Tensor::Tensor(const Type& type) : type_(type) {
  constexpr std::size_t kAlignment = 64;
  const auto bytes = static_cast<std::size_t>(paoding::size_bytes(type));
  const std::size_t padded = (bytes + kAlignment) / kAlignment * kAlignment;  // never zero
  const bool is_large = is_worth_huge_pages(bytes);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(is_large ? kHugePage : kAlignment, padded));
  if (memory == nullptr) fail_without_memory(fmt::format("memory: a {}", to_string(type)), size_bytes());
  if (is_large) prefer_huge_pages(memory, padded);
  bytes_ = std::shared_ptr<std::byte>(memory, [](std::byte* p) { std::free(p); });
}

Tensor::Tensor(const Type& type, std::shared_ptr<std::byte> bytes) : type_(type), bytes_(std::move(bytes)) {
  if (bytes_ == nullptr && size_bytes() > 0) {
    fail(ErrorKind::argument, "Tensor: a {} takes {} bytes, but there are none", to_string(type), size_bytes());
  }
}

Tensor Tensor::from(DType dtype, const Shape& shape, std::span<const double> values) {
  if (static_cast<std::int64_t>(values.size()) != shape.elements()) {
    fail(ErrorKind::shape, "Tensor::from: {} values for shape {}, which has {}", values.size(), to_string(shape),
         shape.elements());
  }
  Tensor tensor(dtype, shape);
  with_storage_type(dtype, [&]<class T>(T) {
    T* out = tensor.data<T>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::f16) {
        out[i] = static_cast<T>(float_to_f16(to_odd(values[i])));
      } else if (dtype == DType::bf16) {
        out[i] = static_cast<T>(float_to_bf16(to_odd(values[i])));
      } else if (dtype == DType::boolean) {
        out[i] = static_cast<T>(values[i] != 0);
      } else {
        out[i] = static_cast<T>(values[i]);
      }
    }
  });
  return tensor;
}

Tensor Tensor::copied(DType dtype, const Shape& shape, const void* values, std::int64_t count) {
  if (count != shape.elements()) {
    fail(ErrorKind::shape, "Tensor::from: {} values for shape {}, which has {}", count, to_string(shape),
         shape.elements());
  }
  Tensor tensor(dtype, shape);
  if (count > 0) std::memcpy(tensor.bytes(), values, static_cast<std::size_t>(tensor.size_bytes()));
  return tensor;
}

Tensor Tensor::stacked(std::span<const Tensor> parts) {
  const Type type = parts.empty() ? Type{} : parts[0].type();
  for (const Tensor& part : parts) {
    if (part.type() == type) continue;
    fail(ErrorKind::shape, "Tensor::from: a row of {} values in braces beside one of {}", part.shape().elements(),
         type.shape.elements());
  }
  Tensor whole(type.dtype, type.shape.with_inserted(0, static_cast<std::int64_t>(parts.size())));
  const auto size = static_cast<std::size_t>(paoding::size_bytes(type));
  for (std::size_t i = 0; i < parts.size() && size > 0; ++i) {
    std::memcpy(whole.bytes() + i * size, parts[i].bytes(), size);
  }
  return whole;
}

void Tensor::check_are(bool is_right, std::string_view wanted) const {
  if (!is_right) fail(ErrorKind::dtype, "Tensor: elements of a {} are asked for as {}", to_string(type_), wanted);
}

void Tensor::check_is_single() const {
  if (shape().elements() != 1) {
    fail(ErrorKind::shape, "Tensor: item() of a {}, which has {} elements", to_string(type_), shape().elements());
  }
}

std::vector<double> Tensor::to_doubles() const {
  std::vector<double> values(static_cast<std::size_t>(shape().elements()));
  with_storage_type(dtype(), [&]<class T>(T) {
    const T* in = data<T>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (dtype() == DType::f16) {
        values[i] = f16_to_float(static_cast<std::uint16_t>(in[i]));
      } else if (dtype() == DType::bf16) {
        values[i] = bf16_to_float(static_cast<std::uint16_t>(in[i]));
      } else {
        values[i] = static_cast<double>(in[i]);
      }
    }
  });
  return values;
}

}  // namespace paoding
