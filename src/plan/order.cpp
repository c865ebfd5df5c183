// SPDX-License-Identifier: Apache-2.0
// Greedy list scheduling on bytes, forward or backward. It counts storage only roughly (a view shares its source's, a
// body's own memory is not seen): the planner plans with each order and keeps the one whose peak is lowest.
#include "plan/order.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/cancel_poll.h"
#include "paoding/op.h"

namespace paoding {
namespace {

// The nodes that may come next, the one of least cost in front; ties go by number.
class Ready {
 public:
  Ready(std::vector<std::int64_t> cost, bool last_first)
      : cost_(std::move(cost)), is_in_(cost_.size(), 0), sign_(last_first ? -1 : 1) {}

  bool empty() const { return queue_.empty(); }
  void insert(NodeId id) {
    is_in_[index(id)] = 1;
    queue_.insert(entry(id));
  }
  NodeId take() {
    const NodeId best = queue_.begin()->second * sign_;
    queue_.erase(queue_.begin());
    is_in_[index(best)] = 0;
    return best;
  }
  void make_cheaper(NodeId id, std::int64_t bytes) {
    const bool is_in = is_in_[index(id)] != 0;
    if (is_in) queue_.erase(entry(id));
    cost_[index(id)] -= bytes;
    if (is_in) queue_.insert(entry(id));
  }

 private:
  static std::size_t index(NodeId id) { return static_cast<std::size_t>(id); }
  std::pair<std::int64_t, NodeId> entry(NodeId id) const { return {cost_[index(id)], id * sign_}; }

  std::vector<std::int64_t> cost_;  // of every node, ready or not
  std::vector<char> is_in_;
  const NodeId sign_;
  std::set<std::pair<std::int64_t, NodeId>> queue_;
};

class Scheduler {
 public:
  explicit Scheduler(const Graph& graph) : graph_(graph), size_(static_cast<std::size_t>(graph.size())) {
    bytes_.assign(size_, 0);
    storage_.resize(size_);
    inputs_.resize(size_);
    reads_.resize(size_);
    readers_.resize(size_);
    users_.resize(size_);
    is_kept_.assign(size_, 0);
    seen_input_.assign(size_, -1);
    seen_read_.assign(size_, -1);
    for (NodeId id = 0; id < graph.size(); ++id) add(id);
    for (const Graph::Fetch& fetch : graph.fetches()) is_kept_[at(storage_[at(fetch.ref.node)])] = 1;
  }

  // Always the ready node with the least bytes made minus bytes no longer read. A node gets cheaper when it becomes
  // the last reader of a storage: once per storage.
  std::vector<NodeId> forward() {
    std::vector<std::size_t> left(size_);
    std::vector<char> is_done(size_, 0);
    std::vector<std::int64_t> cost = bytes_;
    const auto dies = [&](NodeId source) { return left[at(source)] == 1 && !is_kept_[at(source)]; };
    for (std::size_t id = 0; id < size_; ++id) left[id] = readers_[id].size();
    for (std::size_t id = 0; id < size_; ++id) {
      for (NodeId source : reads_[id]) cost[id] -= dies(source) ? bytes_[at(source)] : 0;
    }
    return schedule(inputs_, users_, Ready(std::move(cost), false), [&](NodeId id, Ready* ready) {
      is_done[at(id)] = 1;
      for (NodeId source : reads_[at(id)]) {
        --left[at(source)];
        if (!dies(source)) continue;
        const auto& readers = readers_[at(source)];
        const auto last = std::find_if(readers.begin(), readers.end(), [&](NodeId each) { return !is_done[at(each)]; });
        ready->make_cheaper(*last, bytes_[at(source)]);
      }
    });
  }

  // The same from the end: a node put in front of all its users frees its result and needs its inputs. It gets cheaper
  // when another one needs one of them too: once per storage and reader.
  std::vector<NodeId> backward() {
    std::vector<char> is_live = is_kept_;
    std::vector<std::int64_t> cost(size_);
    for (std::size_t id = 0; id < size_; ++id) {
      cost[id] = -bytes_[id];
      for (NodeId source : reads_[id]) cost[id] += is_live[at(source)] ? 0 : bytes_[at(source)];
    }
    std::vector<NodeId> order = schedule(users_, inputs_, Ready(std::move(cost), true), [&](NodeId id, Ready* ready) {
      for (NodeId source : reads_[at(id)]) {
        if (is_live[at(source)]) continue;
        is_live[at(source)] = 1;
        for (NodeId reader : readers_[at(source)]) ready->make_cheaper(reader, bytes_[at(source)]);
      }
    });
    std::reverse(order.begin(), order.end());
    return order;
  }

 private:
  static std::size_t at(NodeId id) { return static_cast<std::size_t>(id); }

