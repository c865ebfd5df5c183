// SPDX-License-Identifier: Apache-2.0
// What the kernel texts of convolutions and pools share: windows over an image [N, C, H, W] of any strides.
#pragma once

#include <algorithm>
#include <string>

#include "gpu/text_kernel.h"
#include "ops/conv/window.h"

namespace paoding::gpu {

/// Text: Window, taps_of, window_of. Needs Index.
inline constexpr std::string_view kWindowText = R"cuda(
struct Window { Index size, kernel, stride, dilation, before, outputs; };

// The taps [first, last) with which the window at o reads the image.
struct Taps { Index first, last; };
PD_DEVICE Taps taps_of(const Window& w, Index o) {
  const Index start = o * w.stride - w.before;
  Taps taps;
  taps.first = start >= 0 ? 0 : (w.dilation - 1 - start) / w.dilation;
  taps.last = start >= w.size ? 0 : (w.size - 1 - start) / w.dilation + 1;
  if (taps.last > w.kernel) taps.last = w.kernel;
  if (taps.first > taps.last) taps.first = taps.last;
  return taps;
}

// Where tap k of the window at o reads.
PD_DEVICE Index element_of(const Window& w, Index o, Index k) { return o * w.stride + k * w.dilation - w.before; }

// The window that reads element h with tap k, -1 where there is none.
PD_DEVICE Index window_of(const Window& w, Index h, Index k) {
  const Index moved = h + w.before - k * w.dilation;
  if (moved < 0 || moved % w.stride != 0) return -1;
  const Index o = moved / w.stride;
  return o < w.outputs ? o : -1;
}
)cuda";

/// The sizes of a window axis, and in the text a Window of them: "vertical" is made of size.vertical_size and so on.
inline std::string add_window(SizeFields* sizes, const std::string& name, const WindowAxis& axis) {
  const std::pair<const char*, std::int64_t> fields[] = {{"_size", axis.size},     {"_kernel", axis.kernel},
                                                         {"_stride", axis.stride}, {"_dilation", axis.dilation},
                                                         {"_before", axis.before}, {"_outputs", axis.outputs}};
  std::string text = "const Window " + name + "{";
  for (const auto& [field, value] : fields) {
    text += (text.ends_with('{') ? "" : ", ") + sizes->number(name + field, value);
  }
  return text + "};\n";
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
