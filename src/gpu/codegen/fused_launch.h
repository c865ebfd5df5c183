// SPDX-License-Identifier: Apache-2.0
// A launch that does the work of several kernels: side by side (grouped_launch.h) or one after the other
// (vertical_launch.h). The sources are those of the kernels alone, as functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "gpu/codegen/text_launch.h"

namespace paoding::gpu {

class FusedLaunch {
 public:
  virtual ~FusedLaunch() = default;

  /// The launch has no operands: their addresses are among the sizes, which place() fills in.
  const TextLaunch& launch() const { return launch_; }
  /// Called before the launch starts; `operands` as the member alone would get them.
  virtual void place(std::size_t member, void* const* operands, void* workspace, void* tickets) = 0;

 protected:
  /// The source with the name that follows from it in place of "$entry".
  void name_entry(std::string_view prefix, const std::string& text);

  TextLaunch launch_;
};

/// Every kernel of our own begins with this source, which ends after its launch bounds' opening parenthesis.
inline constexpr std::string_view kKernelHead = "extern \"C\" __global__ void __launch_bounds__(";

void replace_all(std::string* text, std::string_view what, std::string_view by);

/// The kernel's own source inside a fused launch, which is the part after the prelude.
std::string_view own_text(const TextLaunch& launch);
/// The kernel as a function `run` that is told which CTA it is.
std::string as_function(std::string_view own);

/// The source of `struct AnyPointer`, which converts to a pointer of the type that its parameter has.
std::string_view any_pointer_text();

}  // namespace paoding::gpu
