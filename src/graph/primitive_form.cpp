// SPDX-License-Identifier: Apache-2.0
#include "graph/primitive_form.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>

#include "graph/formula.h"
#include "graph/number_everywhere.h"
#include "scalar/primitive.h"

namespace paoding {
namespace {

constexpr DType kComputeDtypes[] = {DType::f32, DType::f64, DType::i32, DType::i64, DType::boolean};

// The form of a traced formula; that of a constant where it is more than one primitive.
PrimitiveForm form_of(const TracedFormula& traced) {
  const auto argument_of = [&](const ExprNode& node) -> std::optional<PrimitiveForm::Argument> {
    if (node.prim == Prim::input) return PrimitiveForm::Argument{.input = node.index};
    if (node.prim == Prim::constant) return PrimitiveForm::Argument{.number = node.value};
    return std::nullopt;
  };
  const ExprNode& root = traced.expr[traced.root];
  PrimitiveForm form;
  if (root.prim == Prim::input) {
    form.prim = Prim::input, form.arguments[0] = *argument_of(root);
    return form;
  }
  bool reads_input = false;
  for (int k = 0; k < primitive(root.prim).arity; ++k) {
    const auto argument = argument_of(traced.expr[root.args[k]]);
    if (!argument) return {};
    form.arguments[static_cast<std::size_t>(k)] = *argument;
    reads_input |= argument->input >= 0;
  }
  if (!reads_input) return {};
  form.prim = root.prim;
  return form;
}

std::vector<DType> dtypes_of_inputs(const Graph& graph, const Node& node) {
  std::vector<DType> dtypes;
  for (const Ref& ref : node.inputs) dtypes.push_back(graph.type(ref).dtype);
  return dtypes;
}

}  // namespace

PrimitiveForm primitive_form_of(const OpDef& op) {
  constexpr std::size_t kMostInputs = 3;
  if (op.kind != OpKind::formula || !op.attrs.empty() || op.is_variadic() || op.inputs.size() > kMostInputs) return {};
  std::optional<PrimitiveForm> form;
  for (const DType dtype : kComputeDtypes) {
    std::vector<DType> dtypes(op.inputs.size(), dtype);
    std::fill_n(dtypes.begin(), op.conditions, DType::boolean);
    try {
      const PrimitiveForm found = form_of(trace_formula(op, dtypes, {}));
      if (form && !(*form == found)) return {};
      form = found;
    } catch (const std::exception&) {
      continue;  // not of this dtype: a call fails so too
    }
  }
  return form.value_or(PrimitiveForm{});
}

Ref argument(const Node& node, std::size_t k) {
  const int input = node.op->primitive.arguments[k].input;
  return input < 0 ? Ref{} : node.inputs[static_cast<std::size_t>(input)];
}

std::optional<double> number_at(const Graph& graph, const Node& node, std::size_t k) {
  const Ref ref = argument(node, k);
  return ref.valid() ? number_everywhere(graph, ref) : node.op->primitive.arguments[k].number;
}

bool is_zero_with_inputs(const Graph& graph, const Node& node, const std::function<bool(std::size_t)>& is_zero) {
  if (node.op->kind != OpKind::formula) return false;
  const TracedFormula& traced = traced_formula(*node.op, dtypes_of_inputs(graph, node), node.attrs);
  const auto is_zero_at = [&](std::int32_t i, const auto& again) -> bool {
    const ExprNode& made = traced.expr[i];
    const auto is_finite_number = [&](int k) {
      const ExprNode& factor = traced.expr[made.args[k]];
      return factor.prim == Prim::constant && std::isfinite(factor.value);
    };
    switch (made.prim) {
      case Prim::input: return is_zero(static_cast<std::size_t>(made.index));
      case Prim::constant: return made.value == 0;
      case Prim::convert: return again(made.args[0], again);
      case Prim::select: return again(made.args[1], again) && again(made.args[2], again);
      case Prim::mul:
        return (is_finite_number(1) && again(made.args[0], again)) ||
               (is_finite_number(0) && again(made.args[1], again));
      default: return false;
    }
  };
  return is_zero_at(traced.root, is_zero_at);
}

std::optional<std::pair<double, double>> limits_of(const Graph& graph, const Node& node) {
  if (node.op->kind != OpKind::formula || node.inputs.size() != 1) return std::nullopt;
  const TracedFormula& traced = traced_formula(*node.op, dtypes_of_inputs(graph, node), node.attrs);
  std::pair limits{-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  std::int32_t at = traced.root;
  while (traced.expr[at].prim != Prim::input) {  // the outermost limit first
    const ExprNode& made = traced.expr[at];
    if (made.prim != Prim::maximum && made.prim != Prim::minimum) return std::nullopt;
    const int k = traced.expr[made.args[0]].prim == Prim::constant ? 0 : 1;
    const ExprNode& bound = traced.expr[made.args[k]];
    if (bound.prim != Prim::constant) return std::nullopt;
    double& limit = made.prim == Prim::maximum ? limits.first : limits.second;
    if (!std::isinf(limit)) return std::nullopt;  // two of one kind
    limit = bound.value;
    at = made.args[1 - k];
  }
  if (limits.first > limits.second) return std::nullopt;  // then the order of the two matters
  return limits;
}

}  // namespace paoding
