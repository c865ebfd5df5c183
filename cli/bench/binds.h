// SPDX-License-Identifier: Apache-2.0
// paoding bench binds: how long programs take that are bound to other sizes of a known graph, by stage.
#pragma once

#include "cli/command.h"

namespace paoding::cli::bench {

void add_binds(CLI::App& parent, Commands* commands);

}  // namespace paoding::cli::bench
