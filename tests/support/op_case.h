// SPDX-License-Identifier: Apache-2.0
// Every case of every op, and graphs that tests make of one: the op alone, or between elementwise ops, with gradients.
#pragma once

#include "tests/support/program_check.h"

namespace paoding::testing_program {

struct SweepCase {
  const OpDef* op = nullptr;
  std::string name;  // "case3", "broadcast1"
  OpCase shape;
  DType dtype = f32;  // stands for f32 in the case
};

/// The dtypes of a case's inputs once `dtype` stands for f32.
inline std::vector<DType> input_dtypes(const SweepCase& c) {
  std::vector<DType> dtypes;
  for (std::size_t i = 0; i < c.shape.shapes.size(); ++i) {
    const DType given = i < c.shape.dtypes.size() ? c.shape.dtypes[i] : f32;
    dtypes.push_back(given == f32 ? c.dtype : given);
  }
  return dtypes;
}

/// Shapes of rank 0 to 6 that broadcast together.
inline std::vector<Shape> random_broadcast(std::size_t count, std::mt19937& random) {
  const auto rank = static_cast<std::size_t>(1 + random() % 6);
  Ints extents(rank);
  for (auto& extent : extents) extent = 1 + static_cast<std::int64_t>(random() % 4);
  if (random() % 8 == 0) extents[random() % rank] = 0;
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < count; ++i) {
    Ints dims(extents.begin() + static_cast<std::ptrdiff_t>(random() % 3 == 0 ? random() % (rank + 1) : 0),
              extents.end());
    for (auto& dim : dims) {
      if (random() % 3 == 0) dim = 1;
    }
    shapes.emplace_back(std::span<const std::int64_t>(dims));
  }
  return shapes;
}

/// The cases that ops declare, and broadcasts of up to rank 6 for formulas of several inputs.
inline std::vector<SweepCase> sweep_cases(DType dtype) {
  std::vector<SweepCase> cases;
  for (const OpDef* op : all_ops()) {
    for (std::size_t i = 0; i < op->cases.size(); ++i) {
      cases.push_back({op, "case" + std::to_string(i), op->cases[i], dtype});
    }
    if (op->kind != OpKind::formula || op->inputs.size() < 2) continue;
    std::mt19937 random(static_cast<unsigned>(op->name.size() + op->name[0]));
    for (int i = 0; i < 4; ++i) {
      OpCase made;
      made.shapes = random_broadcast(op->inputs.size(), random);
      made.dtypes = op->cases.at(0).dtypes;
      made.attrs = op->cases.at(0).attrs;  // some have no default
      cases.push_back({op, "broadcast" + std::to_string(i), made, dtype});
    }
  }
  return cases;
}

/// Whether an op, or its gradient, is NaN left of 0 (log1p: left of -1; pow: for fractional powers).
inline bool takes_positive_only(const OpDef& op) {
  static const std::set<std::string> names = {"log", "log1p", "log2", "log10", "pow", "sqrt", "rsqrt", "acosh"};
  return names.contains(op.name);
}

/// A power of two that brings feeds to where an op has results: between -1 and 1, or above 1.
inline double scale_of_feeds(const OpDef& op) {
  if (op.name == "asin" || op.name == "acos" || op.name == "atanh") return 0.25;
  return op.name == "acosh" ? 16 : 1;
}

/// Feeds with values that an op takes, whose inputs are in0, in1 ..
inline Feeds feeds_of(const OpDef& op, const Graph& graph, unsigned seed) {
  Feeds feeds = make_feeds(graph, seed, takes_positive_only(op));
  for (auto& [name, values] : feeds) {
    if (!name.starts_with("in")) continue;
    for (double& value : values) value *= scale_of_feeds(op);
  }
  return feeds;
}
inline Feeds feeds_of(const SweepCase& c, const Graph& graph, unsigned seed) { return feeds_of(*c.op, graph, seed); }

enum class Around { nothing, elementwise };

/// The op of a case in a graph: fetches out0, out1 .. and, on request, the gradients of sum(out * seed) for every
/// input that is a float.
struct CaseGraph {
  Graph graph;
  Values floats;
  bool has_gradient = false;

  CaseGraph(const SweepCase& c, Around around, bool with_gradient) {
    const std::vector<DType> dtypes = input_dtypes(c);
    Values inputs;
    for (std::size_t i = 0; i < dtypes.size(); ++i) {
      const Value in = graph.input("in" + std::to_string(i), dtypes[i], c.shape.shapes[i]);
      if (is_float(dtypes[i])) floats.push_back(in);
      inputs.push_back(around == Around::nothing ? in : before(in));
    }
    Values outputs = call(*c.op, inputs, c.shape.attrs, {}, &graph);
    if (around == Around::elementwise) {
      for (Value& output : outputs) output = behind(output);
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) graph.fetch("out" + std::to_string(i), outputs[i]);
    if (with_gradient) differentiate(outputs);
  }

 private:
  // Exact in every dtype, so that the op after it sees the same values whatever their precision.
  static Value before(const Value& in) {
    if (in.dtype() == boolean) return call("logical_not", {in});
    return is_float(in.dtype()) ? in * 0.5 : in + 1.0;
  }
  static Value behind(const Value& out) {
    const Value number = is_float(out.dtype()) ? out : cast(out, f32);
    return number * number + number;
  }

  void differentiate(const Values& outputs) {
    Values wanted, seeds;
    for (const Value& output : outputs) {
      if (!is_float(output.dtype())) continue;
      wanted.push_back(output);
      seeds.push_back(graph.input("seed" + std::to_string(seeds.size()), output.dtype(), output.shape()));
    }
    has_gradient = !wanted.empty() && !floats.empty();
    if (!has_gradient) return;
    const Values made = gradients(wanted, floats, seeds);
    for (std::size_t i = 0; i < made.size(); ++i) graph.fetch("gradient" + std::to_string(i), made[i]);
  }
};

}  // namespace paoding::testing_program
