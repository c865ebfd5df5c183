// SPDX-License-Identifier: Apache-2.0
// The CPU that this process runs on, as a target.
#pragma once

#include "base/target.h"

namespace paoding {

Target this_cpu();

}  // namespace paoding
