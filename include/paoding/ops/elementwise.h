// SPDX-License-Identifier: Apache-2.0
// Elementwise arithmetic. Inputs of elementwise ops broadcast together (NumPy's rule) and are promoted to one dtype; a
// number beside a value becomes a constant of the value's dtype, error (dtype) where no element of that is the number:
// a fraction beside integers, 300 beside u8 (ops/number.h).
#pragma once

#include <limits>
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
/// a / b rounded down, as Python's //; gradient 0. Numbers; integers divided by 0 give 0.
Value floor_divide(const Value& a, const Value& b);
Value floor_divide(const Value& a, Number b);
/// a - b * floor(a / b), with the sign of b, as Python's %; exact, whatever the quotient. Gradients: 1 for a,
/// -floor(a / b) for b. Numbers; of integers and 0 it is 0.
Value remainder(const Value& a, const Value& b);
Value remainder(const Value& a, Number b);
/// a - b * trunc(a / b), with the sign of a, as C's fmod; exact, whatever the quotient. Gradients: 1 for a,
/// -trunc(a / b) for b. Numbers; of integers and 0 it is 0.
Value fmod(const Value& a, const Value& b);
Value fmod(const Value& a, Number b);
/// -a. Numbers.
Value neg(const Value& a);
/// |a|; the gradient at 0 is 0. Numbers.
Value abs(const Value& a);
/// The smaller of a and b, NaN if either is. On a tie the gradient goes to a. Numbers.
Value minimum(const Value& a, const Value& b);
Value minimum(const Value& a, Number b);
/// The larger of a and b, NaN if either is. On a tie the gradient goes to a. Numbers.
Value maximum(const Value& a, const Value& b);
Value maximum(const Value& a, Number b);
/// The greatest integer <= a; gradient 0. Numbers; integers stay, here and in the next three.
Value floor(const Value& a);
/// The least integer >= a; gradient 0. Numbers.
Value ceil(const Value& a);
/// The nearest integer, of two the even one; gradient 0. Numbers.
Value round(const Value& a);
/// a without its fraction; gradient 0. Numbers.
Value trunc(const Value& a);
/// -1, 0 or 1, NaN of NaN; gradient 0. Numbers.
Value sign(const Value& a);
/// a * a. Numbers.
Value square(const Value& a);
/// 1 / a. Floats.
Value reciprocal(const Value& a);
/// min(max(a, min), max), NaN of NaN; the gradient is 1 in [min, max], 0 outside. Numbers. Error (argument) unless
/// min <= max, (dtype) for a fraction beside integers.
Value clamp(const Value& a, double min, double max = std::numeric_limits<double>::infinity());
/// The same with bounds that are values, max where they cross; at a bound the gradient goes to a.
Value clamp(const Value& a, const Value& min, const Value& max);
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
Value operator+(const Value& a, Number b);
Value operator-(const Value& a, Number b);
Value operator*(const Value& a, Number b);
Value operator/(const Value& a, Number b);
Value operator+(Number a, const Value& b);
Value operator-(Number a, const Value& b);
Value operator*(Number a, const Value& b);
Value operator/(Number a, const Value& b);

}  // namespace paoding
