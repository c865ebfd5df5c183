// SPDX-License-Identifier: Apache-2.0
// How long a matrix product of some size takes where a library does it well.
#pragma once

#include "findings/device_limits.h"
#include "findings/op_work.h"

namespace paoding::findings {

/// In ns: operations by the rate of large products, with the tiles of 128 x 128 that are left over for the last turn of
/// the multiprocessors, or bytes by the memory's rate, and the time of a launch beside that. 0: the device was not
/// measured, or it has no such unit.
double product_ns(const DeviceLimits& limits, Unit unit, const ProductShape& shape);
/// Measured products took so much more at most: no product is called slow below it.
inline constexpr double kProductSpread = 1.5, kProductSpreadNs = 5'000;

/// The rows of both factors and of the result begin at multiples of 16 bytes.
bool is_aligned(const ProductShape& shape);
/// The same product with its extents rounded up so that they do.
ProductShape aligned(const ProductShape& shape);

}  // namespace paoding::findings
