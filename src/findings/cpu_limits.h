// SPDX-License-Identifier: Apache-2.0
// The rate of a CPU's memory, as far as the kernels of a recording show it: it does not say that of its machine.
#pragma once

#include <vector>

#include "findings/device_limits.h"
#include "findings/kernel_work.h"

namespace paoding::findings {

/// The rate of the memory is that of the fastest kernel that moves more than caches hold, by the medians of their
/// sites; 0 where there is none. Rates of products are not known: they vary with sizes, and with whatever else the
/// cores do.
DeviceLimits limits_of_cpu(const profile::Trace& trace, const std::vector<KernelWork>& kernels);

}  // namespace paoding::findings
