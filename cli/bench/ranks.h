// SPDX-License-Identifier: Apache-2.0
// paoding bench ranks: training steps on several ranks at once, beside one of the same batch each.
#pragma once

#include "cli/command.h"

namespace paoding::cli::bench {

void add_ranks(CLI::App& parent, Commands* commands);

}  // namespace paoding::cli::bench
