// SPDX-License-Identifier: Apache-2.0
// fuse_groups: elementwise ops and reductions that share an iteration space become one `group` node, one kernel.
//
//   a = sub(1, w);  b = mul(a, g);  dx = sum(b, axes=[1]);  dy = mul(w, g)
// becomes
//   dx, dy = group(w, g) [ a = sub(1, w); b = mul(a, g); fetch sum(b); fetch mul(w, g) ]
//
// Greedy: first along edges from producer to consumer, then between siblings that read one full-size value. What is
// smaller than the space is recomputed at every point, so it is taken in only when nobody else needs it. The result of
// a sum exists only after the kernel, so nothing in a group reads one.
#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "graph/keep_names.h"
#include "paoding/op.h"
#include "passes/pass.h"

namespace paoding {
namespace {

constexpr std::size_t kMaxOperands = 40;  // pointers and live vectors of one kernel
constexpr std::size_t kMaxNodes = 160;    // so that one kernel compiles in well under a second

struct Cluster {
  std::vector<NodeId> nodes;  // in graph order
  Shape space;
};

class Fusion {
 public:
  Fusion(Graph& graph, PassNotes& notes) : graph_(graph), notes_(notes), size_(graph.size()) {
    cluster_of_.assign(static_cast<std::size_t>(size_), -1);
    users_.resize(static_cast<std::size_t>(size_));
    is_fetched_.assign(static_cast<std::size_t>(size_), 0);
    for (const Graph::Fetch& fetch : graph.fetches()) is_fetched_[static_cast<std::size_t>(fetch.ref.node)] = 1;
    for (NodeId id = 0; id < size_; ++id) {
      const Node& node = graph.node(id);
      for (const Ref& ref : node.inputs) {
        auto& list = users_[static_cast<std::size_t>(ref.node)];
        if (list.empty() || list.back() != id) list.push_back(id);
      }
      const std::string& op = node.op->name;
      if (node.op->kind == OpKind::formula || op == "sum" || op == "expand") {
        cluster_of_[static_cast<std::size_t>(id)] = static_cast<int>(clusters_.size());
        clusters_.push_back({{id}, op == "sum" ? graph.type(node.inputs[0]).shape : node.types[0].shape});
      }
    }
  }

  void run() {
    for (NodeId id = 0; id < size_; ++id) {
      for (const Ref& ref : graph_.node(id).inputs) try_merge(cluster(ref.node), cluster(id));
    }
    for (NodeId id = 0; id < size_; ++id) merge_siblings(id);
    std::map<Ref, Ref> replaced;
    for (const Cluster& cluster : clusters_) {
      if (cluster.nodes.size() > 1) build(cluster, &replaced);
    }
    graph_.replace(replaced);
    graph_.compact();
  }

 private:
  int cluster(NodeId id) const { return cluster_of_[static_cast<std::size_t>(id)]; }
  const Node& node(NodeId id) const { return graph_.node(id); }
  bool is_sum(NodeId id) const { return node(id).op->name == "sum"; }
  static bool is_free(const Node& node) { return node.op->name == "full"; }  // copied into every group that reads it

  void merge_siblings(NodeId id) {
    const auto& users = users_[static_cast<std::size_t>(id)];
    for (std::size_t k = 1; k < users.size(); ++k) {
      const int a = cluster(users[0]), b = cluster(users[k]);
      if (a < 0 || b < 0 || a == b) continue;
      // Worth it only when what they share is as large as what they walk over.
      const Shape& space = clusters_[static_cast<std::size_t>(a)].space;
      bool is_shared_whole = false;
      for (const Type& type : node(id).types) is_shared_whole |= type.shape == space;
      if (is_shared_whole && space == clusters_[static_cast<std::size_t>(b)].space) try_merge(a, b);
    }
  }

  // Merges two clusters if one kernel can compute both; `a` stands before or beside `b`.
  bool try_merge(int a, int b) {
    if (a < 0 || b < 0 || a == b) return false;
    if (clusters_[static_cast<std::size_t>(a)].nodes[0] > clusters_[static_cast<std::size_t>(b)].nodes[0] &&
        has_path(b, a)) {
      std::swap(a, b);
    }
    Cluster &first = clusters_[static_cast<std::size_t>(a)], &second = clusters_[static_cast<std::size_t>(b)];
    if (node(first.nodes[0]).placement != node(second.nodes[0]).placement) return false;
    Cluster merged;
    if (!broadcast(first.space, second.space, &merged.space) || !(merged.space == second.space)) return false;
    if (!(first.space == second.space) && !can_be_recomputed(first, b)) return false;
    std::merge(first.nodes.begin(), first.nodes.end(), second.nodes.begin(), second.nodes.end(),
               std::back_inserter(merged.nodes));
    for (NodeId id : merged.nodes) {
      for (const Ref& ref : node(id).inputs) {
        if (is_sum(ref.node) && is_inside(ref.node, a, b)) return false;
      }
    }
    if (goes_around(a, b) || goes_around(b, a)) return false;
    if (merged.nodes.size() > kMaxNodes || operand_count(merged, a, b) > kMaxOperands) {
      notes_.add(fmt::format("kept {} and {} apart: one kernel would have too many operands or nodes",
                             node(first.nodes[0]).label(), node(second.nodes[0]).label()));
      return false;
    }
    for (NodeId id : first.nodes) cluster_of_[static_cast<std::size_t>(id)] = b;
    second = std::move(merged);
    first.nodes.clear();
    return true;
  }

