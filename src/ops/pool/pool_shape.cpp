// SPDX-License-Identifier: Apache-2.0
#include "ops/pool/pool_shape.h"

#include "base/check.h"

namespace paoding {
namespace {

PoolKind kind_of(const std::string& op) {
  if (op == "max_pool2d") return PoolKind::max_forward;
  if (op == "max_pool2d_grad") return PoolKind::max_grad;
  if (op == "max_pool2d_pick") return PoolKind::max_pick;
  if (op == "avg_pool2d") return PoolKind::avg_forward;
  PD_ASSERT(op == "avg_pool2d_grad", "a pool");
  return PoolKind::avg_grad;
}

PoolAxis axis_of(const WindowAxis& window, bool is_grad, bool counts_padding) {
  // Per position of the result: the taps that read an element, in order.
  const std::int64_t positions = is_grad ? window.size : window.outputs;
  std::vector<std::vector<PoolTap>> taps(static_cast<std::size_t>(positions));
  PoolAxis axis;
  for (std::int64_t o = 0; o < window.outputs; ++o) {
    int count = 0;
    for (std::int64_t k = 0; k < window.kernel; ++k) {
      const std::int64_t element = window.input(o, k);
      if (element < 0 || element >= window.size) continue;
      ++count;
      taps[static_cast<std::size_t>(is_grad ? element : o)].push_back(
          {static_cast<std::int32_t>(is_grad ? o : element), static_cast<std::int32_t>(k)});
    }
    axis.count.push_back(counts_padding ? static_cast<std::int32_t>(window.kernel) : count);
  }
  for (const auto& list : taps) {
    axis.first.push_back(static_cast<std::int32_t>(axis.taps.size()));
    axis.taps.insert(axis.taps.end(), list.begin(), list.end());
  }
  axis.first.push_back(static_cast<std::int32_t>(axis.taps.size()));
  return axis;
}

}  // namespace

PoolShape::PoolShape(const KernelCall& call) {
  kind = kind_of(call.op->name);
  const bool is_grad = kind == PoolKind::max_grad || kind == PoolKind::avg_grad;
  from = call.inputs[0];
  to = call.outputs[0];
  if (has_index()) index = kind == PoolKind::max_forward ? call.outputs[1] : call.inputs[1];
  dtype = from.type.dtype;
  batch = from.type.shape[0];
  channels = from.type.shape[1];
  const auto& kernel = call.attrs.get_ints("kernel");
  kernel_width = kernel[1];
  const Shape& image = is_grad ? to.type.shape : from.type.shape;
  const bool counts_padding = !has_index() && call.attrs.get_bool("count_padding");
  const auto windows = window_axes(call.attrs, {image[2], image[3]}, {kernel[0], kernel[1]});
  for (std::size_t i = 0; i < 2; ++i) axes[i] = axis_of(windows[i], is_grad, counts_padding);
}

}  // namespace paoding
