// SPDX-License-Identifier: Apache-2.0
// Tensor: a dense array in host memory. Feeds and fetches are Tensors; inside a program there are only slots.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "paoding/types.h"

namespace paoding {

/// A dense row-major array in host memory. Copies share the bytes, which threads may read at once. Moved from: f32[0].
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor&) = default;
  Tensor& operator=(const Tensor&) = default;
  Tensor(Tensor&& other) noexcept { swap(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    Tensor(std::move(other)).swap(*this);
    return *this;
  }
  ~Tensor() = default;
  /// Uninitialised elements of this type, 64-byte aligned.
  explicit Tensor(const Type& type);
  Tensor(DType dtype, const Shape& shape) : Tensor(Type{dtype, shape}) {}
  /// Shares bytes that their owner keeps alive (a mapped file, a pinned buffer). Error (argument) where there are none
  /// for a type that takes some.
  Tensor(const Type& type, std::shared_ptr<std::byte> bytes);

  /// A tensor of `dtype` from values given as doubles. Error (shape) when the count differs.
  static Tensor from(DType dtype, const Shape& shape, std::span<const double> values);

  const Type& type() const { return type_; }
  DType dtype() const { return type_.dtype; }
  const Shape& shape() const { return type_.shape; }
  std::int64_t size_bytes() const { return paoding::size_bytes(type_); }

  std::byte* bytes() { return bytes_.get(); }
  const std::byte* bytes() const { return bytes_.get(); }
  template <class T>
  T* data() {
    return reinterpret_cast<T*>(bytes_.get());
  }
  template <class T>
  const T* data() const {
    return reinterpret_cast<const T*>(bytes_.get());
  }

  /// Every element converted to double, in order.
  std::vector<double> to_doubles() const;

 private:
  void swap(Tensor& other) noexcept {
    std::swap(type_, other.type_);
    bytes_.swap(other.bytes_);
  }
  Type type_{DType::f32, Shape{0}};
  std::shared_ptr<std::byte> bytes_;
};

}  // namespace paoding
