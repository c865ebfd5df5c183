// SPDX-License-Identifier: Apache-2.0
// Scalar formulas: the computation of an elementwise op for one element, written once with Scalar and traced into an
// Expr, a small graph of scalar primitives. SIMD code, CUDA source, the float64 reference and the derivative are all
// read off that one Expr.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "paoding/types.h"

namespace paoding {

/// The scalar primitives. Each has one row in the table of src/scalar/primitive.cpp and one SIMD routine in src/cpu/.
enum class Prim : std::uint8_t {
  input,         // element of the formula's argument `index`
  constant,      // `value`
  index,         // number `index` of a group that follows from the iteration point; in no formula
  reduced,       // result `index` of a group's own reductions; in no formula
  convert,       // to `dtype`; to f16, bf16 or u8 it rounds there and widens back
  add,           // a + b
  sub,           // a - b
  mul,           // a * b
  div,           // a / b, floats only
  floor_divide,  // the greatest integer <= a / b; of integers by 0 it is 0
  remainder,     // a - b * floor(a / b), with b's sign; of integers by 0 it is 0
  neg,           // -a
  abs,           // |a|
  minimum,       // the smaller; NaN if either is
  maximum,       // the larger; NaN if either is
  floor,         // the greatest integer <= a; integers stay, here and in the next three
  ceil,          // the least integer >= a
  round,         // the nearest integer, half to even
  trunc,         // without its fraction
  pow,           // a^b; 1 for b = 0 and for a = 1, NaN for a < 0 and a fractional b
  exp,           // e^a
  expm1,         // e^a - 1, with all digits near 0
  log,           // natural logarithm
  log1p,         // log(1 + a), with all digits near 0
  log2,          // logarithm to base 2, exact for powers of 2
  log10,         // logarithm to base 10
  sqrt,          // square root
  rsqrt,         // 1 / sqrt(a)
  sin,           // sine of radians
  cos,           // cosine of radians
  tan,           // tangent of radians
  tanh,          // hyperbolic tangent
  sigmoid,       // 1 / (1 + e^-a)
  erf,           // 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to a
  erfc,          // 1 - erf(a), with all digits for large a
  asin,          // arc sine, in radians; NaN beyond -1 and 1
  acos,          // arc cosine, in radians; NaN beyond -1 and 1
  atan,          // arc tangent, in radians
  sinh,          // hyperbolic sine
  cosh,          // hyperbolic cosine
  asinh,         // inverse of sinh
  acosh,         // inverse of cosh, >= 0; NaN below 1
  atanh,         // inverse of tanh; NaN beyond -1 and 1
  atan2,         // the angle of the point (b, a), in radians from -pi to pi
  bitwise_and,   // a & b of integers, in two's complement
  less,          // a < b, a bool
  less_equal,    // a <= b, a bool
  equal,         // a == b, a bool
  logical_and,   // a and b, of bools
  logical_or,    // a or b, of bools
  logical_not,   // not a, of a bool
  select,        // a ? b : c, of a bool and two values of one dtype
  random_bits,   // 32 random bits as an i32, of (index, stream, seed), all i64: see random_bits() below
};
inline constexpr int kPrimCount = static_cast<int>(Prim::random_bits) + 1;

/// One value of an Expr. Every argument stands before the node that uses it.
struct ExprNode {
  Prim prim = Prim::constant;
  DType dtype = DType::f32;             // f64, f32, i64, i32 or bool; for convert the exact target dtype
  std::int32_t args[3] = {-1, -1, -1};  // indices of earlier nodes
  std::int32_t index = -1;              // which one, for input, index and reduced
  double value = 0;                     // the number, for Prim::constant
  std::int64_t whole = 0;               // the same of an i64, where a double may round it

  friend bool operator==(const ExprNode&, const ExprNode&) = default;
};

/// A graph of scalar primitives in evaluation order, without duplicates. Threads may share one that none changes.
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
  std::vector<std::int32_t> table_;  // of a large one: its nodes by their hashes, -1: free; at most half full
};

