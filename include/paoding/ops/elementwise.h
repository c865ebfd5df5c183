// SPDX-License-Identifier: Apache-2.0
// Elementwise ops. Inputs broadcast together (NumPy's rule) and are promoted to one dtype.
#pragma once

#include <span>

#include "paoding/graph.h"

namespace paoding {

/// a + b. Numbers.
Value add(const Value& a, const Value& b);
/// a - b. Numbers.
Value sub(const Value& a, const Value& b);
/// a * b. Numbers.
Value mul(const Value& a, const Value& b);
/// a / b. Floats; error (dtype) otherwise.
Value div(const Value& a, const Value& b);
/// -a. Numbers.
Value neg(const Value& a);
/// |a|; the gradient at 0 is 0. Numbers.
Value abs(const Value& a);
/// The smaller of a and b, NaN if either is. On a tie the gradient goes to a.
Value minimum(const Value& a, const Value& b);
/// The larger of a and b, NaN if either is. On a tie the gradient goes to a.
Value maximum(const Value& a, const Value& b);
/// e^a. Floats.
Value exp(const Value& a);
/// Natural logarithm. Floats.
Value log(const Value& a);
/// Square root. Floats.
Value sqrt(const Value& a);
/// 1 / sqrt(a). Floats.
Value rsqrt(const Value& a);
/// Hyperbolic tangent. Floats.
Value tanh(const Value& a);
/// 1 / (1 + e^-a). Floats.
Value sigmoid(const Value& a);
/// log(1 + e^a), without overflow for large a; its gradient is sigmoid(a). Floats.
Value softplus(const Value& a);
/// a < b, a bool. Numbers.
Value less(const Value& a, const Value& b);
/// a <= b, a bool. Numbers.
Value less_equal(const Value& a, const Value& b);
/// a == b, a bool. Numbers.
Value equal(const Value& a, const Value& b);
/// condition ? a : b. `condition` is bool, a and b of one dtype after promotion.
Value select(const Value& condition, const Value& a, const Value& b);
/// 32 random bits as an i32: a pure function of three i64, the same on every device (Philox4x32-10). `index` is the
/// element's position, `stream` tells ops and runs apart, `seed` is the user's; they broadcast. How the bits are made
/// and used: random_bits() in scalar.h. Error (dtype) unless all are i64.
Value random_bits(const Value& index, const Value& stream, const Value& seed);
/// Straight line from a to b: a + t * (b - a), exactly b at t = 1. Floats.
Value lerp(const Value& a, const Value& b, const Value& t);
/// The sum of all inputs. Numbers; at least one input.
Value add_n(std::span<const Value> inputs);
/// a itself, as a constant for gradients: none flows back through it. Any dtype.
Value stop_gradient(const Value& a);
/// a converted to `dtype`; float to integer truncates, to f16 and bf16 rounds to nearest even.
Value cast(const Value& a, DType dtype);

Value operator+(const Value& a, const Value& b);
Value operator-(const Value& a, const Value& b);
Value operator*(const Value& a, const Value& b);
Value operator/(const Value& a, const Value& b);
Value operator-(const Value& a);
/// A number beside a value becomes a constant of the value's dtype.
Value operator+(const Value& a, double b);
Value operator-(const Value& a, double b);
Value operator*(const Value& a, double b);
Value operator/(const Value& a, double b);
Value operator+(double a, const Value& b);
Value operator-(double a, const Value& b);
Value operator*(double a, const Value& b);
Value operator/(double a, const Value& b);

}  // namespace paoding
