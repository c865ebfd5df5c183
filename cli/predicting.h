// SPDX-License-Identifier: Apache-2.0
// The model that a command line names, for predict, evaluate, export and serve.
#pragma once

#include <memory>
#include <string>

#include "command.h"
#include "models/served.h"
#include "paoding/checkpoint.h"

namespace paoding::cli {

/// The model's name, or a model file; the checkpoint, of a name; how it predicts.
struct ModelChoice {
  std::string model, checkpoint, device = "cpu", data_folder = "data";
  models::SearchOptions search = {.beam = 1, .best = 1};
  std::int64_t threads = 0;
  bool latest = false, allow_tf32 = false;
  PrecisionFlag precision;
  CLI::Option* beam_given = nullptr;

  /// --latest, --beam, --device, --tf32, --dtype, --threads.
  void add_to(CLI::App& app);
  CompileOptions compile() const;
};

/// A model as a checkpoint has it.
struct Loaded {
  std::unique_ptr<models::Task> task;
  Manifest manifest;
  std::unique_ptr<Parameters> parameters;
  std::unique_ptr<models::Predictor> predictor;
};
Loaded load_model(const ModelChoice& choice, bool needs_data);

/// Whether a word on the command line is a model file, not the name of a model.
bool is_model_file(const std::string& word);

/// [{"text":..,"log_probability":..}].
std::string to_json(const models::Predictions& found);

}  // namespace paoding::cli
