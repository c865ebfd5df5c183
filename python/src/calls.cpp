// SPDX-License-Identifier: Apache-2.0
// call(): every op of the table, by its name.
#include "calls.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "paoding/error.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "paoding/ops/number.h"
#include "scalars.h"

namespace paoding::python {
namespace {

template <class T>
T number_cast(nb::handle object, const std::string& what, const char* needed) {
  T value{};
  if (nb::try_cast(object, value)) return value;
  throw Error(ErrorKind::argument, what + " is " + text_of(nb::repr(object)) + ", needed is " + needed);
}

AttrValue numbers_of(nb::handle object, const AttrSpec& spec, const std::string& what) {
  if (!spec.keeps_integers) return number_cast<std::vector<double>>(object, what, "a list of numbers");
  std::vector<std::int64_t> whole;
  if (nb::try_cast(object, whole)) return exact_numbers(whole);
  return number_cast<std::vector<double>>(object, what, "a list of numbers");
}

// The attribute in the kind that `spec` declares; a single integer serves for a list of one.
AttrValue attr_of(nb::handle object, const AttrSpec& spec, const std::string& op) {
  const std::string what = op + ": '" + spec.name + "'";
  switch (spec.example.index()) {
    case 0: return number_cast<bool>(object, what, "a bool");
    case 1: return number_cast<std::int64_t>(object, what, "an integer");
    case 2:
      if (spec.keeps_integers && is_number(object)) return number_of(object).attr();
      return number_cast<double>(object, what, "a number");
    case 3: return number_cast<std::string>(object, what, "a string");
    case 4: return dtype_of(object);
    case 5: return integers_of(object, what);
    default: return numbers_of(object, spec, what);
  }
}

Attrs attrs_of(const OpDef& op, nb::handle given) {
  Attrs attrs;
  if (given.is_none()) return attrs;
  for (auto [key, value] : nb::cast<nb::dict>(given)) {
    if (value.is_none()) continue;  // the default
    const std::string name = name_of(key, op.name + ": the name of an attribute");
    const auto spec =
        std::find_if(op.attrs.begin(), op.attrs.end(), [&](const AttrSpec& each) { return each.name == name; });
    attrs.set(name, spec == op.attrs.end() ? AttrValue(true) : attr_of(value, *spec, op.name));  // call() refuses it
  }
  return attrs;
}

Attrs attrs_by_name(const std::string& name, nb::handle given) {
  const OpDef* op = find_op(name);
  return op == nullptr ? Attrs() : attrs_of(*op, given);
}

}  // namespace

Value constant_of(Graph& graph, const Tensor& tensor, DType dtype) {
  if (tensor.dtype() != DType::i64) return constant(graph, tensor.shape(), tensor.to_doubles(), dtype);
  const std::span<const std::int64_t> whole(tensor.data<std::int64_t>(),
                                            static_cast<std::size_t>(tensor.shape().elements()));
  return constant(graph, tensor.shape(), whole, dtype);
}

Value input_of(nb::handle object, const Value& beside, Graph* graph, const std::string& name) {
  if (nb::isinstance<ValueHandle>(object)) return nb::cast<ValueHandle&>(object);
  Graph& home = graph != nullptr ? *graph : beside.valid() ? beside.graph() : graph_for(nullptr, name.c_str());
  if (is_number(object)) {
    if (beside.valid()) return constant_like(name, beside, number_of(object));
    const DType otherwise = PyFloat_Check(object.ptr()) != 0  ? DType::f32
                            : PyBool_Check(object.ptr()) != 0 ? DType::boolean
                                                              : DType::i64;
    return full(home, {}, number_of(object), otherwise);
  }
  const Tensor tensor =
      dense_tensor_of(object, beside.valid() ? std::optional(beside.dtype()) : std::nullopt, {"input of", name});
  // f64 is how NumPy has numbers that nobody gave a dtype: beside a float they are as Python's are.
  const bool is_numpys_default = beside.valid() && is_float(beside.dtype()) && tensor.dtype() == DType::f64 &&
                                 nb::hasattr(object, "__array_interface__");
  return constant_of(home, tensor, is_numpys_default ? beside.dtype() : tensor.dtype());
}

std::vector<ValueHandle> call_op(const std::string& name, nb::handle inputs, nb::handle attrs,
                                 const GraphHandle* graph) {
  const OpDef* op = find_op(name);
  if (op == nullptr) throw Error(ErrorKind::argument, "there is no op '" + name + "'");
  Value beside;  // the first Value, unless it is a condition, decides the dtype of numbers
  Graph* given = graph == nullptr ? nullptr : &graph->graph();
  int at = 0;
  for (nb::handle input : inputs) {
    const bool is_condition = at++ < op->conditions;
    if (!nb::isinstance<ValueHandle>(input)) continue;
    const Value value = nb::cast<ValueHandle&>(input);
    if (!is_condition && !beside.valid()) beside = value;
    if (given == nullptr) given = &value.graph();
  }
  Values values;
  for (nb::handle input : inputs) {
    if (!input.is_none()) values.push_back(input_of(input, beside, given, name));
  }
  if (values.empty() && given == nullptr) given = &graph_for(nullptr, name.c_str());
  const Attrs complete = attrs_of(*op, attrs);
  const std::vector<ValueHandle> results = wrap(call(*op, values, complete, {}, values.empty() ? given : nullptr));
  if (!results.empty()) {
    Graph& home = results[0].owner->get();
    if (const auto root = root_of(home)) root->note_line(name, home.scope.str(), calling_line());
  }
  return results;
}

void bind_calls(nb::module_& module) {
  module.def(
      "call",
      [](const std::string& op, nb::args inputs, nb::kwargs attrs) { return call_op(op, inputs, attrs, nullptr); },
      nb::sig("def call(op: str, *inputs: ValueLike | None, **attrs: typing.Any) -> list[Value]"),
      "All results of the op of that name, which may be one that the program registered.");
  module.def(
      "call_one",
      [](const std::string& op, nb::handle inputs, nb::handle attrs) {
        if (has_scalar(inputs)) return nb::cast(call_on_scalars(op, inputs, attrs_by_name(op, attrs)));
        return nb::cast(call_op(op, inputs, attrs, nullptr).at(0));
      },
      nb::arg("op"), nb::arg("inputs"), nb::arg("attrs"),
      nb::sig("def call_one(op: str, inputs: tuple[ValueLike | None, ...], attrs: dict[str, typing.Any]) -> Value"),
      "The one result of an op.");
  module.def(
      "call_all",
      [](const std::string& op, nb::handle inputs, nb::handle attrs) {
        return nb::tuple(nb::cast(call_op(op, inputs, attrs, nullptr)));
      },
      nb::arg("op"), nb::arg("inputs"), nb::arg("attrs"),
      nb::sig("def call_all(op: str, inputs: tuple[ValueLike | None, ...], attrs: dict[str, typing.Any]) -> "
              "tuple[Value, ...]"),
      "All results of an op, a tuple.");
  module.def(
      "op_names",
      [] {
        std::vector<std::string> names;
        for (const OpDef* op : all_ops()) names.push_back(op->name);
        return names;
      },
      "Every op there is.");
}

}  // namespace paoding::python
