// SPDX-License-Identifier: Apache-2.0
// The common part of the kernel sources of convolutions and pools: windows over an image [N, C, H, W] of any strides.
#pragma once

#include <algorithm>
#include <array>
#include <string>

#include "gpu/codegen/text_kernel.h"
#include "ops/conv/window.h"

namespace paoding::gpu {

/// The sizes of a window axis, and in the source a Window of them: "vertical" is made of size.vertical_size and so on.
/// Small windows may be constants in the source, by which it then divides and unrolls.
inline std::string add_window(SizeFields* sizes, const std::string& name, const WindowAxis& axis,
                              bool has_numbers = false) {
  constexpr std::int64_t kMostUnrolled = 8;
  has_numbers &= std::max({axis.kernel, axis.stride, axis.dilation, axis.before}) <= kMostUnrolled;
  const auto small = [&](const char* field, std::int64_t value) {
    return has_numbers ? std::to_string(value) : sizes->number(name + field, value);
  };
  return fmt::format("const Window {}{{{}, {}, {}, {}, {}, {}}};\n", name, sizes->number(name + "_size", axis.size),
                     small("_kernel", axis.kernel), small("_stride", axis.stride), small("_dilation", axis.dilation),
                     small("_before", axis.before), sizes->number(name + "_outputs", axis.outputs));
}

/// The constants kKernelH, kStrideH, kBeforeH, and the same of W.
inline std::string window_constants(const std::array<WindowAxis, 2>& windows) {
  std::string text;
  for (std::size_t i = 0; i < 2; ++i) {
    const char axis = "HW"[i];
    text += fmt::format("constexpr int kKernel{0} = {1}, kStride{0} = {2}, kBefore{0} = {3};\n", axis,
                        windows[i].kernel, windows[i].stride, windows[i].before);
  }
  return text;
}

/// The most channels of an image, up to 16 bytes of them, that can be moved at once where groups have `channels`.
inline int channels_at_once(const Layout& image, std::int64_t alignment, std::int64_t channels) {
  const std::int64_t size = size_bytes(image.type.dtype);
  for (std::int64_t count = 16 / size; count > 1; count /= 2) {
    bool fits = image.strides[1] == 1 && channels % count == 0 && alignment % (count * size) == 0;
    for (const int axis : {0, 2, 3}) {
      fits &= image.type.shape[axis] == 1 || image.strides[static_cast<std::size_t>(axis)] % count == 0;
    }
    if (fits) return static_cast<int>(count);
  }
  return 1;
}

/// Why threads that have `piece` channels side by side cannot go through an image; empty when they can.
inline std::string pieces_refusal(const Layout& image, std::int64_t alignment, std::int64_t channels,
                                  std::int64_t piece) {
  if (channels_at_once(image, alignment, channels) < piece) return "an image's channels do not lie in whole pieces";
  if (needs_wide_index(reach_of(image))) return "offsets of 64 bits";
  return "";
}

/// The strides of an image as name_n, name_c, name_h, name_w; zeros where there is none.
inline void add_strides(SizeFields* sizes, const std::string& name, const Layout& layout) {
  const char* const axes[] = {"_n", "_c", "_h", "_w"};
  for (std::size_t i = 0; i < 4; ++i) {
    sizes->number(name + axes[i], layout.type.shape.rank() == 4 ? layout.strides[i] : 0);
  }
}

/// The largest number that positions along the axis come to.
inline std::int64_t reach_of(const WindowAxis& axis) {
  return std::max(axis.outputs * axis.stride + axis.kernel * axis.dilation, axis.size + axis.before);
}

}  // namespace paoding::gpu