/// A symbolic scalar, on which a formula is traced. Mixing with a double makes a constant of the other's dtype. It
/// belongs to the formula that is being traced: computing with a Scalar() or with one of another formula is an Error
/// (argument). It belongs to the thread that traces.
class Scalar {
 public:
  Scalar() = default;
  Scalar(Expr* expr, std::int32_t id) : expr_(expr), id_(id) {}
  std::int32_t id() const { return id_; }
  Expr* expr() const { return expr_; }
  DType dtype() const;
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
/// The same with an integer that an i64 keeps exactly.
Scalar make_constant(Expr* expr, std::int64_t value, DType compute);
/// a converted to `dtype` (a cast: rounds to f16, bf16 and u8 too).
Scalar convert(Scalar a, DType dtype);

Scalar operator+(Scalar a, Scalar b);
Scalar operator-(Scalar a, Scalar b);
Scalar operator*(Scalar a, Scalar b);
Scalar operator/(Scalar a, Scalar b);
Scalar operator-(Scalar a);
Scalar operator<(Scalar a, Scalar b);
Scalar operator<=(Scalar a, Scalar b);
Scalar operator>(Scalar a, Scalar b);
Scalar operator>=(Scalar a, Scalar b);
Scalar operator+(Scalar a, double b);
Scalar operator-(Scalar a, double b);
Scalar operator*(Scalar a, double b);
Scalar operator/(Scalar a, double b);
Scalar operator<(Scalar a, double b);
Scalar operator<=(Scalar a, double b);
Scalar operator>(Scalar a, double b);
Scalar operator>=(Scalar a, double b);
Scalar operator+(double a, Scalar b);
Scalar operator-(double a, Scalar b);
Scalar operator*(double a, Scalar b);
Scalar operator/(double a, Scalar b);
Scalar floor_divide(Scalar a, Scalar b);
Scalar remainder(Scalar a, Scalar b);
Scalar abs(Scalar a);
Scalar minimum(Scalar a, Scalar b);
Scalar maximum(Scalar a, Scalar b);
Scalar floor(Scalar a);
Scalar ceil(Scalar a);
Scalar round(Scalar a);
Scalar trunc(Scalar a);
Scalar pow(Scalar a, Scalar b);
Scalar exp(Scalar a);
Scalar expm1(Scalar a);
Scalar log(Scalar a);
Scalar log1p(Scalar a);
Scalar log2(Scalar a);
Scalar log10(Scalar a);
Scalar sqrt(Scalar a);
Scalar rsqrt(Scalar a);
Scalar sin(Scalar a);
Scalar cos(Scalar a);
Scalar tan(Scalar a);
Scalar tanh(Scalar a);
Scalar sigmoid(Scalar a);
Scalar erf(Scalar a);
Scalar erfc(Scalar a);
Scalar asin(Scalar a);
Scalar acos(Scalar a);
Scalar atan(Scalar a);
Scalar sinh(Scalar a);
Scalar cosh(Scalar a);
Scalar asinh(Scalar a);
Scalar acosh(Scalar a);
Scalar atanh(Scalar a);
Scalar atan2(Scalar a, Scalar b);
Scalar bitwise_and(Scalar a, Scalar b);
Scalar equal(Scalar a, Scalar b);
Scalar logical_and(Scalar a, Scalar b);
Scalar logical_or(Scalar a, Scalar b);
Scalar logical_not(Scalar a);
Scalar select(Scalar condition, Scalar if_true, Scalar if_false);

/// 32 random bits as an i32, a pure function of three i64 and the same on every device: word (index mod 4) of
/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) with key = seed and
/// counter = (index div 4, stream), low words first. So the elements of a tensor take their position as `index`; every
/// op and every run takes a `stream` of its own, such as op_number * 2^32 + run_number; `seed` is the user's.
/// Neighbouring indices of one stream and seed are made together, which is several times faster than any other order.
/// All three are below 2^53 where the float64 reference is to agree.
Scalar random_bits(Scalar index, Scalar stream, Scalar seed);
/// Uniform in [0, 1) of the same arguments: a multiple of 2^-24 in f32, of 2^-53 in f64, every one as likely. The
/// index is below 2^52 (f64 also reads index + 2^52). 1 - it is in (0, 1], as a logarithm needs it; a normal is
/// sqrt(-2 log(1 - u1)) cos(2 pi u2) with u1 and u2 of two streams.
Scalar random_uniform(Scalar index, Scalar stream, Scalar seed, DType dtype);

}  // namespace paoding
