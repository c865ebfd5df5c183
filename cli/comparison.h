// SPDX-License-Identifier: Apache-2.0
// `paoding compare` finds these: results of a graph beside those of another way to compute it, and nodes that differ.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "side_by_side.h"

namespace paoding::cli {

/// A result of the graph.
struct ComparedResult {
  std::string name;
  Type type;
  Difference difference;
};

/// A value that a node read, beside the other way's.
struct ComparedInput {
  std::string name;
  Type type;
  double relative = 0;
  std::optional<double> value, reference;  // at the element of the finding, where it is one of this value too
};

/// A result of a node that differs.
struct ComparedNode {
  std::string node, scope;
  Type type;
  int result = 0, results = 1;
  Difference difference;
  std::vector<ComparedInput> reads;
};

/// All that was found.
struct Compared {
  std::string ours, theirs, theirs_at_nodes;  // in words: "f64 on the CPU"
  std::vector<ComparedResult> results;
  std::vector<ComparedNode> nodes;
  std::string note;  // why there are none
  bool is_equal = true;
};

/// Whether this names a record, and no way to compute the graph.
inline bool is_record(std::string_view way) { return way != "cpu" && way != "f64"; }

/// The other way, and the difference that counts as none.
struct CompareWith {
  std::string way;                         // "cpu", "f64", or the path of a record
  std::map<std::string, Tensor> recorded;  // results by name
  CompileOptions compile;                  // of this way
  std::optional<double> tolerance;         // of floats; else by dtype
  bool every_node = false;                 // nodes are compared where the results are equal, too

  bool is_recorded() const { return is_record(way); }
};

/// Computes the results of `graph` both ways and, where they differ, looks for the first node that does. The graph has
/// no assignments. Error (shape) when a recorded result has another shape.
Compared compare_with(Graph& graph, const std::map<std::string, Tensor>& feeds, const CompareWith& with);

}  // namespace paoding::cli
