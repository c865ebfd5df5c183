// SPDX-License-Identifier: Apache-2.0
// Sums of padded slices, which gradients of slices are, become one concatenation: every part is written where it
// belongs and nothing is added. Sums of sums become one sum; zeros among the terms go.
//
//   before:  %3 = pad(%1, before = [0, 0], after = [0, 4])     after:  %5 = concat(%1, %2, axis = 1)
//            %4 = pad(%2, before = [0, 4], after = [0, 0])
//            %5 = add(%3, %4)
//
// Parts that interleave (gradients of x[::2] and x[1::2]) are a concatenation along an axis of their own.
#include <algorithm>
#include <map>
#include <optional>

#include "graph/number_everywhere.h"
#include "ops/views.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/first_at_most.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

// A term that is zero outside start <= index < end of one axis.
struct GradientPart {
  Value inner;
  int axis = 0;
  std::int64_t start = 0, end = 0;
};

// A term that is zero but at indices offset, offset + pitch, .. of one axis.
struct Interleaved {
  Value inner;
  int axis = 0;
  std::int64_t pitch = 0, offset = 0;
};

class GradientSums {
 public:
  explicit GradientSums(Graph& graph) : graph_(graph), rewriter_(graph) {}

  void run() {
    // A sum that another one takes in is looked at once, as part of that.
    std::vector<char> is_taken(static_cast<std::size_t>(rewriter_.first_new), 0);
    for (NodeId id = 0; id < rewriter_.first_new; ++id) {
      for (const Ref& ref : graph_.node(id).inputs) {
        if (is_sum(id) && takes_in(id, ref)) is_taken[static_cast<std::size_t>(ref.node)] = 1;
      }
    }
    for (NodeId id = 0; id < rewriter_.first_new; ++id) {
      rewriter_.enter(id);
      if (is_sum(id) && !is_taken[static_cast<std::size_t>(id)]) rewrite(id);
    }
    rewriter_.finish();
  }

 private:
  bool is_sum(NodeId id) const { return graph_.node(id).op->is(OpRole::sum); }

  bool takes_in(NodeId sum, Ref term) const {
    return is_sum(term.node) && rewriter_.uses(term.node) == 1 && graph_.type(term) == graph_.type({sum, 0});
  }

  bool is_zero(const Value& value) const { return is_everywhere(graph_, value.ref(), 0); }

  // The terms of a sum and of the sums in it that nobody else reads. Sets `has_nested` when one of those is a sum of
  // any number in another such, which is worth a rewrite of its own.
  void collect(NodeId id, Values* terms, bool* has_nested) {
    std::vector<std::pair<NodeId, std::size_t>> stack{{id, 0}};
    while (!stack.empty()) {
      auto& [sum, next] = stack.back();
      const Node& node = graph_.node(sum);
      if (next == node.inputs.size()) {
        stack.pop_back();
        continue;
      }
      const Ref ref = node.inputs[next++];
      if (ref.node >= rewriter_.first_new || !takes_in(sum, ref)) {
        terms->push_back(graph_.value(ref));
        continue;
      }
      *has_nested |= graph_.node(ref.node).op->is_variadic() && node.op->is_variadic();
      stack.emplace_back(ref.node, 0);
    }
  }

  void rewrite(NodeId id) {
    const Type type = graph_.node(id).types[0];
    Values all;
    bool changed = false;
    collect(id, &all, &changed);
    Values rest;
    std::vector<GradientPart> parts;
    std::vector<Interleaved> interleaved;
    for (const Value& term : all) {
      if (is_zero(term)) {
        changed = true;
      } else if (const std::optional<GradientPart> part = part_of(term, type.shape)) {
        parts.push_back(*part);
      } else if (const std::optional<Interleaved> woven = interleaved_part_of(term, type.shape)) {
        interleaved.push_back(*woven);
      } else {
        rest.push_back(term);
      }
    }
    changed |= merge_interleaved(type.shape, &interleaved, &rest);
    changed |= merge_parts(type.shape, &parts, &rest);
    if (!changed) return;
    Value result = rest.empty()       ? full(graph_, type.shape, 0, type.dtype)
                   : rest.size() == 1 ? rest[0]
                   : rest.size() == 2 ? add(rest[0], rest[1])
                                      : add_n(rest);
    rewriter_.replace({id, 0}, expand(result, type.shape).ref());
  }

