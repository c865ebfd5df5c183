// SPDX-License-Identifier: Apache-2.0
// Drops values that no fetch needs: nodes, and in loops the stacked values nobody reads, the carries that influence
// nothing kept, and inputs that are then unused. Inputs and parameters of the top graph stay: users feed and store
// them.
//
//   before:  %3, %4, %5 = scan(%h0, %k0, %xs, %w)   # carries h and k, stacks h; k only counts
//            fetch %5
//   after:   %3, %4 = scan(%h0, %xs, %w)            # carries h, stacks h
//            fetch %4
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "graph/keep_names.h"
#include "ops/control/bodies.h"
#include "ops/control/branch.h"
#include "paoding/op.h"
#include "passes/has_node.h"
#include "passes/pass.h"
#include "passes/scan_parts.h"

namespace paoding {
namespace {

void drop_in(Graph& graph);
NodeId trim_scan(Graph& graph, NodeId scan, std::set<Ref> read, std::map<Ref, Ref>* replaced);

class ScanTrimmer {
 public:
  /// `depth`: of scans that are looked into from here; deeper ones count as needing all their inputs, since looking
  /// costs a factor per level.
  ScanTrimmer(Graph& graph, NodeId scan, int depth = 2) : parts_(graph, scan), depth_(depth) {
    for (const auto& carry : parts_.carries) {
      given_.emplace(carry.input, carry.initial);
      next_of_.emplace(carry.input, carry.next);
      made_.emplace(carry.last, carry.next);
    }
    for (const auto* list : {&parts_.sequences, &parts_.constants}) {
      for (const auto& argument : *list) given_.emplace(argument.input, argument.outer);
    }
    for (const auto& output : parts_.outputs) made_.emplace(output.stacked, output.value);
    for (NodeId id : parts_.body.effects()) need({id, 0});
  }

  /// Somebody reads these outputs of the scan, too. Returns the inputs of the scan that matter from now on and did not
  /// before.
  std::vector<Ref> read(const std::set<Ref>& outputs) {
    found_.clear();
    for (const Ref& output : outputs) {
      if (!read_.insert(output).second) continue;
      need(made_.at(output));
      const auto at = static_cast<std::size_t>(output.output);
      if (at < parts_.carries.size()) matters(parts_.carries[at].initial);
    }
    mark();
    return found_;
  }

  /// A scan has at least one input, also where nothing that is read depends on any: says which one matters then.
  std::vector<Ref> keep_an_input() {
    found_.clear();
    if (!has_input_) need(spare_input());
    mark();
    return found_;
  }

  bool has_unused() const {
    const auto is_unread = [&](const auto& argument) { return !needed_.contains(argument.input); };
    return std::any_of(parts_.sequences.begin(), parts_.sequences.end(), is_unread) ||
           std::any_of(parts_.constants.begin(), parts_.constants.end(), is_unread) ||
           std::any_of(parts_.carries.begin(), parts_.carries.end(), [&](const auto& c) { return !is_kept(c); }) ||
           std::any_of(parts_.outputs.begin(), parts_.outputs.end(), [&](const auto& o) { return !is_kept(o); });
  }

  NodeId trim(std::map<Ref, Ref>* replaced) {
    trim_inner_scans();
    std::erase_if(parts_.outputs, [&](const auto& output) { return !is_kept(output); });
    std::erase_if(parts_.carries, [&](const auto& carry) { return !is_kept(carry); });
    return parts_.rebuild(replaced);
  }

 private:
  bool is_kept(const ScanParts::Output& output) const { return read_.contains(output.stacked); }
  bool is_kept(const ScanParts::Carry& carry) const {
    return read_.contains(carry.last) || needed_.contains(carry.input);
  }

  // The one that ScanParts::rebuild would keep.
  Ref spare_input() const {
    if (!parts_.sequences.empty()) return parts_.sequences[0].input;
    return parts_.constants.empty() ? parts_.carries[0].input : parts_.constants[0].input;
  }

  std::set<Ref> read_of(NodeId id) const { return {needed_.lower_bound({id, 0}), needed_.lower_bound({id + 1, 0})}; }

