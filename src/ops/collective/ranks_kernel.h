// SPDX-License-Identifier: Apache-2.0
// The kernel of every collective, on any device: a call of the program's communicator. Operands lie dense.
#pragma once

#include "ops/kernel.h"

namespace paoding {

/// Appends it to the tables of all collectives for the device.
void register_ranks_kernels(DeviceKind device);

}  // namespace paoding
