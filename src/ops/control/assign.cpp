// SPDX-License-Identifier: Apache-2.0
// Ops that do something besides giving a value: assign, print.
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

Value print(const Value& value, std::string_view message) {
  return call("print", {value}, {{"message", std::string(message)}});
}

void register_assign() {
  register_op({
      .name = "assign",
      .summary = "the parameter takes the value at the end of the run",
      .kind = OpKind::structural,
      .inputs = {"parameter", "value"},
      .has_effect = true,
      .role = OpRole::update,
      .precision = PrecisionRule::exact,
      .infer = infer_assign,
  });
  register_op({
      .name = "print",
      .summary = "a itself; a run hands it to CompileOptions::on_print",
      .kind = OpKind::structural,
      .inputs = {"a"},
      .attrs = {{.name = "message", .example = std::string(), .doc = "handed on with it"}},
      .has_effect = true,
      .role = OpRole::shown,
      .infer = [](const OpCall& call) { return std::vector{call.inputs[0]}; },
      .gradient = [](const GradCall& call) { return Values{call.grads[0]}; },
      .cases = {{.shapes = {{2, 3}}}, {.shapes = {{}}}, {.shapes = {{0, 2}}}},
  });
}

}  // namespace paoding
