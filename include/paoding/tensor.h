// SPDX-License-Identifier: Apache-2.0
// Tensor: a dense array in host memory. Feeds and fetches are Tensors; inside a program there are only slots.
#pragma once

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "paoding/types.h"

namespace paoding {

/// C++'s types of elements: of integers those of the same size and sign, whatever they are called.
template <class T>
concept Element = std::same_as<T, float> || std::same_as<T, double> ||
    (std::integral<T> &&
     (std::same_as<T, bool> || (std::is_signed_v<T> && sizeof(T) >= 4) || (std::is_unsigned_v<T> && sizeof(T) == 1)));
template <Element T>
constexpr DType dtype_of() {
  if constexpr (std::same_as<T, double>) return DType::f64;
  if constexpr (std::same_as<T, float>) return DType::f32;
  if constexpr (std::same_as<T, bool>) return DType::boolean;
  return sizeof(T) == 8 ? DType::i64 : sizeof(T) == 4 ? DType::i32 : DType::u8;
}

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
  static Tensor from(DType dtype, const Shape& shape, std::initializer_list<double> values) {
    return from(dtype, shape, std::span<const double>(values.begin(), values.size()));
  }
  /// A copy of typed values, for example of a vector or a span: the dtype is that of the type. Error (shape) when the
  /// count differs.
  template <std::ranges::contiguous_range Range>
  requires Element<std::ranges::range_value_t<Range>>
  static Tensor from(const Shape& shape, const Range& values) {
    return copied(dtype_of<std::ranges::range_value_t<Range>>(), shape, std::ranges::data(values),
                  static_cast<std::int64_t>(std::ranges::size(values)));
  }
  /// The same with rank 1.
  template <std::ranges::contiguous_range Range>
  requires Element<std::ranges::range_value_t<Range>>
  static Tensor from(const Range& values) {
    return from(Shape{static_cast<std::int64_t>(std::ranges::size(values))}, values);
  }
  /// Numbers in braces: from({{1.0f, 2.0f}, {3.0f, 4.0f}}) is an f32[2,2]. Error (shape) when rows differ in length.
  template <Element T>
  static Tensor from(std::initializer_list<T> values) {
    return from(std::span<const T>(values.begin(), values.size()));
  }
  template <Element T>
  static Tensor from(std::initializer_list<std::initializer_list<T>> rows) {
    return from_rows(rows);
  }
  template <Element T>
  static Tensor from(std::initializer_list<std::initializer_list<std::initializer_list<T>>> matrices) {
    return from_rows(matrices);
  }

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

  /// The elements in their own type; bits (std::uint16_t) of f16 and bf16. Error (dtype) when they are something else.
  template <class T>
  requires Element<T> || std::same_as<T, std::uint16_t> std::span<T> values() {
    check_elements<T>();
    return {data<T>(), static_cast<std::size_t>(shape().elements())};
  }
  template <class T>
  requires Element<T> || std::same_as<T, std::uint16_t> std::span<const T> values()
  const {
    check_elements<T>();
    return {data<T>(), static_cast<std::size_t>(shape().elements())};
  }
  /// The only element, converted. Error (shape) unless there is one.
  template <Element T>
  T item() const {
    check_is_single();
    if (dtype() == DType::i64) return static_cast<T>(*data<std::int64_t>());  // of which a double has not every one
    return static_cast<T>(to_doubles()[0]);
  }

  /// Every element converted to double, in order.
  std::vector<double> to_doubles() const;

 private:
  static Tensor copied(DType dtype, const Shape& shape, const void* values, std::int64_t count);
  static Tensor stacked(std::span<const Tensor> parts);
  template <class List>
  static Tensor from_rows(std::initializer_list<List> rows) {
    std::vector<Tensor> parts;
    for (const List& row : rows) parts.push_back(from(row));
    return stacked(parts);
  }
  template <class T>
  void check_elements() const {
    if constexpr (std::same_as<T, std::uint16_t>) {
      check_are(dtype() == DType::f16 || dtype() == DType::bf16, "16 bits");
    } else {
      check_are(dtype() == dtype_of<T>(), to_string(dtype_of<T>()));
    }
  }
  void check_are(bool is_right, std::string_view wanted) const;
  void check_is_single() const;
  void swap(Tensor& other) noexcept {
    std::swap(type_, other.type_);
    bytes_.swap(other.bytes_);
  }
  Type type_{DType::f32, Shape{0}};
  std::shared_ptr<std::byte> bytes_;
};

}  // namespace paoding
