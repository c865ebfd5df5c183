// SPDX-License-Identifier: Apache-2.0
// A number as an input of an op, beside a value.
#pragma once

#include <string>

#include "paoding/graph.h"

namespace paoding {

/// A scalar of a's dtype that is `number`, as an input of `op` beside a. Error (dtype) where no element of that dtype
/// is the number: a fraction, NaN or infinity beside integers, 300 or -1 beside u8, anything but 0 and 1 beside bools.
/// The caller says to which dtype a would have to be cast: f64 as in NumPy, f32 as in PyTorch.
Value constant_like(const std::string& op, const Value& a, Number number);

}  // namespace paoding
