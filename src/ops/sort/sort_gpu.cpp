// SPDX-License-Identifier: Apache-2.0
// sort and topk on the GPU, for rows of any length. As on the CPU elements become unsigned integers in the same order
// with their place after them, all different, which makes any sort stable. Rows that are short enough to compare every
// element with every other are placed by rank, in one launch. Else a first launch sorts tiles in shared memory by a
// bitonic network (Batcher, "Sorting networks and their applications", 1968); each further one merges pairs of runs, an
// entry's place in the merged run being its place in its own plus its rank in the other, found by bisection (merging by
// ranks: Satish, Harris and Garland, "Designing efficient sorting algorithms for manycore GPUs", 2009). A run keeps no
// more entries than topk takes.
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

constexpr int kMergeThreads = 256;
constexpr int kRankThreads = 256, kRankedByCta = 16;
// About 10 us on an H200, where a tile of 1,024 takes 16 and each merge 3.
constexpr double kMostCompared = 1 << 26;

gpu::TextPlan plan(const KernelCall& call, bool is_descending) {
  const int axis = along_axis(call);
  const Rows from = *rows_of(call.inputs[0], axis), values = *rows_of(call.outputs[0], axis),
             places = *rows_of(call.outputs[1], axis);
  const DType dtype = call.inputs[0].type.dtype;
  const std::int64_t count = from.middle.extent, taken = values.middle.extent;
  const std::int64_t rows = from.outer.extent * from.inner.extent;
  if (rows * taken == 0) return {};
  const std::int64_t tile = count <= 64 ? 64 : count <= 256 ? 256 : 1024, tiles = ceil_div(count, tile);
  const std::int64_t entry_bytes = dtype == DType::f64 || dtype == DType::i64 ? 16 : 8;
  const std::string type(gpu::stored_type(dtype));
  std::int64_t most = std::max(4 * count, rows * tiles * tile);
  for (const auto* list : {&call.inputs, &call.outputs}) {
    for (const Layout& layout : *list) most = std::max(most, gpu::reach_of(layout));
  }
  const std::int64_t buffer = (rows * count * entry_bytes + 255) / 256 * 256;

  gpu::TextParts text;
  text.is_wide = gpu::needs_wide_index(most);
  text.constants = fmt::format("constexpr bool kDescending = {};\n", is_descending);
  text.operands = {gpu::input_parameter(dtype, "a"), gpu::output_parameter(dtype, "values"),
                   gpu::output_parameter(DType::i64, "places")};
  const auto start_sizes = [&] {
    text.sizes = {};
    text.sizes.number("count", count), text.sizes.divisor("inner", from.inner.extent);
    text.sizes.number("from_outer", from.outer.stride), text.sizes.number("from_middle", from.middle.stride);
    text.sizes.number("values_outer", values.outer.stride), text.sizes.number("values_middle", values.middle.stride);
    text.sizes.number("places_outer", places.outer.stride), text.sizes.number("places_middle", places.middle.stride);
    text.sizes.wide_number("buffer", buffer);
  };
  gpu::TextPlan made;

  if (static_cast<double>(rows) * static_cast<double>(count) * static_cast<double>(count) <= kMostCompared) {
    const std::int64_t blocks = ceil_div(count, kRankedByCta);
    text.name = call.op->name + "_ranks";
    text.threads = kRankThreads;
    text.functions = fmt::format("{}{}", k_sort_entry_cu, k_sort_rank_cu);
    start_sizes();
    text.sizes.divisor("blocks", blocks), text.sizes.number("kept", taken);
    text.call = fmt::format("sort_by_rank<{}>(a, values, places, size)", type);
    text.ctas = rows * blocks;
    made.launches.push_back(gpu::make_text_kernel(text));
    return made;
  }

  text.name = call.op->name + "_tiles";
  text.threads = static_cast<int>(tile / 2);
  text.functions = fmt::format("{}{}", k_sort_entry_cu, k_sort_tile_cu);
  start_sizes();
  text.sizes.divisor("tiles", tiles), text.sizes.number("kept", std::min(tile, taken));
  text.call = fmt::format("sort_tile<{0}, {1}, {2}>(a, values, places, (Entry<{0}>*)scratch.workspace, size)", type,
                          tile, tiles == 1);
  text.ctas = rows * tiles;
  made.launches.push_back(gpu::make_text_kernel(text));
  if (tiles == 1) return made;

  // Runs go from one half of the workspace to the other.
  made.workspace_bytes = 2 * buffer;
  text.name = call.op->name + "_merge";
  text.threads = kMergeThreads;
  text.functions = fmt::format("{}{}", k_sort_entry_cu, k_sort_merge_cu);
  bool is_first_half = true;
  for (std::int64_t width = tile; width < count; width *= 2) {
    const std::int64_t runs = ceil_div(count, width), kept = std::min(width, taken);
    start_sizes();
    text.sizes.divisor("runs", runs), text.sizes.divisor("kept", kept);
    text.sizes.number("width", width), text.sizes.number("kept_after", std::min(2 * width, taken));
    text.sizes.number("total", rows * runs * kept);
    const std::string halves[] = {fmt::format("(Entry<{}>*)scratch.workspace", type),
                                  fmt::format("(Entry<{}>*)((char*)scratch.workspace + size.buffer_wide)", type)};
    text.call = fmt::format("merge_runs<{}, {}>(a, values, places, {}, {}, size)", type, runs == 2,
                            halves[is_first_half ? 0 : 1], halves[is_first_half ? 1 : 0]);
    text.ctas = ceil_div(rows * runs * kept, kMergeThreads);
    made.launches.push_back(gpu::make_text_kernel(text));
    is_first_half = !is_first_half;
  }
  return made;
}

}  // namespace

void register_sort_gpu() {
  gpu::register_text_kernel("sort", "merge", sort_refusal,
                            [](const KernelCall& call) { return plan(call, call.attrs.get_bool("descending")); });
  gpu::register_text_kernel("topk", "merge", sort_refusal,
                            [](const KernelCall& call) { return plan(call, call.attrs.get_bool("largest")); });
}

}  // namespace paoding
