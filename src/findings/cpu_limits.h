// SPDX-License-Identifier: Apache-2.0
// The rates of a CPU, as far as the kernels of a recording show them: it does not say those of its machine.
#pragma once

#include <vector>

#include "findings/device_limits.h"
#include "findings/kernel_work.h"

namespace paoding::findings {

/// The rates of the fastest kernels, by the medians of their sites: bytes of those that move more than caches hold,
/// operations of large products. 0 where there are none.
DeviceLimits limits_of_cpu(const profile::Trace& trace, const std::vector<KernelWork>& kernels);

/// How long a product takes at these rates; 0: they are not known.
double cpu_product_ns(const DeviceLimits& limits, Unit unit, const ProductShape& shape);
/// Products of some sizes reach that much less on a CPU though nothing is wrong with them.
inline constexpr double kCpuProductSpread = 3;

}  // namespace paoding::findings
