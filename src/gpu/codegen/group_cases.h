// SPDX-License-Identifier: Apache-2.0
// Groups that tests of the GPU back end run or compile: the fused kernels of real models, and random ones.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "group/group.h"

namespace paoding::gpu {

using Strides = std::vector<std::int64_t>;

inline Strides dense(const Strides& extents, std::uint32_t reduced = 0) {
  Strides strides(extents.size(), 0);
  std::int64_t step = 1;
  for (std::size_t a = extents.size(); a-- > 0;) {
    if ((reduced >> a) & 1u) continue;
    strides[a] = step;
    step *= extents[a];
  }
  return strides;
}

inline GroupOutput sum_output(const Group& group, DType dtype, Scalar value, std::uint32_t mask) {
  return {dtype, value.id(), mask, mask ? Combine::sum : Combine::none, dense(group.extents, mask)};
}

/// out_k = sum over masks[k] of x, for one load.
inline Group sums(Strides extents, DType dtype, std::vector<std::uint32_t> masks) {
  Group group;
  group.extents = std::move(extents);
  group.loads = {{dtype, dense(group.extents)}};
  const Scalar x = make_input(&group.expr, 0, compute_dtype(dtype));
  for (const std::uint32_t mask : masks) group.outputs.push_back(sum_output(group, dtype, x, mask));
  return group;
}

/// One reduction of each kind over `mask`, of x and of x < 0.
inline Group reductions(Strides extents, DType dtype, std::uint32_t mask) {
  Group group;
  group.extents = std::move(extents);
  group.loads = {{dtype, dense(group.extents)}};
  const Scalar x = make_input(&group.expr, 0, compute_dtype(dtype));
  const auto add = [&](DType stored, Scalar value, Combine combine) {
    group.outputs.push_back(sum_output(group, stored, value, mask));
    group.outputs.back().combine = combine;
  };
  for (const Combine combine : {Combine::sum, Combine::max, Combine::min}) add(dtype, x, combine);
  // Products stay near 1.
  add(dtype, is_float(dtype) ? 1.0 + x * 0.0625 : select(x < 1.0, x.constant(1), x.constant(-1)), Combine::prod);
  const Scalar low = x < (is_float(dtype) ? -0.9 : 1.0);
  add(boolean, low, Combine::max);
  add(boolean, low, Combine::min);
  return group;
}

/// dx = (1 - w) dout, dy = w dout; masks < 0 leave the output away.
inline Group lerp_grad(Strides extents, DType dtype, Strides w, int dx_mask, int dy_mask) {
  Group group;
  group.extents = std::move(extents);
  group.loads = {{dtype, dense(group.extents)}, {dtype, std::move(w)}};
  const Scalar dout = make_input(&group.expr, 0, compute_dtype(dtype));
  const Scalar weight = make_input(&group.expr, 1, compute_dtype(dtype));
  if (dx_mask >= 0)
    group.outputs.push_back(sum_output(group, dtype, dout * (1.0 - weight), static_cast<std::uint32_t>(dx_mask)));
  if (dy_mask >= 0)
    group.outputs.push_back(sum_output(group, dtype, dout * weight, static_cast<std::uint32_t>(dy_mask)));
  return group;
}

/// x + w (y - x), each with its own strides.
inline Group lerp(Strides extents, DType dtype, Strides x, Strides y, Strides w) {
  Group group;
  group.extents = std::move(extents);
  group.loads = {{dtype, std::move(x)}, {dtype, std::move(y)}, {dtype, std::move(w)}};
  const DType compute = compute_dtype(dtype);
  const Scalar from = make_input(&group.expr, 0, compute), to = make_input(&group.expr, 1, compute);
  group.outputs = {sum_output(group, dtype, from + make_input(&group.expr, 2, compute) * (to - from), 0)};
  return group;
}

/// A group over x [rows, channels] and `count` values of every channel, f32: x - v0 - v1 .., as it is or, over the
/// rows, its sum and its square's.
inline Group by_channel(Strides extents, DType dtype, int count, bool is_summed) {
  Group group;
  group.extents = std::move(extents);
  group.loads = {{dtype, dense(group.extents)}};
  Scalar left = make_input(&group.expr, 0, f32);
  for (int k = 1; k <= count; ++k) {
    group.loads.push_back({f32, {0, 1}});
    left = left - make_input(&group.expr, k, f32);
  }
  if (is_summed)
    group.outputs = {sum_output(group, f32, left, 1), sum_output(group, f32, left * left, 1)};
  else
    group.outputs = {sum_output(group, dtype, left, 0)};
  return group;
}

/// h = o tanh(c'), c' = f c + i g, from one row of gates [B, 4H] and c.
inline Group lstm_gates(std::int64_t batch, std::int64_t hidden) {
  Group group;
  group.extents = {batch, hidden};
  for (int k = 0; k < 4; ++k) group.loads.push_back({f32, {4 * hidden, 1}});
  group.loads.push_back({f32, {hidden, 1}});
  auto in = [&](int k) { return make_input(&group.expr, k, f32); };
  const Scalar c = sigmoid(in(1)) * in(4) + sigmoid(in(0)) * tanh(in(2));
  group.outputs = {sum_output(group, f32, sigmoid(in(3)) * tanh(c), 0), sum_output(group, f32, c, 0)};
  return group;
}

// ---- Groups with own reductions ----

inline Scalar reduced(Group* group, Scalar value, Combine combine, std::uint32_t mask) {
  const auto r = static_cast<std::int32_t>(group->reductions.size());
  group->reductions.push_back({value.id(), combine, mask});
  return {&group->expr, group->expr.add({Prim::reduced, value.dtype(), {-1, -1, -1}, r, 0})};
}

inline double points_along(const Group& group, std::uint32_t mask) {
  double points = 1;
  for (std::size_t a = 0; a < group.extents.size(); ++a) {
    if ((mask >> a) & 1u) points *= double(group.extents[a]);
  }
  return points;
}

/// softmax over `mask`, and the logarithm of the sum, one per row.
inline Group softmax(Strides extents, DType dtype, std::uint32_t mask) {
  Group group;
  group.extents = std::move(extents);
  group.loads = {{dtype, dense(group.extents)}};
  const Scalar x = make_input(&group.expr, 0, compute_dtype(dtype));
  const Scalar most = reduced(&group, x, Combine::max, mask);
  const Scalar power = exp(x - most);
  const Scalar sum = reduced(&group, power, Combine::sum, mask);
  group.outputs = {sum_output(group, dtype, power / sum, 0), sum_output(group, dtype, most + log(sum), mask)};
  group.outputs[1].combine = Combine::none;
  return group;
}

/// The loss of every row and its gradient, for logits [rows, classes] and the number of each row's class; with a bias
/// [classes] that the logits still want.
inline Group cross_entropy(std::int64_t rows, std::int64_t classes, DType dtype, bool has_bias = false) {
  Group group;
  group.extents = {rows, classes};
  group.loads = {{dtype, {classes, 1}}, {i64, {1, 0}}, {dtype, {1, 0}}};
  group.indices = {{i64, 0, {0, 1}}};
  const DType compute = compute_dtype(dtype);
  const Scalar logit = make_input(&group.expr, 0, compute), label = make_input(&group.expr, 1, i64);
  const Scalar seed = make_input(&group.expr, 2, compute);
  if (has_bias) group.loads.push_back({dtype, {0, 1}});
  const Scalar x = has_bias ? logit + make_input(&group.expr, 3, compute) : logit;
  const Scalar column(&group.expr, group.expr.add({Prim::index, i64, {-1, -1, -1}, 0, 0}));
  const Scalar is_label = equal(column, label);
  const Scalar most = reduced(&group, x, Combine::max, 2);
  const Scalar chosen = reduced(&group, select(is_label, x, x.constant(0)), Combine::sum, 2);
  const Scalar total = most + log(reduced(&group, exp(x - most), Combine::sum, 2));
  const Scalar target = select(is_label, x.constant(1), x.constant(0));
  group.outputs = {sum_output(group, dtype, total - chosen, 2),
                   sum_output(group, dtype, seed * (exp(x - total) - target), 0)};
  group.outputs[0].combine = Combine::none;
  return group;
}

/// (x - mean) / sqrt(variance + eps) * gamma + beta over `mask`; gamma and beta move along it only.
inline Group layer_norm(Strides extents, DType dtype, std::uint32_t mask) {
  Group group;
  group.extents = std::move(extents);
  const std::uint32_t rows = ((1u << group.rank()) - 1) & ~mask;
  const Strides places = dense(group.extents, rows);
  group.loads = {{dtype, dense(group.extents)}, {dtype, places}, {dtype, places}};
  const DType compute = compute_dtype(dtype);
  const Scalar x = make_input(&group.expr, 0, compute);
  const double share = 1 / points_along(group, mask);
  const Scalar off = x - reduced(&group, x, Combine::sum, mask) * share;
  const Scalar scale = rsqrt(reduced(&group, off * off, Combine::sum, mask) * share + 1e-5);
  const Scalar out = off * scale * make_input(&group.expr, 1, compute) + make_input(&group.expr, 2, compute);
  group.outputs = {sum_output(group, dtype, out, 0)};
  return group;
}

/// dx, dgamma, dbeta from dy, x, gamma and the row's mean and 1 / deviation.
inline Group layer_norm_grad(Strides extents, DType dtype, std::uint32_t mask) {
  Group group;
  group.extents = std::move(extents);
  const std::uint32_t rows = ((1u << group.rank()) - 1) & ~mask;
  const Strides whole = dense(group.extents), places = dense(group.extents, rows), of_row = dense(group.extents, mask);
  group.loads = {{dtype, whole}, {dtype, whole}, {dtype, places}, {dtype, of_row}, {dtype, of_row}};
  const auto in = [&](int i) { return make_input(&group.expr, i, compute_dtype(dtype)); };
  const double share = 1 / points_along(group, mask);
  const Scalar dy = in(0), unit = (in(1) - in(3)) * in(4), g = dy * in(2);
  const Scalar a = reduced(&group, g, Combine::sum, mask), b = reduced(&group, g * unit, Combine::sum, mask);
  group.outputs = {sum_output(group, dtype, (g - (a + unit * b) * share) * in(4), 0),
                   sum_output(group, dtype, dy * unit, rows), sum_output(group, dtype, dy, rows)};
  return group;
}

inline constexpr DType kFloats[] = {f32, bf16, f16, f64};

/// One to four extents, some of `sizes` or halves of them, of at most `most` points.
inline Strides random_extents(std::mt19937& rng, std::initializer_list<std::int64_t> sizes, std::int64_t most) {
  Strides extents;
  std::int64_t points = 1;
  for (auto rank = 1 + rng() % 4; rank > 0; --rank) {
    std::int64_t extent = sizes.begin()[rng() % sizes.size()];
    while (points * extent > most) extent = std::max<std::int64_t>(1, extent / 2);
    points *= extent;
    extents.push_back(extent);
  }
  return extents;
}

inline Group random_group(std::mt19937& rng) {
  auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  Group group;
  group.extents = random_extents(rng, {2, 3, 4, 5, 7, 8, 16, 31, 33, 64, 100, 129, 256, 300}, 60000);
  const int rank = group.rank();
  const DType dtype = pick(8) == 0 ? i32 : pick(10) == 0 ? i64 : kFloats[pick(4)];
  const DType compute = compute_dtype(dtype);
  Scalar value;
  const int loads = 1 + pick(3);
  for (int i = 0; i < loads; ++i) {
    const DType stored = is_float(dtype) && pick(4) == 0 && dtype != f64 ? kFloats[pick(3)] : dtype;
    Strides strides = dense(group.extents, i == 0 ? 0 : static_cast<std::uint32_t>(rng() % (1u << rank)));
    if (pick(5) == 0) {  // a slice of something wider
      for (std::size_t a = 0; a + 1 < strides.size(); ++a) strides[a] *= 2;
    }
    if (pick(8) == 0 && rank == 2) strides = {1, group.extents[0]};  // transposed
    for (std::size_t a = 0; a < strides.size(); ++a) {
      if (pick(8) == 0) strides[a] = -strides[a];  // flipped
    }
    group.loads.push_back({stored, strides});
    Scalar x = make_input(&group.expr, i, compute_dtype(stored));
    if (i == 0)
      value = x;
    else if (i == 1)
      value = value * x;
    else
      value = value + x;
  }
  if (pick(4) == 0) {  // a number of the point
    GroupIndex index{pick(2) ? i64 : i32, pick(100) - 50, {}};
    for (int a = 0; a < rank; ++a) index.strides.push_back(pick(3) - 1);
    if (pick(4) == 0) index.start = std::int64_t{1} << 40, index.dtype = i64;
    group.indices.push_back(index);
    const Scalar number(&group.expr, group.expr.add({Prim::index, index.dtype, {-1, -1, -1}, 0, 0}));
    const Scalar used = convert(select(number < 40.0, number, number.constant(1)), compute);
    value = value + (is_float(compute) ? used * 0x1p-9 : used);  // so that sums stay in the range of f16
  }
  const int outputs = 1 + pick(3);
  for (int o = 0; o < outputs; ++o) {
    const std::uint32_t mask = pick(3) == 0 ? 0 : static_cast<std::uint32_t>(rng() % (1u << rank));
    Scalar v = o == 0 ? value : o == 1 ? value + value : value * value;
    if (compute == f32 && pick(3) == 0) v = o == 0 ? tanh(v) : sigmoid(v);
    const DType stored = is_float(dtype) && dtype != f64 && pick(3) == 0 ? kFloats[pick(3)] : dtype;
    group.outputs.push_back(sum_output(group, stored, v, mask));
    GroupOutput& output = group.outputs.back();
    if (mask != 0 && pick(3) == 0) output.combine = pick(2) ? Combine::max : Combine::min;
  }
  return group;
}

inline Group random_staged_group(std::mt19937& rng) {
  auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  Group group;
  group.extents = random_extents(rng, {2, 3, 5, 8, 16, 31, 33, 64, 100, 129, 256, 300, 1000, 2050}, 40000);
  const int rank = group.rank();
  const std::uint32_t all = (1u << rank) - 1;
  const auto mask = static_cast<std::uint32_t>(1 + pick(static_cast<int>(all)));
  const DType dtype = kFloats[pick(4)], compute = compute_dtype(dtype);
  const int loads = 1 + pick(3);
  std::vector<Scalar> in;
  for (int i = 0; i < loads; ++i) {
    const DType stored = pick(4) == 0 && dtype != f64 ? kFloats[pick(3)] : dtype;
    const std::uint32_t broadcast = i == 0 || pick(3) == 0 ? 0 : pick(2) ? mask : all & ~mask;
    Strides strides = dense(group.extents, broadcast);
    if (pick(6) == 0) strides[static_cast<std::size_t>(pick(rank))] *= pick(2) ? -1 : 2;
    group.loads.push_back({stored, strides});
    in.push_back(make_input(&group.expr, i, compute));
  }
  Scalar value = in[0];
  for (int i = 1; i < loads; ++i)
    value = pick(2) ? value * in[static_cast<std::size_t>(i)] : value + in[static_cast<std::size_t>(i)];
  if (pick(3) == 0) {
    GroupIndex index{pick(2) ? i64 : i32, pick(9), {}};
    for (int a = 0; a < rank; ++a) index.strides.push_back(pick(2));
    group.indices.push_back(index);
    const Scalar number(&group.expr, group.expr.add({Prim::index, index.dtype, {-1, -1, -1}, 0, 0}));
    value = value + convert(number, compute) * 0x1p-8;
  }
  // Up to three stages with one or two reductions each.
  const double share = 1 / points_along(group, mask);
  Scalar last = value;
  const int stages = 1 + pick(3);
  for (int stage = 0; stage < stages; ++stage) {
    const Combine combine = pick(3) == 0 ? Combine::max : pick(3) == 0 ? Combine::min : Combine::sum;
    Scalar off = last - reduced(&group, last, combine, mask) * (combine == Combine::sum ? share : 0.5);
    if (pick(3) == 0) off = off + reduced(&group, last * last, Combine::sum, mask) * share;
    last = tanh(off);
  }
  const std::uint32_t masks[] = {0, mask, mask, all, all & ~mask};
  const int outputs = 1 + pick(3);
  for (int o = 0; o < outputs; ++o) {
    const int kind = o == 0 && pick(2) ? 0 : pick(5);
    const DType stored = dtype != f64 && pick(3) == 0 ? kFloats[pick(3)] : dtype;
    Scalar v = o == 1 ? last + in[0] : last;
    if (kind == 1) v = Scalar(&group.expr, group.expr.add({Prim::reduced, compute, {-1, -1, -1}, 0, 0})) * 0.5;
    group.outputs.push_back(sum_output(group, stored, v, masks[kind]));
    GroupOutput& output = group.outputs.back();
    if (kind == 1) {
      output.combine = Combine::none;
    } else if (output.reduce_mask != 0 && pick(4) == 0) {
      output.combine = pick(2) ? Combine::max : Combine::min;
    }
  }
  return group;
}

}  // namespace paoding::gpu