  void need(Ref inside) {
    if (!needed_.insert(inside).second) return;
    open_.push_back(inside);
    if (const auto it = given_.find(inside); it != given_.end()) matters(it->second);
  }
  void matters(Ref outer) {
    has_input_ = true;
    found_.push_back(outer);
  }

  // Marks everything in the body that its read values need; a carry whose value is needed needs its next value. A scan
  // in the body needs no more than its outputs that are read do: a carry that goes round through both must not keep
  // itself.
  void mark() {
    while (!open_.empty() || !met_.empty()) {
      if (open_.empty()) {
        const std::vector<NodeId> met = std::exchange(met_, {});
        for (const NodeId id : met) {
          for (const Ref& input : inner_.at(id)->keep_an_input()) need(input);
        }
        continue;
      }
      const Ref ref = open_.back();
      open_.pop_back();
      if (const auto it = next_of_.find(ref); it != next_of_.end()) need(it->second);
      const Node& node = parts_.body.node(ref.node);
      if (!node.op->is_scan() || depth_ == 0) {
        for (const Ref& input : node.inputs) need(input);
        continue;
      }
      auto& inner = inner_[ref.node];
      if (!inner) {
        inner = std::make_unique<ScanTrimmer>(parts_.body, ref.node, depth_ - 1);
        met_.push_back(ref.node);
      }
      for (const Ref& input : inner->read({ref})) need(input);
    }
  }

  // Inner scans may read values that are about to be dropped.
  void trim_inner_scans() {
    std::map<Ref, Ref> moved;
    for (NodeId id = parts_.body.size() - 1; id >= 0; --id) {
      if (!parts_.body.node(id).op->is_scan()) continue;
      if (const std::set<Ref> read = read_of(id); !read.empty()) trim_scan(parts_.body, id, read, &moved);
    }
    parts_.body.replace(moved);
    const auto follow = [&](Ref* ref) {
      for (auto it = moved.find(*ref); it != moved.end(); it = moved.find(*ref)) *ref = it->second;
    };
    for (auto& carry : parts_.carries) follow(&carry.next);
    for (auto& output : parts_.outputs) follow(&output.value);
  }

