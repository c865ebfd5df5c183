// SPDX-License-Identifier: Apache-2.0
// Loops and branches whose bodies are Python functions, and gradients. Lists of values here; paoding/control.py turns
// them into the functions' arguments and results.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "bindings.h"
#include "gil.h"
#include "paoding/autodiff.h"
#include "paoding/error.h"
#include "paoding/gradient_halves.h"
#include "paoding/ops.h"

namespace paoding::python {
namespace {

using namespace nb::literals;
using Handles = std::vector<ValueHandle>;

Graph* graph_of_values(const Values& values) { return values.empty() ? nullptr : &values[0].graph(); }

// function(..) and its result, as control.py promises it.
template <class Made, class... Arguments>
Made made_by(const nb::object& function, Arguments&&... arguments) {
  return call_python([&] {
    const nb::object made = function(std::forward<Arguments>(arguments)...);
    Made values;
    if (nb::try_cast(made, values)) return values;
    throw nb::type_error(
        ("the function that writes a body gives " + text_of(nb::repr(made)) + ", needed are Values").c_str());
  });
}

Values called(const nb::object& function, const Values& arguments) {
  const BodyFrame frame(graph_of_values(arguments));
  return values_of(made_by<Handles>(function, wrap(arguments)));
}

std::function<Values()> branch_of(nb::object function) {
  return [function = std::move(function)] {
    const BodyFrame frame;
    return values_of(made_by<Handles>(function));
  };
}

std::pair<Handles, Handles> scanned(const Handles& initial, const Handles& sequences, const nb::object& step,
                                    bool reverse) {
  const auto body = [&](const Values& carries, const Values& elements) {
    const BodyFrame frame(graph_of_values(carries.empty() ? elements : carries));
    const auto [next, outputs] = made_by<std::pair<Handles, Handles>>(step, wrap(carries), wrap(elements));
    return StepResult{values_of(next), values_of(outputs)};
  };
  const StepResult result = scan(values_of(initial), values_of(sequences), body, reverse);
  return {wrap(result.carries), wrap(result.outputs)};
}

std::pair<Handles, MaybeValue> repeated(const Handles& initial, const nb::object& condition, const nb::object& body,
                                        std::optional<std::int64_t> most) {
  const auto goes_on = [&](const Values& values) { return called(condition, values).at(0); };
  const auto turn = [&](const Values& values) { return called(body, values); };
  if (!most) return {wrap(while_loop(values_of(initial), goes_on, turn)), std::nullopt};
  const LoopResult result = while_loop(values_of(initial), goes_on, turn, *most);
  return {wrap(result.values), wrap(result.iterations)};
}

}  // namespace

void bind_control(nb::module_& module) {
  module.def("scan", &scanned, "initial"_a, "sequences"_a, "step"_a, "reverse"_a);
  module.def("while_loop", &repeated, "initial"_a, "condition"_a, "body"_a, "max_iterations"_a = nb::none());
  module.def(
      "cond",
      [](const ValueHandle& predicate, nb::object then, nb::object otherwise) {
        return wrap(cond(predicate, branch_of(std::move(then)), branch_of(std::move(otherwise))));
      },
      "predicate"_a, "then"_a, "otherwise"_a);
  module.def(
      "switch",
      [](const ValueHandle& index, const std::vector<nb::object>& functions) {
        std::vector<std::function<Values()>> branches;
        for (const nb::object& function : functions) branches.push_back(branch_of(function));
        return wrap(switch_case(index, branches));
      },
      "index"_a, "branches"_a);
  module.def(
      "checkpoint",
      [](const nb::object& function, const Handles& inputs) {
        return wrap(checkpoint([&](const Values& values) { return called(function, values); }, values_of(inputs)));
      },
      "function"_a, "inputs"_a);
  module.def(
      "step_index",
      [](const std::optional<GraphHandle>& graph) {
        return wrap(step_index(graph_for(graph ? &*graph : nullptr, "step_index")));
      },
      "graph"_a = nb::none(), "In the step of a scan: its number, i64.");
  module.def(
      "print_value", [](const ValueHandle& value, const std::string& message) { return wrap(print(value, message)); },
      "value"_a, "message"_a = "", "The value itself, which every run hands to Program's on_print.");
  module.def(
      "gradients",
      [](const Handles& outputs, const Handles& inputs, const std::optional<Handles>& seeds) {
        const Values given = seeds ? values_of(*seeds) : Values{};
        return wrap(gradients(values_of(outputs), values_of(inputs), given));
      },
      "outputs"_a, "inputs"_a, "seeds"_a = nb::none());
  module.def(
      "gradient_halves",
      [](const GraphHandle& graph, const std::vector<std::string>& results, const std::vector<std::string>& inputs) {
        GradientHalves halves = gradient_halves(graph.graph(), results, inputs);
        const auto owned = [](std::unique_ptr<Graph> made) {
          return GraphHandle{std::make_shared<GraphOwner>(std::move(made))};
        };
        return std::tuple(owned(std::move(halves.forward)), owned(std::move(halves.backward)), std::move(halves.notes));
      },
      "graph"_a, "results"_a, "inputs"_a,
      "The graph and its gradient as two graphs, for autograd of PyTorch's, and notes on loops: see the C++ "
      "reference.");
}

}  // namespace paoding::python
