// SPDX-License-Identifier: Apache-2.0
// A formula op's formula as an Expr, for given input dtypes.
#pragma once

#include "paoding/op.h"

namespace paoding {

struct TracedFormula {
  Expr expr;               // Prim::input i is the op's input i
  std::int32_t root = -1;  // the result
};

/// `op`'s formula for inputs of these dtypes. Traced once per (op, dtypes, attributes) and kept.
/// Error (dtype) when the formula does not take them.
const TracedFormula& traced_formula(const OpDef& op, std::span<const DType> dtypes, const Attrs& attrs);
/// The same for an op that is not in the table yet.
TracedFormula trace_formula(const OpDef& op, std::span<const DType> dtypes, const Attrs& attrs);

/// The types of `op`'s outputs; for formula ops by broadcasting. Errors: as the op's.
std::vector<Type> infer_types(const OpCall& call);

/// Adds the parts of a composed op to `graph`; its name is the origin of the nodes.
Values expand_composed(Graph& graph, const OpDef& op, std::span<const Value> inputs, const Attrs& attrs);

/// Like call(), in a body that is read from text: it sees no values but its own inputs, so nothing else says that it is
/// one.
Values call_in_body(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs,
                    std::vector<std::shared_ptr<Graph>> bodies, Graph* body);

}  // namespace paoding