  void add(NodeId id) {
    const Node& node = graph_.node(id);
    const bool is_view = node.op->kind == OpKind::view && !node.op->is(OpRole::concatenate) && !node.inputs.empty();
    const bool is_passed = node.op->passes_on();
    storage_[at(id)] = is_view || is_passed ? storage_[at(node.inputs[0].node)] : id;
    const bool is_given = node.op->kind == OpKind::structural && node.inputs.empty();  // fed, kept or a constant
    if (!is_view && !is_given && !is_passed) {
      for (const Type& type : node.types) bytes_[at(id)] += size_bytes(type);
    }
    for (const Ref& ref : node.inputs) {
      const NodeId input = ref.node;
      if (std::exchange(seen_input_[at(input)], id) == id) continue;
      inputs_[at(id)].push_back(input);
      users_[at(input)].push_back(id);
      const NodeId source = storage_[at(input)];
      if (source == storage_[at(id)] || std::exchange(seen_read_[at(source)], id) == id) continue;
      reads_[at(id)].push_back(source);
      readers_[at(source)].push_back(id);
    }
    // A reader of a view reads the viewed value, for as long.
  }

  // List scheduling: `before` lists the nodes that have to come first, `behind` those that wait for a node.
  template <class Done>
  std::vector<NodeId> schedule(const std::vector<std::vector<NodeId>>& before,
                               const std::vector<std::vector<NodeId>>& behind, Ready ready, const Done& done) {
    std::vector<std::size_t> waiting(size_);
    for (std::size_t id = 0; id < size_; ++id) {
      waiting[id] = before[id].size();
      if (waiting[id] == 0) ready.insert(static_cast<NodeId>(id));
    }
    std::vector<NodeId> order;
    order.reserve(size_);
    const CancelPoll poll;
    while (!ready.empty()) {
      poll();
      order.push_back(ready.take());
      done(order.back(), &ready);
      for (NodeId id : behind[at(order.back())]) {
        if (--waiting[at(id)] == 0) ready.insert(id);
      }
    }
    return order;
  }

  const Graph& graph_;
  const std::size_t size_;
  std::vector<std::int64_t> bytes_;             // that a node's results take
  std::vector<NodeId> storage_;                 // the node whose memory a node's result lies in
  std::vector<std::vector<NodeId>> inputs_;     // of a node, each once
  std::vector<std::vector<NodeId>> users_;      // who has a node as input
  std::vector<std::vector<NodeId>> reads_;      // storages a node reads
  std::vector<std::vector<NodeId>> readers_;    // who reads a storage
  std::vector<char> is_kept_;                   // storages that live to the end
  std::vector<NodeId> seen_input_, seen_read_;  // the last node that had this one as input, or read it
};

}  // namespace

std::vector<NodeId> node_order(const Graph& graph, NodeOrder order) {
  if (order == NodeOrder::forward) return Scheduler(graph).forward();
  if (order == NodeOrder::backward) return Scheduler(graph).backward();
  std::vector<NodeId> ids(static_cast<std::size_t>(graph.size()));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<NodeId>(i);
  return ids;
}

bool are_alike(const Graph& graph, NodeId a, NodeId b) {
  const Node &x = graph.node(a), &y = graph.node(b);
  return x.op == y.op && x.types == y.types && x.inputs.size() == y.inputs.size() &&
         std::ranges::equal(
             x.inputs, y.inputs, {}, [&](Ref ref) { return graph.type(ref); },
             [&](Ref ref) { return graph.type(ref); });
}

std::map<NodeId, std::int64_t> bring_together(const Graph& graph, std::vector<NodeId>* order) {
  std::map<NodeId, std::int64_t> counts;
  const auto is_claimed = [&](NodeId id) { return graph.node(id).op->kind == OpKind::composed; };
  std::set<NodeId> placed;
  for (std::size_t begin = 0; begin < order->size();) {
    const NodeId first = (*order)[begin];
    if (!is_claimed(first) || !placed.insert(first).second) {
      ++begin;
      continue;
    }
    std::set<NodeId> together = {first}, behind;  // the nodes that depend on one of them
    for (std::size_t k = begin + 1; k < order->size(); ++k) {
      const NodeId next = (*order)[k];
      const auto& inputs = graph.node(next).inputs;
      const auto is_needed = [&](Ref ref) { return together.contains(ref.node) || behind.contains(ref.node); };
      if (std::ranges::any_of(inputs, is_needed)) {
        behind.insert(next);
      } else if (is_claimed(next) && are_alike(graph, first, next)) {
        together.insert(next), placed.insert(next);
        const auto from = order->begin() + static_cast<std::ptrdiff_t>(begin);
        std::stable_sort(from, order->begin() + static_cast<std::ptrdiff_t>(k) + 1, [&](NodeId a, NodeId b) {
          const auto rank = [&](NodeId id) { return together.contains(id) ? 1 : behind.contains(id) ? 2 : 0; };
          return rank(a) < rank(b);
        });
      }
    }
    for (const NodeId id : together) {
      if (together.size() > 1) counts[id] = static_cast<std::int64_t>(together.size());
    }
  }
  return counts;
}

}  // namespace paoding
