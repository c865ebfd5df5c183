// SPDX-License-Identifier: Apache-2.0
// Integers bit by bit, in two's complement. No gradient flows through them.
#pragma once

#include "paoding/graph.h"

namespace paoding {

/// The bits that are set in both a and b. Integers; error (dtype) otherwise, of bools too, which logical_and takes.
Value bitwise_and(const Value& a, const Value& b);
/// The bits that are set in a or b. Integers.
Value bitwise_or(const Value& a, const Value& b);
/// The bits that are set in either a or b, not both. Integers.
Value bitwise_xor(const Value& a, const Value& b);
/// The bits that are not set in a: -1 - a. Integers.
Value bitwise_not(const Value& a);

}  // namespace paoding
