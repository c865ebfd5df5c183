// SPDX-License-Identifier: Apache-2.0
// `paoding ops --python`: prints the op table as Python functions.
#pragma once

#include <vector>

#include "paoding/op.h"

namespace paoding::cli {

/// python/paoding/ops.py, of the ops by name.
void print_python(const std::vector<const OpDef*>& ops);

}  // namespace paoding::cli
