// SPDX-License-Identifier: Apache-2.0
// Greedy list scheduling on bytes, forward or backward. It counts storage only roughly (a view shares its source's, a
// body's own memory is not seen): the planner plans with each order and keeps the one whose peak is lowest.
#include "plan/order.h"

#include <algorithm>
#include <set>

#include "paoding/op.h"

namespace paoding {
namespace {

class Scheduler {
 public:
  explicit Scheduler(const Graph& graph) : graph_(graph), size_(static_cast<std::size_t>(graph.size())) {
    bytes_.assign(size_, 0);
    storage_.resize(size_);
    reads_.resize(size_);
    readers_.resize(size_);
    users_.resize(size_);
    is_kept_.assign(size_, 0);
    for (NodeId id = 0; id < graph.size(); ++id) add(id);
    for (const Graph::Fetch& fetch : graph.fetches()) is_kept_[at(storage_[at(fetch.ref.node)])] = 1;
  }

  // Always the ready node with the least bytes made minus bytes no longer read.
  std::vector<NodeId> forward() {
    std::vector<int> waiting(size_, 0), left(size_, 0);
    for (std::size_t id = 0; id < size_; ++id) {
      waiting[id] = static_cast<int>(distinct_inputs(static_cast<NodeId>(id)).size());
      left[id] = static_cast<int>(readers_[id].size());
    }
    const auto cost = [&](NodeId id) {
      std::int64_t cost = bytes_[at(id)];
      for (NodeId source : reads_[at(id)]) {
        if (left[at(source)] == 1 && !is_kept_[at(source)]) cost -= bytes_[at(source)];
      }
      return cost;
    };
    return schedule(
        waiting, users_, cost,
        [&](NodeId id) {
          for (NodeId source : reads_[at(id)]) --left[at(source)];
        },
        false);
  }

  // The same from the end: a node put in front of all its users frees its result and needs its inputs.
  std::vector<NodeId> backward() {
    std::vector<int> waiting(size_, 0);
    std::vector<std::vector<NodeId>> sources(size_);
    for (std::size_t id = 0; id < size_; ++id) {
      waiting[id] = static_cast<int>(users_[id].size());
      sources[id] = distinct_inputs(static_cast<NodeId>(id));
    }
    std::vector<char> is_live = is_kept_;
    const auto cost = [&](NodeId id) {
      std::int64_t cost = -bytes_[at(id)];
      for (NodeId source : reads_[at(id)]) cost += is_live[at(source)] ? 0 : bytes_[at(source)];
      return cost;
    };
    std::vector<NodeId> order = schedule(
        waiting, sources, cost,
        [&](NodeId id) {
          for (NodeId source : reads_[at(id)]) is_live[at(source)] = 1;
        },
        true);
    std::reverse(order.begin(), order.end());
    return order;
  }

 private:
  static std::size_t at(NodeId id) { return static_cast<std::size_t>(id); }

  std::vector<NodeId> distinct_inputs(NodeId id) const {
    std::vector<NodeId> inputs;
    for (const Ref& ref : graph_.node(id).inputs) {
      if (std::find(inputs.begin(), inputs.end(), ref.node) == inputs.end()) inputs.push_back(ref.node);
    }
    return inputs;
  }

  void add(NodeId id) {
    const Node& node = graph_.node(id);
    const std::string& op = node.op->name;
    const bool is_view = node.op->kind == OpKind::view && op != "concat" && op != "pad" && !node.inputs.empty();
    const bool is_passed =
        op == "print" || op == "barrier" || op == "assign" || op == "variant";  // no memory of its own
    storage_[at(id)] = is_view || is_passed ? storage_[at(node.inputs[0].node)] : id;
    const bool is_given = node.op->kind == OpKind::structural && node.inputs.empty();  // fed, kept or a constant
    if (!is_view && !is_given && !is_passed) {
      for (const Type& type : node.types) bytes_[at(id)] += size_bytes(type);
    }
    for (NodeId input : distinct_inputs(id)) {
      users_[at(input)].push_back(id);
      const NodeId source = storage_[at(input)];
      if (source == storage_[at(id)]) continue;
      auto& mine = reads_[at(id)];
      if (std::find(mine.begin(), mine.end(), source) != mine.end()) continue;
      mine.push_back(source);
      readers_[at(source)].push_back(id);
    }
    // What reads a view reads what it is a view of, for as long.
  }

  // List scheduling: `waiting` counts what has to come first, `next` lists who waits for a node.
  template <class Cost, class Done>
  std::vector<NodeId> schedule(std::vector<int> waiting, const std::vector<std::vector<NodeId>>& next, const Cost& cost,
                               const Done& done, bool last_first) {
    std::set<NodeId> ready;
    for (std::size_t id = 0; id < size_; ++id) {
      if (waiting[id] == 0) ready.insert(static_cast<NodeId>(id));
    }
    std::vector<NodeId> order;
    order.reserve(size_);
    while (!ready.empty()) {
      NodeId best = -1;
      std::int64_t least = 0;
      const auto consider = [&](NodeId id) {
        const std::int64_t mine = cost(id);
        if (best < 0 || mine < least) best = id, least = mine;
      };
      if (last_first) {
        std::for_each(ready.rbegin(), ready.rend(), consider);
      } else {
        std::for_each(ready.begin(), ready.end(), consider);
      }
      ready.erase(best);
      order.push_back(best);
      done(best);
      for (NodeId id : next[at(best)]) {
        if (--waiting[at(id)] == 0) ready.insert(id);
      }
    }
    return order;
  }

  const Graph& graph_;
  const std::size_t size_;
  std::vector<std::int64_t> bytes_;           // that a node's results take
  std::vector<NodeId> storage_;               // the node whose memory a node's result lies in
  std::vector<std::vector<NodeId>> reads_;    // storages a node reads
  std::vector<std::vector<NodeId>> readers_;  // who reads a storage
  std::vector<std::vector<NodeId>> users_;    // who has a node as input
  std::vector<char> is_kept_;                 // storages that live to the end
};

}  // namespace

std::vector<NodeId> node_order(const Graph& graph, NodeOrder order) {
  if (order == NodeOrder::forward) return Scheduler(graph).forward();
  if (order == NodeOrder::backward) return Scheduler(graph).backward();
  std::vector<NodeId> ids(static_cast<std::size_t>(graph.size()));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<NodeId>(i);
  return ids;
}

}  // namespace paoding
