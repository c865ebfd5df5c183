// SPDX-License-Identifier: Apache-2.0
#include "autodiff/formula_gradient.h"

#include <optional>

#include "base/check.h"
#include "graph/formula.h"
#include "paoding/ops.h"
#include "scalar/primitive.h"

namespace paoding {
namespace {

// Reverse walk over an Expr: adjoint of every node that depends on an input, in terms of more nodes of the Expr.
std::vector<Scalar> reverse(Expr* expr, std::int32_t root, Scalar seed, std::int32_t size) {
  std::vector<Scalar> adjoint(static_cast<std::size_t>(size));
  adjoint[static_cast<std::size_t>(root)] = seed;
  for (std::int32_t i = root; i >= 0; --i) {
    const Scalar g = adjoint[static_cast<std::size_t>(i)];
    if (g.expr() == nullptr) continue;
    const ExprNode node = (*expr)[i];  // a copy: the Expr grows below
    const Primitive& row = primitive(node.prim);
    std::vector<Scalar> args, terms(static_cast<std::size_t>(row.arity));
    for (int k = 0; k < row.arity; ++k) args.push_back({expr, node.args[k]});
    row.derivative({expr, i}, args, g, terms);
    for (int k = 0; k < row.arity; ++k) {
      const Scalar term = terms[static_cast<std::size_t>(k)];
      if (term.expr() == nullptr || !is_float(args[static_cast<std::size_t>(k)].dtype())) continue;
      Scalar& sum = adjoint[static_cast<std::size_t>(node.args[k])];
      sum = sum.expr() == nullptr ? term : sum + term;
    }
  }
  return adjoint;
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

  // A formula may be deeper than the stack is: what a node needs is made before it, from a list.
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
};

}  // namespace

Values formula_gradient(const GradCall& call) {
  std::vector<DType> dtypes;
  for (const Value& input : call.inputs) dtypes.push_back(input.dtype());
  const TracedFormula& traced = traced_formula(*call.node.op, dtypes, call.node.attrs);
  if (!is_float(traced.expr.dtype_of(traced.root))) return Values(call.inputs.size());  // a comparison
  Expr expr = traced.expr;
  const std::int32_t size = expr.size();
  const Scalar seed = make_input(&expr, static_cast<std::int32_t>(call.inputs.size()), expr.dtype_of(traced.root));
  const std::vector<Scalar> adjoints = reverse(&expr, traced.root, seed, size);

  Replay replay(call, expr, traced.root);
  Values result(call.inputs.size());
  for (std::int32_t i = 0; i < size; ++i) {
    if (expr[i].prim != Prim::input) continue;
    const auto index = static_cast<std::size_t>(expr[i].index);
    const Scalar adjoint = adjoints[static_cast<std::size_t>(i)];
    if (call.wanted[index] && adjoint.expr() != nullptr) result[index] = replay.value(adjoint.id());
  }
  return result;
}

}  // namespace paoding
