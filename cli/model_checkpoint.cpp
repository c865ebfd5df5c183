// SPDX-License-Identifier: Apache-2.0
#include "model_checkpoint.h"

#include "base/check.h"

namespace paoding::cli {

Checkpoint load_checkpoint_of(const models::Task& task, const std::string& path, bool latest) {
  Checkpoint checkpoint = load_checkpoint(path, latest);
  if (checkpoint.manifest.model != task.name()) {
    fail(ErrorKind::argument, "{}: the checkpoint is one of '{}', not of '{}'", path, checkpoint.manifest.model,
         task.name());
  }
  return checkpoint;
}

void restore_from(const std::string& path, const Checkpoint& checkpoint, Parameters* parameters, bool allow_more) {
  try {
    restore(parameters, checkpoint.tensors, allow_more);
  } catch (const Error& error) {
    fail(error.kind(), "{}: the checkpoint is not one of this model: {}", path, error.what());
  }
}

}  // namespace paoding::cli
