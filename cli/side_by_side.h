// SPDX-License-Identifier: Apache-2.0
// Values of one graph computed in two ways, and where they begin to differ.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paoding/graph.h"
#include "paoding/program.h"
#include "paoding/tensor.h"

namespace paoding::cli {

/// How two tensors of one shape differ. An element differs by |value - reference|, relative to the largest finite
/// magnitude of the reference; NaN equals NaN, an infinity equals itself, and any other non-finite element differs by
/// infinity. Integers and bools are equal or differ by infinity, relatively.
struct Difference {
  double absolute = 0, relative = 0;  // the largest
  std::vector<std::int64_t> index;    // of the element that differs most, the first of them; empty in a scalar
  double value = 0, reference = 0;    // there
  std::int64_t differing = 0;         // elements that differ by more than the tolerance
  std::int64_t elements = 0;
  double tolerance = 0;
  bool is_equal() const { return differing == 0; }
};
/// Error (shape) when the shapes differ.
Difference difference_of(const Tensor& value, const Tensor& reference, double tolerance);

/// The change that rounding may make to a value of this dtype in a program of these options, relative to its largest
/// element.
double tolerance_of(DType dtype, const CompileOptions& options);

/// Makes all floats of a graph, of its bodies and of attributes f64. Error (unsupported) where an op of it has no f64.
void widen(Graph& graph);

/// One way to compute the values of a graph: with these options, in its own dtypes or in f64.
class Way {
 public:
  /// `graph` and `feeds` (every input and parameter) are to outlive it.
  Way(const Graph& graph, const std::map<std::string, Tensor>& feeds, CompileOptions options, bool is_wide);
  const CompileOptions& options() const { return options_; }
  /// Runs a program that fetches these values, and nothing else. Errors: those of compiling.
  std::vector<Tensor> values(std::span<const Ref> refs) const;

 private:
  const Graph& graph_;
  const std::map<std::string, Tensor>& feeds_;
  const CompileOptions options_;
  const bool is_wide_;
};

/// A result of a node that differs.
struct DifferingNode {
  Ref ref;
  Difference difference;
};

/// The results of nodes, in the graph's order, that a program can fetch: without inputs, parameters and assignments.
std::vector<Ref> comparable(const Graph& graph);

/// The first of `refs` whose values differ, and where that is no float, after it the first float that does: a
/// comparison may turn on a rounding that does no harm. They are computed in portions of at most `most_bytes`.
std::vector<DifferingNode> first_differing(const Graph& graph, std::span<const Ref> refs, const Way& way,
                                           const Way& reference, const std::function<double(DType)>& tolerance,
                                           std::int64_t most_bytes = std::int64_t{1} << 30);

}  // namespace paoding::cli
