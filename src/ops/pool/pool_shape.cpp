// SPDX-License-Identifier: Apache-2.0
#include "ops/pool/pool_shape.h"

#include <algorithm>
#include <numeric>
#include <utility>

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

// The inverse of `number` modulo `modulus`; they have no divisor in common.
std::int64_t inverse_of(std::int64_t number, std::int64_t modulus) {
  std::int64_t rest = modulus, next_rest = number % modulus, inverse = 0, next_inverse = 1;
  while (next_rest != 0) {
    const std::int64_t times = rest / next_rest;
    rest = std::exchange(next_rest, rest - times * next_rest);
    inverse = std::exchange(next_inverse, inverse - times * next_inverse);
  }
  return inverse < 0 ? inverse + modulus : inverse;
}

}  // namespace

PoolAxis::PoolAxis(const WindowAxis& window, bool is_grad, bool counts_padding)
    : window_(window), is_grad_(is_grad), counts_padding_(counts_padding) {
  common_ = std::gcd(window.stride, window.dilation);
  inverse_ = inverse_of(window.stride / common_, window.dilation / common_);
  constexpr std::int64_t kMostLookedUp = 4096;
  const std::int64_t positions = std::min(is_grad ? window.size : window.outputs, kMostLookedUp);
  for (std::int64_t i = 0; i < positions; ++i) taps_.push_back(taps_of(i));
  for (std::int64_t o = 0; o < std::min(window.outputs, kMostLookedUp); ++o) counts_.push_back(count_of(o));
}

PoolTaps PoolAxis::taps_of(std::int64_t position) const {
  return is_grad_ ? taps_of_element(position) : taps_of_window(position);
}

std::int64_t PoolAxis::count_of(std::int64_t window) const {
  return counts_padding_ ? window_.kernel : taps_of_window(window).count;
}

// The taps with which the window at o reads the image.
PoolTaps PoolAxis::taps_of_window(std::int64_t o) const {
  const std::int64_t start = window_.input(o, 0);
  const std::int64_t first = start >= 0 ? 0 : (-start + window_.dilation - 1) / window_.dilation;
  const std::int64_t end =
      start >= window_.size ? 0 : std::min((window_.size - 1 - start) / window_.dilation + 1, window_.kernel);
  return {{window_.input(o, first), first}, {window_.dilation, 1}, std::max<std::int64_t>(end - first, 0)};
}

// The windows, in order, that read the element, and with which taps: one in so many windows, as stride and dilation
// have divisors in common.
PoolTaps PoolAxis::taps_of_element(std::int64_t element) const {
  const PoolTap step{window_.dilation / common_, -(window_.stride / common_)};
  const std::int64_t place = element + window_.before;  // = o * stride + tap * dilation
  if (place % common_ != 0) return {};
  const std::int64_t reach = window_.dilation * (window_.kernel - 1);
  const std::int64_t least = place <= reach ? 0 : (place - reach + window_.stride - 1) / window_.stride;
  const std::int64_t last = std::min(place / window_.stride, window_.outputs - 1);
  // The first window from `least` on that leaves a multiple of the dilation.
  const std::int64_t remainder = place / common_ % step.other * inverse_ % step.other;
  const std::int64_t o = least + (remainder + step.other - least % step.other) % step.other;
  if (o > last) return {};
  return {{o, (place - o * window_.stride) / window_.dilation}, step, (last - o) / step.other + 1};
}

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
  for (std::size_t i = 0; i < 2; ++i) axes[i] = PoolAxis(windows[i], is_grad, counts_padding);
  is_side_by_side = axes[0].is_side_by_side() && axes[1].is_side_by_side();
}

}  // namespace paoding
