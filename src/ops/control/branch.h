// SPDX-License-Identifier: Apache-2.0
// How a branch node's inputs, outputs and bodies correspond: everyone who takes one apart reads it through BranchView.
#pragma once

#include "paoding/op.h"

namespace paoding {

/// Node inputs: the index, then values. Every body has those values as its inputs. Body fetches: `common` results, of
/// the same types in every body, then the body's own. Node outputs: the common results, then the bodies' own ones in
/// the order of `owners`: output common + i is the next own result of body owners[i], and means something only when the
/// index chose that body. An index outside 0 .. n-1 chooses the last body.
struct BranchView {
  explicit BranchView(const Node& branch_node);

  const Node& node;
  int common;
  std::vector<std::int64_t> owners;

  int branches() const { return static_cast<int>(node.bodies.size()); }
  Graph& body(int k) const { return *node.bodies[static_cast<std::size_t>(k)]; }
  int outputs() const { return static_cast<int>(node.types.size()); }
  /// The body that gives `output`; -1 when all do.
  int owner(int output) const;
  /// Which fetch of body `k` (its owner, or any for a common one) gives `output`.
  int fetch_of(int output) const;
  Ref value_of(int k, int output) const;
};

/// Appends a branch. `values`: the outer values that the bodies' inputs are, in order.
Values add_branch(Graph& graph, const Value& index, const Values& values, int common, std::vector<std::int64_t> owners,
                  std::vector<std::shared_ptr<Graph>> bodies);

/// Makes body `k` give one more value of its own; returns the new output of the node. An equal one is reused.
Ref add_branch_output(Graph& graph, NodeId branch, int k, Ref body_value);

Values branch_gradient(const GradCall& call);

}  // namespace paoding
