// SPDX-License-Identifier: Apache-2.0
// Whether nodes have the same attributes, and a hash that is the same where they have.
#pragma once

#include "paoding/graph.h"

namespace paoding {

/// Puts `value` into a hash.
void mix(std::size_t* hash, std::size_t value);

std::size_t hash_of(const AttrValue& value);
std::size_t hash_of(const Attrs& attrs);

/// Floats are compared by their bits: 0 is not -0, and a NaN is itself.
bool equal_values(const AttrValue& a, const AttrValue& b);
/// The same names in the same order with equal values.
bool equal_attrs(const Attrs& a, const Attrs& b);

}  // namespace paoding
