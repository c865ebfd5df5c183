// SPDX-License-Identifier: Apache-2.0
// Integers bit by bit. One op is a primitive, the others follow from it by arithmetic that wraps around.
#include "ops/families.h"
#include "ops/formula_op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

std::vector<OpCase> integer_cases() {
  return {{.shapes = {{4, 3}, {4, 3}}, .dtypes = {i32, i32}},
          {.shapes = {{4, 1, 3}, {5, 1}}, .dtypes = {i64, i64}},
          {.shapes = {{}, {7}}, .dtypes = {i32, i32}},
          {.shapes = {{2, 0}, {1}}, .dtypes = {i64, i64}},
          {.shapes = {{4, 3}, {4, 3}}, .error = "takes integers, not f32"},
          {.shapes = {{3}, {3}}, .dtypes = {boolean, boolean}, .error = "takes integers, not bool"}};
}

template <class F>
void register_bits(const char* name, const char* summary, F f) {
  register_op({.name = name,
               .summary = summary,
               .kind = OpKind::formula,
               .inputs = {"a", "b"},
               .formula = formula(f),
               .cases = integer_cases()});
}

}  // namespace

void register_bitwise_ops() {
  register_primitive("bitwise_and", "bits that are set in both a and b, integers", Prim::bitwise_and, 2,
                     integer_cases());
  register_bits("bitwise_or", "bits that are set in a or b, integers",
                [](Scalar a, Scalar b) { return a + b - bitwise_and(a, b); });
  register_bits("bitwise_xor", "bits that are set in a or b, not in both, integers", [](Scalar a, Scalar b) {
    const Scalar both = bitwise_and(a, b);
    return a + b - both - both;
  });
  register_unary("bitwise_not", "bits that are not set in a, an integer",
                 [](Scalar a) { return a.constant(-1) - bitwise_and(a, a); },  // which refuses floats
                 {{.shapes = {{4, 3}}, .dtypes = {i32}},
                  {.shapes = {{}}, .dtypes = {i64}},
                  {.shapes = {{2, 0}}, .dtypes = {i32}},
                  {.shapes = {{3}}, .error = "takes integers, not f32"}});
}

Value bitwise_and(const Value& a, const Value& b) { return call("bitwise_and", {a, b}); }
Value bitwise_or(const Value& a, const Value& b) { return call("bitwise_or", {a, b}); }
Value bitwise_xor(const Value& a, const Value& b) { return call("bitwise_xor", {a, b}); }
Value bitwise_not(const Value& a) { return call("bitwise_not", {a}); }

}  // namespace paoding
