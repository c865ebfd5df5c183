// SPDX-License-Identifier: Apache-2.0
// Properties of a Group that need no run: sizes, stages, whether it is legal, its text.
#include "group/group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "group/operands.h"
#include "scalar/primitive.h"

namespace paoding {

std::int64_t Group::points() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : extents) product *= extent;
  return product;
}

std::int64_t Group::min_read_bytes() const {
  std::int64_t bytes = 0;
  if (points() > 0) {
    for (std::size_t i = 0; i < loads.size(); ++i) bytes += distinct_elements(*this, i) * size_bytes(loads[i].dtype);
  }
  return bytes;
}

std::int64_t Group::min_written_bytes() const {
  std::int64_t bytes = 0;
  for (const GroupOutput& output : outputs) {
    std::int64_t elements = 1;
    for (std::size_t axis = 0; axis < extents.size(); ++axis) {
      if (!((output.reduce_mask >> axis) & 1u)) elements *= extents[axis];
    }
    bytes += elements * size_bytes(output.dtype);
  }
  return bytes;
}

void check(const Group& group) {
  const auto rank = group.extents.size();
  PD_ASSERT(rank <= static_cast<std::size_t>(kMaxGroupRank), "a group of too many axes");
  const std::uint32_t all = (1u << rank) - 1;
  const auto is_node = [&](std::int32_t node) { return node >= 0 && node < group.expr.size(); };
  for (const GroupLoad& load : group.loads) PD_ASSERT(load.strides.size() == rank, "a stride per axis");
  for (const GroupOutput& output : group.outputs) {
    PD_ASSERT(output.strides.size() == rank, "a stride per axis");
    PD_ASSERT((output.reduce_mask & ~all) == 0, "reduced axes are axes of the space");
    PD_ASSERT(output.combine == Combine::none || output.reduce_mask != 0, "a combination comes with a mask");
    PD_ASSERT(is_node(output.value), "an output is a node of the Expr");
  }
  for (const GroupIndex& index : group.indices) {
    PD_ASSERT(index.strides.size() == rank, "a stride per axis");
    PD_ASSERT(index.dtype == DType::i64 || index.dtype == DType::i32, "indices are i64 or i32");
  }
  for (const GroupReduction& reduction : group.reductions) {
    PD_ASSERT(reduction.reduce_mask != 0 && (reduction.reduce_mask & ~all) == 0, "reduced axes are axes of the space");
    PD_ASSERT(reduction.reduce_mask == group.reductions[0].reduce_mask, "all reductions have one mask");
    PD_ASSERT(reduction.combine != Combine::none && is_node(reduction.value), "a reduction combines a node");
  }
  for (std::int32_t i = 0; i < group.expr.size(); ++i) {
    const ExprNode& node = group.expr[i];
    const auto index = static_cast<std::size_t>(node.index);
    if (node.prim == Prim::input) PD_ASSERT(index < group.loads.size(), "an input is a load");
    if (node.prim == Prim::index) PD_ASSERT(index < group.indices.size(), "an index is in the list");
    if (node.prim != Prim::reduced) continue;
    PD_ASSERT(index < group.reductions.size(), "a reduction is in the list");
    PD_ASSERT(group.reductions[index].value < i, "a reduction's value stands before what reads it");
    PD_ASSERT(group.expr.dtype_of(group.reductions[index].value) == node.dtype, "a reduction keeps its dtype");
  }
  if (group.reductions.empty()) return;
  const std::vector<bool> varies = varies_along(group, group.reductions[0].reduce_mask);
  for (const GroupOutput& output : group.outputs) {
    PD_ASSERT(
        output.combine != Combine::none || output.reduce_mask == 0 ||
            (output.reduce_mask == group.reductions[0].reduce_mask && !varies[static_cast<std::size_t>(output.value)]),
        "what is written once per row does not vary in it");
  }
}

