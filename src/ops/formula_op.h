// SPDX-License-Identifier: Apache-2.0
// The families of elementwise ops share these: their usual cases, ops that are one primitive, numbers beside a value.
#pragma once

#include "paoding/op.h"
#include "paoding/ops/number.h"

namespace paoding {

/// Shapes that every elementwise op of one input, of two inputs, is tried with.
const std::vector<OpCase>& unary_cases();
const std::vector<OpCase>& binary_cases();
/// The unary ones and that integers are refused.
std::vector<OpCase> float_cases();

/// An op that is one scalar primitive of the same name, on one or two inputs.
void register_primitive(const char* name, const char* summary, Prim prim, int arity,
                        const std::vector<OpCase>& cases = {});

/// An op of one input without attributes: its formula and, where numerics ask for one, its gradient.
template <class F>
void register_unary(const char* name, const char* summary, F f, const std::vector<OpCase>& cases,
                    std::function<Values(const GradCall&)> gradient = {}) {
  register_op({.name = name,
               .summary = summary,
               .kind = OpKind::formula,
               .inputs = {"a"},
               .formula = formula(f),
               .gradient = std::move(gradient),
               .cases = cases});
}

}  // namespace paoding
