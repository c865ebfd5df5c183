// SPDX-License-Identifier: Apache-2.0
// Checkpoints that must be those of a certain model.
#pragma once

#include <string>

#include "models/task.h"
#include "paoding/checkpoint.h"

namespace paoding::cli {

/// As load_checkpoint(); Error (argument) besides when it is one of another model.
Checkpoint load_checkpoint_of(const models::Task& task, const std::string& path, bool latest);
/// As restore(), with `path` in its errors.
void restore_from(const std::string& path, const Checkpoint& checkpoint, Parameters* parameters,
                  bool allow_more = false);

}  // namespace paoding::cli
