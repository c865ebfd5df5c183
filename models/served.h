// SPDX-License-Identifier: Apache-2.0
// A model file with the code that prepares its inputs and reads its results: the Task that it names.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "models/task.h"
#include "paoding/model.h"

namespace paoding::models {

/// Its weights are there once; predictors, of which each is for one thread, have programs of their own.
class Served {
 public:
  /// Errors: as Model::load; (file) when it names no task that there is, or that task cannot use it: its vocabulary and
  /// options are not those of its graphs, or a graph has other inputs than its name says.
  Served(const std::filesystem::path& path, const CompileOptions& compile);
  /// The same of a file that was read; `path` stands in errors.
  Served(ModelFile file, const std::filesystem::path& path, const CompileOptions& compile);

  const Task& task() const { return *task_; }
  const Model& model() const { return model_; }
  /// Hypotheses that its graphs keep.
  std::int64_t beam() const { return beam_; }
  std::unique_ptr<Predictor> predictor(std::function<void()> before_run = {}) const;

 private:
  Model model_;
  CompileOptions compile_;
  std::unique_ptr<Task> task_;
  std::int64_t beam_ = 1;
};

/// The model file of a predictor's graphs that keep `beam` hypotheses; the parameters are the store's.
ModelFile exported(Task& task, const Predictor& predictor, const Parameters& store, std::int64_t beam);

}  // namespace paoding::models
