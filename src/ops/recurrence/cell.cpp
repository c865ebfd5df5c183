// SPDX-License-Identifier: Apache-2.0
#include "ops/recurrence/cell.h"

#include <fmt/format.h>

namespace paoding {
namespace {

const AttrSpec& relu_attr() {
  static const AttrSpec made{.name = "relu", .example = false, .doc = "max(sum, 0) instead of tanh"};
  return made;
}

}  // namespace

std::vector<std::size_t> CellDescriptor::wide_inputs(bool is_gradient, const Attrs& attrs) const {
  if (!is_gradient) return c0 == 0 ? std::vector<std::size_t>{} : std::vector<std::size_t>{c0};
  std::vector<std::size_t> wide;
  for (std::size_t i = 0; i < read.size(); ++i) {
    if (cells != 0 && read[i] == cells) wide.push_back(1 + i);
  }
  if (c0 == 0 || !attrs.get_bool(kLastStates[1])) return wide;
  const std::size_t before = (attrs.get_bool("states") ? 1u : 0u) + (attrs.get_bool(kLastStates[0]) ? 1u : 0u);
  wide.push_back(1 + read.size() + before);
  return wide;
}

std::vector<AttrSpec> CellDescriptor::attrs() const {
  std::vector<AttrSpec> made = {reverse()};
  if (has_relu) made.push_back(relu_attr());
  made.push_back({.name = "bias", .example = false, .doc = "the last input is added to xw of every step"});
  return made;
}

std::vector<AttrSpec> CellDescriptor::gradient_attrs() const {
  std::vector<AttrSpec> made = {{.name = "states", .example = false, .doc = "dstates is given"}};
  for (std::size_t i = 0; i < last.size(); ++i) {
    made.push_back({.name = kLastStates[i], .example = false, .doc = fmt::format("d{} is given", kLastStates[i])});
  }
  made.push_back(reverse());
  if (has_relu) made.push_back(relu_attr());
  made.push_back(
      {.name = "sums", .example = false, .doc = "the last result is the gradient of what is added every step"});
  made.push_back({.name = "sums_dtype", .example = f32, .doc = "of that result; f64 where all else is"});
  return made;
}

OpCost cost_over_time(const CostCall& call, bool is_gradient) {
  const std::size_t weights_at = is_gradient ? 0 : 1;
  const Shape &weights = call.inputs[weights_at].shape, &steps = call.inputs[1 - weights_at].shape;
  OpCost cost{.is_product = true, .factor = weights_at};
  if (steps.elements() == 0) return cost;
  const double rows = static_cast<double>(steps.elements()) / static_cast<double>(steps[steps.rank() - 1]);
  cost.flops = 2 * static_cast<double>(weights.elements()) * rows;
  cost.serial_steps = steps[0];
  return cost;
}

}  // namespace paoding
