// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "group/group.h"

namespace paoding {

/// Where what a sum along a row adds up has a factor that is one number for the row and follows from another reduction,
/// and nothing else has it wait for that: sum(a * r) becomes sum(a) * r, which is computed a stage earlier. The
/// gradient of a layer_norm then goes over a row once less: its sum(dy * gamma * (x - mean) * rstd) needs the mean
/// alone.
void pull_row_factors(Group* group);

}  // namespace paoding
