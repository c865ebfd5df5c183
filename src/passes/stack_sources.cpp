// SPDX-License-Identifier: Apache-2.0
// stack_sources: a loop stacks and carries the very values that its kernels write, so that nothing is copied to its
// place. Parts and concatenations of these are made after the loop, where they cost nothing or one copy of the whole.
//
// A part of a product is stacked, or carried, as the whole product:
//   s = scan(c) [ p = matmul(..);  out = slice(p, 0..4);  next = slice(p, 4..8) ]
// becomes
//   w = scan(concat(0, c)) [ p = matmul(..);  out = p;  next = p ];  s = slice(w, 0..4)
//
// A concatenation of the loop's inputs or carries that is only stacked is made after it; and a value that is stacked
// beside a concatenation of it is a part of that one.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "base/check.h"
#include "graph/keep_names.h"
#include "ops/views.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/pass.h"
#include "passes/scan_parts.h"

namespace paoding {
namespace {

constexpr std::int64_t kMostGrown = 4;  // times the part: the most that is kept in its place to save a launch a step

/// Elements begin .. end of one axis of a value.
struct SourcePart {
  int axis = -1;
  std::int64_t begin = 0, end = 0;
};

// The part that a slice takes, when it takes one of one axis.
std::optional<SourcePart> part_of(const Graph& body, const Node& node) {
  if (node.op->view != ViewForm::sliced) return std::nullopt;
  const SliceRange range = slice_range(node);
  if (!range.is_plain()) return std::nullopt;
  const Shape& whole = body.type(node.inputs[0]).shape;
  SourcePart part;
  for (int axis = 0; axis < whole.rank(); ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    if (range.start[at] == 0 && range.end[at] == whole[axis]) continue;
    if (part.axis >= 0) return std::nullopt;
    part = {axis, range.start[at], range.end[at]};
  }
  return part.axis < 0 ? std::nullopt : std::optional(part);
}

Value part(const Value& whole, const SourcePart& p, int axis) { return slice(whole, axis, p.begin, p.end); }

class StackSources {
 public:
  StackSources(Graph& graph, NodeId id, PassNotes& notes) : graph_(graph), notes_(notes), parts_(graph, id) {}

  void run() {
    if (parts_.length == 0) return;
    widen_carries();
    take_reshapes_out();
    sink_concatenations();
    take_parts_of_concatenations();
    widen_outputs();
    if (instead_.empty() && widened_.empty()) return;
    std::map<Ref, Ref> replaced;
    made_ = parts_.rebuild(&replaced);
    for (const auto& [old, value] : gone_) replaced[old] = stacked(value).ref();
    for (const auto& [old_last, carry, p] : widened_) {
      const Value last = graph_.value({made_, static_cast<std::int32_t>(carry)});
      replaced[old_last] = part(last, p, p.axis).ref();
    }
    graph_.replace(replaced);
  }

 private:
  // ---- values stacked in place of another, and how its elements of all steps are made of them ----

  void stack_instead(Ref value, const std::vector<Ref>& sources, std::function<Value()> make) {
    for (const ScanParts::Output& output : parts_.outputs) {
      if (output.value == value && output.stacked.valid()) gone_.emplace_back(output.stacked, value);
    }
    std::erase_if(parts_.outputs, [&](const ScanParts::Output& output) { return output.value == value; });
    for (const Ref& source : sources) {
      if (!instead_.contains(source)) parts_.add_output(source);
    }
    const Node& node = parts_.body.node(value.node);
    instead_[value] = [this, make = std::move(make), scope = node.scope, origin = node.origin] {
      const KeepNames keep(graph_);
      graph_.scope = scope, graph_.origin = origin;
      return make();
    };
  }

  // Outside, of the new node.
  Value stacked(Ref value) {
    if (const auto it = instead_.find(value); it != instead_.end()) return it->second();
    const std::size_t i = parts_.add_output(value);
    return graph_.value({made_, static_cast<std::int32_t>(parts_.carries.size() + i)});
  }

  // ---- reshapes ----

  void take_reshapes_out() {
    const std::vector<ScanParts::Output> outputs = parts_.outputs;
    for (const ScanParts::Output& output : outputs) {
      const Node& node = parts_.body.node(output.value.node);
      if (node.op->view != ViewForm::reshaped || instead_.contains(output.value)) continue;
      const Ref source = node.inputs[0];
      if (parts_.body.node(source.node).op->is(OpRole::source)) continue;
      if (parts_.body.type(source).shape.rank() == Shape::kMaxRank) continue;
      const Shape shape = node.types[0].shape.with_inserted(0, parts_.length);
      stack_instead(output.value, {source}, [this, source, shape] { return reshape(stacked(source), shape); });
    }
  }

  // ---- concatenations ----

