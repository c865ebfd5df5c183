// SPDX-License-Identifier: Apache-2.0
// Scalar formulas: what an elementwise op computes for one element, written once with Scalar and traced into an
// Expr, a small graph of scalar primitives. SIMD code, CUDA text, the float64 reference and the derivative are all
// read off that one Expr.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "paoding/types.h"

namespace paoding {

/// The scalar primitives. Each has one row in the table of src/scalar/primitive.cpp and one SIMD routine in src/cpu/.
enum class Prim : std::uint8_t {
  input,        // element of the formula's argument `index`
  constant,     // `value`
  index,        // number `index` of a group that follows from the iteration point; in no formula
  reduced,      // result `index` of a group's own reductions; in no formula
  convert,      // to `dtype`; to f16, bf16 or u8 it rounds there and widens back
  add,          // a + b
  sub,          // a - b
  mul,          // a * b
  div,          // a / b, floats only
  neg,          // -a
  abs,          // |a|
  minimum,      // the smaller; NaN if either is
  maximum,      // the larger; NaN if either is
  exp,          // e^a
  log,          // natural logarithm
  sqrt,         // square root
  rsqrt,        // 1 / sqrt(a)
  tanh,         // hyperbolic tangent
  sigmoid,      // 1 / (1 + e^-a)
  less,         // a < b, a bool
  less_equal,   // a <= b, a bool
  equal,        // a == b, a bool
  logical_and,  // a and b, of bools
  logical_or,   // a or b, of bools
  logical_not,  // not a, of a bool
  select,       // a ? b : c, of a bool and two values of one dtype
};
inline constexpr int kPrimCount = static_cast<int>(Prim::select) + 1;

/// One value of an Expr. Every argument stands before the node that uses it.
struct ExprNode {
  Prim prim = Prim::constant;
  DType dtype = DType::f32;             // f64, f32, i64, i32 or bool; for convert the exact target dtype
  std::int32_t args[3] = {-1, -1, -1};  // indices of earlier nodes
  std::int32_t index = -1;              // which one, for input, index and reduced
  double value = 0;                     // the number, for Prim::constant

  friend bool operator==(const ExprNode&, const ExprNode&) = default;
};

/// A graph of scalar primitives in evaluation order, without duplicates.
class Expr {
 public:
  /// The index of this node, added if an equal one is not there yet.
  std::int32_t add(const ExprNode& node);
  const std::vector<ExprNode>& nodes() const { return nodes_; }
  const ExprNode& operator[](std::int32_t i) const { return nodes_[static_cast<std::size_t>(i)]; }
  std::int32_t size() const { return static_cast<std::int32_t>(nodes_.size()); }
  /// The dtype in which arithmetic on node i is done (convert to bf16 gives f32).
  DType dtype_of(std::int32_t i) const { return compute_dtype((*this)[i].dtype); }

 private:
  std::vector<ExprNode> nodes_;
  std::unordered_multimap<std::size_t, std::int32_t> by_hash_;
};

/// A symbolic scalar: what a formula is traced with. Mixing with a double makes a constant of the other's dtype.
class Scalar {
 public:
  Scalar() = default;
  Scalar(Expr* expr, std::int32_t id) : expr_(expr), id_(id) {}
  std::int32_t id() const { return id_; }
  Expr* expr() const { return expr_; }
  DType dtype() const { return expr_->dtype_of(id_); }
  /// A constant of this scalar's dtype.
  Scalar constant(double value) const;

 private:
  Expr* expr_ = nullptr;
  std::int32_t id_ = -1;
};

/// `prim` applied to scalars of one Expr. Error (dtype) when their dtypes do not fit the primitive.
Scalar apply_prim(Prim prim, std::span<const Scalar> args);
/// Input `index` of a formula over `expr`.
Scalar make_input(Expr* expr, std::int32_t index, DType compute);
Scalar make_constant(Expr* expr, double value, DType compute);
/// a converted to `dtype` (a cast: rounds to f16, bf16 and u8 too).
Scalar convert(Scalar a, DType dtype);

Scalar operator+(Scalar a, Scalar b);
Scalar operator-(Scalar a, Scalar b);
Scalar operator*(Scalar a, Scalar b);
Scalar operator/(Scalar a, Scalar b);
Scalar operator-(Scalar a);
Scalar operator<(Scalar a, Scalar b);
Scalar operator<=(Scalar a, Scalar b);
Scalar operator+(Scalar a, double b);
Scalar operator-(Scalar a, double b);
Scalar operator*(Scalar a, double b);
Scalar operator/(Scalar a, double b);
Scalar operator<(Scalar a, double b);
Scalar operator+(double a, Scalar b);
Scalar operator-(double a, Scalar b);
Scalar operator*(double a, Scalar b);
Scalar operator/(double a, Scalar b);
Scalar abs(Scalar a);
Scalar minimum(Scalar a, Scalar b);
Scalar maximum(Scalar a, Scalar b);
Scalar exp(Scalar a);
Scalar log(Scalar a);
Scalar sqrt(Scalar a);
Scalar rsqrt(Scalar a);
Scalar tanh(Scalar a);
Scalar sigmoid(Scalar a);
Scalar equal(Scalar a, Scalar b);
Scalar select(Scalar condition, Scalar if_true, Scalar if_false);

}  // namespace paoding
