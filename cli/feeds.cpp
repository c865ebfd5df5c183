// SPDX-License-Identifier: Apache-2.0
#include "feeds.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <limits>

#include "base/check.h"
#include "base/one_line.h"
#include "paoding/checkpoint.h"
#include "paoding/io.h"
#include "random_feeds.h"
#include "text/lexer.h"
#include "text/suggest.h"

namespace paoding::cli {
namespace {

constexpr std::size_t kMostProblems = 20;  // that are listed

struct Wanted {
  Type type;
  const char* kind;  // "input" or "parameter"
  NodeId node;
};

std::map<std::string, Wanted> wanted_by(const Graph& graph) {
  std::map<std::string, Wanted> wanted;
  for (const NodeId id : graph.inputs()) wanted[graph.node(id).name.str()] = {graph.node(id).types[0], "input", id};
  for (const NodeId id : graph.parameters())
    wanted[graph.node(id).name.str()] = {graph.node(id).types[0], "parameter", id};
  return wanted;
}

std::map<std::string, Tensor> load(const std::string& path) {
  return std::filesystem::is_directory(path) ? load_checkpoint(path).tensors : load_safetensors(path);
}

std::uint64_t parse_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size()) return seed;
  throw CLI::ValidationError("--random", fmt::format("'{}' is no whole number from 0 to {}", one_line(shortened(text)),
                                                     std::numeric_limits<std::uint64_t>::max()));
}

std::string in_quotes(const std::string& name) { return "'" + one_line(shortened(name)) + "'"; }

// Collects the tensors that were fed, and the errors in them.
class Collected {
 public:
  explicit Collected(const Graph& graph) : graph_(graph), wanted_(wanted_by(graph)) {
    for (const auto& [name, entry] : wanted_) names_.push_back(name);
  }

  void add(const std::string& path, bool allows_surplus) {
    for (auto& [name, tensor] : load(path)) {
      const auto it = wanted_.find(name);
      if (it == wanted_.end()) {
        if (allows_surplus) continue;
        has_surplus_ = true;
        wrong(fmt::format("{} of {} is no input or parameter of the graph{}", in_quotes(name), path,
                          suggestion(name, names_)));
      } else if (!from_.emplace(name, path).second) {
        wrong(fmt::format("{} is fed twice, by {} and {}", in_quotes(name), from_[name], path));
      } else if (!(it->second.type == tensor.type())) {
        wrong(fmt::format("{} {} is {} in the graph, but {} in {}", it->second.kind, in_quotes(name),
                          to_string(it->second.type), to_string(tensor.type()), path));
      } else {
        feeds_.emplace(name, std::move(tensor));
      }
    }
  }

  // A graph need not have all parameters of its model file.
  void add_held(std::map<std::string, Tensor> held) {
    for (auto& [name, tensor] : held) {
      const auto it = wanted_.find(name);
      if (it == wanted_.end() || !from_.emplace(name, "the model file").second) continue;
      if (!(it->second.type == tensor.type())) {
        wrong(fmt::format("parameter {} is {} in the graph, but {} in the model file", in_quotes(name),
                          to_string(it->second.type), to_string(tensor.type())));
      }
      feeds_.emplace(name, std::move(tensor));
    }
  }

  void add_random(std::uint64_t seed) {
    std::map<std::string, Tensor> made_up;
    for (const auto& [name, entry] : wanted_) {
      if (from_.contains(name) || !problems_.empty()) continue;
      made_up.emplace(name, random_feed(graph_, entry.node, seed, feeds_));
    }
    feeds_.merge(made_up);
  }

  void add_missing() {
    for (const auto& [name, entry] : wanted_) {
      if (from_.contains(name)) continue;
      is_missing_ = true;
      wrong(fmt::format("{} {}, {}, is not fed", entry.kind, in_quotes(name), to_string(entry.type)));
    }
  }

  std::map<std::string, Tensor> take() {
    if (problems_.empty()) return std::move(feeds_);
    const std::size_t more = problems_.size() > kMostProblems ? problems_.size() - kMostProblems : 0;
    problems_.resize(problems_.size() - more);
    fail(ErrorKind::argument, "the feeds do not fit the graph:\n  {}{}{}{}", fmt::join(problems_, "\n  "),
         more > 0 ? fmt::format("\n  .. and {} more", more) : "",
         is_missing_ ? "\n--feed PATH gives values, --random SEED makes up those that are not given" : "",
         has_surplus_ ? "\n--allow-surplus leaves out what the graph has no place for" : "");
  }

 private:
  void wrong(std::string problem) { problems_.push_back(std::move(problem)); }

  const Graph& graph_;
  const std::map<std::string, Wanted> wanted_;
  std::vector<std::string> names_, problems_;
  std::map<std::string, Tensor> feeds_;
  std::map<std::string, std::string> from_;  // name to path; a wrong one is not missing too
  bool is_missing_ = false, has_surplus_ = false;
};

}  // namespace

void FeedFlags::add_to(CLI::App& sub) {
  sub.add_option(
         "--feed", paths,
         "Values of inputs and parameters, by name: safetensors files, checkpoints, or the folders of runs (the "
         "best checkpoint)")
      ->type_name("PATHS");
  sub.add_flag("--allow-surplus", allows_surplus,
               "Leave out fed tensors that the graph has no place for, as the optimizer's state");
  sub.add_option_function<std::string>(
         "--random", [this](const std::string& text) { seed = parse_seed(text); },
         "Fill what is not fed: normal numbers for floats, for integers 0..9 as far as what reads them takes them, for "
         "what an optimizer remembers what it begins with")
      ->type_name("SEED");
}

std::map<std::string, Type> FeedFlags::types() const {
  std::map<std::string, Type> types;
  for (const std::string& path : paths) {
    for (const auto& [name, tensor] : load(path)) types.emplace(name, tensor.type());
  }
  return types;
}

std::map<std::string, Tensor> FeedFlags::collect(const Graph& graph, std::map<std::string, Tensor> held) const {
  Collected collected(graph);
  for (const std::string& path : paths) collected.add(path, allows_surplus);
  collected.add_held(std::move(held));
  seed ? collected.add_random(*seed) : collected.add_missing();
  return collected.take();
}

}  // namespace paoding::cli