  bool is_read(Ref ref) const {
    for (NodeId id = 0; id < parts_.body.size(); ++id) {
      for (const Ref& read : parts_.body.node(id).inputs) {
        if (read == ref) return true;
      }
    }
    return is_carried(ref);
  }
  bool is_carried(Ref ref) const {
    return std::any_of(parts_.carries.begin(), parts_.carries.end(),
                       [&](const auto& carry) { return carry.next == ref || carry.input == ref; });
  }

  // All steps' elements of a value that exists outside already, or is carried.
  std::function<Value()> over_time(Ref ref) {
    if (const ScanParts::Argument* given = parts_.sequence_read_as(ref)) {
      return [this, outer = given->outer] { return graph_.value(outer); };
    }
    if (parts_.carry_read_as(ref) == nullptr) return {};
    return [this, ref] { return stacked(ref); };
  }

  void sink_concatenations() {
    const std::vector<ScanParts::Output> outputs = parts_.outputs;
    for (const ScanParts::Output& output : outputs) {
      const Node& concatenation = parts_.body.node(output.value.node);
      if (concatenation.op->view != ViewForm::concatenated || concatenation.types[0].shape.rank() == Shape::kMaxRank)
        continue;
      if (is_read(output.value) || instead_.contains(output.value)) continue;
      std::vector<std::function<Value()>> pieces;
      std::vector<Ref> carried;
      for (const Ref& ref : concatenation.inputs) {
        if (auto piece = over_time(ref)) pieces.push_back(std::move(piece));
        if (is_carried(ref)) carried.push_back(ref);
      }
      if (pieces.size() != concatenation.inputs.size()) continue;
      stack_instead(output.value, carried, [pieces, axis = concat_axis(concatenation) + 1] {
        Values values;
        for (const auto& piece : pieces) values.push_back(piece());
        return concat(values, axis);
      });
      notes_.add(fmt::format("{} {} is concatenated after {} steps", concatenation.title(),
                             to_string(concatenation.types[0]), parts_.length));
    }
  }

  void take_parts_of_concatenations() {
    const std::vector<ScanParts::Output> outputs = parts_.outputs;
    for (const ScanParts::Output& concatenation_output : outputs) {
      const Node& concatenation = parts_.body.node(concatenation_output.value.node);
      if (concatenation.op->view != ViewForm::concatenated) continue;
      const int axis = concat_axis(concatenation);
      std::int64_t begin = 0;
      for (const Ref& ref : concatenation.inputs) {
        const std::int64_t extent = parts_.body.type(ref).shape[axis];
        const SourcePart p{axis, begin, begin + extent};
        begin += extent;
        const bool is_stacked = parts_.output_of(ref) != nullptr;
        if (!is_stacked || is_carried(ref) || parts_.body.node(ref.node).op->is(OpRole::source)) continue;
        stack_part(ref, concatenation_output.value, p);
      }
    }
  }

  // ---- parts ----

  // If `value` is a part of a kernel's result, the node that takes the part.
  const Node* whole_of(Ref value, SourcePart* p) const {
    const Node& node = parts_.body.node(value.node);
    const auto found = part_of(parts_.body, node);
    if (!found) return nullptr;
    const Node& whole = parts_.body.node(node.inputs[0].node);
    if (!whole.op->is_run_by_kernel() || whole.types[0].shape.rank() == Shape::kMaxRank) return nullptr;
    *p = *found;
    return &node;
  }

  // Whether parts that make up at least half of it are kept: then the kept value grows to twice its size at most.
  bool is_mostly_kept(Ref whole) const {
    std::int64_t kept = 0;
    const auto count = [&](Ref value) {
      SourcePart p;
      const Node* node = whole_of(value, &p);
      if (node != nullptr && node->inputs[0] == whole) kept += size_bytes(node->types[0]);
    };
    for (const auto& carry : parts_.carries) count(carry.next);
    for (const auto& output : parts_.outputs) count(output.value);
    return 2 * kept >= size_bytes(parts_.body.type(whole));
  }

  // Whether it is carried as it is, so that to keep it for all steps copies nothing, where to keep the part alone is a
  // launch a step.
  bool saves_launches(Ref whole, const SourcePart& p) const {
    const bool is_next = std::ranges::any_of(parts_.carries, [&](const auto& carry) { return carry.next == whole; });
    return is_next && notes_.target().is_gpu() &&
           parts_.body.type(whole).shape[p.axis] <= kMostGrown * (p.end - p.begin);
  }

  void widen_outputs() {
    const std::vector<ScanParts::Output> outputs = parts_.outputs;
    for (const ScanParts::Output& output : outputs) {
      SourcePart p;
      const Node* node = whole_of(output.value, &p);
      if (node == nullptr || instead_.contains(output.value)) continue;
      const Ref whole = node->inputs[0];
      const bool is_kept = parts_.output_of(whole) != nullptr;
      if (is_kept || is_mostly_kept(whole) || saves_launches(whole, p)) stack_part(output.value, whole, p);
    }
  }

