// SPDX-License-Identifier: Apache-2.0
// Checkpoints that must be those of a certain model.
#pragma once

#include <string>

#include "models/task.h"
#include "paoding/checkpoint.h"

namespace paoding::cli {

/// Like load_checkpoint(); also Error (argument) when the checkpoint is another model's.
Checkpoint load_checkpoint_of(const models::Task& task, const std::string& path, bool latest);
/// Like restore() and check_restorable(), with `path` in their errors; the latter for the model without its optimizer.
void restore_from(const std::string& path, const std::map<std::string, Tensor>& tensors, Parameters* parameters,
                  bool allow_more = false);
void check_restorable_from(const std::string& path, const Checkpoint& checkpoint, const models::Task& task);
/// Error (file) that names the first tensor that holds a NaN or an infinity: no training saves one.
void check_finite(const std::string& path, const Checkpoint& checkpoint);

}  // namespace paoding::cli
