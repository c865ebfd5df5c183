// SPDX-License-Identifier: Apache-2.0
// The common checks of sort, topk and cumsum on every device.
#pragma once

#include <string>

#include "ops/kernel.h"

namespace paoding {

/// `axis` of a call, counted from the front.
int along_axis(const KernelCall& call);
/// Why the call's layouts cannot be seen as rows along its axis; empty when they can.
std::string along_axis_refusal(const KernelCall& call);
/// The same, and the requirements of sorting.
std::string sort_refusal(const KernelCall& call);

}  // namespace paoding
