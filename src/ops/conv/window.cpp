// SPDX-License-Identifier: Apache-2.0
#include "ops/conv/window.h"

#include <algorithm>

#include "base/check.h"

namespace paoding {
namespace {

constexpr std::int64_t kMostWindowExtent = std::int64_t{1} << 30;  // products and sums of two of them fit

std::array<WindowAxis, 2> axes_of(const Attrs& attrs, std::array<std::int64_t, 2> size,
                                  std::array<std::int64_t, 2> kernel) {
  const auto &stride = attrs.get_ints("stride"), &padding = attrs.get_ints("padding"),
             &dilation = attrs.get_ints("dilation");
  std::array<WindowAxis, 2> axes;
  for (std::size_t i = 0; i < 2; ++i) {
    axes[i] = {size[i], kernel[i], stride[i], dilation[i], padding[2 * i], padding[2 * i + 1], 0};
    const std::int64_t free = size[i] + axes[i].before + axes[i].after - axes[i].dilation * (kernel[i] - 1) - 1;
    axes[i].outputs = free < 0 ? 0 : free / stride[i] + 1;
  }
  return axes;
}

void check_range(const OpCall& call, const Attrs& attrs, const char* name, std::size_t count, std::int64_t least) {
  const auto& values = attrs.get_ints(name);
  if (values.size() != count) {
    call.fail(ErrorKind::argument, fmt::format("{} has {} numbers, it takes {}", name, values.size(), count));
  }
  for (std::int64_t value : values) {
    if (value < least || value > kMostWindowExtent) {
      call.fail(ErrorKind::argument, fmt::format("{} is [{}]; every number must be from {} to {}", name,
                                                 fmt::join(values, ", "), least, kMostWindowExtent));
    }
  }
}

}  // namespace

std::pair<std::int64_t, std::int64_t> WindowAxis::outputs_of(std::int64_t k) const {
  const std::int64_t shift = k * dilation - before;  // input = o * stride + shift
  const std::int64_t first = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
  const std::int64_t end = size <= shift ? 0 : (size - shift - 1) / stride + 1;
  return {std::min(first, outputs), std::clamp(end, std::min(first, outputs), outputs)};
}

std::array<WindowAxis, 2> window_axes(const OpCall& call, const Attrs& attrs, std::array<std::int64_t, 2> size,
                                      std::array<std::int64_t, 2> kernel) {
  check_range(call, attrs, "stride", 2, 1);
  check_range(call, attrs, "padding", 4, 0);
  check_range(call, attrs, "dilation", 2, 1);
  for (std::size_t i = 0; i < 2; ++i) {
    const char* axis = i == 0 ? "height" : "width";
    if (kernel[i] < 1 || kernel[i] > kMostWindowExtent / attrs.get_ints("dilation")[i]) {
      call.fail(ErrorKind::shape, fmt::format("the {} of the kernel is {}, of dilation {}; it must be from 1 to {}",
                                              axis, kernel[i], attrs.get_ints("dilation")[i], kMostWindowExtent));
    }
    if (size[i] < 0 || size[i] > kMostWindowExtent) {
      call.fail(ErrorKind::shape,
                fmt::format("the {} of the image is {}; it must be from 0 to {}", axis, size[i], kMostWindowExtent));
    }
  }
  const auto axes = axes_of(attrs, size, kernel);
  for (std::size_t i = 0; i < 2; ++i) {
    if (axes[i].outputs > 0) continue;
    call.fail(ErrorKind::shape,
              fmt::format("the {} of the result would be 0: {} pixels, padded with {} and {}, are fewer than the {} "
                          "that {} taps of dilation {} span",
                          i == 0 ? "height" : "width", axes[i].size, axes[i].before, axes[i].after,
                          axes[i].dilation * (axes[i].kernel - 1) + 1, axes[i].kernel, axes[i].dilation));
  }
  return axes;
}

std::array<WindowAxis, 2> window_axes(const Attrs& attrs, std::array<std::int64_t, 2> size,
                                      std::array<std::int64_t, 2> kernel) {
  return axes_of(attrs, size, kernel);
}

std::vector<AttrSpec> window_attr_specs() {
  using Ints = std::vector<std::int64_t>;
  return {{.name = "stride", .example = Ints{1, 1}, .doc = "steps of the window, vertical and horizontal"},
          {.name = "padding", .example = Ints{0, 0, 0, 0}, .doc = "at the top, bottom, left, right"},
          {.name = "dilation", .example = Ints{1, 1}, .doc = "distance between taps"}};
}

}  // namespace paoding