std::vector<int> stages(const Group& group) {
  std::vector<int> stages;
  for (const ExprNode& node : group.expr.nodes()) {
    int stage = 0;
    if (node.prim == Prim::reduced) {
      stage = 1 + stages[static_cast<std::size_t>(group.reductions[static_cast<std::size_t>(node.index)].value)];
    }
    for (const std::int32_t arg : node.args) {
      if (arg >= 0) stage = std::max(stage, stages[static_cast<std::size_t>(arg)]);
    }
    stages.push_back(stage);
  }
  return stages;
}

std::vector<bool> varies_along(const Group& group, std::uint32_t mask) {
  const auto steps = [&](const std::vector<std::int64_t>& strides) {
    for (std::size_t axis = 0; axis < strides.size(); ++axis) {
      if (((mask >> axis) & 1u) && strides[axis] != 0) return true;
    }
    return false;
  };
  std::vector<bool> varies;
  for (const ExprNode& node : group.expr.nodes()) {
    const auto index = static_cast<std::size_t>(node.index);
    bool does = false;
    if (node.prim == Prim::input) does = steps(group.loads[index].strides);
    if (node.prim == Prim::index) does = steps(group.indices[index].strides);
    if (node.prim == Prim::reduced) does = (mask & ~group.reductions[index].reduce_mask) != 0;
    for (const std::int32_t arg : node.args) does |= arg >= 0 && varies[static_cast<std::size_t>(arg)];
    varies.push_back(does);
  }
  return varies;
}

double identity_of(Combine combine, DType compute) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool is_max = combine == Combine::max;
  if (combine == Combine::prod) return 1;
  if (combine != Combine::max && combine != Combine::min) return 0;
  if (compute == DType::boolean) return is_max ? 0 : 1;
  if (compute == DType::i32) return is_max ? -0x1p31 : 0x1p31 - 1;
  if (compute == DType::i64) return is_max ? -0x1p63 : 0x1p63;
  return is_max ? -kInfinity : kInfinity;
}

std::string_view to_string(Combine combine) {
  switch (combine) {
    case Combine::none: return "once";
    case Combine::sum: return "sum";
    case Combine::max: return "max";
    case Combine::min: return "min";
    case Combine::prod: return "prod";
  }
  return "";
}

std::string to_string(const Group& group) {
  std::string text = fmt::format("space [{}]\n", fmt::join(group.extents, ", "));
  for (std::size_t i = 0; i < group.loads.size(); ++i) {
    const GroupLoad& load = group.loads[i];
    text += fmt::format("load {} {} ({})\n", i, to_string(load.dtype), fmt::join(load.strides, ", "));
  }
  for (std::size_t i = 0; i < group.indices.size(); ++i) {
    const GroupIndex& index = group.indices[i];
    text +=
        fmt::format("index {} {} {} + ({})\n", i, to_string(index.dtype), index.start, fmt::join(index.strides, ", "));
  }
  const auto combined = [&](Combine combine, std::uint32_t mask, std::int32_t value) {
    if (mask == 0) return fmt::format("%{}\n", value);
    std::vector<int> axes;
    for (int axis = 0; axis < group.rank(); ++axis) {
      if ((mask >> axis) & 1u) axes.push_back(axis);
    }
    return fmt::format("{} over {{{}}} of %{}\n", to_string(combine), fmt::join(axes, ", "), value);
  };
  for (std::size_t i = 0; i < group.reductions.size(); ++i) {
    const GroupReduction& reduction = group.reductions[i];
    text += fmt::format("reduced {} = {}", i, combined(reduction.combine, reduction.reduce_mask, reduction.value));
  }
  for (std::size_t i = 0; i < group.outputs.size(); ++i) {
    const GroupOutput& output = group.outputs[i];
    text += fmt::format("output {} {} ({}) = {}", i, to_string(output.dtype), fmt::join(output.strides, ", "),
                        combined(output.combine, output.reduce_mask, output.value));
  }
  return text + to_string(group.expr);
}

}  // namespace paoding
