// SPDX-License-Identifier: Apache-2.0
#include "autodiff/formula_gradient.h"

#include <cmath>
#include <optional>

#include "base/check.h"
#include "base/half.h"
#include "base/to_odd.h"
#include "graph/formula.h"
#include "graph/number_everywhere.h"
#include "paoding/ops.h"
#include "scalar/primitive.h"

namespace paoding {
namespace {

// The adjoints of an Expr's nodes, found from the root back to the inputs as more nodes of it.
class Reverse {
 public:
  struct Adjoint {
    Scalar sum;              // none where the node does not matter
    bool is_chosen = false;  // all that it adds up is 0 where a choice took another side
  };

  /// `constants` has the value of an input whose elements are all equal; NaN where they are not known to be.
  Reverse(Expr* expr, std::vector<double> constants)
      : expr_(expr), constants_(std::move(constants)), adjoints_(static_cast<std::size_t>(expr->size())) {}

  std::vector<Adjoint> walk(std::int32_t root, Adjoint seed) {
    at(root) = seed;
    for (std::int32_t i = root; i >= 0; --i) {
      if (at(i).sum.expr() != nullptr) pass_on(i, at(i));
    }
    return adjoints_;
  }

 private:
  void pass_on(std::int32_t i, const Adjoint& g) {
    const ExprNode node = (*expr_)[i];  // a copy: the Expr grows below
    const Primitive& row = primitive(node.prim);
    std::vector<Scalar> args, terms(static_cast<std::size_t>(row.arity));
    for (int k = 0; k < row.arity; ++k) args.push_back({expr_, node.args[k]});
    const std::int32_t before = expr_->size();
    row.derivative({expr_, i}, args, g.sum, terms);
    const bool chooses = node.prim == Prim::select || node.prim == Prim::minimum || node.prim == Prim::maximum;
    for (int k = 0; k < row.arity; ++k) {
      Scalar term = terms[static_cast<std::size_t>(k)];
      if (term.expr() == nullptr || !is_float(args[static_cast<std::size_t>(k)].dtype())) continue;
      if (g.is_chosen && !is_zero_with(g.sum.id(), term.id(), before)) {
        const Scalar zero = g.sum.constant(0);
        term = select(equal(g.sum, zero), term.constant(0), term);
      }
      Adjoint& adjoint = at(node.args[k]);
      const bool is_first = adjoint.sum.expr() == nullptr;
      adjoint.is_chosen = (is_first || adjoint.is_chosen) && (g.is_chosen || chooses);
      adjoint.sum = is_first ? term : adjoint.sum + term;
    }
  }

  // Whether a node is 0 wherever `g` is, whatever all else is: nodes below `before` may be infinite or NaN.
  bool is_zero_with(std::int32_t g, std::int32_t i, std::int32_t before) const {
    if (i == g) return true;
    const ExprNode& node = (*expr_)[i];
    if (node.prim == Prim::constant) return node.value == 0;
    if (i < before) return false;
    const auto is_zero = [&](int k) { return is_zero_with(g, node.args[k], before); };
    switch (node.prim) {
      case Prim::neg:
      case Prim::abs:
      case Prim::convert: return is_zero(0);
      case Prim::add:
      case Prim::sub: return is_zero(0) && is_zero(1);
      case Prim::mul: {
        const auto is_finite = [&](int k) { return std::isfinite(constant(node.args[k])); };
        return (is_zero(0) && is_finite(1)) || (is_zero(1) && is_finite(0));
      }
      case Prim::div: {
        const double by = constant(node.args[1]);
        return is_zero(0) && std::isfinite(by) && by != 0;
      }
      case Prim::select: return is_zero(1) && is_zero(2);
      default: return false;
    }
  }

  double constant(std::int32_t i) const {
    const ExprNode& node = (*expr_)[i];
    if (node.prim == Prim::input) return constants_[static_cast<std::size_t>(node.index)];
    return node.prim == Prim::constant ? node.value : NAN;
  }

  Adjoint& at(std::int32_t i) { return adjoints_[static_cast<std::size_t>(i)]; }

