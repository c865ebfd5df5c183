// SPDX-License-Identifier: Apache-2.0
// paoding ops --python: python/paoding/ops.py, a function for every op, from the ops' own declarations.
#include "ops_python.h"

#include <algorithm>

#include "command.h"
#include "paoding/error.h"

namespace paoding::cli {
namespace {

// Ops whose functions take options, no values, or are several ops: python/src/fronts.cpp has those, and numpy_names.py.
bool is_behind_another(const OpDef& op) {
  constexpr std::string_view names[] = {
      "avg_pool2d",    "batch_norm",     "categorical", "conv2d",      "cross_entropy", "dropout",
      "einsum",        "group_norm",     "layer_norm",  "max_pool2d",  "pow",           "random_bernoulli",
      "random_normal", "random_uniform", "rms_norm",    "scatter_add", "transpose"};
  return std::find(std::begin(names), std::end(names), op.name) != std::end(names);
}

// Whether it may have several results: then they are a tuple, however many they are.
bool has_results(const OpDef& op) {
  for (const OpCase& each : op.cases) {
    if (!each.error.empty()) continue;
    Graph graph;
    Values inputs;
    for (std::size_t i = 0; i < each.shapes.size(); ++i) {
      const DType dtype = i < each.dtypes.size() ? each.dtypes[i] : f32;
      inputs.push_back(graph.input(fmt::format("in{}", i), dtype, each.shapes[i]));
    }
    if (call(op, inputs, each.attrs, {}, &graph).size() != 1) return true;
  }
  return false;
}

// Python's spelling of a value. An empty list is None: call() leaves it out, so that the op's own default is taken.
struct PythonText {
  std::string operator()(bool flag) const { return flag ? "True" : "False"; }
  std::string operator()(std::int64_t number) const { return fmt::format("{}", number); }
  std::string operator()(double number) const {
    const std::string text = fmt::format("{}", number);
    return text.find("inf") == std::string::npos ? text : fmt::format("float('{}')", text);
  }
  std::string operator()(const std::string& text) const { return "'" + text + "'"; }
  std::string operator()(DType dtype) const { return fmt::format("DType.{}", to_string(dtype)); }
  std::string operator()(const std::vector<std::int64_t>& list) const { return list_text(list); }
  std::string operator()(const std::vector<double>& list) const { return list_text(list); }

  template <class List>
  static std::string list_text(const List& list) {
    if (list.empty()) return "None";
    return fmt::format("({}{})", fmt::join(list, ", "), list.size() == 1 ? "," : "");
  }
};

// NumPy's word for axes. An attribute that says whether the input of its name is there is has_<name>.
std::string python_name(const OpDef& op, const AttrSpec& attr) {
  const bool is_of_input =
      std::any_of(op.inputs.begin(), op.inputs.end(), [&](const std::string& input) { return input == attr.name; });
  return is_of_input ? "has_" + attr.name : attr.name == "axes" ? "axis" : attr.name;
}

std::string attr_text(const OpDef& op, const AttrSpec& attr) {
  constexpr const char* types[] = {"bool", "int", "float", "str", "DType | str", "Ints", "Sequence[float]"};
  const std::string text = fmt::format("{}: {}", python_name(op, attr), types[attr.example.index()]);
  if (attr.required) return text;
  const std::string value = std::visit(PythonText{}, attr.example);
  return fmt::format("{}{} = {}", text, value == "None" ? " | None" : "", value);
}

// "a: ValueLike, *, axis: Ints | None = None": attributes after inputs that may be absent go by name.
std::string parameters_text(const OpDef& op) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const bool may_be_absent = i + static_cast<std::size_t>(op.optional_inputs) >= op.inputs.size();
    const bool is_list = op.is_variadic() && i + 1 == op.inputs.size();
    const std::string name = is_list ? op.inputs[i].substr(0, op.inputs[i].size() - 3) : op.inputs[i];
    all.push_back(fmt::format("{}: {}{}", name, is_list ? "Sequence[ValueLike]" : "ValueLike",
                              may_be_absent ? " | None = None" : ""));
  }
  if (op.optional_inputs > 0 && !op.attrs.empty()) all.push_back("*");
  for (const bool required : {true, false}) {
    for (const AttrSpec& attr : op.attrs) {
      if (attr.required == required) all.push_back(attr_text(op, attr));
    }
  }
  return fmt::format("{}", fmt::join(all, ", "));
}

std::string python_inputs_text(const OpDef& op) {
  std::string text;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const bool is_list = op.is_variadic() && i + 1 == op.inputs.size();
    text += is_list ? "*" + op.inputs[i].substr(0, op.inputs[i].size() - 3) + ", " : op.inputs[i] + ", ";
  }
  if (op.inputs.size() > 1 && !text.empty()) text.resize(text.size() - 2);
  if (op.inputs.size() == 1) text.resize(text.size() - 1);
  return text;
}

std::string python_attrs_text(const OpDef& op) {
  std::vector<std::string> all;
  for (const AttrSpec& attr : op.attrs) all.push_back(fmt::format("'{}': {}", attr.name, python_name(op, attr)));
  return fmt::format("{}", fmt::join(all, ", "));
}

void print_function(const OpDef& op) {
  const bool is_tuple = has_results(op);
  const char* type = is_tuple ? "tuple[Value, ...]" : "Value";
  print("\n\ndef {}({}) -> {}:\n", op.name, parameters_text(op), type);
  print("    \"\"\"{}.\"\"\"\n", op.summary);
  print("    return {}('{}', ({}), {{{}}})\n", is_tuple ? "call_all" : "call_one", op.name, python_inputs_text(op),
        python_attrs_text(op));
}

}  // namespace

void print_python(const std::vector<const OpDef*>& ops) {
  print_text(
      "# SPDX-License-Identifier: Apache-2.0\n"
      "# Written by `paoding ops --python`; do not edit.\n"
      "\"\"\"Every op that takes values, with its inputs and attributes; a number or array beside a Value becomes a "
      "constant.\"\"\"\n\n"
      "from __future__ import annotations\n\n"
      "from collections.abc import Sequence\n\n"
      "from ._paoding import DType, Value, call_all, call_one\n"
      "from ._types import Ints, ValueLike\n\n"
      "__all__ = [\n");
  std::vector<const OpDef*> all;
  std::copy_if(ops.begin(), ops.end(), std::back_inserter(all),
               [](const OpDef* op) { return op->kind != OpKind::structural && !is_behind_another(*op); });
  for (const OpDef* op : all) print("    '{}',\n", op->name);
  print_text("]\n");
  for (const OpDef* op : all) print_function(*op);
}

}  // namespace paoding::cli
