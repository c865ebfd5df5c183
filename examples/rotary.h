// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al. 2021) as an op with a CUDA kernel of its own, for 11_own_cuda_kernel.cpp: pairs
// of elements are rotated by angles. Ops of the library define it; the gradient of x is the same op backwards, so one
// kernel does for both.
#pragma once

#include <string>
#include <vector>

#include "paoding/cuda_op.h"
#include "paoding/paoding.h"

namespace rotary_op {

namespace pd = paoding;
using Ints = std::vector<std::int64_t>;

// Element i of the first half of the last axis is rotated with element i of the second one.
inline pd::CudaText rotary_text() {
  return pd::CudaText(__FILE__, __LINE__, R"(
template <class T>
PD_DEVICE void rotate(const T* x, const T* angle, T* out, const Sizes& size) {
  const Index pair = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (pair >= size.pairs) return;
  const Index row = pair / size.half, i = pair % size.half, step = row % size.steps;
  const Compute<T> a = load_one<false>(angle + step * size.half + i) * (Compute<T>)size.sign;
  const T* const from = x + row * 2 * size.half + i;
  T* const to = out + row * 2 * size.half + i;
  const Compute<T> first = load_one<false>(from), second = load_one<false>(from + size.half), c = cos(a), s = sin(a);
  store_one(to, first * c - second * s);
  store_one(to + size.half, first * s + second * c);
}
)");
}

// x [.., T, 2 H] and angle [T, H].
inline pd::Values compose(std::span<const pd::Value> in, const pd::Attrs& attrs) {
  const pd::Value &x = in[0], &angle = in[1];
  const int last = x.shape().rank() - 1;
  if (last < 1 || angle.shape().rank() != 2 || x.shape()[last] != 2 * angle.shape()[1] ||
      x.shape()[last - 1] != angle.shape()[0] || x.dtype() != angle.dtype()) {
    throw pd::Error(pd::ErrorKind::shape, "my_rotary: x is " + to_string(x.type()) + " and angle " +
                                              to_string(angle.type()) + ", needed are [.., T, 2 H] and [T, H]");
  }
  const std::int64_t half = angle.shape()[1];
  const pd::Value first = slice(x, last, 0, half), second = slice(x, last, half, 2 * half);
  const pd::Value c = cos(angle), s = attrs.get_bool("inverse") ? -sin(angle) : sin(angle);
  return {pd::concat(std::vector<pd::Value>{first * c - second * s, first * s + second * c}, last)};
}

// With (y1, y2) the rotated pair, d y1 / d angle is -y2 and d y2 / d angle is y1.
inline pd::Values gradient(const pd::GradCall& call) {
  const pd::Value &y = call.outputs[0], &g = call.grads[0], &angle = call.inputs[1];
  const bool inverse = call.node.attrs.get_bool("inverse");
  pd::Value dx, dangle;
  if (call.wanted[0]) dx = pd::call("my_rotary", {g, angle}, {{"inverse", !inverse}});
  if (call.wanted[1]) {
    const int last = y.shape().rank() - 1;
    const std::int64_t half = angle.shape()[1];
    const auto part = [&](const pd::Value& of, int i) { return slice(of, last, i * half, (i + 1) * half); };
    const pd::Value turned = part(g, 1) * part(y, 0) - part(g, 0) * part(y, 1);
    dangle = inverse ? -turned : turned;  // summed over the leading axes by whoever asks
  }
  return {dx, dangle};
}

inline pd::CudaLaunch launch(const pd::CudaCall& call) {
  const pd::Shape& angle = call.inputs[1].shape;
  const std::int64_t pairs = call.inputs[0].shape.elements() / 2;
  return {.call = "rotate(x, angle, out, size)",
          .sizes = {{"pairs", pairs},
                    {"half", angle[1]},
                    {"steps", angle[0]},
                    {"sign", call.attrs.get_bool("inverse") ? -1 : 1}},
          .ctas = (pairs + 255) / 256,
          .threads = 256};
}

inline void register_rotary() {
  if (pd::find_op("my_rotary") != nullptr) return;
  pd::register_op({.name = "my_rotary",
                   .summary = "pairs of x rotated by angles that depend on their position",
                   .kind = pd::OpKind::composed,
                   .inputs = {"x", "angle"},
                   .attrs = {{.name = "inverse", .example = false, .doc = "by the negative angle"}},
                   .gradient = gradient,
                   .compose = compose,
                   .cases = {{.shapes = {{3, 8}, {3, 4}}},
                             {.shapes = {{2, 5, 6}, {5, 3}}, .attrs = {{"inverse", true}}},
                             {.shapes = {{0, 5, 6}, {5, 3}}},
                             {.shapes = {{2, 3, 40, 128}, {40, 64}}},
                             {.shapes = {{3, 8}, {3, 8}}, .error = "needed are [.., T, 2 H] and [T, H]"}}});
  pd::register_cuda_kernel("my_rotary", {.name = "rotate", .text = rotary_text(), .launch = launch});
}

inline pd::Value rotary(const pd::Value& x, const pd::Value& angle) { return pd::call("my_rotary", {x, angle}); }

}  // namespace rotary_op
