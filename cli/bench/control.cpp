// SPDX-License-Identifier: Apache-2.0
// Section C: branches chosen by scalar predicates that are fed, both results fetched (case 1b).
#include "cli/bench/case.h"
#include "paoding/ops.h"

namespace paoding::cli::bench {
namespace {

void build(Graph& graph, DType dtype) {
  const Value x = graph.input("x", dtype, {1}), y = graph.input("y", dtype, {1}), z = graph.input("z", dtype, {1});
  const auto fn_1 = [&] { return Values{full(graph, {1, 2}, 1, dtype)}; };
  const auto fn_2 = [&] { return Values{full(graph, {2, 2}, 2, i32)}; };
  const auto fn_3 = [&] { return Values{full(graph, {3}, 3, i32)}; };
  const Value is_first = less(z, x), is_second = less(x, y), is_third = equal(x, y);
  graph.fetch("out_1", case_variant({{is_first, fn_1}, {is_second, fn_2}}, fn_3));
  graph.fetch("out_2", case_variant({{is_second, fn_2}, {is_third, fn_3}}));
}

}  // namespace

Cases control_cases() {
  Case c;
  c.section = 'C';
  c.name = c.kind = "control/cases";
  c.what = "two cases over fed scalars, both results fetched";
  c.sizes = "{}";
  c.dtype = f32;
  c.rotates = false;
  c.goal.wall = 15;
  c.build = [](Graph& graph, DType dtype, const std::string&) { build(graph, dtype); };
  c.feed = [](const std::string& name, const Type& type) {
    const double value = name == "x" ? 0.3 : name == "y" ? 0.1 : 0.2;
    return Tensor::from(type.dtype, type.shape, std::vector<double>{value});
  };
  c.expected = [](const Feeds&) { return Expected{{"out_1", {1, 1}}, {"out_2", {3, 3, 3}}}; };
  return {c};
}

}  // namespace paoding::cli::bench
