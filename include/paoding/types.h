// SPDX-License-Identifier: Apache-2.0
// The words everything else is written in: DType, Shape, Type, Device.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace paoding {

/// Element type of a value. Arithmetic on f16 and bf16 is done in f32 and rounded when stored.
enum class DType : std::uint8_t { f64, f32, f16, bf16, i64, i32, u8, boolean };

inline constexpr DType f64 = DType::f64;
inline constexpr DType f32 = DType::f32;
inline constexpr DType f16 = DType::f16;
inline constexpr DType bf16 = DType::bf16;
inline constexpr DType i64 = DType::i64;
inline constexpr DType i32 = DType::i32;
inline constexpr DType u8 = DType::u8;
inline constexpr DType boolean = DType::boolean;

inline constexpr int kDTypeCount = 8;

/// Bytes of one element; bool takes one.
std::int64_t size_bytes(DType dtype);
/// The name used in graph text, errors and reports: "f32", "bf16", "bool" ...
std::string_view to_string(DType dtype);
/// The inverse of to_string; false when `text` names no dtype.
bool parse_dtype(std::string_view text, DType* dtype);
bool is_float(DType dtype);
bool is_integer(DType dtype);
/// The dtype in which scalar arithmetic on `dtype` is done: f32 for f16 and bf16, i32 for u8, else itself.
DType compute_dtype(DType dtype);
/// The smallest dtype that both convert to (f16 with bf16 gives f32; an integer with a float gives the float).
DType promote(DType a, DType b);

/// Extents of a value, outermost first; at most kMaxRank of them. Rank 0 is a scalar.
/// Error (shape) on a negative extent, too high a rank, or more than 2^62 elements. Threads share it like an int.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);
  explicit Shape(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
  std::int64_t elements() const;
  std::span<const std::int64_t> dims() const { return {dims_.data(), static_cast<std::size_t>(rank_)}; }
  const std::int64_t* begin() const { return dims_.data(); }
  const std::int64_t* end() const { return dims_.data() + rank_; }

  /// This shape with `extent` put in at `axis` (0 <= axis <= rank).
  Shape with_inserted(int axis, std::int64_t extent) const;
  /// This shape without `axis`.
  Shape with_removed(int axis) const;
  /// This shape with the extent of `axis` replaced.
  Shape with_dim(int axis, std::int64_t extent) const;

  friend bool operator==(const Shape& a, const Shape& b);

 private:
  void append(std::int64_t extent);
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

/// "[16, 102400]"; "[]" for a scalar.
std::string to_string(const Shape& shape);
/// The shape that a and b broadcast to (NumPy's rule: aligned at the last axis, extent 1 stretches).
/// False when they do not broadcast.
bool broadcast(const Shape& a, const Shape& b, Shape* result);
/// Elements to skip per unit of each axis of a dense value of this shape.
std::array<std::int64_t, Shape::kMaxRank> dense_strides(const Shape& shape);

/// The element type and shape of a value. Threads may share one as they share an int.
struct Type {
  DType dtype = DType::f32;
  Shape shape;
  friend bool operator==(const Type&, const Type&) = default;
};

/// "f32[16,102400]", as graph text writes it.
std::string to_string(const Type& type);
/// Bytes of a dense value of this type. Error (shape) above 2^47.
std::int64_t size_bytes(const Type& type);

enum class DeviceKind : std::uint8_t { cpu, cuda };

/// Where a program runs: the CPU, or one NVIDIA GPU by its index. Threads may share one as they share an int.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;

  static Device cpu() { return {}; }
  static Device cuda(int index = 0) { return {DeviceKind::cuda, index}; }
  /// The first GPU if there is one that works, else the CPU.
  static Device best();
  friend bool operator==(const Device&, const Device&) = default;
};

/// "cpu" or "cuda:0".
std::string to_string(const Device& device);

}  // namespace paoding
