// SPDX-License-Identifier: Apache-2.0
// What the kernel texts of convolutions and pools share: windows over an image [N, C, H, W] of any strides.
#pragma once

#include <algorithm>
#include <string>

#include "gpu/text_kernel.h"
#include "ops/conv/window.h"

namespace paoding::gpu {

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
