// SPDX-License-Identifier: Apache-2.0
// Programs of any number of nodes, one for each way in which a program may be large: the cost of compiling one has to
// grow as its nodes do.
#pragma once

#include <string>
#include <vector>

#include "paoding/paoding.h"

namespace paoding::testing_program {

struct LargeGraph {
  std::string name;
  void (*build)(Graph& graph, std::int64_t nodes);  // of about so many
};

std::vector<LargeGraph> large_graphs();
/// Those of them that have bodies.
std::vector<LargeGraph> graphs_of_large_bodies();

inline Value input(Graph& g, const Shape& shape = {4, 4}, std::string_view name = "x") {
  return g.input(name, f32, shape);
}

inline std::string numbered(std::string_view name, std::int64_t i) { return std::string(name) + std::to_string(i); }

/// One fetch of all of them, as a tree: no sum of many.
inline void fetch_together(Graph& g, Values values) {
  while (values.size() > 1) {
    Values next;
    for (std::size_t i = 0; i + 1 < values.size(); i += 2) next.push_back(values[i] + values[i + 1]);
    if (values.size() % 2 == 1) next.push_back(values.back());
    values = std::move(next);
  }
  g.fetch("y", values[0]);
}

}  // namespace paoding::testing_program
