// SPDX-License-Identifier: Apache-2.0
// Kernel ops computed by CUDA source of our own: how a source is put together, how a call is translated, how an op is
// registered. As with groups the source depends on the shape class only; extents and strides are arguments.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/codegen/text_launch.h"
#include "gpu/codegen/text_pieces.h"
#include "ops/kernel.h"
#include "plan/plan.h"

namespace paoding::gpu {

/// Every kernel's body begins with this source, after grid_dependency_wait().
inline constexpr std::string_view kBegin =
    "  if (threadIdx.x == 0) leave_stamp(scratch);\n  if (is_called_off(scratch)) return;\n";

/// The parts of a kernel's source and of its launch.
struct TextParts {
  std::string name;                        // of the kernel, before a hash of its source
  bool is_wide = false;                    // Index is long long
  int threads = 256;                       // of a CTA: kThreads in the source
  int resident_ctas = 0;                   // of an SM, so that registers are kept to; 0: as many as come of it
  std::string constants = {};              // source before Sizes
  std::string functions = {};              // source after it
  std::vector<std::string> operands;       // parameters: "const float* a"
  std::vector<std::string> maps = {};      // names of parameters
  std::string call;                        // the kernel's body
  bool waits_for_grid_dependency = false;  // by itself, as something can be done before; then it asks is_called_off too
  bool leaves_stamp = false;               // by itself, where it awaits the launch before by itself
  std::int64_t ctas = 0;                   // 0: nothing to launch
  SizeFields sizes = {};
};
/// Error (unsupported) when there are more CTAs than a grid has.
TextLaunch make_text_kernel(const TextParts& parts);

/// Whether offsets or counts up to this need 64 bits: below, sums of two with a CTA's threads fit 31.
inline bool needs_wide_index(std::int64_t most) { return most >= (std::int64_t{1} << 31) - (1 << 16); }
/// Elements that a strided operand reaches over.
std::int64_t reach_of(const Layout& layout);
/// "const float* name", or without const for outputs.
std::string input_parameter(DType dtype, std::string_view name);
std::string output_parameter(DType dtype, std::string_view name);

/// Translates a group or a kernel op of our own for the target; nullptr for a library's kernel and for control flow.
std::shared_ptr<const TextPlan> text_of(const Step& step, const Target& target);

/// A launch that leaves room beside it may start while the one in front ends: 0.3 to 0.5 us less between two small ones
/// (H200). One that fills the chip loses by it.
bool overlaps_before(const Target& target, const TextLaunch& launch);
/// Half of an SM's shared memory: CTAs that have more of it do not share one.
inline unsigned half_of_shared(const Target& target) { return static_cast<unsigned>(target.shared_bytes / 2); }

/// Appends to the op's table for GPUs. `channels_last`, `any_layout`, `in_place`, `reason`, `transposed`,
/// `wants_by_units`: see KernelImplementation.
void register_text_kernel(const std::string& op, std::string name,
                          std::function<std::string(const KernelCall&)> refusal,
                          std::function<TextPlan(const KernelCall&)> plan, Faults faults = Faults::none,
                          std::uint32_t channels_last = 0, std::uint32_t any_layout = 0,
                          std::vector<std::pair<std::size_t, std::size_t>> in_place = {},
                          std::function<std::string(const KernelCall&)> reason = {},
                          std::function<std::uint32_t(const KernelCall&)> transposed = {},
                          std::function<bool(const KernelCall&)> wants_by_units = {});

}  // namespace paoding::gpu
