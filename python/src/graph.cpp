// SPDX-License-Identifier: Apache-2.0
// Graph and DType.
#include "paoding/graph.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "arrays.h"
#include "calls.h"
#include "gil.h"
#include "paoding/error.h"
#include "paoding/ops/random.h"

namespace paoding::python {
namespace {

// Freed under the GIL, whoever lets go of it last.
std::shared_ptr<nb::object> shared_object(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* held) {
            const WithGil gil;
            if (gil.is_held()) delete held;  // else it goes with the process
          }};
}

// initial(shape, dtype, seed), an array that is the value, or an initializer of paoding.nn.
Initializer initializer_of(nb::object given) {
  if (given.is_none()) return {};
  if (nb::isinstance<Initializer>(given)) return nb::cast<Initializer>(given);
  const bool is_function = PyCallable_Check(given.ptr()) != 0 && !nb::hasattr(given, "__array__");
  return [held = shared_object(std::move(given)), is_function](const Type& type, std::uint64_t seed) {
    const WithGil gil;
    return call_python([&] {
      const nb::object made = is_function ? (*held)(tuple_of(type.shape), type.dtype, seed) : *held;
      return feed_of(made, type.dtype, &type.shape, {"initial value"}, false, nullptr);
    });
  };
}

GraphHandle clone_of(const GraphHandle& graph) {
  auto made = std::make_shared<GraphOwner>(graph.graph().clone());
  made->first_values = graph.owner->first_values;
  return {std::move(made)};
}

void set_initial(const GraphHandle& self, const std::string& name, nb::object initial) {
  const Graph& graph = self.graph();
  const std::vector<NodeId>& all = graph.parameters();
  if (std::none_of(all.begin(), all.end(), [&](NodeId id) { return graph.node(id).name.str() == name; })) {
    throw Error(ErrorKind::argument, "set_initial: the graph has no parameter '" + name + "'");
  }
  self.owner->first_values[name] = initializer_of(std::move(initial));
}

struct ScopeHandle {  // `with graph.scope("decoder"):`
  GraphHandle graph;
  std::string name;
  std::unique_ptr<Scope> entered = nullptr;
};
struct OnCpuHandle {
  GraphHandle graph;
  std::unique_ptr<OnCpu> entered = nullptr;
};
struct RandomPurposeHandle {
  GraphHandle graph;
  std::string purpose;
  std::unique_ptr<RandomPurpose> entered = nullptr;
};

template <class Handle>
void leave(Handle& self, const nb::args& /*exception*/) {
  self.entered = nullptr;
}

std::vector<std::string> names_of(const Graph& graph, const std::vector<NodeId>& nodes) {
  std::vector<std::string> names;
  for (NodeId id : nodes) names.push_back(graph.node(id).name.str());
  return names;
}

}  // namespace

