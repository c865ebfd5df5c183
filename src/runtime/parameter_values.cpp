// SPDX-License-Identifier: Apache-2.0
// All values of a store at once, as a checkpoint keeps them.
#include <vector>

#include "base/check.h"
#include "base/one_line.h"
#include "paoding/checkpoint.h"
#include "runtime/parameter_store.h"

namespace paoding {

std::map<std::string, Tensor> values_of(const Parameters& parameters) {
  std::map<std::string, Tensor> values;
  for (const std::string& name : parameters.names()) values.emplace(name, parameters.get(name));
  return values;
}

std::map<std::string, Tensor> values_of(const Parameters& parameters, ParameterRole role) {
  std::map<std::string, Tensor> values;
  for (const ParameterInfo& each : parameters.list()) {
    if (each.role == role) values.emplace(each.name, parameters.get(each.name));
  }
  return values;
}

namespace {

using Types = std::map<std::string, Type>;

// Programs add them to a store when they are made, so that one which was just made may be without.
bool is_random_state(const std::string& name, const Tensor& tensor) {
  return name.starts_with("random/") && tensor.type() == Type{i64, {2}};
}

void check_fit(const Types& wanted, const std::map<std::string, Tensor>& tensors, bool allow_more) {
  constexpr std::size_t kMostListed = 20;
  std::vector<std::string> problems;
  for (const auto& [name, type] : wanted) {
    const auto it = tensors.find(name);
    if (it == tensors.end()) {
      problems.push_back(fmt::format("'{}' {} is missing", one_line(name), to_string(type)));
    } else if (!(it->second.type() == type)) {
      problems.push_back(
          fmt::format("'{}' is {}, must be {}", one_line(name), to_string(it->second.type()), to_string(type)));
    }
  }
  for (const auto& [name, tensor] : tensors) {
    if (allow_more || wanted.contains(name) || is_random_state(name, tensor)) continue;
    problems.push_back(fmt::format("'{}' {} has no place in the model", one_line(name), to_string(tensor.type())));
  }
  if (problems.empty()) return;
  const std::size_t count = problems.size();
  if (count > kMostListed) {
    problems.resize(kMostListed);
    problems.push_back(fmt::format("and {} more", count - kMostListed));
  }
  fail(ErrorKind::argument, "restore: {} of the tensors do not fit the model: {}", count, fmt::join(problems, "; "));
}

}  // namespace

void check_restorable(const Graph& graph, const std::map<std::string, Tensor>& tensors, bool allow_more) {
  Types wanted;
  for (const NodeId id : graph.parameters()) wanted.emplace(graph.node(id).name.str(), graph.node(id).types[0]);
  check_fit(wanted, tensors, allow_more);
}

void restore(Parameters* parameters, const std::map<std::string, Tensor>& tensors, bool allow_more) {
  Types wanted;
  for (const std::string& name : parameters->names()) wanted.emplace(name, parameters->get(name).type());
  check_fit(wanted, tensors, allow_more);
  for (const auto& [name, type] : wanted) parameters->set(name, tensors.at(name));
  if (allow_more) return;
  for (const auto& [name, tensor] : tensors) {
    if (!wanted.contains(name)) parameters->store().add(name, tensor.type(), ParameterRole::random, tensor);
  }
}

}  // namespace paoding
