// SPDX-License-Identifier: Apache-2.0
// The planner: walks a graph in order and emits steps; knows where every value lies.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/cancel_poll.h"
#include "group/lower.h"
#include "ops/scan/scan.h"
#include "plan/layer_pipelines.h"
#include "plan/order.h"
#include "plan/plan.h"

namespace paoding {

/// `layout` with its axes in another order: axis i of the result is axis permutation[i].
Layout transpose_layout(const Layout& layout, std::span<const int> permutation);

/// Whether both are the same elements of the same memory in the same order.
bool is_same_place(const Operand& a, const Operand& b);

/// `layout` seen under another shape without moving anything; nullopt when a copy is needed.
std::optional<Layout> reshape_layout(const Layout& layout, const Shape& shape);

/// The part of `operand` from `start` on, of `shape`.
Operand sub_range(const Operand& operand, std::span<const std::int64_t> start, const Shape& shape);

/// What does not depend on the order of nodes, made once for a graph that is planned in several: which kernels run
/// them (a pass's decision is taken over where the call is the same), and groups lowered for layouts.
class Decisions {
 public:
  DecisionPtr of(const Node& node, const KernelCall& call);
  /// lower() of the node.
  const LoweredGroup& lowered(const Graph& graph, const Node& node, std::vector<Layout> inputs,
                              std::vector<Layout> outputs);

 private:
  struct Lowered {
    std::vector<Layout> inputs, outputs;
    LoweredGroup group;
  };
  std::unordered_map<const Node*, std::vector<DecisionPtr>> made_;  // by calls
  std::unordered_map<const Node*, std::deque<Lowered>> lowered_;    // by layouts
};

class Planner {
 public:
  /// `decisions`: of planners of the same graph in other orders.
  Planner(const PlanOptions& options, NodeOrder order, Decisions* decisions)
      : options_(options),
        kernels_{options.target, options.allow_tf32, options.environment, options.choose_layouts},
        order_(order),
        decisions_(*decisions) {
    plan_.target = options.target;
  }

  Plan run(const Graph& graph);

 private:
  /// The planner's knowledge about the values of one graph (the whole one, or a body in its loop).
  struct Frame {
    const Graph& graph;
    std::map<Ref, Operand> places;                   // where a value is
    std::map<Ref, Operand> destinations;             // where a value has to be written, when its place is not free
    std::vector<Step>* steps;                        // where steps go
    const Node* scan = nullptr;                      // the scan whose body this is
    std::set<Ref> channels_last = {};                // images that are to lie with their channels innermost
    std::map<Ref, Operand> converted = {};           // copies of other images that lie so
    std::map<NodeId, std::int64_t> together = {};    // how many stand side by side: bring_together(), order.h
    std::map<NodeId, PipelinePlace> pipelines = {};  // places of layers one above the other
    std::map<Ref, Ref> rounded = {};  // results of groups that nothing but a rounding reads, and the rounded value
  };

  // planner.cpp
  void plan_nodes(Frame& frame);
  void plan_node(Frame& frame, NodeId id);
  void plan_group(Frame& frame, NodeId id);
  void plan_kernel(Frame& frame, NodeId id);
  int new_slot(SlotKind kind, std::string name, std::int64_t bytes);
  Operand new_operand(Frame& frame, Ref ref);
  /// The place to write `ref` to: its destination if it has one, else a new slot.
  Operand result_place(Frame& frame, Ref ref);
  const Operand& place(Frame& frame, Ref ref);
  void copy(Frame& frame, const Operand& from, const Operand& to, const Node& why, std::string_view label);
  Operand dense_copy(Frame& frame, const Operand& operand, const Node& why, std::string_view label);
  /// A step that runs `group`, which reads nothing.
  void fill(Frame& frame, Group group, const Operand& to, const Node& why);
  StepLabel label_of(const Frame& frame, NodeId id) const;
  void fetch(Frame& frame);

  // constants.cpp
  void plan_constant(Frame& frame, NodeId id);
  Operand constant_operand(const Node& node, Tensor value);
  /// A small value that is generated as a constant, which no step makes; nullopt for others.
  std::optional<Operand> made_constant(const Node& node);
  bool is_constant(const Operand& operand) const;

  // roundings.cpp
  static bool is_rounding(const Node& node);
  void find_roundings(Frame& frame) const;

  // layouts.cpp
  /// Decides which images of the graph lie with their channels innermost.
  void choose_layouts(Frame& frame);
  /// The place of input i of a kernel: where it is, or a copy with channels innermost when the kernel wants that.
  Operand kernel_input(Frame& frame, NodeId id, std::size_t i);
  /// Copies the matrices and weights that the step's kernel wants transposed. False when there are none.
  bool turn_inputs(Frame& frame, Step* step, const Node& node);
  Operand transposed(Frame& frame, const Operand& from, const Node& node, Ref ref);

  // views.cpp
  void plan_view(Frame& frame, NodeId id);

  // concatenations.cpp
  void plan_concat(Frame& frame, NodeId id);
  void plan_pad(Frame& frame, NodeId id);
  /// Gives the inputs of every concat and pad their parts of its result as destinations.
  void assign_destinations(Frame& frame);
  /// Has `ref` written to `where`, if it is written at all and has no other destination; the source of a view that
  /// only renames its elements is written so that the view is there.
  void propose_destination(Frame& frame, Ref ref, const Operand& where) const;
  bool can_write_to(const Frame& frame, Ref ref) const;

  // aliases.cpp
  /// Copies inputs of the step to where its results take their place (OpDef::aliases), so that it reads them there.
  void alias_results(Frame& frame, NodeId id, Step* step);
  /// Without the copies of inputs that nothing else needs: the results then lie where those are.
  void drop_alias_copies();

  // assigns.cpp
  void plan_assigns(Frame& frame);
  /// A value that takes the place of an old one, which every step of the frame sees until its end.
  struct Write {
    Operand value, target;
    const Node* why;
    std::string label;
  };
  void write_back(Frame& frame, std::vector<Write> writes);
  /// updates.cpp: moves steps that only make these values to the end.
  void gather_updates(Frame& frame, const std::vector<Write>& writes);
  std::string in_place_refusal(const Operand& made, int target) const;

  // commit.cpp
  /// For each step: one that may fail and can only run after it, or the step itself where it may; -1 when there is
  /// none.
  std::vector<int> faults_behind(const std::vector<Step>& steps) const;
  /// Puts steps that write parameters, and those that need their results, after every step that may fail.
  void order_commit();

  // collectives.cpp
  void start_collectives_early();

  // branches.cpp
  void plan_branch(Frame& outer, NodeId id);
  void plan_while(Frame& outer, NodeId id);
  void plan_passed(Frame& frame, NodeId id);
  /// Leaves the value at `target`, if it is not there already.
  void deliver(Frame& frame, Ref ref, const Operand& target, const Node& why, std::string_view label);

  // loops.cpp
  void plan_scan(Frame& frame, NodeId id);

  const PlanOptions options_;
  const KernelSetting kernels_;
  const NodeOrder order_;
  Decisions& decisions_;
  const CancelPoll poll_;
  Plan plan_;
  std::int64_t constant_bytes_ = 0;  // of generated values
  /// The notes of copies to results that take an input's place, by the results' slots: most copies are dropped.
  std::map<int, std::string> alias_notes_;
};

}  // namespace paoding