void bind_graph(nb::module_& module) {
  nb::enum_<DType>(module, "DType", "The type of a value's elements.")
      .value("f64", DType::f64)
      .value("f32", DType::f32)
      .value("f16", DType::f16)
      .value("bf16", DType::bf16)
      .value("i64", DType::i64)
      .value("i32", DType::i32)
      .value("u8", DType::u8)
      .value("bool", DType::boolean);
  nb::enum_<ParameterRole>(module, "ParameterRole", "What a parameter is there for.")
      .value("model", ParameterRole::model, "What the model computes with: weights, running statistics.")
      .value("optimizer", ParameterRole::optimizer, "What training remembers besides: means of gradients, averages.")
      .value("random", ParameterRole::random, "Seed and counter of random ops.");
  nb::class_<Initializer>(module, "Initializer", "Makes the values that parameters have at first: see paoding.nn.")
      .def(
          "__call__",
          [](const Initializer& self, nb::object shape, nb::object dtype, std::uint64_t seed) {
            return self({dtype_of(dtype), shape_of(shape)}, seed);
          },
          nb::arg("shape"), nb::arg("dtype"), nb::arg("seed"),
          nb::sig("def __call__(self, shape: collections.abc.Sequence[int], dtype: DType, seed: int) -> Tensor"));
  nb::class_<ScopeHandle>(module, "Scope")
      .def("__enter__",
           [](ScopeHandle& self) { self.entered = std::make_unique<Scope>(self.graph.graph(), self.name); })
      .def("__exit__", &leave<ScopeHandle>, nb::sig("def __exit__(self, *exception: object) -> None"));
  nb::class_<OnCpuHandle>(module, "OnCpu")
      .def("__enter__", [](OnCpuHandle& self) { self.entered = std::make_unique<OnCpu>(self.graph.graph()); })
      .def("__exit__", &leave<OnCpuHandle>, nb::sig("def __exit__(self, *exception: object) -> None"));
  nb::class_<RandomPurposeHandle>(module, "RandomPurpose")
      .def("__enter__",
           [](RandomPurposeHandle& self) {
             self.entered = std::make_unique<RandomPurpose>(self.graph.graph(), self.purpose);
           })
      .def("__exit__", &leave<RandomPurposeHandle>, nb::sig("def __exit__(self, *exception: object) -> None"));
  nb::class_<GraphHandle>(module, "Graph",
                          "A computation: values made of inputs and parameters. Within `with graph:` ops that have no "
                          "inputs belong to it.")
      .def("__init__",
           [](GraphHandle* self) { new (self) GraphHandle{std::make_shared<GraphOwner>(std::make_unique<Graph>())}; })
      .def_static(
          "parse", [](const std::string& text) { return GraphHandle{std::make_shared<GraphOwner>(parse_graph(text))}; },
          nb::arg("text"), "The graph of a text (docs/reference/graph_text.md). FileError with line and column.")
      .def("__str__", [](const GraphHandle& self) { return to_text(self.graph()); })
      .def("__repr__",
           [](const GraphHandle& self) { return "Graph(" + std::to_string(self.graph().size()) + " nodes)"; })
      .def(
          "__enter__",
          [](nb::handle self) {
            enter_graph(nb::cast<GraphHandle&>(self).owner);
            return nb::borrow(self);
          },
          nb::sig("def __enter__(self) -> Graph"))
      .def(
          "__exit__", [](const GraphHandle&, const nb::args&) { leave_graph(); },
          nb::sig("def __exit__(self, *exception: object) -> None"))
      .def(
          "input",
          [](const GraphHandle& self, const std::string& name, nb::object dtype, nb::object shape) {
            return wrap(self.graph().input(name, dtype_of(dtype), shape_of(shape)));
          },
          nb::arg("name"), nb::arg("dtype"), nb::arg("shape"),
          nb::sig(
              "def input(self, name: str, dtype: DType | str, shape: int | collections.abc.Sequence[int]) -> Value"),
          "A value fed on every run.")
      .def(
          "parameter",
          [](const GraphHandle& self, const std::string& name, nb::object dtype, nb::object shape, nb::object initial,
             ParameterRole role) {
            return wrap(self.graph().parameter(name, dtype_of(dtype), shape_of(shape),
                                               initializer_of(std::move(initial)), role));
          },
          nb::arg("name"), nb::arg("dtype"), nb::arg("shape"), nb::arg("initial") = nb::none(),
          nb::arg("role") = ParameterRole::model,
          nb::sig("def parameter(self, name: str, dtype: DType | str, shape: int | collections.abc.Sequence[int], "
                  "initial: Initial = None, role: ParameterRole = ...) -> Value"),
          "A value kept in Parameters: `initial` is an initializer, an array, or a function of shape, dtype and seed; "
          "zero without.")
      .def("set_initial", &set_initial, nb::arg("name"), nb::arg("initial"),
           nb::sig("def set_initial(self, name: str, initial: Initial) -> None"),
           "Another first value for a parameter that is declared, as a layer's: Parameters(graph) has it.")
      .def(
          "fetch",
          [](const GraphHandle& self, const std::string& name, const ValueHandle& value) {
            self.graph().fetch(name, value);
          },
          nb::arg("name"), nb::arg("value"), "Names a value as a result.")
      .def(
          "assign",
          [](const GraphHandle& self, const ValueHandle& parameter, const ValueHandle& value) {
            self.graph().assign(parameter, value);
          },
          nb::arg("parameter"), nb::arg("value"), "The parameter takes the value at the end of every run.")
      .def(
          "find", [](const GraphHandle& self, const std::string& name) { return wrap_if_any(self.graph().find(name)); },
          nb::arg("name"), "The input or parameter of this name; None when there is none.")
      .def(
          "fetched",
          [](const GraphHandle& self, const std::string& name) -> MaybeValue {
            for (const Graph::Fetch& fetch : self.graph().fetches()) {
              if (fetch.name == name) return wrap(self.graph().value(fetch.ref));
            }
            return std::nullopt;
          },
          nb::arg("name"), "The result of this name; None when there is none.")
      .def(
          "scope",
          [](const GraphHandle& self, const std::string& name) {
            return ScopeHandle{self, name};
          },
          nb::arg("name"), "`with graph.scope(name):` names what is built within, for errors and reports.")
      .def(
          "on_cpu", [](const GraphHandle& self) { return OnCpuHandle{self}; },
          "`with graph.on_cpu():` what is built within runs on the CPU, also in a program for a GPU.")
      .def(
          "random_purpose",
          [](const GraphHandle& self, const std::string& purpose) {
            return RandomPurposeHandle{self, purpose};
          },
          nb::arg("purpose"),
          "`with graph.random_purpose(name):` draws within from a state of its own, `random/name`, so that other draws "
          "stay as they are.")
      .def(
          "role",
          [](const GraphHandle& self, const std::string& name) {
            const Graph& graph = self.graph();
            for (const NodeId id : graph.parameters()) {
              if (graph.node(id).name.str() == name) return graph.role(name);
            }
            throw Error(ErrorKind::argument, "role: the graph has no parameter '" + name + "'");
          },
          nb::arg("name"), "What the parameter of this name is there for.")
      .def("clone", &clone_of)
      .def("__copy__", &clone_of)
      .def(
          "__deepcopy__", [](const GraphHandle& self, nb::handle /*memo*/) { return clone_of(self); }, nb::arg("memo"),
          nb::sig("def __deepcopy__(self, memo: typing.Any) -> Graph"))
      .def_prop_ro("inputs", [](const GraphHandle& self) { return names_of(self.graph(), self.graph().inputs()); })
      .def_prop_ro("parameters",
                   [](const GraphHandle& self) { return names_of(self.graph(), self.graph().parameters()); })
      .def_prop_ro("fetches",
                   [](const GraphHandle& self) {
                     std::vector<std::string> names;
                     for (const Graph::Fetch& fetch : self.graph().fetches()) names.push_back(fetch.name);
                     return names;
                   })
      .def("__len__", [](const GraphHandle& self) { return self.graph().size(); });
}

}  // namespace paoding::python
