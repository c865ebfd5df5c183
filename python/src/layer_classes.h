// SPDX-License-Identifier: Apache-2.0
// Layers as Python's classes: the parts that all of them have.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "arrays.h"
#include "bindings.h"
#include "fronts.h"
#include "paoding/nn.h"

namespace paoding::python {

using namespace nb::literals;
using MaybeGraph = std::optional<GraphHandle>;
using MaybeInitial = std::optional<Initializer>;

inline Graph& layer_graph_of(const MaybeGraph& given, const char* layer) {
  return graph_for(given ? &*given : nullptr, layer);
}
inline Initializer initial_of(const MaybeInitial& given) { return given ? *given : Initializer{}; }

/// A layer that Python holds: it keeps the graph that its parameters are of.
template <class Layer>
struct Kept {
  std::shared_ptr<GraphOwner> owner;
  Layer layer;
};

template <class Layer, class... Arguments>
void construct(Kept<Layer>* self, Graph& graph, const Arguments&... arguments) {
  Graph* home = &graph;
  while (home->parent != nullptr) home = home->parent;
  new (self) Kept<Layer>{owner_of(home), Layer(graph, arguments...)};
}

template <class Layer>
auto layer_class(nb::module_& module, const char* name, const char* doc) {
  return nb::class_<Kept<Layer>>(module, name, doc);
}

/// layer(x)
template <class Layer>
ValueHandle applied(const Kept<Layer>& self, const ValueHandle& x) {
  self.owner->get();
  return wrap(self.layer(x));
}

using Pair = std::pair<ValueHandle, ValueHandle>;
inline Pair pair_of(const nn::KeysAndValues& both) { return {wrap(both.keys), wrap(both.values)}; }
inline nn::KeysAndValues keys_and_values_of(const Pair& pair) { return {pair.first, pair.second}; }

/// A cache begins in the graph that is given, or in the layer's.
template <class Layer>
Graph& cache_graph_of(const MaybeGraph& given, const Kept<Layer>& layer) {
  return given ? given->graph() : layer.owner->get();
}

template <class Layer, class Class>
void bind_value_of(Class& type, const char* name, Value Layer::*member) {
  type.def_prop_ro(name, [member](const Kept<Layer>& self) { return wrap_if_any(self.layer.*member); });
}

}  // namespace paoding::python
