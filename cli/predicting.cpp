// SPDX-License-Identifier: Apache-2.0
#include "predicting.h"

#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "io/json_text.h"
#include "model_checkpoint.h"
#include "text/suggest.h"

namespace paoding::cli {
namespace {

std::unique_ptr<models::Task> task_of(const std::string& model) {
  const std::vector<std::string> names = models::task_names();
  if (std::find(names.begin(), names.end(), model) == names.end()) {
    throw UsageError(fmt::format("there is no model named '{}'{}; there are: {}", model, suggestion(model, names),
                                 fmt::join(names, ", ")));
  }
  return models::make_task(model);
}

}  // namespace

void ModelChoice::add_to(CLI::App& app) {
  app.add_flag("--latest", latest, "Of a run's folder the latest checkpoint, not the best");
  beam_given = app.add_option("--beam", search.beam, "Hypotheses kept while searching; 1: greedy")
                   ->check(whole_number(1, 1000))
                   ->type_name("N")
                   ->capture_default_str();
  app.add_option("--device", device, "cpu, cuda, cuda:N or best")->type_name("DEVICE")->capture_default_str();
  app.add_flag("--tf32", allow_tf32, "On a GPU, products of f32 may round their operands to TF32");
  precision.add_to(app);
  app.add_option("--threads", threads, "Of the CPU; 0: OMP_NUM_THREADS, or all cores")
      ->check(whole_number(0, 4096))
      ->type_name("N")
      ->capture_default_str();
}

CompileOptions ModelChoice::compile() const {
  CompileOptions options;
  options.device = parse_device(device);
  options.allow_tf32 = allow_tf32;
  options.precision = precision.precision();
  return options;
}

Loaded load_model(const ModelChoice& choice, bool needs_data) {
  Loaded loaded;
  const CompileOptions compile = choice.compile();
  loaded.task = task_of(choice.model);
  if (choice.checkpoint.empty()) {
    throw UsageError(fmt::format("the checkpoint, or the run's folder, of the model '{}' is missing", choice.model));
  }
  if (choice.threads > 0) omp_set_num_threads(static_cast<int>(choice.threads));
  models::Task& task = *loaded.task;
  const Checkpoint checkpoint = load_checkpoint_of(task, choice.checkpoint, choice.latest);
  for (const models::Option& option : task.options()) {
    const auto kept = checkpoint.manifest.options.find(option.name);
    try {
      if (kept != checkpoint.manifest.options.end()) models::set(option, kept->second);
    } catch (const Error& error) {
      fail(ErrorKind::file, "{}: its manifest: {}", choice.checkpoint, error.what());
    }
  }
  task.set_files(checkpoint.files);
  check_restorable_from(choice.checkpoint, checkpoint, task);
  check_finite(choice.checkpoint, checkpoint);
  if (needs_data) task.read(choice.data_folder);
  Graph graph;
  task.loss(graph, task.any_bucket(), 1, false);
  loaded.parameters = std::make_unique<Parameters>(graph, compile.device);
  restore_from(choice.checkpoint, checkpoint.tensors, &*loaded.parameters, true);
  loaded.predictor = task.predictor({&*loaded.parameters, compile, check_interrupted, {}});
  loaded.manifest = checkpoint.manifest;
  return loaded;
}

bool is_model_file(const std::string& word) {
  const std::vector<std::string> names = models::task_names();
  if (std::find(names.begin(), names.end(), word) != names.end()) return false;
  std::error_code none;
  return word.ends_with(".pd") || std::filesystem::is_regular_file(word, none);
}

std::string to_json(const models::Predictions& found) {
  std::vector<std::string> items;
  for (const models::Prediction& p : found) {
    items.push_back(JsonObject().add("text", p.text).add("log_probability", p.log_probability).text());
  }
  return json_array(items);
}

}  // namespace paoding::cli
