// SPDX-License-Identifier: Apache-2.0
#include "models/served.h"

#include <fmt/format.h>

#include <algorithm>

#include "paoding/error.h"
#include "paoding/printable.h"

namespace paoding::models {
namespace {

ModelOptions options_of(const CompileOptions& compile) {
  ModelOptions options;
  options.compile = compile;
  return options;
}

[[noreturn]] void useless(const std::filesystem::path& path, const std::string& what) {
  throw Error(ErrorKind::file, fmt::format("{}: {}", path.string(), what));
}

}  // namespace

Served::Served(const std::filesystem::path& path, const CompileOptions& compile)
    : model_(Model::load(path, options_of(compile))), compile_(compile) {
  compile_.assign = false;
  const ModelFile& file = model_.file();
  const std::vector<std::string> names = task_names();
  if (std::find(names.begin(), names.end(), file.model) == names.end()) {
    useless(path, fmt::format("it is a model of '{}', which is none of ours: a program of its own can run its graphs",
                              printable(file.model, "")));
  }
  task_ = make_task(file.model);
  for (const Option& option : task_->options()) {
    const auto kept = file.options.find(option.name);
    try {
      if (kept != file.options.end()) set(option, kept->second);
    } catch (const Error& error) {
      useless(path, error.what());
    }
  }
  const auto beam = file.options.find("beam");
  if (beam != file.options.end()) set({.name = "beam", .meaning = "", .value = &beam_, .least = 1}, beam->second);
  try {
    task_->set_files(file.files);
  } catch (const Error& error) {
    useless(path, error.what());
  }
}

std::unique_ptr<Predictor> Served::predictor(std::function<void()> before_run) const {
  const auto stored = [model = model_](const std::string& name) { return model.graph(name); };
  return task_->predictor({&model_.parameters(), compile_, std::move(before_run), stored});
}

ModelFile exported(Task& task, const Predictor& predictor, const Parameters& store, std::int64_t beam) {
  ModelFile file;
  file.model = task.name();
  for (const Option& option : task.options()) file.options[option.name] = text_of(option);
  file.options["beam"] = std::to_string(beam);
  file.files = task.files();
  file.graphs = predictor.graphs({.beam = beam, .best = 1});
  for (const auto& [name, text] : file.graphs) {
    const std::unique_ptr<Graph> graph = parse_graph(text);
    for (const NodeId id : graph->parameters()) {
      const std::string& parameter = graph->node(id).name.str();
      if (!file.parameters.contains(parameter)) file.parameters[parameter] = store.get(parameter);
    }
  }
  return file;
}

}  // namespace paoding::models
