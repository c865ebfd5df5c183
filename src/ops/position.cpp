// SPDX-License-Identifier: Apache-2.0
// Sinusoidal and rotary positions. The factors of the angles are a small constant, rounded once.
#include "paoding/ops/position.h"

#include <array>
#include <cmath>

#include "base/check.h"
#include "ops/axes.h"
#include "ops/composing.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "paoding/range.h"

namespace paoding {
namespace {

double base_of(const OpCall& call) {
  const double base = call.attrs.get_float("base");
  if (!Range::above(0).contains(base))
    call.fail(ErrorKind::argument, fmt::format("base = {}, needs to be above 0", base));
  return base;
}

// Before the factors are made: a number in a model's text must not take memory by itself.
void check_width(const OpCall& call, std::string_view what, std::int64_t width) {
  constexpr std::int64_t kMostWidth = 1 << 20;
  if (width > kMostWidth)
    call.fail(ErrorKind::argument, fmt::format("{} = {}, the most is {}", what, width, kMostWidth));
}

// position base^(-2i / width) for i = 0 .. width / 2 - 1, as [.., width / 2].
Value angles(const Value& positions, std::int64_t width, double base, DType dtype) {
  std::vector<double> factors;
  for (std::int64_t i = 0; i < width; i += 2) {
    factors.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(width)));
  }
  const Value column = unsqueeze(cast(positions, dtype), -1);
  return column * constant(positions.graph(), {width / 2}, std::span<const double>(factors), dtype);
}

// The two of every pair beside each other again.
Value interleaved(const Value& first, const Value& second) {
  const int rank = first.shape().rank();
  const Value pairs = stack(std::array{first, second}, rank);
  return reshape(pairs, first.shape().with_dim(rank - 1, 2 * first.shape()[rank - 1]));
}

Values compose_sinusoidal(std::span<const Value> in, const Attrs& attrs) {
  const OpCall call = composed_call("sinusoidal_positions", in, attrs);
  const std::int64_t width = attrs.get_int("width");
  const DType dtype = attrs.get_dtype("dtype");
  if (width < 2 || width % 2 != 0) {
    call.fail(ErrorKind::argument, fmt::format("width = {}, needs to be even and positive", width));
  }
  check_width(call, "width", width);
  if (!is_float(dtype)) call.fail(ErrorKind::dtype, fmt::format("dtype is {}, needed is a float", to_string(dtype)));
  if (in[0].dtype() == boolean) call.fail(ErrorKind::dtype, "positions are bool; numbers are needed");
  const Value angle = angles(in[0], width, base_of(call), compute_dtype(dtype));
  return {cast(interleaved(sin(angle), cos(angle)), dtype)};
}

Values compose_rotary(std::span<const Value> in, const Attrs& attrs) {
  const OpCall call = composed_call("rotary_embedding", in, attrs);
  const Value& x = in[0];
  const Shape& shape = x.shape();
  const int last = shape.rank() - 1;
  if (!is_float(x.dtype()))
    call.fail(ErrorKind::dtype, fmt::format("x is {}, needed are floats", to_string(x.dtype())));
  if (last < 0 || shape[last] % 2 != 0) {
    call.fail(ErrorKind::shape, fmt::format("x has shape {}, its last extent must be even", to_string(shape)));
  }
  Shape joint;
  const Shape rows = shape.with_removed(last);
  if (in[1].dtype() == boolean) call.fail(ErrorKind::dtype, "positions are bool; numbers are needed");
  if (!broadcast(in[1].shape(), rows, &joint) || !(joint == rows)) {
    call.fail(ErrorKind::shape,
              fmt::format("positions have shape {}, which does not broadcast to {}, x without its last "
                          "axis",
                          to_string(in[1].shape()), to_string(rows)));
  }
  const double base = base_of(call);
  if (shape.elements() == 0) return {x};
  const std::int64_t width = shape[last], half = width / 2;
  check_width(call, "the last extent of x", width);
  const Value wide = cast(x, compute_dtype(x.dtype())), angle = angles(in[1], width, base, wide.dtype());
  const Value c = cos(angle), s = sin(angle);
  const auto turned = [&](const Value& a, const Value& b) { return std::array{a * c - b * s, b * c + a * s}; };
  if (attrs.get_bool("interleaved")) {
    const Value pairs = reshape(wide, shape.with_dim(last, half).with_inserted(last + 1, 2));
    const auto part = [&](std::int64_t i) {
      return reshape(slice(pairs, last + 1, i, i + 1), shape.with_dim(last, half));
    };
    const auto [a, b] = turned(part(0), part(1));
    return {cast(interleaved(a, b), x.dtype())};
  }
  return {cast(concat(turned(slice(wide, last, 0, half), slice(wide, last, half, width)), last), x.dtype())};
}

}  // namespace

