// SPDX-License-Identifier: Apache-2.0
// The parts that paoding/_copies.py pickles graphs and tensors by: the facts about a graph that its text does not have,
// and the bits of elements of any dtype.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "arrays.h"
#include "bindings.h"
#include "paoding/error.h"
#include "paoding/graph.h"
#include "paoding/op.h"

namespace paoding::python {
namespace {

using namespace nb::literals;
using Roles = std::map<std::string, ParameterRole>;
using Names = std::vector<std::string>;
using Streams = std::map<std::string, std::int64_t>;

// In the memory of the tensor.
Tensor bits_of(const Tensor& tensor) {
  const auto keep = std::make_shared<Tensor>(tensor);
  return {{DType::u8, Shape{tensor.size_bytes()}}, {keep, keep->bytes()}};
}

Tensor tensor_of_bits(nb::handle given, nb::object dtype, nb::object shape) {
  bool is_read_only = false;
  const Tensor bits = tensor_of(given, DType::u8, {"bits"}, &is_read_only);
  const Type type{dtype_of(dtype), shape_of(shape)};
  if (bits.dtype() != DType::u8 || bits.size_bytes() != size_bytes(type)) {
    throw Error(ErrorKind::argument, "bits are " + to_string(bits.type()) + ", needed are the " +
                                         std::to_string(size_bytes(type)) + " bytes of " + to_string(type));
  }
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(bits.bytes()) % 8 == 0;
  if (!is_read_only && is_aligned) {
    const auto keep = std::make_shared<Tensor>(bits);
    return {type, {keep, keep->bytes()}};
  }
  Tensor made(type);
  if (bits.size_bytes() > 0) std::memcpy(made.bytes(), bits.bytes(), static_cast<std::size_t>(bits.size_bytes()));
  return made;
}

nb::tuple facts_of(const GraphHandle& handle) {
  const Graph& graph = handle.graph();
  Roles roles;
  Names initialized;
  for (const NodeId id : graph.parameters()) {
    const std::string& name = graph.node(id).name.str();
    if (graph.role(name) != ParameterRole::model) roles.emplace(name, graph.role(name));
  }
  for (const auto& [name, initial] : graph.initializers()) initialized.push_back(name);
  for (const auto& [name, initial] : handle.owner->first_values) {
    if (!graph.initializers().contains(name)) initialized.push_back(name);
  }
  return nb::make_tuple(roles, initialized, Streams(graph.random_streams.begin(), graph.random_streams.end()));
}

// A function of one process is in no other.
Initializer lost_initial(const std::string& name) {
  return [name](const Type& /*type*/, std::uint64_t /*seed*/) -> Tensor {
    throw Error(ErrorKind::argument,
                "parameter '" + name +
                    "': its graph was pickled, and first values are functions, which no pickle has\n"
                    "hint: pickle the Parameters with the graph, or build the graph anew; copy.deepcopy() keeps them");
  };
}

// The nodes of the text's graph in another one, node by node, where parameters have their roles.
GraphHandle graph_of(const std::string& text, const Roles& roles, const Names& initialized, const Streams& streams) {
  const std::unique_ptr<Graph> parsed = parse_graph(text);
  auto graph = std::make_unique<Graph>();
  for (NodeId id = 0; id < parsed->size(); ++id) {
    const Node& node = parsed->node(id);
    if (!node.op->is(OpRole::source) || !node.op->is_kept) {
      graph->add(node);
      continue;
    }
    const std::string& name = node.name.str();
    const auto role = roles.find(name);
    const bool has_initial = std::find(initialized.begin(), initialized.end(), name) != initialized.end();
    graph->parameter(name, node.types[0].dtype, node.types[0].shape, has_initial ? lost_initial(name) : Initializer{},
                     role == roles.end() ? ParameterRole::model : role->second);
    graph->mutable_node(id) = node;
  }
  graph->mutable_fetches() = parsed->fetches();
  for (const auto& [name, count] : streams) graph->random_streams[name] = count;
  return {std::make_shared<GraphOwner>(std::move(graph))};
}

}  // namespace

void bind_copies(nb::module_& module) {
  module.def("bits_of", &bits_of, "tensor"_a, "The bytes of a tensor's elements, in the same memory.");
  module.def(
      "tensor_of_bits", &tensor_of_bits, "bits"_a, "dtype"_a, "shape"_a,
      nb::sig("def tensor_of_bits(bits: object, dtype: DType | str, shape: collections.abc.Sequence[int]) -> Tensor"));
  module.def("facts_of", &facts_of, "graph"_a,
             nb::sig("def facts_of(graph: Graph) -> tuple[dict[str, ParameterRole], list[str], dict[str, int]]"),
             "The facts that a graph's text does not have: roles, names of parameters with first values, streams.");
  module.def("graph_of", &graph_of, "text"_a, "roles"_a, "initialized"_a, "streams"_a);
}

}  // namespace paoding::python
