// SPDX-License-Identifier: Apache-2.0
#include "cpu/group_kernel_stages.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "cpu/group_kernel_nest.h"

namespace paoding {
namespace {

class Splitter {
 public:
  Splitter(const Group& group, const StageOptions& options)
      : group_(group), options_(options), stage_(stages(group)), varies_(varies_along(group, reduced_axes(group))) {
    const auto nodes = static_cast<std::size_t>(group.expr.size());
    kept_.assign(nodes, -1);
    reduced_.assign(group.reductions.size(), -1);
    find_costs();
  }

  Stages split() {
    int last = 0;
    for (const GroupOutput& output : group_.outputs) last = std::max(last, stage(output.value));
    // From the last pass to the first: a pass's needs of earlier ones are known before they are written.
    needed_.assign(static_cast<std::size_t>(last) + 1, {});
    for (int pass = last; pass >= 0; --pass) {
      needed_[static_cast<std::size_t>(pass)].assign(kept_.size(), false);
      if (pass == last) {
        for (const GroupOutput& output : group_.outputs) need(output.value, pass);
      }
      for (std::size_t r = 0; r < reduced_.size(); ++r) {
        if (reduced_[r] >= 0 && stage(group_.reductions[r].value) == pass) need(group_.reductions[r].value, pass);
      }
      for (std::size_t i = 0; i < kept_.size(); ++i) {
        const auto node = static_cast<std::int32_t>(i);
        if (kept_[i] >= 0 && stage(node) == pass) need(node, pass);
      }
    }
    for (int pass = 0; pass <= last; ++pass) write(pass, pass == last);
    return std::move(result_);
  }

 private:
  int stage(std::int32_t node) const { return stage_[static_cast<std::size_t>(node)]; }

  void find_costs() {
    for (std::int32_t i = 0; i < group_.expr.size(); ++i) {
      const ExprNode& node = group_.expr[i];
      double cost = varies_[static_cast<std::size_t>(i)] ? node_cost(group_, node) : 0;
      if (node.prim == Prim::input && options_.is_ready(i)) cost = 0;
      for (const std::int32_t arg : node.args) {
        if (arg >= 0) cost += costs_[static_cast<std::size_t>(arg)];
      }
      costs_.push_back(cost);
    }
  }

  bool is_kept(std::int32_t node, int pass) const {
    const auto i = static_cast<std::size_t>(node);
    return stage(node) < pass && (kept_[i] >= 0 || (varies_[i] && costs_[i] >= options_.keep_from));
  }

  int add_value(std::int32_t node, bool is_reduced) {
    result_.values.push_back({node, group_.expr.dtype_of(node), is_reduced});
    return static_cast<int>(options_.operands + result_.values.size()) - 1;
  }

  void need(std::int32_t node, int pass) {
    const auto i = static_cast<std::size_t>(node);
    auto& needed = needed_[static_cast<std::size_t>(pass)];
    if (needed[i]) return;
    needed[i] = true;
    if (is_kept(node, pass)) {
      if (kept_[i] < 0) kept_[i] = add_value(node, false);
      return;
    }
    const ExprNode& n = group_.expr[node];
    if (n.prim == Prim::reduced) {
      int& value = reduced_[static_cast<std::size_t>(n.index)];
      if (value < 0) value = add_value(group_.reductions[static_cast<std::size_t>(n.index)].value, true);
      return;
    }
    for (const std::int32_t arg : n.args) {
      if (arg >= 0) need(arg, pass);
    }
  }

