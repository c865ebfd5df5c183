// SPDX-License-Identifier: Apache-2.0
// Graphs with branches and loops that tests run in several ways.
#pragma once

#include "tests/support/program_check.h"

namespace paoding::testing_program {

inline Tensor number(DType dtype, double value) { return Tensor::from(dtype, {}, Dense{value}); }

/// A branch in a loop without a length in a branch.
inline void build_nested(Graph& g) {
  const Value p = g.input("p", boolean, {}), n = g.input("n", i32, {}), x = g.input("x", f32, {3});
  const Value y = cond(
      p,
      [&] {
        return while_loop(
            {x, full(g, {}, 0, i32)}, [&](const Values& v) { return less(v[1], n); },
            [&](const Values& v) {
              const Value is_third = equal(v[1], full(g, {}, 2, i32));
              return Values{cond(
                                is_third, [&] { return v[0] * 2.0; }, [&] { return v[0] + x; }),
                            v[1] + 1};
            })[0];
      },
      [&] { return x - 1.0; });
  g.fetch("y", y);
}

/// A branch whose products a library runs.
inline void build_branch_of_products(Graph& g) {
  const Value p = g.input("p", boolean, {}), x = g.input("x", f64, {4, 4});
  g.fetch("y", cond(
                   p, [&] { return matmul(matmul(x, x), x); }, [&] { return x * 3.0; }));
}

}  // namespace paoding::testing_program
