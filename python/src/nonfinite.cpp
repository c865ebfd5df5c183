// SPDX-License-Identifier: Apache-2.0
// find_nonfinite() of a program.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "bindings.h"
#include "interrupts.h"
#include "paoding/debug.h"
#include "paoding/error.h"

namespace paoding::python {
namespace {

using namespace nb::literals;

std::map<std::string, Tensor> feeds_for(Graph& graph, const nb::dict& given) {
  std::map<std::string, Tensor> feeds;
  for (auto [key, value] : given) {
    const std::string name = name_of(key, "the name of an input");
    const Value input = graph.find(name);
    if (!input.valid()) throw Error(ErrorKind::argument, "find_nonfinite: the graph has no input '" + name + "'");
    const Shape shape = input.shape();
    feeds.emplace(name, feed_of(value, input.dtype(), &shape, {"input", name}, false, nullptr));
  }
  return feeds;
}

std::optional<NonfiniteReport> nonfinite_of(const GraphHandle& graph, const Parameters* parameters,
                                            const nb::dict& feeds, const std::string& device,
                                            const std::vector<std::string>& fetches, bool assign,
                                            const nb::object& precision, bool allow_tf32,
                                            const std::vector<std::string>& disabled_passes,
                                            std::int64_t rewind_random) {
  CompileOptions options;
  options.device = device_of(device);
  options.fetches = fetches;
  options.assign = assign;
  options.precision = dtype_of(precision);
  options.allow_tf32 = allow_tf32;
  options.disabled_passes = disabled_passes;
  const std::unique_ptr<Graph> copy = graph.graph().clone();
  const std::map<std::string, Tensor> all = feeds_for(*copy, feeds);
  std::optional<Parameters> none;
  if (parameters == nullptr) none.emplace(*copy, options.device);
  const Parameters& store = parameters == nullptr ? *none : *parameters;
  return run_freely([&] { return find_nonfinite(*copy, store, all, options, {.rewind_random = rewind_random}); });
}

nb::object dtype_and_shape(const Type& type) { return nb::make_tuple(type.dtype, tuple_of(type.shape)); }

}  // namespace

void bind_debug(nb::module_& module) {
  nb::class_<ValueRead>(module, "ValueRead", "Something that a step read.")
      .def_ro("name", &ValueRead::name, "\"input 'x'\", \"parameter 'w'\", or the op that made it.")
      .def_prop_ro(
          "type", [](const ValueRead& self) { return dtype_and_shape(self.type); },
          nb::sig("def type(self) -> tuple[DType, tuple[int, ...]]"))
      .def_ro("nans", &ValueRead::nans)
      .def_ro("infinities", &ValueRead::infinities)
      .def_ro("min", &ValueRead::min, "Of the finite elements.")
      .def_ro("max", &ValueRead::max, "Of the finite elements.")
      .def_ro("at", &ValueRead::at, "The element that goes with the non-finite one, where it is one.");
  nb::class_<NonfiniteValue> value(module, "NonfiniteValue", "A non-finite value.");
  value
      .def_prop_ro("kind",
                   [](const NonfiniteValue& self) {
                     constexpr const char* kNames[] = {"input", "parameter", "step"};
                     return kNames[static_cast<int>(self.kind)];
                   })
      .def_ro("name", &NonfiniteValue::name, "Of the input or parameter; of a step its op.")
      .def_ro("scope", &NonfiniteValue::scope)
      .def_ro("members", &NonfiniteValue::members, "The ops of a fused group, in order.")
      .def_ro("time_step", &NonfiniteValue::time_step, "In the innermost loop around the step; -1 outside of loops.")
      .def_ro("time_steps", &NonfiniteValue::time_steps, "That the loop has; 0 where their number is not fixed.")
      .def_ro("result", &NonfiniteValue::result, "Which of the step's, 0 the first.")
      .def_prop_ro(
          "type", [](const NonfiniteValue& self) { return dtype_and_shape(self.type); },
          nb::sig("def type(self) -> tuple[DType, tuple[int, ...]]"))
      .def_ro("nans", &NonfiniteValue::nans)
      .def_ro("infinities", &NonfiniteValue::infinities)
      .def_ro("index", &NonfiniteValue::index, "Of the first of them.")
      .def_ro("value", &NonfiniteValue::value, "There.")
      .def_ro("reads", &NonfiniteValue::reads, "Of a step.");
  nb::class_<NonfiniteReport>(module, "NonfiniteReport", "Where a NaN or an infinity came from; str() is for a person.")
      .def_ro("followed", &NonfiniteReport::followed, "The value that was followed back: \"fetch 'loss'\".")
      .def_ro("first", &NonfiniteReport::first)
      .def_ro("became_nan", &NonfiniteReport::became_nan, "Where an infinity became the NaN that was followed.")
      .def_ro("unfused", &NonfiniteReport::unfused, "The finding of a run in which each op has a kernel of its own.")
      .def_ro("others", &NonfiniteReport::others, "Inputs and parameters that are non-finite to begin with.")
      .def("__str__", [](const NonfiniteReport& self) { return to_text(self); });
  module.def("nonfinite_of", &nonfinite_of, "graph"_a, "parameters"_a.none(), "feeds"_a, "device"_a, "fetches"_a,
             "assign"_a, "precision"_a, "allow_tf32"_a, "disabled_passes"_a, "rewind_random"_a,
             nb::sig("def nonfinite_of(graph: Graph, parameters: Parameters | None, feeds: dict[str, typing.Any], "
                     "device: str, fetches: collections.abc.Sequence[str], assign: bool, precision: str, allow_tf32: "
                     "bool, disabled_passes: collections.abc.Sequence[str], rewind_random: int) -> NonfiniteReport | "
                     "None"));
}

}  // namespace paoding::python
