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

std::string text_of(const std::vector<std::pair<std::string, Type>>& values) {
  std::string text;
  for (const auto& [name, type] : values) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", printable(name, ""), to_string(type));
  }
  return text.empty() ? "none" : text;
}

// The interface of a graph, in order: inputs are fed and results taken by their places.
struct Signature {
  std::vector<std::pair<std::string, Type>> inputs, results, parameters;
  explicit Signature(const Graph& graph) {
    for (const NodeId id : graph.inputs()) inputs.emplace_back(graph.node(id).name.str(), graph.node(id).types[0]);
    for (const Graph::Fetch& fetch : graph.fetches()) results.emplace_back(fetch.name, graph.type(fetch.ref));
    for (const NodeId id : graph.parameters()) {
      parameters.emplace_back(graph.node(id).name.str(), graph.node(id).types[0]);
    }
    std::sort(parameters.begin(), parameters.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  }
};

// A task's own graphs, which its options and vocabularies make, are the ones that the file's have to equal.
void check_graphs(const std::filesystem::path& path, const Model& model, const Graphs& needed) {
  for (const auto& [name, graph] : needed) {
    std::unique_ptr<Graph> stored;
    try {
      stored = model.graph(name);
    } catch (const Error& error) {
      throw Error(ErrorKind::file, error.what());
    }
    const Signature is(*stored), wanted(*graph);
    const auto check = [&](const char* what, const auto& got, const auto& want) {
      if (got == want) return;
      useless(path, fmt::format(
                        "its graph '{}' has the {} {}; by its name, and the file's options and vocabulary, they are {}",
                        name, what, text_of(got), text_of(want)));
    };
    check("inputs", is.inputs, wanted.inputs);
    check("results", is.results, wanted.results);
    for (std::size_t i = 0; i < std::min(is.parameters.size(), wanted.parameters.size()); ++i) {
      if (is.parameters[i] == wanted.parameters[i]) continue;
      check("parameters", std::vector{is.parameters[i]}, std::vector{wanted.parameters[i]});
    }
    check("parameters", is.parameters, wanted.parameters);
  }
}

}  // namespace

Served::Served(const std::filesystem::path& path, const CompileOptions& compile)
    : Served(load_model_file(path), path, compile) {}

Served::Served(ModelFile given, const std::filesystem::path& path, const CompileOptions& compile)
    : model_(std::move(given), options_of(compile), path.string()), compile_(compile) {
  compile_.assign = false;
  const ModelFile& file = model_.file();
  const std::vector<std::string> names = task_names();
  if (std::find(names.begin(), names.end(), file.model) == names.end()) {
    useless(path, fmt::format("it is a model of '{}', which is none of ours: `paoding serve` and pd::Model run "
                              "its graphs on tensors",
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
  Graphs needed;
  try {
    needed = task_->predictor({})->graphs({.beam = beam_, .best = 1});
  } catch (const Error& error) {
    useless(path, fmt::format("its options make no graph: {}", error.what()));
  }
  check_graphs(path, model_, needed);
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
  seal_files(&file);
  for (const auto& [name, graph] : predictor.graphs({.beam = beam, .best = 1})) {
    file.graphs[name] = to_text(*graph);
    for (const NodeId id : graph->parameters()) {
      const std::string& parameter = graph->node(id).name.str();
      if (!file.parameters.contains(parameter)) file.parameters[parameter] = store.get(parameter);
    }
  }
  return file;
}

}  // namespace paoding::models
