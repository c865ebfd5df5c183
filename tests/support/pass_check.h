// SPDX-License-Identifier: Apache-2.0
// Helpers that tests of passes share: counting nodes, and checking that a pass changes no fetched value.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "graph/verify.h"
#include "paoding/op.h"
#include "passes/pass.h"
#include "tests/reference/reference_evaluator.h"

namespace paoding {

/// Nodes of this op, in `graph` alone.
inline int count_here(const Graph& graph, std::string_view op) {
  int count = 0;
  for (NodeId id = 0; id < graph.size(); ++id) count += graph.node(id).op->name == op;
  return count;
}

/// The only node of this op.
inline const Node& only(const Graph& graph, std::string_view op) {
  EXPECT_EQ(count_here(graph, op), 1) << op;
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (graph.node(id).op->name == op) return graph.node(id);
  }
  throw std::invalid_argument("no node of op " + std::string(op));
}

inline const Node& fetched(const Graph& graph, std::size_t i = 0) { return graph.node(graph.fetches().at(i).ref.node); }

inline std::map<std::string, std::vector<double>> random_feeds(const Graph& graph, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::map<std::string, std::vector<double>> feeds;
  for (const auto* list : {&graph.inputs(), &graph.parameters()}) {
    for (NodeId id : *list) {
      const Type& type = graph.node(id).types[0];
      std::vector<double>& values = feeds[graph.node(id).name.str()];
      values.resize(static_cast<std::size_t>(type.shape.elements()));
      // Multiples of 1/128, which every float dtype holds: casts there and back are then exact.
      for (double& value : values) {
        value = is_float(type.dtype) ? std::round(128 * uniform(random)) / 128 : std::floor(3 * uniform(random));
      }
    }
  }
  return feeds;
}

/// Runs the passes on `graph` and compares every fetch with its value before. Returns their notes.
inline std::vector<std::string> run_and_compare(Graph& graph, const std::vector<void (*)(Graph&, PassNotes&)>& passes) {
  const auto feeds = random_feeds(graph, 7);
  const auto before = evaluate_graph(graph, feeds);
  std::vector<Type> types;
  for (const Graph::Fetch& fetch : graph.fetches()) types.push_back(graph.type(fetch.ref));
  PassNotes notes;
  for (const auto pass : passes) {
    pass(graph, notes);
    EXPECT_NO_THROW(verify(graph, "the pass"));
  }
  EXPECT_EQ(graph.fetches().size(), types.size());
  for (std::size_t i = 0; i < types.size(); ++i) EXPECT_EQ(graph.type(graph.fetches()[i].ref), types[i]);
  const auto after = evaluate_graph(graph, feeds);
  for (const auto& [name, values] : before) {
    EXPECT_EQ(after.at(name).size(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(after.at(name)[i], values[i], 1e-10 * (1 + std::fabs(values[i]))) << name << " element " << i;
    }
  }
  return notes.list();
}

}  // namespace paoding
