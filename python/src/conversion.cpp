// SPDX-License-Identifier: Apache-2.0
// One pass over the elements, at the speed of a cast: whether all fit is asked in the same loop, and which one does not
// only where there is one.
#include "conversion.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "paoding/can_hold.h"
#include "paoding/error.h"

namespace paoding::python {
namespace {

template <class T>
T loaded(const std::byte* at) {  // from any address
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// Whether the element is one of To's, and which. No branches, so that loops over it are vectorized.
template <class To, class From>
bool convert_one(From value, To* into) {
  if constexpr (std::is_floating_point_v<To> && std::is_floating_point_v<From> && sizeof(To) < sizeof(From)) {
    const To made = static_cast<To>(value);
    *into = made;
    return !(std::abs(made) > std::numeric_limits<To>::max()) | (std::abs(value) > std::numeric_limits<From>::max());
  } else if constexpr (std::is_floating_point_v<To>) {
    *into = static_cast<To>(value);
    return true;
  } else if constexpr (std::is_same_v<To, bool>) {
    *into = value != From{0};
    return (value == From{0}) | (value == From{1});
  } else if constexpr (std::is_floating_point_v<From>) {
    constexpr From low = static_cast<From>(std::numeric_limits<To>::min());
    constexpr From above = -2 * static_cast<From>(std::numeric_limits<To>::min() / 2);  // 2^63, 2^31; 0 for u8
    const bool is_within = (value >= low) & (value < (above == 0 ? From{256} : above));
    const To made = is_within ? static_cast<To>(value) : To{0};
    *into = made;
    return is_within & (static_cast<From>(made) == value);
  } else {
    const To made = static_cast<To>(value);
    *into = made;
    return static_cast<std::int64_t>(made) == static_cast<std::int64_t>(value);
  }
}

// With a test of the numbers that are made, of as many bytes as they: so the loop is vectorized. `stride` is a constant
// where they are dense.
template <class Stride>
bool convert_doubles(const std::byte* from, Stride stride, std::int64_t count, float* to) {
  constexpr std::int64_t block = 2048;  // in the cache for a second look
  bool fits = true;
  for (std::int64_t first = 0; first < count; first += block) {
    const std::int64_t end = std::min(first + block, count);
    std::uint32_t seen = 0;  // its top bit: an exponent of ones, which infinity and NaN have
    for (std::int64_t i = first; i < end; ++i) {
      to[i] = static_cast<float>(loaded<double>(from + i * stride));
      seen |= (std::bit_cast<std::uint32_t>(to[i]) & 0x7fffffffu) + 0x00800000u;
    }
    if ((seen >> 31) == 0) continue;
    for (std::int64_t i = first; i < end; ++i) fits &= convert_one(loaded<double>(from + i * stride), to + i);
  }
  return fits;
}

// `count` elements that are `stride` apart; whether all fit.
template <class From, class To>
bool convert_row(const std::byte* from, std::int64_t stride, std::int64_t count, To* to) {
  if constexpr (std::is_same_v<From, double> && std::is_same_v<To, float>) {
    if (stride == 8) return convert_doubles(from, std::integral_constant<std::int64_t, 8>{}, count, to);
    return convert_doubles(from, stride, count, to);
  }
  bool fits = true;
  if (stride == static_cast<std::int64_t>(sizeof(From))) {
    for (std::int64_t i = 0; i < count; ++i) fits &= convert_one(loaded<From>(from + i * sizeof(From)), to + i);
  } else {
    for (std::int64_t i = 0; i < count; ++i) fits &= convert_one(loaded<From>(from + i * stride), to + i);
  }
  return fits;
}

// Calls row(first element, stride, count, elements before it) for all of the array. Axes that lie one in the other are
// one.
template <class Row>
void for_each_row(const StridedArray& array, const Row& row) {
  std::array<std::int64_t, Shape::kMaxRank> extents{}, strides{}, at{};
  int rank = 0;
  for (int axis = 0; axis < array.type.shape.rank(); ++axis) {
    const std::int64_t extent = array.type.shape[axis], stride = array.strides[static_cast<std::size_t>(axis)];
    if (extent == 0) return;
    if (extent == 1) continue;
    const auto last = static_cast<std::size_t>(rank - 1);
    if (rank > 0 && strides[last] == stride * extent) {
      extents[last] *= extent;
      strides[last] = stride;
    } else {
      extents[static_cast<std::size_t>(rank)] = extent;
      strides[static_cast<std::size_t>(rank++)] = stride;
    }
  }
  const std::byte* from = array.memory.get();
  if (rank == 0) return row(from, 0, 1, 0);
  const auto inner = static_cast<std::size_t>(rank - 1);
  for (std::int64_t before = 0;; before += extents[inner]) {
    row(from, strides[inner], extents[inner], before);
    int axis = rank - 2;
    for (; axis >= 0; --axis) {
      const auto i = static_cast<std::size_t>(axis);
      from += strides[i];
      if (++at[i] < extents[i]) break;
      from -= strides[i] * extents[i];
      at[i] = 0;
    }
    if (axis < 0) return;
  }
}

// call(T{}) for the C++ type of a dtype's elements; the 16-bit floats, which have none, are not asked for. Bools are
// read as the bytes that they are.
template <class Bool, class Call>
bool with_type_of(DType dtype, const Call& call) {
  switch (dtype) {
    case DType::f64: return call(double{});
    case DType::f32: return call(float{});
    case DType::i64: return call(std::int64_t{});
    case DType::i32: return call(std::int32_t{});
    case DType::u8: return call(std::uint8_t{});
    default: return call(Bool{});
  }
}

bool has_16_bits(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

void copy(const StridedArray& from, Tensor* into) {
  const std::int64_t size = size_bytes(from.type.dtype);
  for_each_row(from, [&](const std::byte* row, std::int64_t stride, std::int64_t count, std::int64_t before) {
    std::byte* to = into->bytes() + before * size;
    if (stride == size) {
      std::memcpy(to, row, static_cast<std::size_t>(count * size));
      return;
    }
    const auto each = [&](auto unit) {
      for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i * sizeof(unit), row + i * stride, sizeof(unit));
    };
    if (size == 8) return each(std::uint64_t{});
    if (size == 4) return each(std::uint32_t{});
    if (size == 2) return each(std::uint16_t{});
    each(std::uint8_t{});
  });
}

Tensor copied(const StridedArray& from) {
  Tensor made(from.type);
  copy(from, &made);
  return made;
}

[[noreturn]] void refuse_element(const Tensor& dense, DType dtype, const ArrayName& name) {
  const std::vector<double> values = dense.to_doubles();
  const std::int64_t* whole = dense.dtype() == DType::i64 ? dense.data<std::int64_t>() : nullptr;
  const auto is_held = [&](double value) {
    if (!is_float(dtype)) return can_hold(dtype, value);
    const double made = Tensor::from(dtype, {}, std::vector<double>{value}).to_doubles()[0];
    return std::isfinite(made) || !std::isfinite(value);
  };
  std::size_t at = 0;
  while (at + 1 < values.size() && is_held(values[at])) ++at;
  const nb::object value = whole != nullptr          ? nb::object(nb::int_(whole[at]))
                           : is_float(dense.dtype()) ? nb::object(nb::float_(values[at]))
                                                     : nb::object(nb::int_(static_cast<std::int64_t>(values[at])));
  const bool is_fraction = !is_float(dtype) && values[at] != std::trunc(values[at]) && std::isfinite(values[at]);
  throw Error(ErrorKind::dtype,
              name.text() + (dense.shape().rank() == 0 ? "" : ": its element " + std::to_string(at)) + " is " +
                  text_of(nb::repr(value)) + ", which " + std::string(to_string(dtype)) + " cannot hold\nhint: " +
                  (is_fraction ? "numpy.trunc(array) or numpy.rint(array), if its fractions are of no interest"
                               : "numpy.clip(array, low, high), or a dtype that holds it"));
}

// Goes by way of doubles, a piece at a time, since C++ has no 16-bit floats.
void convert_in_pieces(const Tensor& from, const ArrayName& name, Tensor* into) {
  constexpr std::int64_t piece = 4096;
  const DType dtype = into->dtype();
  const std::int64_t from_size = size_bytes(from.dtype()), to_size = size_bytes(dtype);
  const std::int64_t count = from.shape().elements();
  for (std::int64_t first = 0; first < count; first += piece) {
    const Shape some{std::min(piece, count - first)};
    const auto keep = std::make_shared<Tensor>(from);
    const Tensor part({from.dtype(), some}, {keep, keep->bytes() + first * from_size});
    const std::vector<double> values = part.to_doubles();
    const Tensor there = Tensor::from(dtype, some, values);
    const std::vector<double> back = there.to_doubles();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool fits =
          is_float(dtype) ? std::isfinite(back[i]) || !std::isfinite(values[i]) : can_hold(dtype, values[i]);
      if (!fits) refuse_element(from, dtype, name);
    }
    std::memcpy(into->bytes() + first * to_size, there.bytes(), static_cast<std::size_t>(some[0] * to_size));
  }
}

}  // namespace

StridedArray StridedArray::of(const Tensor& tensor) {
  const auto keep = std::make_shared<Tensor>(tensor);
  StridedArray array{tensor.type(), dense_strides(tensor.shape()), {keep, keep->bytes()}};
  for (std::int64_t& stride : array.strides) stride *= size_bytes(tensor.dtype());
  return array;
}

bool StridedArray::is_dense() const {
  std::int64_t wanted = size_bytes(type.dtype);
  for (int axis = type.shape.rank() - 1; axis >= 0; --axis) {
    if (type.shape[axis] == 0) return true;
    if (type.shape[axis] != 1 && strides[static_cast<std::size_t>(axis)] != wanted) return type.shape.elements() == 0;
    wanted *= type.shape[axis];
  }
  return true;
}

Tensor converted(const StridedArray& from, DType dtype, const ArrayName& name) {
  Tensor made(dtype, from.type.shape);
  convert(from, name, &made);
  return made;
}

void convert(const StridedArray& from, const ArrayName& name, Tensor* into) {
  const DType dtype = into->dtype();
  if (from.type.dtype == dtype) return copy(from, into);
  if (has_16_bits(dtype) || has_16_bits(from.type.dtype)) {
    return convert_in_pieces(from.is_dense() ? Tensor(from.type, from.memory) : copied(from), name, into);
  }
  const bool fits = with_type_of<std::uint8_t>(from.type.dtype, [&](auto from_type) {
    return with_type_of<bool>(dtype, [&](auto to_type) {
      using From = decltype(from_type);
      using To = decltype(to_type);
      bool all = true;
      for_each_row(from, [&](const std::byte* row, std::int64_t stride, std::int64_t count, std::int64_t before) {
        all &= convert_row<From, To>(row, stride, count, reinterpret_cast<To*>(into->bytes()) + before);
      });
      return all;
    });
  });
  if (!fits) refuse_element(copied(from), dtype, name);
}

}  // namespace paoding::python
