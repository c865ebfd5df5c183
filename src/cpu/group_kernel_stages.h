// SPDX-License-Identifier: Apache-2.0
// A group with own reductions, taken apart into groups without: one per pass over the reduced axes. A pass hands on its
// reduced values and those that would be dear to compute again.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "group/group.h"

namespace paoding {

/// A value that one pass writes and later ones read.
struct StageValue {
  std::int32_t node = -1;  // of the whole group's Expr: the reduced operand, or the value that is kept as it is
  DType dtype = DType::f32;
  bool is_reduced = false;
};

/// One pass. Operands are numbered as in the whole group; from there on they are stage values.
struct StagePass {
  Group group;
  std::vector<int> load_operands, output_operands;
};

struct Stages {
  std::vector<StagePass> passes;
  std::vector<StageValue> values;
};

struct StageOptions {
  std::size_t operands = 0;                    // of the whole group
  std::vector<int> load_operands;              // of the whole group: which operand each load reads
  std::vector<std::int64_t> reduced_strides;   // of every reduction's result, 0 on the reduced axes
  std::vector<std::int64_t> kept_strides;      // of every value that is kept for every point
  double keep_from = 0;                        // cost from which a value is kept and not computed again
  std::function<bool(std::int32_t)> is_ready;  // of an input: it is read where it is, no pass need keep it
};

Stages split_stages(const Group& group, const StageOptions& options);

/// Passes that run one after the other over the whole space: reduced values lie dense over the kept axes, nothing else
/// is handed on, and values that are written once per row have a pass of their own over the kept axes.
Stages split_into_groups(const Group& group);

}  // namespace paoding
