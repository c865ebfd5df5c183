// SPDX-License-Identifier: Apache-2.0
// A slice of an elementwise op becomes the op on slices, when slices are all that is read of it: the gates of a cell
// then share one iteration space instead of going through a value that holds all of them.
//
//   before:  %2 = add(%0, %1)                               after:  %4 = slice(%0, start = [0, 0], end = [2, 4])
//            %3 = slice(%2, start = [0, 0], end = [2, 4])           %5 = slice(%1, start = [0], end = [4])
//            %4 = slice(%2, start = [0, 4], end = [2, 8])           %6 = add(%4, %5)     and so on
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "graph/keep_names.h"
#include "ops/views.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/pass.h"

namespace paoding {
namespace {

constexpr std::size_t kMostParts = 16;  // each is a node of its own, as is the same part of all that it is made of

class SlicePusher {
 public:
  SlicePusher(Graph& graph, PassNotes& notes) : graph_(graph), notes_(notes), first_new_(graph.size()) {}

  /// One walk from the last node to the first; true when it pushed a slice.
  bool run() {
    users_.resize(static_cast<std::size_t>(first_new_));
    is_gone_.resize(static_cast<std::size_t>(first_new_), 0);
    is_read_whole_.resize(static_cast<std::size_t>(first_new_), 0);
    for (const Graph::Fetch& fetch : graph_.fetches()) is_read_whole_[static_cast<std::size_t>(fetch.ref.node)] = 1;
    for (NodeId id = 0; id < first_new_; ++id) {
      for (const Ref& ref : graph_.node(id).inputs) users_[static_cast<std::size_t>(ref.node)].push_back(id);
    }
    for (NodeId id = first_new_ - 1; id >= 0; --id) {
      const Node& node = graph_.node(id);
      const bool is_slice = node.op->view == ViewForm::sliced;
      if (!is_slice && node.op->kind != OpKind::formula) continue;
      std::erase_if(users(id),
                    [&](NodeId user) { return user < first_new_ && is_gone_[static_cast<std::size_t>(user)]; });
      if (!is_only_sliced(id)) continue;
      if (is_slice) {
        if (graph_.node(node.inputs[0].node).op->kind == OpKind::formula) dissolve(id);
      } else if (is_pushable(id)) {
        push(id);
      }
    }
    graph_.replace(replaced_);
    graph_.compact();
    return has_pushed_;
  }

 private:
  using Range = SliceRange;

  std::vector<NodeId>& users(NodeId id) { return users_[static_cast<std::size_t>(id)]; }

  Range range_of(NodeId slice) const { return slice_range(graph_.node(slice)); }

  bool is_only_sliced(NodeId id) {
    if (users(id).empty() || is_read_whole_[static_cast<std::size_t>(id)]) return false;
    return std::ranges::all_of(users(id), [&](NodeId user) { return graph_.node(user).op->view == ViewForm::sliced; });
  }

  // Slices of a slice become slices of its source, which may be pushed on.
  void dissolve(NodeId id) {
    const Node& node = graph_.node(id);
    const Ref source = node.inputs[0];
    const Range inner = range_of(id);
    const KeepNames keep(graph_, node);
    for (const NodeId user : users(id)) {
      const Range whole = slice_of_slice(inner, range_of(user), graph_.node(user).types[0].shape);
      const Value made = slice(graph_.value(source), whole);
      replaced_[{user, 0}] = made.ref();
      users(source.node).push_back(made.ref().node);
    }
    is_gone_[static_cast<std::size_t>(id)] = 1;
  }

  bool is_pushable(NodeId id) {
    const Node& node = graph_.node(id);
    std::map<Range, std::int64_t> ranges;
    for (NodeId user : users(id)) ranges[range_of(user)] = graph_.node(user).types[0].shape.elements();
    std::int64_t elements = 0;
    for (const auto& [range, size] : ranges) elements += size;
    const std::int64_t whole = node.types[0].shape.elements();
    if (elements > whole) {
      notes_.add(
          fmt::format("slices of {} {} stay after it: they overlap, and {} elements would be computed instead "
                      "of {}",
                      node.label(), to_string(node.types[0]), elements, whole));
      return false;
    }
    if (ranges.size() > kMostParts) {
      notes_.add(fmt::format("slices of {} {} stay after it: it would be computed in {} parts, more than {}",
                             node.label(), to_string(node.types[0]), ranges.size(), kMostParts));
      return false;
    }
    return true;
  }

  void push(NodeId id) {
    const Node node = graph_.node(id);  // a copy: it stands for no value afterwards
    const KeepNames keep(graph_, node);
    is_gone_[static_cast<std::size_t>(id)] = 1;
    has_pushed_ = true;
    std::map<Range, Ref> made;
    for (NodeId slice_id : users(id)) {
      const Range range = range_of(slice_id);
      const auto [it, is_new] = made.try_emplace(range);
      if (is_new) it->second = sliced_formula(node, graph_.node(slice_id).types[0], range);
      replaced_[{slice_id, 0}] = it->second;
    }
  }

  Ref sliced_formula(const Node& node, const Type& type, const Range& range) {
    Node smaller = node;
    smaller.types = {type};
    for (Ref& ref : smaller.inputs) ref = sliced_input(ref, node.types[0].shape, range);
    return {graph_.add(std::move(smaller)), 0};
  }

  // The part of an input that a range of the result reads: an axis along which the input broadcasts is left alone.
  Ref sliced_input(Ref ref, const Shape& whole, const Range& range) {
    const Shape& shape = graph_.type(ref).shape;
    const int missing = whole.rank() - shape.rank();
    Range part;
    bool is_whole = true;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const auto from = static_cast<std::size_t>(axis + missing);
      const bool is_full = shape[axis] == whole[axis + missing];
      part.start.push_back(is_full ? range.start[from] : 0);
      part.end.push_back(is_full ? range.end[from] : shape[axis]);
      part.step.push_back(is_full ? range.step[from] : 1);
      is_whole &= part.start.back() == 0 && part.end.back() == shape[axis] && part.step.back() == 1;
    }
    if (is_whole) {
      if (ref.node < first_new_) is_read_whole_[static_cast<std::size_t>(ref.node)] = 1;
      return ref;
    }
    const Value made = slice(graph_.value(ref), part);
    if (ref.node < first_new_) users(ref.node).push_back(made.ref().node);
    return made.ref();
  }

  Graph& graph_;
  PassNotes& notes_;
  const NodeId first_new_;
  std::vector<std::vector<NodeId>> users_;  // of nodes that were there before
  std::vector<char> is_gone_;               // stands for no value any more
  std::vector<char> is_read_whole_;         // by a fetch or by a formula this pass has made
  std::map<Ref, Ref> replaced_;
  bool has_pushed_ = false;
};

}  // namespace

void push_slices(Graph& graph, PassNotes& notes) {
  for_each_graph(graph, [&](Graph& g) {
    bool changed = true;
    while (changed) {
      PassNotes round;  // declined slices are declined again in the next round: only the last one counts
      changed = SlicePusher(g, round).run();
      if (changed) continue;
      for (const std::string& note : round.list()) notes.add(note);
    }
  });
}

}  // namespace paoding
