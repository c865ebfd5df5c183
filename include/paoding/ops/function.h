// SPDX-License-Identifier: Apache-2.0
// Functions of one real number, and powers. In f32 within 4 units in the last place of the exact result.
#pragma once

#include "paoding/graph.h"

namespace paoding {

/// e^a. Floats.
Value exp(const Value& a);
/// e^a - 1, with all digits near 0. Floats.
Value expm1(const Value& a);
/// Natural logarithm. Floats.
Value log(const Value& a);
/// log(1 + a), with all digits near 0. Floats.
Value log1p(const Value& a);
/// Logarithm to base 2. Floats.
Value log2(const Value& a);
/// Logarithm to base 10. Floats.
Value log10(const Value& a);
/// Square root. Floats.
Value sqrt(const Value& a);
/// 1 / sqrt(a). Floats.
Value rsqrt(const Value& a);
/// Sine of radians. Floats.
Value sin(const Value& a);
/// Cosine of radians. Floats.
Value cos(const Value& a);
/// Tangent of radians. Floats.
Value tan(const Value& a);
/// Hyperbolic tangent. Floats.
Value tanh(const Value& a);
/// 1 / (1 + e^-a). Floats.
Value sigmoid(const Value& a);
/// 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to a. Floats.
Value erf(const Value& a);
/// 1 - erf(a), with all digits for large a. Floats.
Value erfc(const Value& a);
/// Arc sine, in radians from -pi/2 to pi/2; NaN below -1 and above 1. Floats.
Value asin(const Value& a);
/// Arc cosine, in radians from 0 to pi; NaN below -1 and above 1. Floats.
Value acos(const Value& a);
/// Arc tangent, in radians from -pi/2 to pi/2. Floats.
Value atan(const Value& a);
/// Hyperbolic sine. Floats.
Value sinh(const Value& a);
/// Hyperbolic cosine. Floats.
Value cosh(const Value& a);
/// Inverse of sinh. Floats.
Value asinh(const Value& a);
/// Inverse of cosh, at least 0; NaN below 1. Floats.
Value acosh(const Value& a);
/// Inverse of tanh; NaN below -1 and above 1. Floats.
Value atanh(const Value& a);
/// The angle of the point (b, a), in radians from -pi to pi: atan(a / b) in the quadrant that the signs say. Gradients:
/// b / (a^2 + b^2) for a, -a / (a^2 + b^2) for b. Floats.
Value atan2(const Value& a, const Value& b);
/// a^b; 1 where b is 0, NaN where a < 0 and b is no integer. Gradients: b a^(b-1) for a, 0 where b is 0; a^b log(a) for
/// b, 0 where a is 0 and b >= 0. Floats.
Value pow(const Value& a, const Value& b);
/// The same for a number, of integers too where it is whole and in [0, 64]. 2, 3 and 4 are products, 1/2, -1/2 and -1
/// are sqrt, rsqrt and reciprocal.
Value pow(const Value& a, double exponent);

}  // namespace paoding