  void write(int pass, bool is_last) {
    StagePass written;
    Group& group = written.group;
    group.extents = group_.extents;
    group.indices = group_.indices;
    std::vector<std::int32_t> placed(kept_.size(), -1), inputs(group_.loads.size(), -1);
    const auto read = [&](GroupLoad load, int operand) {
      group.loads.push_back(std::move(load));
      written.load_operands.push_back(operand);
      const DType compute = compute_dtype(group.loads.back().dtype);
      const auto index = static_cast<std::int32_t>(group.loads.size()) - 1;
      return group.expr.add({.prim = Prim::input, .dtype = compute, .index = index});
    };
    for (std::int32_t i = 0; i < group_.expr.size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (!needed_[static_cast<std::size_t>(pass)][at]) continue;
      ExprNode node = group_.expr[i];
      if (kept_[at] >= 0 && stage(i) < pass) {
        placed[at] = read({group_.expr.dtype_of(i), options_.kept_strides}, kept_[at]);
      } else if (node.prim == Prim::reduced) {
        placed[at] =
            read({group_.expr.dtype_of(i), options_.reduced_strides}, reduced_[static_cast<std::size_t>(node.index)]);
      } else if (node.prim == Prim::input) {
        const auto load = static_cast<std::size_t>(node.index);
        placed[at] = read(group_.loads[load], options_.load_operands[load]);
      } else {
        for (std::int32_t& arg : node.args) arg = arg < 0 ? arg : placed[static_cast<std::size_t>(arg)];
        placed[at] = group.expr.add(node);
      }
    }
    for (std::size_t r = 0; r < reduced_.size(); ++r) {
      const GroupReduction& reduction = group_.reductions[r];
      if (reduced_[r] < 0 || stage(reduction.value) != pass) continue;
      const auto value = static_cast<std::size_t>(reduction.value);
      group.outputs.push_back({group_.expr.dtype_of(reduction.value), placed[value], reduction.reduce_mask,
                               reduction.combine, options_.reduced_strides});
      written.output_operands.push_back(reduced_[r]);
    }
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      const auto node = static_cast<std::int32_t>(i);
      if (kept_[i] < 0 || stage(node) != pass) continue;
      const DType dtype = group_.expr.dtype_of(node);
      group.outputs.push_back({dtype, placed[i], 0, Combine::none, options_.kept_strides});
      written.output_operands.push_back(kept_[i]);
    }
    for (std::size_t o = 0; is_last && o < group_.outputs.size(); ++o) {
      group.outputs.push_back(group_.outputs[o]);
      group.outputs.back().value = placed[static_cast<std::size_t>(group_.outputs[o].value)];
      written.output_operands.push_back(static_cast<int>(options_.operands - group_.outputs.size() + o));
    }
    result_.passes.push_back(std::move(written));
  }

  const Group& group_;
  const StageOptions& options_;
  std::vector<int> stage_;
  std::vector<bool> varies_;
  std::vector<double> costs_;
  std::vector<int> kept_;                  // per node: its operand, -1 when no pass keeps it
  std::vector<int> reduced_;               // per reduction
  std::vector<std::vector<bool>> needed_;  // per pass and node
  Stages result_;
};

// The group over the axes that `mask` leaves.
Group without_axes(const Group& group, std::uint32_t mask) {
  Group result = group;
  const auto keep = [&](std::vector<std::int64_t>* per_axis) {
    std::vector<std::int64_t> kept;
    for (int axis = 0; axis < group.rank(); ++axis) {
      if (!has_axis(mask, axis)) kept.push_back((*per_axis)[static_cast<std::size_t>(axis)]);
    }
    *per_axis = std::move(kept);
  };
  keep(&result.extents);
  for (GroupLoad& load : result.loads) keep(&load.strides);
  for (GroupIndex& index : result.indices) keep(&index.strides);
  for (GroupOutput& output : result.outputs) keep(&output.strides), output.reduce_mask = 0;
  return result;
}

}  // namespace

Stages split_stages(const Group& group, const StageOptions& options) { return Splitter(group, options).split(); }

Stages split_into_groups(const Group& group) {
  StageOptions options;
  options.operands = group.operands();
  for (std::size_t i = 0; i < group.loads.size(); ++i) options.load_operands.push_back(static_cast<int>(i));
  options.kept_strides.assign(group.extents.size(), 0);
  options.reduced_strides = options.kept_strides;
  std::int64_t elements = 1;
  for (int axis = group.rank(); axis-- > 0;) {
    if (has_axis(reduced_axes(group), axis)) continue;
    options.reduced_strides[static_cast<std::size_t>(axis)] = elements;
    elements *= group.extents[static_cast<std::size_t>(axis)];
  }
  options.keep_from = std::numeric_limits<double>::infinity();
  options.is_ready = [](std::int32_t) { return true; };
  Stages stages = split_stages(group, options);

  StagePass all = std::move(stages.passes.back()), once = all;
  stages.passes.pop_back();
  for (StagePass* pass : {&all, &once}) {
    const std::vector<GroupOutput> outputs = std::move(pass->group.outputs);
    const std::vector<int> operands = std::move(pass->output_operands);
    pass->group.outputs.clear();
    pass->output_operands.clear();
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      const bool is_once = outputs[o].combine == Combine::none && outputs[o].reduce_mask != 0;
      if (is_once != (pass == &once)) continue;
      pass->group.outputs.push_back(outputs[o]);
      pass->output_operands.push_back(operands[o]);
    }
    if (pass->group.outputs.empty()) continue;
    if (pass == &once) pass->group = without_axes(pass->group, reduced_axes(group));
    stages.passes.push_back(std::move(*pass));
  }
  return stages;
}

}  // namespace paoding
