// SPDX-License-Identifier: Apache-2.0
// The formula of an einsum, read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace paoding {

/// An axis of an operand: a letter, or the n-th axis from the end of those that "..." stands for, -1 for the last.
using AxisLabel = int;
using AxisLabels = std::vector<AxisLabel>;

bool has_label(const AxisLabels& labels, AxisLabel label);

/// "i", or "... axis -1".
std::string label_text(AxisLabel label);

struct EinsumFormula {
  std::vector<AxisLabels> operands;
  AxisLabels result;
};

/// `ranks` are those of the operands, which say how many axes "..." stands for. Error (argument, shape) that begins
/// with "formula".
EinsumFormula parse_einsum(std::string_view text, const std::vector<int>& ranks);

}  // namespace paoding
