// SPDX-License-Identifier: Apache-2.0
// Building an Expr: nodes without duplicates, dtype checks, constants folded.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "paoding/can_hold.h"
#include "scalar/primitive.h"

namespace paoding {
namespace {

std::size_t hash_of(const ExprNode& node) {
  std::size_t hash = static_cast<std::size_t>(node.prim) * 31 + static_cast<std::size_t>(node.dtype);
  auto mix = [&](std::size_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15ull, hash ^= hash >> 29; };
  for (std::int32_t arg : node.args) mix(static_cast<std::size_t>(arg));
  mix(static_cast<std::size_t>(node.index));
  mix(std::bit_cast<std::uint64_t>(node.value));
  mix(static_cast<std::size_t>(node.whole));
  return hash;
}

bool same(const ExprNode& a, const ExprNode& b) {  // bitwise on the constant, so that -0.0 and NaN stay themselves
  return a.prim == b.prim && a.dtype == b.dtype && std::equal(a.args, a.args + 3, b.args) && a.index == b.index &&
         a.whole == b.whole && std::bit_cast<std::uint64_t>(a.value) == std::bit_cast<std::uint64_t>(b.value);
}

Scalar binary(Prim prim, Scalar a, Scalar b) { return apply_prim(prim, std::array{a, b}); }
Scalar unary(Prim prim, Scalar a) { return apply_prim(prim, std::array{a}); }

bool is_constant(Scalar a, double value) {
  const ExprNode& node = (*a.expr())[a.id()];
  return node.prim == Prim::constant && node.value == value && !std::signbit(node.value);
}

bool is_constant(Scalar a) { return (*a.expr())[a.id()].prim == Prim::constant; }

// Arithmetic on constants of floats, as the reference does it. Integers wrap around, so theirs is left to the device.
bool fold(const Primitive& row, std::span<const Scalar> args, Scalar* result) {
  if (!is_float(args[0].dtype()) || !std::all_of(args.begin(), args.end(), [](Scalar a) { return is_constant(a); })) {
    return false;
  }
  double values[3] = {};
  for (std::size_t i = 0; i < args.size(); ++i) values[i] = (*args[i].expr())[args[i].id()].value;
  const DType dtype = row.rule == PrimRule::compare ? DType::boolean : args[0].dtype();
  *result = make_constant(args[0].expr(), row.evaluate(values[0], values[1], values[2]), dtype);
  return true;
}

// Identities that hold for every input, NaN and infinity too (so x * 0 stays). Derivatives make many of them.
bool simplify(Prim prim, std::span<const Scalar> args, Scalar* result) {
  if (prim == Prim::mul && is_constant(args[0], 1)) return *result = args[1], true;
  if ((prim == Prim::mul || prim == Prim::div) && is_constant(args[1], 1)) return *result = args[0], true;
  if (prim == Prim::sub && is_constant(args[1], 0)) return *result = args[0], true;
  if (prim == Prim::select && args[1].id() == args[2].id()) return *result = args[1], true;
  if (prim == Prim::select && is_constant(args[0])) {
    return *result = (*args[0].expr())[args[0].id()].value != 0 ? args[1] : args[2], true;
  }
  const bool rounds = prim == Prim::floor || prim == Prim::ceil || prim == Prim::round || prim == Prim::trunc;
  if (rounds && is_integer(args[0].dtype())) return *result = args[0], true;
  return false;
}

}  // namespace

std::int32_t Expr::add(const ExprNode& node) {
  constexpr std::size_t kFew = 12;  // are looked through
  if (nodes_.size() < kFew) {
    for (std::int32_t i = 0; i < size(); ++i) {
      if (same((*this)[i], node)) return i;
    }
    nodes_.push_back(node);
    return size() - 1;
  }
  const auto place_of = [this](const ExprNode& of) {
    const std::size_t mask = table_.size() - 1;
    std::size_t at = hash_of(of) & mask;
    while (table_[at] >= 0 && !same((*this)[table_[at]], of)) at = (at + 1) & mask;
    return at;
  };
  if (2 * (nodes_.size() + 1) > table_.size()) {
    table_.assign(std::bit_ceil(4 * nodes_.size()), -1);
    for (std::int32_t i = 0; i < size(); ++i) table_[place_of((*this)[i])] = i;
  }
  const std::size_t at = place_of(node);
  if (table_[at] < 0) {
    nodes_.push_back(node);
    table_[at] = size() - 1;
  }
  return table_[at];
}

DType Scalar::dtype() const {
  if (expr_ == nullptr) fail(ErrorKind::argument, "formula: it computes with a Scalar that was never given a value");
  if (id_ < 0 || id_ >= expr_->size()) fail(ErrorKind::argument, "formula: it computes with a Scalar of another one");
  return expr_->dtype_of(id_);
}

Scalar Scalar::constant(double value) const {
  const DType mine = dtype();
  if (!can_hold(mine, value)) {
    fail(ErrorKind::dtype, "formula: the constant {} stands beside {}, and no {} is that; convert() it first", value,
         to_string(mine), to_string(mine));
  }
  return make_constant(expr_, value, mine);
}

namespace {
void require_formula(const Expr* expr) {
  if (expr == nullptr) fail(ErrorKind::argument, "formula: an input or a constant is made for no formula");
}
}  // namespace

Scalar make_input(Expr* expr, std::int32_t index, DType compute) {
  require_formula(expr);
  return {expr, expr->add({.prim = Prim::input, .dtype = compute, .index = index})};
}

Scalar make_constant(Expr* expr, double value, DType compute) {
  require_formula(expr);
  ExprNode node{.prim = Prim::constant, .dtype = compute, .value = value};
  if (compute == DType::i64) {  // identities of reductions go to 2^63, which is the greatest i64
    const bool fits = value >= -0x1p63 && value < 0x1p63;
    node.whole = fits        ? static_cast<std::int64_t>(value)
                 : value > 0 ? std::numeric_limits<std::int64_t>::max()
                             : std::numeric_limits<std::int64_t>::min();
  }
  return {expr, expr->add(node)};
}

Scalar make_constant(Expr* expr, std::int64_t value, DType compute) {
  require_formula(expr);
  if (compute != DType::i64) return make_constant(expr, static_cast<double>(value), compute);
  return {expr,
          expr->add({.prim = Prim::constant, .dtype = compute, .value = static_cast<double>(value), .whole = value})};
}

Scalar convert(Scalar a, DType dtype) {
  if (a.dtype() == dtype) return a;
  return {a.expr(), a.expr()->add({.prim = Prim::convert, .dtype = dtype, .args = {a.id(), -1, -1}})};
}

Scalar apply_prim(Prim prim, std::span<const Scalar> args) {
  const Primitive& row = primitive(prim);
  PD_ASSERT(static_cast<int>(args.size()) == row.arity, "wrong number of arguments for a scalar primitive");
  const int first_value = row.rule == PrimRule::select ? 1 : 0;
  for (const Scalar& arg : args) {
    arg.dtype();  // it has one
    if (arg.expr() != args[0].expr()) {
      fail(ErrorKind::argument, "{}: its arguments are Scalars of two formulas", row.name);
    }
  }
  const DType dtype = args[static_cast<std::size_t>(first_value)].dtype();
  for (std::size_t i = static_cast<std::size_t>(first_value); i < args.size(); ++i) {
    if (args[i].dtype() != dtype) {
      fail(ErrorKind::dtype, "{}: argument {} is {}, but argument {} is {}", row.name, i, to_string(args[i].dtype()),
           first_value, to_string(dtype));
    }
  }
  const bool is_bool = dtype == DType::boolean;
  switch (row.rule) {
    case PrimRule::number:
    case PrimRule::compare:
      if (is_bool) fail(ErrorKind::dtype, "{}: takes numbers, not bool", row.name);
      break;
    case PrimRule::real:
      if (!is_float(dtype)) fail(ErrorKind::dtype, "{}: takes floats, not {}", row.name, to_string(dtype));
      break;
    case PrimRule::integer:
      if (!is_integer(dtype)) fail(ErrorKind::dtype, "{}: takes integers, not {}", row.name, to_string(dtype));
      break;
    case PrimRule::logical:
      if (!is_bool) fail(ErrorKind::dtype, "{}: takes bools, not {}", row.name, to_string(dtype));
      break;
    case PrimRule::select:
      if (args[0].dtype() != DType::boolean) {
        fail(ErrorKind::dtype, "select: the condition is {}, not bool", to_string(args[0].dtype()));
      }
      break;
    case PrimRule::random:
      if (dtype != DType::i64) fail(ErrorKind::dtype, "{}: takes i64, not {}", row.name, to_string(dtype));
      break;
    case PrimRule::leaf:
    case PrimRule::convert: PD_ASSERT(false, "leaves and converts have their own makers");
  }
  Scalar simple;
  if (simplify(prim, args, &simple) || fold(row, args, &simple)) return simple;
  ExprNode node{.prim = prim,
                .dtype = row.rule == PrimRule::compare  ? DType::boolean
                         : row.rule == PrimRule::random ? DType::i32
                                                        : dtype};
  for (std::size_t i = 0; i < args.size(); ++i) node.args[i] = args[i].id();
  return {args[0].expr(), args[0].expr()->add(node)};
}

Scalar operator+(Scalar a, Scalar b) { return binary(Prim::add, a, b); }
Scalar operator-(Scalar a, Scalar b) { return binary(Prim::sub, a, b); }
Scalar operator*(Scalar a, Scalar b) { return binary(Prim::mul, a, b); }
Scalar operator/(Scalar a, Scalar b) { return binary(Prim::div, a, b); }
Scalar operator-(Scalar a) { return unary(Prim::neg, a); }
Scalar operator<(Scalar a, Scalar b) { return binary(Prim::less, a, b); }
Scalar operator<=(Scalar a, Scalar b) { return binary(Prim::less_equal, a, b); }
Scalar operator>(Scalar a, Scalar b) { return b < a; }
Scalar operator>=(Scalar a, Scalar b) { return b <= a; }
Scalar operator+(Scalar a, double b) { return a + a.constant(b); }
Scalar operator-(Scalar a, double b) { return a - a.constant(b); }
Scalar operator*(Scalar a, double b) { return a * a.constant(b); }
Scalar operator/(Scalar a, double b) { return a / a.constant(b); }
Scalar operator<(Scalar a, double b) { return a < a.constant(b); }
Scalar operator<=(Scalar a, double b) { return a <= a.constant(b); }
Scalar operator>(Scalar a, double b) { return a.constant(b) < a; }
Scalar operator>=(Scalar a, double b) { return a.constant(b) <= a; }
Scalar operator+(double a, Scalar b) { return b.constant(a) + b; }
Scalar operator-(double a, Scalar b) { return b.constant(a) - b; }
Scalar operator*(double a, Scalar b) { return b.constant(a) * b; }
Scalar operator/(double a, Scalar b) { return b.constant(a) / b; }
Scalar floor_divide(Scalar a, Scalar b) { return binary(Prim::floor_divide, a, b); }
Scalar remainder(Scalar a, Scalar b) { return binary(Prim::remainder, a, b); }
Scalar minimum(Scalar a, Scalar b) { return binary(Prim::minimum, a, b); }
Scalar maximum(Scalar a, Scalar b) { return binary(Prim::maximum, a, b); }
Scalar pow(Scalar a, Scalar b) { return binary(Prim::pow, a, b); }
Scalar equal(Scalar a, Scalar b) { return binary(Prim::equal, a, b); }
Scalar logical_and(Scalar a, Scalar b) { return binary(Prim::logical_and, a, b); }
Scalar logical_or(Scalar a, Scalar b) { return binary(Prim::logical_or, a, b); }
Scalar abs(Scalar a) { return unary(Prim::abs, a); }
Scalar floor(Scalar a) { return unary(Prim::floor, a); }
Scalar ceil(Scalar a) { return unary(Prim::ceil, a); }
Scalar round(Scalar a) { return unary(Prim::round, a); }
Scalar trunc(Scalar a) { return unary(Prim::trunc, a); }
Scalar exp(Scalar a) { return unary(Prim::exp, a); }
Scalar expm1(Scalar a) { return unary(Prim::expm1, a); }
Scalar log(Scalar a) { return unary(Prim::log, a); }
Scalar log1p(Scalar a) { return unary(Prim::log1p, a); }
Scalar log2(Scalar a) { return unary(Prim::log2, a); }
Scalar log10(Scalar a) { return unary(Prim::log10, a); }
Scalar sqrt(Scalar a) { return unary(Prim::sqrt, a); }
Scalar rsqrt(Scalar a) { return unary(Prim::rsqrt, a); }
Scalar sin(Scalar a) { return unary(Prim::sin, a); }
Scalar cos(Scalar a) { return unary(Prim::cos, a); }
Scalar tan(Scalar a) { return unary(Prim::tan, a); }
Scalar tanh(Scalar a) { return unary(Prim::tanh, a); }
Scalar sigmoid(Scalar a) { return unary(Prim::sigmoid, a); }
Scalar erf(Scalar a) { return unary(Prim::erf, a); }
Scalar erfc(Scalar a) { return unary(Prim::erfc, a); }
Scalar asin(Scalar a) { return unary(Prim::asin, a); }
Scalar acos(Scalar a) { return unary(Prim::acos, a); }
Scalar atan(Scalar a) { return unary(Prim::atan, a); }
Scalar sinh(Scalar a) { return unary(Prim::sinh, a); }
Scalar cosh(Scalar a) { return unary(Prim::cosh, a); }
Scalar asinh(Scalar a) { return unary(Prim::asinh, a); }
Scalar acosh(Scalar a) { return unary(Prim::acosh, a); }
Scalar atanh(Scalar a) { return unary(Prim::atanh, a); }
Scalar atan2(Scalar a, Scalar b) { return binary(Prim::atan2, a, b); }
Scalar bitwise_and(Scalar a, Scalar b) { return binary(Prim::bitwise_and, a, b); }
Scalar logical_not(Scalar a) { return unary(Prim::logical_not, a); }
Scalar select(Scalar condition, Scalar if_true, Scalar if_false) {
  return apply_prim(Prim::select, std::array{condition, if_true, if_false});
}

Scalar random_bits(Scalar index, Scalar stream, Scalar seed) {
  return apply_prim(Prim::random_bits, std::array{index, stream, seed});
}

Scalar random_uniform(Scalar index, Scalar stream, Scalar seed, DType dtype) {
  const auto top = [](Scalar bits, double dropped) { return floor_divide(bits, bits.constant(dropped)); };
  const Scalar bits = random_bits(index, stream, seed);
  if (dtype == DType::f32) return (convert(top(bits, 256), DType::f32) + 0x1p23) * 0x1p-24;
  if (dtype != DType::f64) fail(ErrorKind::dtype, "random_uniform: makes f32 or f64, not {}", to_string(dtype));
  const Scalar more = random_bits(index + 0x1p52, stream, seed);
  const Scalar low = convert(top(more, 2048), DType::f64) + 0x1p20;
  return ((convert(bits, DType::f64) + 0x1p31) * 0x1p21 + low) * 0x1p-53;
}

}  // namespace paoding
