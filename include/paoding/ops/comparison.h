// SPDX-License-Identifier: Apache-2.0
// Comparisons, logic, and the choice between two values. Nothing compares true with NaN but not_equal.
#pragma once

#include "paoding/graph.h"

namespace paoding {

/// a < b, a bool. Numbers.
Value less(const Value& a, const Value& b);
Value less(const Value& a, Number b);
/// a <= b, a bool. Numbers.
Value less_equal(const Value& a, const Value& b);
Value less_equal(const Value& a, Number b);
/// a > b, a bool. Numbers.
Value greater(const Value& a, const Value& b);
Value greater(const Value& a, Number b);
/// a >= b, a bool. Numbers.
Value greater_equal(const Value& a, const Value& b);
Value greater_equal(const Value& a, Number b);
/// a == b, a bool. Numbers.
Value equal(const Value& a, const Value& b);
Value equal(const Value& a, Number b);
/// a != b, a bool. Numbers.
Value not_equal(const Value& a, const Value& b);
Value not_equal(const Value& a, Number b);
/// Whether a is NaN, infinite, neither; bools. Numbers.
Value isnan(const Value& a);
Value isinf(const Value& a);
Value isfinite(const Value& a);
/// a and b. Bools; error (dtype) otherwise.
Value logical_and(const Value& a, const Value& b);
/// a or b. Bools.
Value logical_or(const Value& a, const Value& b);
/// Either a or b, not both. Bools.
Value logical_xor(const Value& a, const Value& b);
/// Not a. A bool.
Value logical_not(const Value& a);
/// condition ? a : b. `condition` is bool, a and b of one dtype after promotion. An element that is not chosen gets
/// gradient 0, and so do the inputs of the formulas and views that made it: where(x > 0, sqrt(x), 0) has gradient 0 at
/// x = 0, though the root's slope is infinite there, and 0 * infinity is NaN. The same holds for maximum, minimum,
/// clamp and relu. It ends at other ops (sums, products, norms, loops): where those would meet infinity or NaN, choose
/// in front of them too, as in where(c, f(where(c, x, 1)), 0).
Value select(const Value& condition, const Value& a, const Value& b);
Value select(const Value& condition, const Value& a, Number b);
Value select(const Value& condition, Number a, const Value& b);
/// Another name of select.
Value where(const Value& condition, const Value& a, const Value& b);
Value where(const Value& condition, const Value& a, Number b);
Value where(const Value& condition, Number a, const Value& b);

}  // namespace paoding
