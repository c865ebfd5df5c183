// SPDX-License-Identifier: Apache-2.0
#include "feeds.h"

#include "base/check.h"
#include "command.h"
#include "numbers.h"
#include "paoding/io.h"
#include "text/suggest.h"

namespace paoding::cli {
namespace {

struct Wanted {
  Type type;
  const char* kind;  // "input" or "parameter"
};

std::map<std::string, Wanted> wanted_by(const Graph& graph) {
  std::map<std::string, Wanted> wanted;
  for (const NodeId id : graph.inputs()) wanted[graph.node(id).name.str()] = {graph.node(id).types[0], "input"};
  for (const NodeId id : graph.parameters()) wanted[graph.node(id).name.str()] = {graph.node(id).types[0], "parameter"};
  return wanted;
}

}  // namespace

std::map<std::string, Tensor> collect_feeds(const Graph& graph, const std::vector<std::string>& files,
                                            std::optional<std::uint64_t> seed) {
  const std::map<std::string, Wanted> wanted = wanted_by(graph);
  std::vector<std::string> names, problems;
  for (const auto& [name, entry] : wanted) names.push_back(name);
  std::map<std::string, Tensor> feeds;
  std::map<std::string, std::string> from;  // name to file
  for (const std::string& file : files) {
    for (auto& [name, tensor] : load_safetensors(file)) {
      const auto it = wanted.find(name);
      if (it == wanted.end()) {
        problems.push_back(
            fmt::format("'{}' of {} is no input or parameter of the graph{}", name, file, suggestion(name, names)));
      } else if (!(it->second.type == tensor.type())) {
        problems.push_back(fmt::format("{} '{}' is {} in the graph, but {} in {}", it->second.kind, name,
                                       to_string(it->second.type), to_string(tensor.type()), file));
      } else if (!from.emplace(name, file).second) {
        problems.push_back(fmt::format("'{}' is fed twice, by {} and {}", name, from[name], file));
      } else {
        feeds.emplace(name, std::move(tensor));
        continue;
      }
      from.emplace(name, file);  // a wrong one is not missing too
    }
  }
  bool is_missing = false;
  for (const auto& [name, entry] : wanted) {
    if (from.contains(name)) continue;
    if (!seed) {
      is_missing = true;
      problems.push_back(fmt::format("{} '{}', {}, is not fed", entry.kind, name, to_string(entry.type)));
    } else if (problems.empty()) {
      feeds.emplace(name, random_tensor(entry.type, *seed, name));
    }
  }
  if (problems.empty()) return feeds;
  fail(ErrorKind::argument, "the feeds do not fit the graph:\n  {}{}", fmt::join(problems, "\n  "),
       is_missing ? "\n--feed FILE gives values, --random SEED makes up those that are not given" : "");
}

}  // namespace paoding::cli
