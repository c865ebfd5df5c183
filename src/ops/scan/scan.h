// SPDX-License-Identifier: Apache-2.0
// How a scan node's inputs, outputs and body correspond: everyone who takes one apart reads it through ScanView.
#pragma once

#include <map>

#include "paoding/op.h"

namespace paoding {

/// Node inputs and body inputs, in one order: carries, sequences ([T, ...] outside, [...] inside), constants.
/// Body fetches: the next carries, then outputs. Node outputs: the last carries, then each output stacked to [T, ...].
struct ScanView {
  explicit ScanView(const Node& scan_node);

  const Node& node;
  Graph& body;
  int carries;
  int sequences;
  int constants;
  int outputs;  // stacked ones
  std::int64_t length;
  bool is_reverse;

  int first_sequence() const { return carries; }
  int first_constant() const { return carries + sequences; }
};

/// Appends a scan over `body` (which must be complete and closed) to `graph`. Returns its outputs.
Values add_scan(Graph& graph, const Values& carries, const Values& sequences, const Values& constants,
                std::int64_t length, bool is_reverse, std::shared_ptr<Graph> body);

/// Stacks more values of a scan's body over time.
class ScanOutputs {
 public:
  ScanOutputs(Graph& graph, NodeId scan);
  /// The output of the node that stacks `body_value`; a new one if there is none.
  Ref add(Ref body_value);

 private:
  Graph& graph_;
  NodeId scan_;
  std::map<Ref, std::int32_t> output_of_;  // by body value
};

Values scan_gradient(const GradCall& call);

}  // namespace paoding
