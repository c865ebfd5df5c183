// SPDX-License-Identifier: Apache-2.0
// Streaming on lists of values; paoding/streaming.py nests them as its user does.
#include "paoding/streaming.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "bindings.h"
#include "gil.h"
#include "interrupts.h"
#include "paoding/error.h"

namespace paoding::python {
namespace {

using namespace nb::literals;
using StateType = std::pair<nb::object, nb::object>;

/// Streaming, with the Python function that builds its model.
struct StreamingHandle {
  std::unique_ptr<Streaming> streaming;
  Type input;
  std::int64_t capacity;
};

Type type_of_pair(const StateType& pair) { return {dtype_of(pair.first), shape_of(pair.second)}; }

void construct_streaming(StreamingHandle* self, nb::object build, std::int64_t capacity, const StateType& input,
                         const std::vector<StateType>& states, const std::string& device, std::uint64_t seed,
                         const nb::object& precision, bool allow_tf32) {
  StreamingOptions options;
  options.capacity = capacity;
  options.input = type_of_pair(input);
  for (const StateType& state : states) options.states.push_back(type_of_pair(state));
  options.compile.device = device_of(device);
  options.compile.precision = dtype_of(precision);
  options.compile.allow_tf32 = allow_tf32;
  options.parameters.seed = seed;
  const auto held = std::shared_ptr<nb::object>(new nb::object(std::move(build)), [](nb::object* object) {
    const WithGil gil;
    if (gil.is_held()) delete object;
  });
  const Streaming::Build made = [held](Graph& graph, const Value& xs, const Value& lengths, const Values& given) {
    const WithGil gil;
    return call_python([&] {
      const BodyFrame frame(&graph);
      const nb::object result = (*held)(wrap(xs), wrap(lengths), wrap(given));
      const auto [next, outputs] =
          nb::cast<std::pair<std::vector<ValueHandle>, std::vector<ValueHandle>>>(result);  // as streaming.py has it
      return StepResult{values_of(next), values_of(outputs)};
    });
  };
  const Type input_type = options.input;
  auto streaming = run_freely([&] { return std::make_unique<Streaming>(options, made); });
  new (self) StreamingHandle{std::move(streaming), input_type, capacity};
}

void run_streaming(StreamingHandle& self, nb::handle xs, const std::vector<std::int32_t>& lengths) {
  const Tensor tensor = feed_of(xs, self.input.dtype, nullptr, {"Streaming: xs"}, false, nullptr);
  run_freely([&] { self.streaming->run(tensor, lengths); });
}

}  // namespace

void bind_streaming(nb::module_& module) {
  nb::class_<StreamingHandle>(module, "StreamingOfLists")
      .def("__init__", &construct_streaming, "build"_a, "capacity"_a, "input"_a, "states"_a, "device"_a, "seed"_a,
           "precision"_a, "allow_tf32"_a,
           nb::sig("def __init__(self, build: collections.abc.Callable[[Value, Value, list[Value]], tuple[list[Value], "
                   "list[Value]]], capacity: int, input: tuple[typing.Any, typing.Any], states: "
                   "collections.abc.Sequence[tuple[typing.Any, typing.Any]], device: str, seed: int, precision: "
                   "typing.Any, allow_tf32: bool) -> None"))
      .def_prop_ro(
          "parameters", [](StreamingHandle& self) -> Parameters& { return self.streaming->parameters(); },
          nb::rv_policy::reference_internal)
      .def(
          "prepare",
          [](StreamingHandle& self, std::int64_t steps) { run_freely([&] { self.streaming->prepare(steps); }); },
          "steps"_a)
      .def("join", [](StreamingHandle& self) { return self.streaming->join(); })
      .def(
          "leave", [](StreamingHandle& self, int sequence) { self.streaming->leave(sequence); }, "sequence"_a)
      .def_prop_ro("sequences", [](const StreamingHandle& self) { return self.streaming->sequences(); })
      .def_ro("capacity", &StreamingHandle::capacity)
      .def("run", &run_streaming, "xs"_a, "lengths"_a,
           nb::sig("def run(self, xs: object, lengths: collections.abc.Sequence[int]) -> None"))
      .def(
          "output",
          [](StreamingHandle& self, int index) { return run_freely([&] { return self.streaming->output(index); }); },
          "index"_a);
}

}  // namespace paoding::python
