// SPDX-License-Identifier: Apache-2.0
// paoding bench lstm: one recurrent layer in every way there is to run it, from op by op to one kernel.
#pragma once

#include "cli/command.h"

namespace paoding::cli::bench {

void add_ladder(CLI::App& bench, Commands* commands);

}  // namespace paoding::cli::bench