  Expr* expr_;
  std::vector<double> constants_;
  std::vector<Adjoint> adjoints_;
};

bool is_of_16_bits(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

bool holds(DType dtype, double value) {
  const float held =
      dtype == DType::f16 ? f16_to_float(float_to_f16(to_odd(value))) : bf16_to_float(float_to_bf16(to_odd(value)));
  return held == value;
}

bool is_rounded(Prim prim) {
  switch (prim) {
    case Prim::neg:
    case Prim::abs:
    case Prim::minimum:
    case Prim::maximum:
    case Prim::select:
    case Prim::convert: return false;
    default: return primitive(prim).rule == PrimRule::number || primitive(prim).rule == PrimRule::real;
  }
}

// Replays nodes of an Expr as nodes of the graph.
class Replay {
 public:
  Replay(const GradCall& call, const Expr& expr, std::int32_t root)
      : call_(call), expr_(expr), values_(static_cast<std::size_t>(expr.size())) {
    for (std::int32_t i = 0; i < expr.size(); ++i) {
      if (expr[i].prim != Prim::input) continue;
      const auto index = static_cast<std::size_t>(expr[i].index);
      at(i) = index < call.inputs.size() ? call.inputs[index] : call.grads[0];
    }
    if (!at(root).valid()) at(root) = call.outputs[0];
  }

  // From here on in f32 where values are of 16 bits.
  void widen() {
    is_wide_ = true;
    for (Value& value : values_) {
      if (value.valid() && is_of_16_bits(value.dtype())) value = cast(value, f32);
    }
  }

  // Whether values of 16 bits would be rounded on the way to this one, not only at its end: by an operation whose
  // result another reads, or where a constant is one that 16 bits do not hold.
  bool rounds_between(std::int32_t root) const {
    std::vector<std::int32_t> open{root};
    std::vector<bool> seen(values_.size());
    int roundings = 0;
    while (!open.empty()) {
      const auto i = static_cast<std::size_t>(open.back());
      open.pop_back();
      if (seen[i] || values_[i].valid()) continue;
      seen[i] = true;
      const ExprNode& node = expr_.nodes()[i];
      const bool is_narrow = is_float(node.dtype) && is_of_16_bits(storage(node.dtype));
      if (node.prim == Prim::constant && is_narrow && !holds(storage(node.dtype), node.value)) return true;
      if (is_rounded(node.prim) && is_narrow && ++roundings > 1) return true;
      for (int k = 0; k < primitive(node.prim).arity; ++k) open.push_back(node.args[k]);
    }
    return false;
  }

  // A formula may be deeper than the stack: operands of a node are made before it, from a list.
  Value value(std::int32_t root) {
    std::vector<std::int32_t> open{root};
    while (!open.empty()) {
      const std::int32_t i = open.back();
      if (!at(i).valid() && !open_args(expr_[i], &open)) at(i) = made(expr_[i]);
      if (open.back() == i) open.pop_back();
    }
    return at(root);
  }

 private:
  // Adds the arguments that are not there yet, the first of them last; false when all are.
  bool open_args(const ExprNode& node, std::vector<std::int32_t>* open) {
    const std::size_t before = open->size();
    for (int k = primitive(node.prim).arity; k-- > 0;) {
      if (!at(node.args[k]).valid()) open->push_back(node.args[k]);
    }
    return open->size() > before;
  }

  Value made(const ExprNode& node) {
    if (node.prim == Prim::constant) {
      const Number number = node.dtype == DType::i64 ? Number(node.whole) : Number(node.value);
      return full(call_.graph, {}, number, storage(node.dtype));
    }
    Values args;
    for (int k = 0; k < primitive(node.prim).arity; ++k) args.push_back(at(node.args[k]));
    if (node.prim == Prim::convert) return cast(args[0], node.dtype);
    const OpDef* op = find_op(primitive(node.prim).name);
    PD_ASSERT(op != nullptr, "every scalar primitive is an op too");
    return call(*op, args).front();
  }

  Value& at(std::int32_t i) { return values_[static_cast<std::size_t>(i)]; }
  // A constant takes the dtype that values of its compute dtype are stored in here, so that bf16 stays bf16.
  DType storage(DType compute) const {
    if (is_wide_) return compute;
    const DType out = call_.outputs[0].dtype();
    if (compute_dtype(out) == compute) return out;
    for (const Value& input : call_.inputs) {
      if (compute_dtype(input.dtype()) == compute) return input.dtype();
    }
    return compute;
  }

  const GradCall& call_;
  const Expr& expr_;
  Values values_;
  bool is_wide_ = false;
};

// The value as the input is stored: rounded in memory, not for its readers in the same kernel.
Value stored(const Value& value, DType dtype) {
  if (value.dtype() == dtype || !is_of_16_bits(dtype) || value.dtype() != f32) return value;
  return call("store_as", {value}, {{"dtype", dtype}});
}

}  // namespace

FormulaGradient formula_gradient(const GradCall& call, bool is_chosen) {
  std::vector<DType> dtypes;
  std::vector<double> constants;
  for (const Value& input : call.inputs) {
    dtypes.push_back(input.dtype());
    constants.push_back(number_everywhere(input.graph(), input.ref()).value_or(NAN));
  }
  constants.push_back(NAN);  // the adjoint, whose value is not known
  FormulaGradient made{Values(call.inputs.size()), std::vector<bool>(call.inputs.size())};
  const TracedFormula& traced = traced_formula(*call.node.op, dtypes, call.node.attrs);
  if (!is_float(traced.expr.dtype_of(traced.root))) return made;  // a comparison
  Expr expr = traced.expr;
  const std::int32_t size = expr.size();
  const Scalar seed = make_input(&expr, static_cast<std::int32_t>(call.inputs.size()), expr.dtype_of(traced.root));
  const auto adjoints = Reverse(&expr, std::move(constants)).walk(traced.root, {seed, is_chosen});

  Replay replay(call, expr, traced.root);
  const auto wanted_by = [&](std::int32_t i) -> std::optional<std::size_t> {
    if (i >= size || expr[i].prim != Prim::input || adjoints[static_cast<std::size_t>(i)].sum.expr() == nullptr)
      return {};
    const auto index = static_cast<std::size_t>(expr[i].index);
    return call.wanted[index] ? std::optional(index) : std::nullopt;
  };
  bool is_wide = false;
  for (std::int32_t i = 0; i < size; ++i) {
    is_wide |= wanted_by(i) && replay.rounds_between(adjoints[static_cast<std::size_t>(i)].sum.id());
  }
  if (is_wide) replay.widen();
  for (std::int32_t i = 0; i < size; ++i) {
    const auto index = wanted_by(i);
    if (!index) continue;
    const Reverse::Adjoint& adjoint = adjoints[static_cast<std::size_t>(i)];
    made.adjoints[*index] = stored(replay.value(adjoint.sum.id()), call.inputs[*index].dtype());
    made.is_chosen[*index] = adjoint.is_chosen;
  }
  return made;
}

}  // namespace paoding
