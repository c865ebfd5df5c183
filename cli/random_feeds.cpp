// SPDX-License-Identifier: Apache-2.0
#include "random_feeds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "numbers.h"
#include "paoding/op.h"
#include "paoding/optimizer.h"

namespace paoding::cli {
namespace {

constexpr std::int64_t kMostChoices = 10;  // of integers

// Whether an optimizer keeps it, by its name (paoding/optimizer.h), because graph text does not tell. The graph assigns
// to such a parameter.
bool is_optimizer_state(const Graph& graph, NodeId id) {
  const std::string& name = graph.node(id).name.str();
  if (graph.role(name) == ParameterRole::optimizer) return true;
  constexpr std::array<std::string_view, 10> kPrefixes = {
      "optimizer/", "sgd/", "adam/", "lamb/", "rmsprop/", "lion/", "adafactor/", "average/", "gradient/", "master/"};
  const bool is_named_so =
      std::ranges::any_of(kPrefixes, [&](std::string_view each) { return name.starts_with(each); });
  const std::vector<NodeId> assigns = graph.assigns();
  return is_named_so && std::ranges::any_of(assigns, [&](NodeId assign) {
           return graph.node(assign).inputs[0] == Ref{id, 0};
         });
}

std::int64_t extent(const Type& type, std::int64_t axis) {
  return type.shape[static_cast<int>(axis < 0 ? axis + type.shape.rank() : axis)];
}

// Input k of the node takes integers from 0 to this, exclusive; kMostChoices where it takes any.
std::int64_t choices_at(const Graph& graph, const Node& node, std::size_t k) {
  const std::string& op = node.op->name;
  const auto type = [&](std::size_t i) -> const Type& { return graph.type(node.inputs[i]); };
  if (k == 1 && (op == "gather" || op == "gather_elements")) return extent(type(0), node.attrs.get_int("axis"));
  if (k == 1 && op == "embedding") return extent(type(0), 0);
  if (k == 1 && op == "cross_entropy") return extent(type(0), -1);
  if (k == 0 && (op.starts_with("scatter_add") || op == "embedding_grad") && node.attrs.find("extent") != nullptr) {
    return node.attrs.get_int("extent");
  }
  if (k == 0 && op == "check_indices") return node.attrs.get_int("most") + 1;
  const bool is_recurrence = op == "lstm_recurrence" || op == "gru_recurrence" || op == "rnn_recurrence";
  if (is_recurrence && is_integer(type(k).dtype)) return extent(type(0), 0) + 1;  // lengths
  return kMostChoices;
}

std::int64_t choices_of(const Graph& graph, Ref ref) {
  std::int64_t least = kMostChoices;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      if (!(node.inputs[k] == ref)) continue;
      least = std::min(least, choices_at(graph, node, k));
      if (node.op->name == "scan" || node.op->name == "checkpoint") {
        const Graph& body = *node.bodies[0];
        if (k < body.inputs().size()) least = std::min(least, choices_of(body, {body.inputs()[k], 0}));
      }
      if (node.op->kind != OpKind::view && node.op->name != "cast" && node.op->name != "check_indices") continue;
      for (std::size_t output = 0; output < node.types.size(); ++output) {
        if (!is_integer(node.types[output].dtype)) continue;
        least = std::min(least, choices_of(graph, {id, static_cast<std::int32_t>(output)}));
      }
    }
  }
  return std::max<std::int64_t>(least, 1);
}

Tensor mapped(const Tensor& tensor, double (*of)(double number, double by), double by) {
  std::vector<double> values = tensor.to_doubles();
  for (double& value : values) value = of(value, by);
  return Tensor::from(tensor.dtype(), tensor.shape(), values);
}

}  // namespace

Tensor random_feed(const Graph& graph, NodeId id, std::uint64_t seed, const std::map<std::string, Tensor>& fed) {
  const std::string& name = graph.node(id).name.str();
  const Type& type = graph.node(id).types[0];
  const bool is_parameter = graph.node(id).op->name == "parameter";
  if (is_parameter && is_optimizer_state(graph, id)) {
    if (name == "optimizer/loss_scale") return filled_tensor(type, LossScale().initial);
    constexpr std::string_view kMaster = "master/";
    if (!name.starts_with(kMaster)) return filled_tensor(type, 0);
    const std::string of = name.substr(kMaster.size());
    const auto given = fed.find(of);
    return given == fed.end() ? random_tensor(type, seed, of)
                              : Tensor::from(type.dtype, type.shape, given->second.to_doubles());
  }
  const Tensor drawn = random_tensor(type, seed, name);
  if (is_float(type.dtype)) {
    const bool is_variance = name.ends_with("variance");
    return is_variance ? mapped(
                             drawn, [](double number, double) { return std::abs(number); }, 0)
                       : drawn;
  }
  if (!is_integer(type.dtype)) return drawn;
  const std::int64_t choices = choices_of(graph, {id, 0});
  if (choices >= kMostChoices) return drawn;
  return mapped(
      drawn, [](double number, double by) { return std::fmod(number, by); }, static_cast<double>(choices));
}

}  // namespace paoding::cli