  ScanParts parts_;
  const int depth_;
  std::map<Ref, Ref> given_;                              // an input inside to its value outside, or its start
  std::map<Ref, Ref> next_of_;                            // by the carry's input
  std::map<Ref, Ref> made_;                               // an output of the scan to its value inside
  std::set<Ref> read_;                                    // outputs
  std::set<Ref> needed_;                                  // inside
  std::vector<Ref> open_;                                 // of those, not yet looked at
  std::map<NodeId, std::unique_ptr<ScanTrimmer>> inner_;  // scans in the body
  std::vector<NodeId> met_;                               // of those, not yet asked whether they keep an input
  std::vector<Ref> found_;                                // inputs of the scan that matter since the last call
  bool has_input_ = false;
};

// Trims a scan of which `read` outputs are read, then its body, then inputs that the smaller body no longer needs.
// Returns the node that stands for it.
NodeId trim_scan(Graph& graph, NodeId scan, std::set<Ref> read, std::map<Ref, Ref>* replaced) {
  while (true) {
    ScanTrimmer trimmer(graph, scan);
    trimmer.read(read);
    trimmer.keep_an_input();
    const bool is_trimmed = trimmer.has_unused();
    if (is_trimmed) {
      std::map<Ref, Ref> moved;
      scan = trimmer.trim(&moved);
      std::set<Ref> now_read;
      for (const auto& [from, to] : moved) {
        if (read.contains(from)) now_read.insert(to);
      }
      replaced->insert(moved.begin(), moved.end());
      read = std::move(now_read);
    }
    Graph& body = *graph.node(scan).bodies[0];
    // Nodes that nobody reads read no input that matters, so without loops and branches in the body nothing is new.
    const bool may_need_less = is_trimmed || has_node(body, [](const Node& node) { return !node.bodies.empty(); });
    drop_in(body);
    if (!may_need_less) return scan;
    ScanTrimmer again(graph, scan);
    again.read(read);
    again.keep_an_input();
    if (!again.has_unused()) return scan;
  }
}

// The same for a branch: drops results nobody reads, then nodes its bodies no longer need, then inputs none of them
// reads.
NodeId trim_branch(Graph& graph, NodeId branch, const std::set<Ref>& read, std::map<Ref, Ref>* replaced) {
  const BranchView view(graph.node(branch));
  std::vector<int> kept;
  const auto is_kept = [&](int output) { return read.contains({branch, output}); };
  for (int output = 0; output < view.outputs(); ++output) {
    if (is_kept(output)) kept.push_back(output);
  }
  std::vector<std::shared_ptr<Graph>> bodies;
  std::vector<bool> is_read(view.node.inputs.size() - 1, false);
  const auto inputs_of = [&](const Graph& body, const std::vector<bool>* only) {
    std::vector<BodyInput> inputs;
    for (std::size_t i = 0; i < body.inputs().size(); ++i) {
      const Node& input = body.node(body.inputs()[i]);
      if (only == nullptr || (*only)[i]) inputs.push_back({input.types[0], {{body.inputs()[i], 0}}, input.name.str()});
    }
    return inputs;
  };
  for (int k = 0; k < view.branches(); ++k) {
    std::vector<Ref> fetches;
    for (const int output : view.outputs_of(k)) {
      if (is_kept(output)) fetches.push_back(view.value_of(k, output));
    }
    bodies.push_back(rebuild_body(view.body(k), inputs_of(view.body(k), nullptr), fetches));
    drop_in(*bodies.back());
    const std::vector<bool> mine = read_inputs(*bodies.back());
    for (std::size_t i = 0; i < mine.size(); ++i) is_read[i] = is_read[i] || mine[i];
  }
  Values values;
  for (std::size_t i = 0; i < is_read.size(); ++i) {
    if (is_read[i]) values.push_back(graph.value(view.node.inputs[i + 1]));
  }
  for (auto& body : bodies) {
    std::vector<Ref> fetches;
    for (const Graph::Fetch& fetch : body->fetches()) fetches.push_back(fetch.ref);
    body = rebuild_body(*body, inputs_of(*body, &is_read), fetches);
  }
  int common = 0;
  std::vector<std::int64_t> owners;
  for (int output : kept) {
    if (view.owner(output) < 0) {
      ++common;
    } else {
      owners.push_back(view.owner(output));
    }
  }
  const KeepNames keep(graph, view.node);
  const Values made = add_branch(graph, graph.value(view.node.inputs[0]), values, common, owners, bodies);
  graph.forget_effect(branch);
  for (std::size_t i = 0; i < kept.size(); ++i) (*replaced)[{branch, kept[i]}] = made[i].ref();
  return made[0].ref().node;
}

void drop_in(Graph& graph) {
  std::set<Ref> read;
  for (const Graph::Fetch& fetch : graph.fetches()) read.insert(fetch.ref);
  for (NodeId id : graph.effects()) read.insert({id, 0});
  std::map<Ref, Ref> replaced;
  const NodeId size = graph.size();
  for (NodeId id = size - 1; id >= 0; --id) {
    std::set<Ref> mine;
    for (std::int32_t k = 0; k < static_cast<std::int32_t>(graph.node(id).types.size()); ++k) {
      if (read.contains({id, k})) mine.insert({id, k});
    }
    if (mine.empty()) continue;
    const BodyUse use = graph.node(id).op->bodies;
    const NodeId now = use == BodyUse::every_step   ? trim_scan(graph, id, mine, &replaced)
                       : use == BodyUse::one_chosen ? trim_branch(graph, id, mine, &replaced)
                                                    : id;
    if (use == BodyUse::while_true) {
      for (const auto& body : graph.node(id).bodies) drop_in(*body);
    }
    for (const Ref& ref : graph.node(now).inputs) read.insert(ref);
  }
  graph.replace(replaced);
  graph.compact();
}

}  // namespace

void drop_unused(Graph& graph, PassNotes&) { drop_in(graph); }

}  // namespace paoding