void register_position_ops() {
  const AttrSpec base{.name = "base", .example = 10000.0, .doc = "of the wavelengths"};
  const auto width = [](std::int64_t number) { return Attrs{{"width", number}}; };
  register_op({
      .name = "sinusoidal_positions",
      .summary = "sin and cos of position / base^(2i / width), in turn along a new axis",
      .kind = OpKind::composed,
      .inputs = {"positions"},
      .attrs = {{.name = "width", .example = std::int64_t{0}, .required = true, .doc = "extent of the new axis"},
                base,
                {.name = "dtype", .example = f32, .doc = "the result's dtype"}},
      .compose = compose_sinusoidal,
      .cases = {{.shapes = {{5}}, .attrs = width(6), .dtypes = {i64}},
                {.shapes = {{2, 3}},
                 .attrs = {{"width", std::int64_t{4}}, {"base", 100.0}, {"dtype", f64}},
                 .dtypes = {i32}},
                {.shapes = {{3}}, .attrs = {{"width", std::int64_t{2}}, {"dtype", f64}}},
                {.shapes = {{}}, .attrs = width(4), .dtypes = {i64}},
                {.shapes = {{0}}, .attrs = width(4), .dtypes = {i64}},
                {.shapes = {{5}}, .attrs = width(5), .dtypes = {i64}, .error = "width = 5, needs to be even"},
                {.shapes = {{5}},
                 .attrs = width(10'000'000'000),
                 .dtypes = {i64},
                 .error = "width = 10000000000, the most is"},
                {.shapes = {{5}}, .attrs = {{"width", std::int64_t{4}}, {"base", 0.0}}, .error = "base = 0"},
                {.shapes = {{5}}, .attrs = {{"width", std::int64_t{4}}, {"dtype", i32}}, .error = "dtype is i32"}},
  });

  register_op({
      .name = "rotary_embedding",
      .summary = "pairs of elements of x turned by position base^(-2i / E)",
      .kind = OpKind::composed,
      .inputs = {"x", "positions"},
      .attrs = {base, {.name = "interleaved", .example = false, .doc = "pairs are neighbours, not halves"}},
      .compose = compose_rotary,
      .cases = {{.shapes = {{5, 6}, {5}}, .dtypes = {f32, i64}},
                {.shapes = {{2, 3, 4, 8}, {2, 1, 4}}, .attrs = {{"base", 100.0}}, .dtypes = {f32, i32}},
                {.shapes = {{2, 5, 6}, {5}}, .attrs = {{"interleaved", true}}, .dtypes = {f32, i64}},
                {.shapes = {{4, 2}, {}}},
                {.shapes = {{0, 4}, {}}, .dtypes = {f32, i64}},
                {.shapes = {{5, 7}, {5}}, .dtypes = {f32, i64}, .error = "its last extent must be even"},
                {.shapes = {{5, 6}, {4}}, .dtypes = {f32, i64}, .error = "positions have shape [4]"},
                {.shapes = {{5, 6}, {5}}, .dtypes = {i64, i64}, .error = "x is i64"},
                {.shapes = {{5, 6}, {5}}, .attrs = {{"base", -1.0}}, .dtypes = {f32, i64}, .error = "base = -1"}},
  });
}

Value sinusoidal_positions(const Value& positions, std::int64_t width, double base, DType dtype) {
  return call("sinusoidal_positions", {positions}, {{"width", width}, {"base", base}, {"dtype", dtype}});
}

Value rotary_embedding(const Value& x, const Value& positions, double base, bool interleaved) {
  return call("rotary_embedding", {x, positions}, {{"base", base}, {"interleaved", interleaved}});
}

}  // namespace paoding
