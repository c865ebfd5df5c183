// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "group/group.h"

namespace paoding {

/// Where the group computes E = exp(x - m), with m the maximum of x along a row and s the sum of E, an
/// exp(x - (m + log(s))) becomes E / s: the gradient of a cross entropy then needs no second exponential in the pass
/// that writes it. s is 1 at least, or NaN where the other would be too.
void reuse_exponentials(Group* group);

}  // namespace paoding
