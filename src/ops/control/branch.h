// SPDX-License-Identifier: Apache-2.0
// How a branch node's inputs, outputs and bodies correspond: everyone who takes one apart reads it through BranchView.
#pragma once

#include <map>

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
  /// The outputs that body `k` gives: the common ones, then its own.
  std::vector<int> outputs_of(int k) const;
  Ref value_of(int k, int output) const;

 private:
  std::vector<int> fetches_;           // per output: which fetch of its owner (of any, for a common one) gives it
  std::vector<std::vector<int>> own_;  // per body: its own outputs
};

/// Appends a branch. `values`: the outer values that the bodies' inputs are, in order.
Values add_branch(Graph& graph, const Value& index, const Values& values, int common, std::vector<std::int64_t> owners,
                  std::vector<std::shared_ptr<Graph>> bodies);

/// Makes bodies of a branch give more values of their own.
class BranchOutputs {
 public:
  BranchOutputs(Graph& graph, NodeId branch);
  /// The output of the node for a value of body `k`; an equal one is reused.
  Ref add(int k, Ref body_value);
  /// The node says whose its outputs are. To be called when all are there.
  void finish();

 private:
  Graph& graph_;
  const NodeId branch_;
  std::vector<std::int64_t> owners_;
  std::map<std::pair<int, Ref>, std::int32_t> output_of_;
};

Values branch_gradient(const GradCall& call);

}  // namespace paoding
