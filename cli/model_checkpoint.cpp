// SPDX-License-Identifier: Apache-2.0
#include "model_checkpoint.h"

#include "base/check.h"
#include "io/safetensors.h"
#include "numbers.h"

namespace paoding::cli {

Checkpoint load_checkpoint_of(const models::Task& task, const std::string& path, bool latest) {
  Checkpoint checkpoint = load_checkpoint(path, latest);
  if (checkpoint.manifest.model != task.name()) {
    fail(ErrorKind::argument, "{}: the checkpoint is one of '{}', not of '{}'", path,
         safetensors::shown(checkpoint.manifest.model), task.name());
  }
  return checkpoint;
}

namespace {
template <class Call>
void with_path(const std::string& path, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    fail(error.kind(), "{}: the checkpoint is not one of this model: {}", path, error.what());
  }
}
}  // namespace

void restore_from(const std::string& path, const std::map<std::string, Tensor>& tensors, Parameters* parameters,
                  bool allow_more) {
  with_path(path, [&] { restore(parameters, tensors, allow_more); });
}

void check_restorable_from(const std::string& path, const Checkpoint& checkpoint, const models::Task& task) {
  Graph graph;
  task.loss(graph, task.any_bucket(), 1, false);
  with_path(path, [&] { check_restorable(graph, checkpoint.tensors, true); });
}

void check_finite(const std::string& path, const Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.tensors) {
    const Summary seen = summarize(tensor);
    if (seen.is_finite()) continue;
    fail(ErrorKind::file,
         "{}: the tensor '{}' has {} NaN and {} infinite of {} elements: what such a model says means nothing", path,
         safetensors::shown(name), seen.nans, seen.infinities, tensor.shape().elements());
  }
}

}  // namespace paoding::cli
