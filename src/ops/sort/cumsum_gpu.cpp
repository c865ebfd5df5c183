// SPDX-License-Identifier: Apache-2.0
// cumsum on the GPU, added up in f64 as on the CPU (integers in 64 bits). Reduce, then scan (Dotsenko et al., "Fast
// scan algorithms on graphics processors", 2008): where the rows alone would not fill the GPU they are cut into parts,
// a first launch sums each part, and a second starts each with the sum of those before it. Parts depend on the shape
// only and everything is added in one order, so results are the same on every run.
#include <algorithm>

#include "base/check.h"
#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/codegen/text_kernel.h"
#include "ops/all_kernels.h"
#include "ops/rows.h"
#include "ops/sort/along_axis.h"

namespace paoding {
namespace {

constexpr int kSumThreads = 256, kItems = 4;
constexpr std::int64_t kWanted = 132 * 1024;  // threads that keep a large GPU busy
constexpr std::int64_t kLeastPart = 64;       // steps of one thread

gpu::TextPlan plan_cumsum(const KernelCall& call) {
  const int axis = along_axis(call);
  const Rows from = *rows_of(call.inputs[0], axis), to = *rows_of(call.outputs[0], axis);
  const DType dtype = call.inputs[0].type.dtype;
  const std::int64_t count = to.middle.extent, columns = to.outer.extent * to.inner.extent;
  if (count * columns == 0) return {};
  const bool is_rows = to.inner.extent == 1;
  // A unit is one thread's run of elements, or a CTA's tile.
  const std::int64_t unit = is_rows ? kSumThreads * kItems : kLeastPart;
  const std::int64_t lanes = is_rows ? columns * kSumThreads : columns;
  const std::int64_t most_parts = std::min(ceil_div(count, unit), ceil_div(kWanted, lanes));
  const std::int64_t part = ceil_div(ceil_div(count, most_parts), unit) * unit;
  const std::int64_t parts = ceil_div(count, part);

  gpu::TextParts text;
  text.threads = kSumThreads;
  text.is_wide = gpu::needs_wide_index(std::max({gpu::reach_of(call.inputs[0]), gpu::reach_of(call.outputs[0]),
                                                 columns * parts, parts * part + kSumThreads * kItems}));
  text.constants = fmt::format("constexpr int kItems = {};\nconstexpr bool kExclusive = {}, kReverse = {};\n", kItems,
                               call.attrs.get_bool("exclusive"), call.attrs.get_bool("reverse"));
  text.functions = k_cumsum_cu;
  text.sizes.number("count", count), text.sizes.number("part", part), text.sizes.number("total", columns * parts);
  text.sizes.divisor("columns", columns), text.sizes.divisor("inner", to.inner.extent);
  text.sizes.divisor("parts", parts);
  text.sizes.number("from_outer", from.outer.stride), text.sizes.number("from_middle", from.middle.stride);
  text.sizes.number("to_outer", to.outer.stride), text.sizes.number("to_middle", to.middle.stride);
  text.operands = {gpu::input_parameter(dtype, "a"), gpu::output_parameter(dtype, "out")};
  text.ctas = is_rows ? columns * parts : ceil_div(columns * parts, kSumThreads);
  gpu::TextPlan made;
  for (const bool is_total : {true, false}) {
    if (is_total && parts == 1) continue;
    text.name = is_total ? "cumsum_totals" : "cumsum";
    text.call = fmt::format("{0}<{1}, {2}>(a, out, (Total<{1}>*)scratch.workspace, size)",
                            is_rows ? "scan_rows" : "scan_columns", gpu::stored_type(dtype), is_total);
    made.launches.push_back(gpu::make_text_kernel(text));
  }
  if (parts > 1) made.workspace_bytes = columns * parts * 8;
  return made;
}

}  // namespace

void register_cumsum_gpu() { gpu::register_text_kernel("cumsum", "scan", along_axis_refusal, plan_cumsum); }

}  // namespace paoding