  // `term` as a part, when it is a pad along one axis to the whole shape of the sum.
  std::optional<GradientPart> part_of(const Value& term, const Shape& whole) {
    const Node& node = graph_.node(term.ref().node);
    if (node.op->view != ViewForm::padded || !(term.shape() == whole)) return {};
    const Padding padding = padding_of(node);
    if (padding.value != 0 || !padding.is_plain()) return {};
    const Value inner = graph_.value(node.inputs[0]);
    std::optional<GradientPart> part;
    for (int axis = 0; axis < whole.rank(); ++axis) {
      if (inner.shape()[axis] == whole[axis]) continue;
      if (part) return {};  // zeros along two axes
      const std::int64_t start = padding.before[static_cast<std::size_t>(axis)];
      part = GradientPart{inner, axis, start, start + inner.shape()[axis]};
    }
    return part;
  }

  // `term` as an interleaved part, when those of all offsets would fill the shape of the sum.
  std::optional<Interleaved> interleaved_part_of(const Value& term, const Shape& whole) {
    const Node& node = graph_.node(term.ref().node);
    if (node.op->view != ViewForm::padded || !(term.shape() == whole) || whole.rank() == Shape::kMaxRank) return {};
    const Padding padding = padding_of(node);
    const Value inner = graph_.value(node.inputs[0]);
    if (padding.value != 0) return {};
    std::optional<Interleaved> part;
    for (int axis = 0; axis < whole.rank(); ++axis) {
      const auto i = static_cast<std::size_t>(axis);
      if (inner.shape()[axis] == whole[axis]) continue;
      const std::int64_t pitch = padding.interior[i] + 1;
      if (part || pitch == 1 || inner.shape()[axis] * pitch != whole[axis] || padding.before[i] >= pitch) return {};
      part = Interleaved{inner, axis, pitch, padding.before[i]};
    }
    return part;
  }

  // Adds the concatenations of the parts to `rest`. True when any two were concatenated.
  bool merge_interleaved(const Shape& whole, std::vector<Interleaved>* parts, Values* rest) {
    bool concatenated = false;
    while (!parts->empty()) {
      const Interleaved first = parts->front();
      std::map<std::int64_t, Values> at_offset;
      std::size_t taken = 0;
      std::erase_if(*parts, [&](const Interleaved& part) {
        if (part.axis != first.axis || part.pitch != first.pitch) return false;
        at_offset[part.offset].push_back(part.inner);
        ++taken;
        return true;
      });
      std::map<std::int64_t, Value> of_offset;
      for (const auto& [offset, same] : at_offset) {
        of_offset[offset] = same.size() == 1 ? same[0] : same.size() == 2 ? add(same[0], same[1]) : add_n(same);
      }
      const std::size_t before = rest->size();
      if (of_offset.size() > 1 && static_cast<std::int64_t>(of_offset.size()) * 2 >= first.pitch) {
        rest->push_back(interleave(first, of_offset, whole));
      } else {
        for (const auto& [offset, value] : of_offset) rest->push_back(dilate(first, offset, value, whole));
      }
      concatenated |= rest->size() - before < taken;
    }
    return concatenated;
  }

  static Value dilate(const Interleaved& like, std::int64_t offset, const Value& value, const Shape& whole) {
    const auto rank = static_cast<std::size_t>(whole.rank()), axis = static_cast<std::size_t>(like.axis);
    Padding padding{Ints(rank, 0), Ints(rank, 0), Ints(rank, 0), 0};
    padding.before[axis] = offset;
    padding.after[axis] = like.pitch - 1 - offset;
    padding.interior[axis] = like.pitch - 1;
    return pad(value, padding);
  }

