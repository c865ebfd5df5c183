// SPDX-License-Identifier: Apache-2.0
// Section C: branches chosen by scalar predicates that are fed, both results fetched (case 1b).
#include <optional>

#include "cli/bench/case.h"
#include "cli/bench/timing.h"
#include "paoding/ops.h"

namespace paoding::cli::bench {
namespace {

// As the story prints it, and as it mends it: with the scalars and the predicates on the CPU.
void build(Graph& graph, DType dtype, bool on_cpu) {
  std::optional<OnCpu> scope;
  if (on_cpu) scope.emplace(graph);
  const Value x = graph.input("x", dtype, {1}), y = graph.input("y", dtype, {1}), z = graph.input("z", dtype, {1});
  const Value is_first = less(z, x), is_second = less(x, y), is_third = equal(x, y);
  scope.reset();
  const auto fn_1 = [&] { return Values{full(graph, {1, 2}, 1, dtype)}; };
  const auto fn_2 = [&] { return Values{full(graph, {2, 2}, 2, i32)}; };
  const auto fn_3 = [&] { return Values{full(graph, {3}, 3, i32)}; };
  graph.fetch("out_1", case_variant({{is_first, fn_1}, {is_second, fn_2}}, fn_3));
  graph.fetch("out_2", case_variant({{is_second, fn_2}, {is_third, fn_3}}));
}

Tensor fed(const std::string& name, const Type& type) {
  const double value = name == "x" ? 0.3 : name == "y" ? 0.1 : 0.2;
  return Tensor::from(type.dtype, type.shape, std::vector<double>{value});
}

// A call is a run and the fetch of both results.
Samples time_calls(const Setting& setting, bool on_cpu) {
  Graph graph;
  build(graph, f32, on_cpu);
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

Case cases_case(bool on_cpu) {
  Case c;
  c.section = 'C';
  c.name = c.kind = on_cpu ? "control/cases_on_cpu" : "control/cases";
  c.what = on_cpu ? "the same, its predicates on the CPU" : "two cases over fed scalars, both results fetched";
  c.sizes = "{}";
  c.dtype = f32;
  c.rotates = false;
  if (!on_cpu) c.goal.wall = 15;
  c.on_cpu = !on_cpu;
  c.build = [on_cpu](Graph& graph, DType dtype, const std::string&) { build(graph, dtype, on_cpu); };
  c.feed = fed;
  c.expected = [](const Feeds&) { return Expected{{"out_1", {1, 1}}, {"out_2", {3, 3, 3}}}; };
  c.measure = [on_cpu](const Setting& setting) { return time_calls(setting, on_cpu); };
  return c;
}

}  // namespace

Cases control_cases() { return {cases_case(false), cases_case(true)}; }

}  // namespace paoding::cli::bench