  void stack_part(Ref value, Ref whole, const SourcePart& p) {
    stack_instead(value, {whole}, [this, whole, p] { return part(stacked(whole), p, p.axis + 1); });
    notes_.add(fmt::format("{} is stacked as a part of {}", parts_.body.node(value.node).title(),
                           parts_.body.node(whole.node).title()));
  }

  // Carries that are parts of one value, along one axis and apart, become that value.
  void widen_carries() {
    std::map<Ref, std::vector<std::pair<SourcePart, std::size_t>>> of_whole;  // carries by position
    for (std::size_t i = 0; i < parts_.carries.size(); ++i) {
      SourcePart p;
      const Node* node = whole_of(parts_.carries[i].next, &p);
      if (node != nullptr) of_whole[node->inputs[0]].emplace_back(p, i);
    }
    std::vector<ScanParts::Carry> made;
    std::vector<char> is_gone(parts_.carries.size(), 0);
    std::vector<std::pair<std::size_t, std::pair<SourcePart, std::size_t>>> lasts;  // in `made`, part, old carry
    std::map<Ref, Ref> inside;
    for (auto& [whole, carried] : of_whole) {
      std::sort(carried.begin(), carried.end(),
                [](const auto& a, const auto& b) { return a.first.begin < b.first.begin; });
      bool fits = is_mostly_kept(whole);
      for (std::size_t i = 1; i < carried.size(); ++i) {
        fits = fits && carried[i].first.axis == carried[0].first.axis &&
               carried[i - 1].first.end <= carried[i].first.begin;
      }
      if (!fits) continue;
      const Type& type = parts_.body.type(whole);
      const Value input = parts_.body.value(parts_.new_input("whole", type));
      made.push_back({initial_of(type, carried).ref(), input.ref(), whole, {}});
      for (const auto& [p, i] : carried) {
        inside[parts_.carries[i].input] = part(input, p, p.axis).ref();
        is_gone[i] = 1;
        lasts.push_back({made.size() - 1, {p, i}});
      }
      notes_.add(fmt::format("{} parts of {} {} are carried as a whole", carried.size(),
                             parts_.body.node(whole.node).title(), to_string(type)));
    }
    if (made.empty()) return;
    std::vector<ScanParts::Carry> kept;
    const std::vector<ScanParts::Carry> old = parts_.carries;
    for (std::size_t i = 0; i < old.size(); ++i) {
      if (!is_gone[i]) kept.push_back(old[i]);
    }
    for (const auto& [position, carried] : lasts) {
      widened_.push_back({old[carried.second].last, kept.size() + position, carried.first});
    }
    kept.insert(kept.end(), made.begin(), made.end());
    parts_.carries = kept;
    parts_.body.replace(inside);
    const auto moved = [&](Ref* ref) {
      const auto it = inside.find(*ref);
      if (it != inside.end()) *ref = it->second;
    };
    for (ScanParts::Carry& carry : parts_.carries) moved(&carry.next);
    for (ScanParts::Output& output : parts_.outputs) moved(&output.value);
    for (const auto& [position, carried] : lasts) {  // a state that is stacked, too
      const Ref value = inside.at(old[carried.second].input);
      if (parts_.output_of(value) != nullptr) stack_part(value, made[position].input, carried.first);
    }
  }

  // The starts of the parts at their places; elements that nobody reads are zero.
  Value initial_of(const Type& whole, const std::vector<std::pair<SourcePart, std::size_t>>& carried) {
    const KeepNames keep(graph_);
    graph_.scope = graph_.node(parts_.scan).scope;
    const int axis = carried[0].first.axis;
    Values pieces;
    std::int64_t end = 0;
    const auto fill_to = [&](std::int64_t begin) {
      if (begin > end) pieces.push_back(zeros(graph_, whole.shape.with_dim(axis, begin - end), whole.dtype));
    };
    for (const auto& [p, i] : carried) {
      fill_to(p.begin);
      pieces.push_back(graph_.value(parts_.carries[i].initial));
      end = p.end;
    }
    fill_to(whole.shape[axis]);
    return pieces.size() == 1 ? pieces[0] : concat(pieces, axis);
  }

  struct Widened {
    Ref old_last;
    std::size_t carry;
    SourcePart part;
  };
  Graph& graph_;
  PassNotes& notes_;
  ScanParts parts_;
  NodeId made_ = -1;
  std::map<Ref, std::function<Value()>> instead_;  // by the value that is not stacked any more
  std::vector<std::pair<Ref, Ref>> gone_;          // the old node's outputs of those, and the values
  std::vector<Widened> widened_;
};

}  // namespace

void stack_sources(Graph& graph, PassNotes& notes) {
  for_each_graph(graph, [&](Graph& each) {
    const NodeId size = each.size();
    for (NodeId id = 0; id < size; ++id) {
      if (each.node(id).op->is_scan()) StackSources(each, id, notes).run();
    }
    each.compact();
  });
}

}  // namespace paoding
