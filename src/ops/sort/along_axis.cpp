// SPDX-License-Identifier: Apache-2.0
#include "ops/sort/along_axis.h"

#include "ops/rows.h"

namespace paoding {

int along_axis(const KernelCall& call) {
  const std::int64_t axis = call.attrs.get_int("axis");
  return static_cast<int>(axis < 0 ? axis + call.inputs[0].type.shape.rank() : axis);
}

std::string along_axis_refusal(const KernelCall& call) {
  const int axis = along_axis(call);
  if (std::string why = rows_refusal(call.inputs[0], axis, 1, "a"); !why.empty()) return why;
  for (const Layout& output : call.outputs) {
    if (std::string why = rows_refusal(output, axis, 1, "a result"); !why.empty()) return why;
  }
  return "";
}

std::string sort_refusal(const KernelCall& call) {
  const Shape& shape = call.inputs[0].type.shape;
  if (shape[along_axis(call)] > std::int64_t{1} << 32) return "more than 2^32 elements in a row";
  return along_axis_refusal(call);
}

}  // namespace paoding