  // A smaller producer is computed anew at every point of the larger space, so nobody else may need it.
  bool can_be_recomputed(const Cluster& first, int b) const {
    for (NodeId id : first.nodes) {
      if (is_sum(id) || is_fetched_[static_cast<std::size_t>(id)]) return false;
      for (NodeId user : users_[static_cast<std::size_t>(id)]) {
        if (cluster(user) != b && cluster(user) != cluster(id)) return false;
      }
    }
    return true;
  }

  bool has_path(int from, int to) const { return reaches(from, to, false); }
  // A path from one cluster to the other through nodes outside both would become a cycle.
  bool goes_around(int from, int to) const { return reaches(from, to, true); }

  bool reaches(int from, int to, bool only_around) const {
    std::vector<NodeId> open;
    std::set<NodeId> seen;
    const auto visit_users = [&](NodeId id, bool from_inside) {
      for (NodeId user : users_[static_cast<std::size_t>(id)]) {
        if (cluster(user) == to && (!only_around || !from_inside)) return true;
        if (cluster(user) == from || cluster(user) == to) continue;
        // The whole cluster of a user runs at once, so all its members' users follow.
        for (NodeId member : members(user)) {
          if (seen.insert(member).second) open.push_back(member);
        }
      }
      return false;
    };
    for (NodeId id : clusters_[static_cast<std::size_t>(from)].nodes) {
      if (visit_users(id, true)) return true;
    }
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      if (visit_users(id, false)) return true;
    }
    return false;
  }
  std::vector<NodeId> members(NodeId id) const {
    return cluster(id) >= 0 ? clusters_[static_cast<std::size_t>(cluster(id))].nodes : std::vector<NodeId>{id};
  }

  bool is_inside(NodeId id, int a, int b) const { return cluster(id) >= 0 && (cluster(id) == a || cluster(id) == b); }

  std::size_t operand_count(const Cluster& merged, int a, int b) const {
    std::set<Ref> operands;
    for (NodeId id : merged.nodes) {
      for (const Ref& ref : node(id).inputs) {
        if (!is_inside(ref.node, a, b) && !is_free(node(ref.node))) operands.insert(ref);
      }
      bool is_output = is_fetched_[static_cast<std::size_t>(id)] != 0;
      for (NodeId user : users_[static_cast<std::size_t>(id)]) is_output |= !is_inside(user, a, b);
      if (is_output) operands.insert({id, 0});
    }
    return operands.size();
  }

  void build(const Cluster& cluster, std::map<Ref, Ref>* replaced) {
    auto body = std::make_shared<Graph>();
    std::map<Ref, Ref> inside;
    Values inputs;
    const int mine = cluster_of_[static_cast<std::size_t>(cluster.nodes[0])];
    for (NodeId id : cluster.nodes) {
      for (const Ref& ref : node(id).inputs) {
        if (this->cluster(ref.node) == mine || is_free(node(ref.node)) || inside.contains(ref)) continue;
        const Type& type = graph_.type(ref);
        inside[ref] = body->input(fmt::format("in{}", inputs.size()), type.dtype, type.shape).ref();
        inputs.push_back(graph_.value(ref));
      }
    }
    std::vector<Ref> outputs;
    for (NodeId id : cluster.nodes) {
      Node copy = node(id);
      for (Ref& ref : copy.inputs) {
        if (!inside.contains(ref)) inside[ref] = {body->add(Node(node(ref.node))), 0};  // a free one
        ref = inside.at(ref);
      }
      inside[{id, 0}] = {body->add(std::move(copy)), 0};
      bool is_output = is_fetched_[static_cast<std::size_t>(id)] != 0;
      for (NodeId user : users_[static_cast<std::size_t>(id)]) is_output |= this->cluster(user) != mine;
      if (is_output) {
        outputs.push_back({id, 0});
        body->fetch(fmt::format("out{}", outputs.size() - 1), body->value(inside.at({id, 0})));
      }
    }
    if (inputs.empty()) return;  // only constants: left as they are
    const KeepNames keep(graph_);
    graph_.placement = node(cluster.nodes[0]).placement;
    graph_.scope = common_scope(cluster);
    graph_.origin = common_origin(cluster);
    const Values made = call(*find_op("group"), inputs, {}, {body}, &graph_);
    for (std::size_t i = 0; i < outputs.size(); ++i) (*replaced)[outputs[i]] = made[i].ref();
  }

  Name common_origin(const Cluster& cluster) const {
    const Name first = node(cluster.nodes[0]).origin;
    for (NodeId id : cluster.nodes) {
      if (!(node(id).origin == first)) return {};
    }
    return first;
  }

  // The longest scope that encloses every node.
  Name common_scope(const Cluster& cluster) const {
    std::string common = node(cluster.nodes[0]).scope.str();
    for (NodeId id : cluster.nodes) {
      const std::string& scope = node(id).scope.str();
      while (!common.empty() && scope != common && !scope.starts_with(common + "/")) {
        const auto slash = common.rfind('/');
        common.resize(slash == std::string::npos ? 0 : slash);
      }
    }
    return common;
  }

  Graph& graph_;
  PassNotes& notes_;
  const NodeId size_;
  std::vector<int> cluster_of_;
  std::vector<Cluster> clusters_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<char> is_fetched_;
};

}  // namespace

void fuse_groups(Graph& graph, PassNotes& notes) {
  for_each_graph(graph, [&](Graph& each) { Fusion(each, notes).run(); });
}

}  // namespace paoding
