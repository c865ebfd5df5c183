// SPDX-License-Identifier: Apache-2.0
// Ops that do something besides giving a value, or that say what a value is good for: assign, variant.
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

std::vector<Type> infer_assign(const OpCall& call) {
  const Type &parameter = call.inputs[0], &value = call.inputs[1];
  if (!(parameter == value)) {
    call.fail(parameter.dtype == value.dtype ? ErrorKind::shape : ErrorKind::dtype,
              "the parameter is " + to_string(parameter) + ", the value " + to_string(value));
  }
  return {parameter};
}

}  // namespace

void assign(const Value& parameter, const Value& value) {
  if (!parameter.valid()) throw Error(ErrorKind::argument, "assign: the parameter is a Value without a node");
  parameter.graph().assign(parameter, value);
}

void register_assign() {
  register_op({
      .name = "assign",
      .summary = "the parameter takes the value at the end of the run",
      .kind = OpKind::structural,
      .inputs = {"parameter", "value"},
      .has_effect = true,
      .infer = infer_assign,
  });
}

}  // namespace paoding
