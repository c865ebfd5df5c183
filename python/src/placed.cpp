// SPDX-License-Identifier: Apache-2.0
// Graphs on addresses, for paoding.torch.function.
#include "paoding/placed.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "bindings.h"
#include "errors.h"
#include "interrupts.h"

namespace paoding::python {
namespace {

using namespace nb::literals;
using Address = std::uintptr_t;

nb::list places_of(const std::vector<PlacedGraph::Place>& places) {
  nb::list made;
  for (const PlacedGraph::Place& place : places) {
    const Shape& shape = place.type.shape;
    const std::vector<std::int64_t> extents(shape.begin(), shape.end());
    made.append(nb::make_tuple(place.name, place.type.dtype, nb::tuple(nb::cast(extents))));
  }
  return made;
}

}  // namespace

void bind_placed(nb::module_& module) {
  nb::class_<PlacedGraph>(module, "PlacedGraph", "A graph on memory of the caller's: paoding/placed.h.")
      .def(
          "__init__",
          [](PlacedGraph* self, const GraphHandle& graph, const std::string& device, bool allow_tf32,
             const std::vector<std::string>& fetches, bool reports_faults, bool uses_graph) {
            const std::unique_ptr<Graph> copy = graph.graph().clone();  // other threads may change it meanwhile
            with_lines(*graph.owner, [&] {
              new (self) PlacedGraph(run_freely([&] {
                return PlacedGraph(*copy, device_of(device), {fetches, allow_tf32, reports_faults, uses_graph});
              }));
            });
          },
          "graph"_a, "device"_a, "allow_tf32"_a = false, "fetches"_a = nb::list(), "reports_faults"_a = false,
          "uses_graph"_a = false,
          nb::sig("def __init__(self, graph: Graph, device: str, allow_tf32: bool = False, "
                  "fetches: collections.abc.Sequence[str] = (), reports_faults: bool = False, "
                  "uses_graph: bool = False) -> None"))
      .def_prop_ro(
          "inputs", [](const PlacedGraph& self) { return places_of(self.inputs()); },
          nb::sig("def inputs(self) -> list[tuple[str, DType, tuple[int, ...]]]"), "Name, dtype and shape of each.")
      .def_prop_ro(
          "results", [](const PlacedGraph& self) { return places_of(self.results()); },
          nb::sig("def results(self) -> list[tuple[str, DType, tuple[int, ...]]]"))
      .def_prop_ro("notes", &PlacedGraph::notes, nb::sig("def notes(self) -> list[str]"),
                   "The changes that passes made, and those that they declined: 'reroll_loops: 64 turns of ..'.")
      .def_prop_ro("workspace_bytes", &PlacedGraph::workspace_bytes)
      .def_prop_ro(
          "fault_words",
          [](const PlacedGraph& self) {
            const PlacedGraph::FaultWords words = self.fault_words();
            return nb::make_tuple(words.offset, words.bytes);
          },
          nb::sig("def fault_words(self) -> tuple[int, int]"), "Where in the workspace they are, and their bytes.")
      .def(
          "check", [](const PlacedGraph& self, Address words) { self.check(reinterpret_cast<const void*>(words)); },
          "words"_a, "Raises the error of a run that left these, at an address of the host.")
      .def(
          "follow_faults",
          [](PlacedGraph& self, Address workspace, Address stream) {
            const WithoutGil free;
            self.follow_faults(reinterpret_cast<const void*>(workspace), reinterpret_cast<void*>(stream));
          },
          "workspace"_a, "stream"_a, "Has the faults of the run in front of it in the stream read, without waiting.")
      .def(
          "raise_faults",
          [](PlacedGraph& self, bool waits) {
            const WithoutGil free;
            self.raise_faults(waits);
          },
          "waits"_a = false,
          "Raises the error of the oldest followed run that has one: of those that have ended, or of all.")
      .def(
          "run",
          [](PlacedGraph& self, const std::vector<Address>& inputs, const std::vector<Address>& results,
             Address workspace, Address stream) {
            std::vector<const void*> read;
            std::vector<void*> made;
            for (Address each : inputs) read.push_back(reinterpret_cast<const void*>(each));
            for (Address each : results) made.push_back(reinterpret_cast<void*>(each));
            const WithoutGil free;
            self.run(read, made, reinterpret_cast<void*>(workspace), reinterpret_cast<void*>(stream));
          },
          "inputs"_a, "results"_a, "workspace"_a, "stream"_a = 0, "Addresses; 0 is null.");
}

}  // namespace paoding::python