  Value interleave(const Interleaved& like, const std::map<std::int64_t, Value>& of_offset, const Shape& whole) {
    const Shape& shape = like.inner.shape();
    Values pieces;
    for (std::int64_t offset = 0; offset < like.pitch; ++offset) {
      const auto found = of_offset.find(offset);
      const Value piece = found == of_offset.end() ? full(graph_, shape, 0, like.inner.dtype()) : found->second;
      pieces.push_back(reshape(piece, shape.with_inserted(like.axis + 1, 1)));
    }
    return reshape(concat(pieces, like.axis + 1), whole);
  }

  Value pad_again(const GradientPart& part, const Shape& whole) {
    const auto rank = static_cast<std::size_t>(whole.rank());
    Ints before(rank, 0), after(rank, 0);
    before[static_cast<std::size_t>(part.axis)] = part.start;
    after[static_cast<std::size_t>(part.axis)] = whole[part.axis] - part.end;
    return pad(part.inner, before, after);
  }

  // Adds the concatenations of the parts in front of `rest`. True when any two were concatenated.
  bool merge_parts(const Shape& whole, std::vector<GradientPart>* parts, Values* rest) {
    std::stable_sort(parts->begin(), parts->end(), [](const GradientPart& a, const GradientPart& b) {
      return std::tuple(a.axis, a.start, a.end) < std::tuple(b.axis, b.start, b.end);
    });
    // Parts of one range are summed before they are placed.
    std::vector<GradientPart> distinct;
    for (std::size_t i = 0; i < parts->size();) {
      const GradientPart& first = (*parts)[i];
      Values same;
      for (; i < parts->size() && (*parts)[i].axis == first.axis && (*parts)[i].start == first.start &&
             (*parts)[i].end == first.end;
           ++i) {
        same.push_back((*parts)[i].inner);
      }
      GradientPart concatenated = first;
      if (same.size() > 1) concatenated.inner = same.size() == 2 ? add(same[0], same[1]) : add_n(same);
      distinct.push_back(concatenated);
    }
    // A row holds parts that do not overlap: each goes to the first row that ends before it begins.
    Values placed;
    std::vector<std::vector<GradientPart>> rows;
    FirstAtMost ends(distinct.size());
    for (std::size_t i = 0, first = 0; i < distinct.size(); ++i) {
      const GradientPart& part = distinct[i];
      if (i > 0 && distinct[i - 1].axis != part.axis) first = rows.size();  // rows of another axis stay as they are
      const std::size_t row = ends.find(first, part.start);
      if (row >= rows.size()) rows.resize(row + 1);
      rows[row].push_back(part);
      ends.set(row, part.end);
    }
    for (const std::vector<GradientPart>& row : rows) {
      placed.push_back(row.size() == 1 ? pad_again(row[0], whole) : place(row, whole));
    }
    const bool concatenated = placed.size() < parts->size();
    rest->insert(rest->begin(), placed.begin(), placed.end());
    return concatenated;
  }

  Value place(const std::vector<GradientPart>& row, const Shape& whole) {
    const int axis = row[0].axis;
    Values pieces;
    std::int64_t next = 0;
    const auto fill_to = [&](std::int64_t start) {
      if (start > next) {
        pieces.push_back(full(graph_, whole.with_dim(axis, start - next), 0, row[0].inner.dtype()));
      }
    };
    for (const GradientPart& part : row) {
      fill_to(part.start);
      pieces.push_back(part.inner);
      next = part.end;
    }
    fill_to(whole[axis]);
    return concat(pieces, axis);
  }

  Graph& graph_;
  Rewriter rewriter_;
};

}  // namespace

void sum_gradients(Graph& graph, PassNotes&) {
  for_each_graph(graph, [](Graph& g) { GradientSums(g).run(); });
}

}  // namespace paoding
