// SPDX-License-Identifier: Apache-2.0
#include "ops/pool/pool_shape.h"

#include <algorithm>
#include <numeric>

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

// The taps with which the window at o reads the image.
PoolTaps taps_of_window(const WindowAxis& window, std::int64_t o) {
  const std::int64_t start = window.input(o, 0);
  const std::int64_t first = start >= 0 ? 0 : (-start + window.dilation - 1) / window.dilation;
  const std::int64_t end =
      start >= window.size ? 0 : std::min((window.size - 1 - start) / window.dilation + 1, window.kernel);
  return {{window.input(o, first), first}, {window.dilation, 1}, std::max<std::int64_t>(end - first, 0)};
}

// The windows, in order, that read the element, and with which taps: one in so many windows, as stride and dilation
// have divisors in common.
PoolTaps taps_of_element(const WindowAxis& window, std::int64_t element) {
  const std::int64_t common = std::gcd(window.stride, window.dilation);
  const PoolTap step{window.dilation / common, -(window.stride / common)};
  const std::int64_t place = element + window.before;  // = o * stride + tap * dilation
  const std::int64_t reach = window.dilation * (window.kernel - 1);
  std::int64_t o = place <= reach ? 0 : (place - reach + window.stride - 1) / window.stride;
  const std::int64_t last = std::min(place / window.stride, window.outputs - 1);
  for (const std::int64_t end = o + step.other; o < end && (place - o * window.stride) % window.dilation != 0;) ++o;
  if (o > last || (place - o * window.stride) % window.dilation != 0) return {};
  return {{o, (place - o * window.stride) / window.dilation}, step, (last - o) / step.other + 1};
}

PoolAxis axis_of(const WindowAxis& window, bool is_grad, bool counts_padding) {
  PoolAxis axis;
  for (std::int64_t o = 0; o < window.outputs; ++o) {
    const PoolTaps taps = taps_of_window(window, o);
    axis.count.push_back(counts_padding ? window.kernel : taps.count);
    if (!is_grad) axis.taps.push_back(taps);
  }
  for (std::int64_t element = 0; is_grad && element < window.size; ++element) {
    axis.taps.push_back(taps_of_element(window, element));
  }
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
