// SPDX-License-Identifier: Apache-2.0
// The table of scalar primitives: everything a back end, the reference or the gradient asks of one.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "paoding/scalar.h"

namespace paoding {

/// Which dtypes a primitive takes and gives.
enum class PrimRule : std::uint8_t {
  leaf,     // no arguments
  number,   // operands of one numeric dtype give that dtype
  real,     // floats of one dtype give that dtype
  integer,  // integers of one dtype give that dtype
  compare,  // operands of one numeric dtype give bool
  logical,  // bools give bool
  select,   // bool and two of one dtype give that dtype
  random,   // three i64 give i32
  convert,  // anything gives the node's dtype
};

struct Primitive {
  std::string_view name;
  int arity;
  PrimRule rule;
  /// The reference meaning, in double (bools are 0 and 1).
  double (*evaluate)(double a, double b, double c);
  /// CUDA C++ with {0} {1} {2} for the arguments; `cuda` for f32 and integers, `cuda_f64` where f64 is written
  /// otherwise.
  std::string_view cuda;
  std::string_view cuda_f64;
  /// Adjoints of the arguments, given the adjoint `g` of the result `out`; an argument without one keeps an empty
  /// Scalar.
  void (*derivative)(Scalar out, std::span<const Scalar> args, Scalar g, std::span<Scalar> adjoints);
  /// The number with which argument k gives the other argument back, to the bit, also NaN and -0; none where there is
  /// none, or nobody asks.
  std::array<std::optional<double>, 2> identity = {};
  /// Whether it undoes itself: of one argument, twice.
  bool is_involution = false;
};

const Primitive& primitive(Prim prim);

/// Whether it takes tens of instructions: about as long as moving 8 bytes.
bool is_slow(Prim prim);

/// The value of every node of `expr` for these inputs, in double; only an explicit convert rounds. `indices` and
/// `reduced` are those of the group that the Expr belongs to; formulas have none.
std::vector<double> evaluate(const Expr& expr, std::span<const double> inputs, std::span<const double> indices = {},
                             std::span<const double> reduced = {});

/// `expr` as text, one node a line: "%3 = mul(%1, %2) f32". For dumps and golden tests.
std::string to_string(const Expr& expr);

}  // namespace paoding
