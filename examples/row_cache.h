// SPDX-License-Identifier: Apache-2.0
// A cache of rows, of which a step writes one, as an op for 15_own_cache.cpp. The block declares the op's cost, and
// that its result lies where the cache does, so that nothing but the row is moved; a CUDA kernel claims it on a GPU.
#pragma once

#include <string>

#include "paoding/cuda_op.h"
#include "paoding/paoding.h"

namespace row_cache {

namespace pd = paoding;

// `cache` and `out` are one memory: the other rows are there already.
inline pd::CudaText text() {
  return pd::CudaText(__FILE__, __LINE__, R"(
template <class T>
PD_DEVICE void write_row(const T* row, const long long* position, T* out, const Sizes& size) {
  const Index i = (Index)blockIdx.x * kThreads + threadIdx.x;
  const long long at = *position;
  if (i < size.width && at >= 0 && at < size.rows) store_one(out + at * size.width + i, load_one<false>(row + i));
}
)");
}

// Bools [T, 1]: whether it is the row.
inline pd::Value is_row(const pd::Value& cache, const pd::Value& position) {
  return equal(pd::iota(cache.graph(), {cache.shape()[0], 1}, 0, pd::i64), position);
}

// cache [T, W], row [W] and position i64[]; a position that is none of the cache's writes nothing.
inline pd::Values compose(std::span<const pd::Value> in, const pd::Attrs&) {
  const pd::Value &cache = in[0], &row = in[1], &position = in[2];
  const bool fits = cache.shape().rank() == 2 && row.shape() == pd::Shape{cache.shape()[1]} &&
                    row.dtype() == cache.dtype() && position.type() == pd::Type{pd::i64, {}};
  if (!fits) {
    throw pd::Error(pd::ErrorKind::shape, "my_write_row: cache is " + to_string(cache.type()) + ", row " +
                                              to_string(row.type()) + " and position " + to_string(position.type()) +
                                              ", needed are [T, W], [W] and i64[]");
  }
  return {select(is_row(cache, position), row, cache)};
}

inline pd::Values gradient(const pd::GradCall& call) {
  const pd::Value mine = is_row(call.inputs[0], call.inputs[2]), &g = call.grads[0];
  return {where(mine, 0, g), pd::sum(where(mine, g, 0), std::array<std::int64_t, 1>{0}), pd::Value()};
}

// It reads the row and writes it, however large the cache is, and takes no longer than that.
inline pd::OpCost cost(const pd::CostCall& call) {
  return {.bytes = 2 * size_bytes(call.inputs[1]) + size_bytes(call.inputs[2]), .bounds_time = true};
}

inline pd::CudaLaunch launch(const pd::CudaCall& call) {
  const pd::Shape& cache = call.inputs[0].shape;
  return {.call = "write_row(row, position, out, size)",
          .sizes = {{"rows", cache[0]}, {"width", cache[1]}},
          .ctas = (cache[1] + 255) / 256};
}

inline void register_write_row() {
  if (pd::find_op("my_write_row") != nullptr) return;
  pd::register_op({.name = "my_write_row",
                   .summary = "cache with row in place of that at position",
                   .kind = pd::OpKind::composed,
                   .inputs = {"cache", "row", "position"},
                   .cost = cost,
                   .aliases = {{.result = 0, .input = 0}},
                   .gradient = gradient,
                   .compose = compose});
  pd::register_cuda_kernel("my_write_row", {.name = "write_row", .text = text(), .launch = launch});
}

inline pd::Value write_row(const pd::Value& cache, const pd::Value& row, const pd::Value& position) {
  return pd::call("my_write_row", {cache, row, position});
}

}  // namespace row_cache
