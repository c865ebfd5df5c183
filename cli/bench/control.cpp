// SPDX-License-Identifier: Apache-2.0
// Section C: branches chosen by scalar predicates that are fed, both results fetched (case 1b).
#include <optional>

#include "cli/bench/case.h"
#include "cli/bench/timing.h"
#include "paoding/ops.h"

namespace paoding::cli::bench {
namespace {

// Three forms of one program: as the how-to prints it, with its scalars and predicates on the CPU, and with branches
// that compute their results, because results that are constants exist before the run.
enum class Way { as_told, on_cpu, computed };

void build(Graph& graph, DType dtype, Way way) {
  std::optional<OnCpu> scope;
  if (way == Way::on_cpu) scope.emplace(graph);
  const Value x = graph.input("x", dtype, {1}), y = graph.input("y", dtype, {1}), z = graph.input("z", dtype, {1});
  const Value is_first = less(z, x), is_second = less(x, y), is_third = equal(x, y);
  scope.reset();
  const auto given = [&](const Shape& shape, double value, DType type, const Value& fed) {
    const Value constant = full(graph, shape, value, type);
    return Values{way == Way::computed ? constant + cast(floor(fed), type) : constant};
  };
  const auto fn_1 = [&] { return given({1, 2}, 1, dtype, x); };
  const auto fn_2 = [&] { return given({2, 2}, 2, i32, y); };
  const auto fn_3 = [&] { return given({3}, 3, i32, z); };
  graph.fetch("out_1", case_variant({{is_first, fn_1}, {is_second, fn_2}}, fn_3));
  graph.fetch("out_2", case_variant({{is_second, fn_2}, {is_third, fn_3}}));
}

Tensor fed(const std::string& name, const Type& type) {
  const double value = name == "x" ? 0.3 : name == "y" ? 0.1 : 0.2;
  return Tensor::from(type.dtype, type.shape, std::vector<double>{value});
}

// A call is a run and the fetch of both results.
Samples time_calls(const Setting& setting, Way way) {
  Graph graph;
  build(graph, f32, way);
  Program program(graph, setting.compile);
  for (const std::string& name : program.input_names()) {
    const int index = program.input_index(name);
    program.set_input(index, fed(name, program.input_type(index)));
  }
  const auto call = [&] {
    program.run();
    program.fetch(0);
    program.fetch(1);
  };
  return time_work(call, 1, setting.effort);
}

Case cases_case(Way way) {
  constexpr const char* kNames[] = {"control/cases", "control/cases_on_cpu", "control/cases_computed"};
  constexpr const char* kWhat[] = {"two cases over fed scalars, both results fetched",
                                   "the same, its predicates on the CPU",
                                   "the same, with branches that compute their results"};
  Case c;
  c.section = 'C';
  c.name = c.kind = kNames[static_cast<int>(way)];
  c.what = kWhat[static_cast<int>(way)];
  c.sizes = "{}";
  c.dtype = f32;
  c.rotates = false;
  if (way == Way::as_told) c.goal.wall = 15;
  c.on_cpu = way != Way::on_cpu;
  c.build = [way](Graph& graph, DType dtype, const std::string&) { build(graph, dtype, way); };
  c.feed = fed;
  c.expected = [](const Feeds&) { return Expected{{"out_1", {1, 1}}, {"out_2", {3, 3, 3}}}; };
  c.measure = [way](const Setting& setting) { return time_calls(setting, way); };
  return c;
}

}  // namespace

Cases control_cases() { return {cases_case(Way::as_told), cases_case(Way::on_cpu), cases_case(Way::computed)}; }

}  // namespace paoding::cli::bench
