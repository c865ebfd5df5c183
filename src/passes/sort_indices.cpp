// SPDX-License-Identifier: Apache-2.0
// sort_indices: on a GPU every CTA of a scatter_add looks through all indices for those of its rows. Where that would
// take longer, which is where there are very many, the indices are sorted first, and a CTA finds its own side by side:
//
//   dw = scatter_add(ids, g) {extent=30000}
// becomes
//   sorted, places = sort(ids);  dw = scatter_add_sorted(ids, sorted, places, g) {extent=30000}
//
// The sort is an op like any other: all that read the same indices share one, and hoist_products takes it out of a loop
// that the indices do not change in. Equal indices keep their order, so that sums are the same bits in every run.
#include <algorithm>
#include <map>

#include "base/check.h"
#include "ops/index/listing.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/pass.h"
#include "passes/rewriter.h"
#include "passes/row_additions.h"

namespace paoding {
namespace {

// How long the CTAs of gpu/kernels/scatter_listed.cu take to look through the indices, about one an SM, whatever the
// rows hold; beyond their room for indices or rows, those of gpu/kernels/scatter_rows.cu, as many at once as the chip
// holds: on an H200 87 us for 6,400 indices.
double looking_us(const Graph& graph, const Node& node, const Target& target) {
  constexpr std::int64_t kRowsOfCta = 32, kBytesOfCta = 32 * 16;  // of the result
  const Type &ids = graph.type(node.inputs[0]), &result = node.types[0];
  const std::int64_t rows = std::max<std::int64_t>(result.shape[row_axis(node)], 1);
  std::int64_t inner = 1;
  for (int axis = row_axis(node) + 1; axis < result.shape.rank(); ++axis) inner *= result.shape[axis];
  const std::int64_t tiles = (inner * size_bytes(result.dtype) + kBytesOfCta - 1) / kBytesOfCta;
  const std::int64_t outer = result.shape.elements() / std::max<std::int64_t>(rows * inner, 1);
  const auto count = static_cast<double>(ids.shape.elements());
  const double sms = std::max(target.sm_count, 1);
  if (may_list(ids.shape.elements(), rows, tiles * outer, target.sm_count)) {
    constexpr double kListUs = 1.5, kListedUs = 3e-4;
    return std::max(static_cast<double>(tiles * outer) / sms, 1.0) * (kListUs + kListedUs * count);
  }
  const std::int64_t ctas = (rows + kRowsOfCta - 1) / kRowsOfCta * tiles * outer;
  constexpr double kIndexUs = 0.0136, kCtasOfSm = 8;
  return std::max(static_cast<double>(ctas) / (kCtasOfSm * sms), 1.0) * count * kIndexUs;
}

constexpr double kGain = 1.25;  // that it takes to do so

// How long sorting the indices takes (ops/sort/sort_gpu.cpp): one launch where each is compared with every other, else
// one for tiles of 1,024 and one more for each doubling.
double sorting_us(std::int64_t count) {
  constexpr double kLaunchUs = 3, kCompareUs = 1.5e-7;
  const double comparing = kLaunchUs + kCompareUs * static_cast<double>(count) * static_cast<double>(count);
  if (count <= 8192) return comparing;
  double us = 16;
  for (std::int64_t sorted = 1024; sorted < count; sorted *= 2) us += kLaunchUs;
  return us;
}

void sort_in(Graph& graph, PassNotes& notes) {
  std::map<Ref, double> saved_us;  // by the indices
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (!adds_rows(node) || node.types[0].shape.elements() == 0) continue;
    saved_us[node.inputs[0]] += looking_us(graph, node, notes.target());
  }
  if (saved_us.empty()) return;
  Rewriter rewriter(graph);
  std::map<Ref, Sorted> sorted;
  for (NodeId id = 0; id < rewriter.first_new; ++id) {
    const Ref given = graph.node(id).inputs.empty() ? Ref{} : graph.node(id).inputs[0];
    const Node& node = rewriter.enter(id);
    if (!adds_rows(node) || node.types[0].shape.elements() == 0) continue;
    const Value ids = graph.value(node.inputs[0]), updates = graph.value(node.inputs[1]);
    const std::int64_t count = ids.shape().elements();
    const double looking = saved_us.at(given), sorting = sorting_us(count);
    if (looking <= kGain * sorting) {
      notes.add(fmt::format("{} of {} looks through all {} indices: {:.1f} us, sorting them would take {:.1f}",
                            node.label(), to_string(node.types[0]), count, looking, sorting));
      continue;
    }
    if (!sorted.contains(given)) sorted[given] = sort(reshape(ids, {count}), 0);
    const std::int64_t padding = node.attrs.find("padding") == nullptr ? -1 : node.attrs.get_int("padding");
    const Value made =
        call("scatter_add_sorted", {ids, sorted[given].values, sorted[given].indices, updates},
             {{"axis", std::int64_t{row_axis(node)}}, {"extent", node.attrs.get_int("extent")}, {"padding", padding}});
    rewriter.replace({id, 0}, made.ref());
    notes.add(fmt::format("{} of {} finds its {} indices sorted: looking through all takes {:.1f} us, sorting {:.1f}",
                          node.label(), to_string(node.types[0]), count, looking, sorting));
  }
  rewriter.finish();
}

}  // namespace

void sort_indices(Graph& graph, PassNotes& notes) {
  if (!notes.target().is_gpu()) return;  // the kernel of the CPU sorts by counting
  for_each_graph(graph, [&](Graph& each) { sort_in(each, notes); });
}

}  // namespace paoding
