// SPDX-License-Identifier: Apache-2.0
// Views of views become one view, or nothing; sums of sums one sum; casts there and back none.
//
//   before:  %1 = slice(%0, start = [0, 2], end = [4, 8])     after:  %2 = slice(%0, start = [1, 3], end = [2, 5])
//            %2 = slice(%1, start = [1, 1], end = [2, 3])             fetch %2, %0
//            %3 = reshape(%0, shape = [8, 4])
//            %4 = reshape(%3, shape = [4, 8])
//            fetch %2, %4
#include <algorithm>

#include "ops/axes.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

// Every value of the first converts to the second unchanged.
bool widens_exactly(DType from, DType to) {
  if (from == to || from == DType::boolean) return true;
  switch (from) {
    case DType::f16:
    case DType::bf16: return to == DType::f32 || to == DType::f64;
    case DType::f32: return to == DType::f64;
    case DType::u8: return to != DType::boolean;
    case DType::i32: return to == DType::i64 || to == DType::f64;
    default: return false;
  }
}

class Simplifier {
 public:
  explicit Simplifier(Graph& graph) : graph_(graph), rewriter_(graph) {}

  void run() {
    for (NodeId id = 0; id < rewriter_.first_new; ++id) {
      if (rewriter_.enter(id).types.size() != 1) continue;
      rewriter_.replace({id, 0}, best(graph_.value({id, 0})).ref());
    }
    rewriter_.finish();
  }

 private:
  const Node& node(Ref ref) const { return graph_.node(ref.node); }
  bool is(Ref ref, std::string_view op) const { return node(ref).op->name == op; }
  Ref input(Ref ref, std::size_t i = 0) const { return node(ref).inputs[i]; }
  Value value(Ref ref) { return graph_.value(ref); }
  const Shape& shape(Ref ref) const { return graph_.type(ref).shape; }

  // What a rule makes may be simplified further; every rule makes the expression smaller, so this ends.
  Value best(Value made) {
    for (Value better = apply_rule(made.ref()); better.valid(); better = apply_rule(made.ref())) made = better;
    return made;
  }

  // What stands for `ref`; invalid when it is as simple as it gets.
  Value apply_rule(Ref ref) {
    const std::string& op = node(ref).op->name;
    if (op == "reshape") return reshape_rule(ref);
    if (op == "expand") return expand_rule(ref);
    if (op == "slice") return slice_rule(ref);
    if (op == "pad") return pad_rule(ref);
    if (op == "concat") return concat_rule(ref);
    if (op == "sum") return sum_rule(ref);
    if (op == "cast") return cast_rule(ref);
    if (op == "add_n" && node(ref).inputs.size() == 1) return value(input(ref));
    return {};
  }

  Value full_like(Ref constant, const Shape& target) {
    return full(graph_, target, node(constant).attrs.get_float("value"), graph_.type(constant).dtype);
  }

  Value reshape_rule(Ref ref) {
    const Ref from = input(ref);
    if (shape(from) == shape(ref)) return value(from);
    if (is(from, "reshape")) return reshape(value(input(from)), shape(ref));
    if (is(from, "full")) return full_like(from, shape(ref));
    return {};
  }

  Value expand_rule(Ref ref) {
    const Ref from = input(ref);
    if (shape(from) == shape(ref)) return value(from);
    if (is(from, "expand")) return expand(value(input(from)), shape(ref));
    if (is(from, "full")) return full_like(from, shape(ref));
    return {};
  }

  Value slice_rule(Ref ref) {
    const Ref from = input(ref);
    if (shape(from) == shape(ref)) return value(from);  // as long as the whole: it is the whole
    if (is(from, "full")) return full_like(from, shape(ref));
    const Ints &start = node(ref).attrs.get_ints("start"), &end = node(ref).attrs.get_ints("end");
    if (is(from, "slice")) {
      const Ints& offset = node(from).attrs.get_ints("start");
      return shifted_slice(input(from), start, end, offset, 1);
    }
    if (is(from, "concat")) return slice_of_concat(ref);
    if (is(from, "pad")) {
      const Ints& before = node(from).attrs.get_ints("before");
      const Shape& inner = shape(input(from));
      bool is_inside = true;
      for (int axis = 0; axis < inner.rank(); ++axis) {
        const std::int64_t first = start[at(axis)] - before[at(axis)], last = end[at(axis)] - before[at(axis)];
        if (last <= 0 || first >= inner[axis]) return full(graph_, shape(ref), 0, graph_.type(ref).dtype);
        is_inside &= first >= 0 && last <= inner[axis];
      }
      if (is_inside) return shifted_slice(input(from), start, end, before, -1);
    }
    return {};
  }

  Value shifted_slice(Ref from, Ints start, Ints end, const Ints& offset, std::int64_t sign) {
    for (std::size_t i = 0; i < start.size(); ++i) start[i] += sign * offset[i], end[i] += sign * offset[i];
    return slice(value(from), start, end);
  }

  int concat_axis(Ref ref) const {
    const std::int64_t axis = node(ref).attrs.get_int("axis");
    return static_cast<int>(axis < 0 ? axis + shape(ref).rank() : axis);
  }

  Value slice_of_concat(Ref ref) {
    const Ref whole = input(ref);
    Ints start = node(ref).attrs.get_ints("start"), end = node(ref).attrs.get_ints("end");
    const int axis = concat_axis(whole);
    std::int64_t offset = 0;
    for (const Ref piece : node(whole).inputs) {
      const std::int64_t extent = shape(piece)[axis];
      if (start[at(axis)] >= offset && end[at(axis)] <= offset + extent) {
        start[at(axis)] -= offset;
        end[at(axis)] -= offset;
        return slice(value(piece), start, end);
      }
      offset += extent;
    }
    return {};
  }

  Value pad_rule(Ref ref) {
    const Ref from = input(ref);
    if (shape(from) == shape(ref)) return value(from);
    if (is(from, "full") && node(from).attrs.get_float("value") == 0) return full_like(from, shape(ref));
    if (!is(from, "pad")) return {};
    Ints before = node(ref).attrs.get_ints("before"), after = node(ref).attrs.get_ints("after");
    for (std::size_t i = 0; i < before.size(); ++i) {
      before[i] += node(from).attrs.get_ints("before")[i];
      after[i] += node(from).attrs.get_ints("after")[i];
    }
    return pad(value(input(from)), before, after);
  }

  // Neighbours that are adjacent slices of one value are one slice; empty pieces go.
  Value concat_rule(Ref ref) {
    if (node(ref).inputs.size() == 1) return value(input(ref));
    const int axis = concat_axis(ref);
    Values pieces;
    for (const Ref piece : node(ref).inputs) {
      if (shape(piece)[axis] == 0 && shape(ref)[axis] != 0) continue;
      const Value joined = pieces.empty() ? Value() : join(pieces.back().ref(), piece, axis);
      if (joined.valid()) {
        pieces.back() = joined;
      } else {
        pieces.push_back(value(piece));
      }
    }
    if (pieces.size() == node(ref).inputs.size()) return {};
    return pieces.size() == 1 ? pieces[0] : concat(pieces, axis);
  }

  Value join(Ref a, Ref b, int axis) {
    if (!is(a, "slice") || !is(b, "slice") || !(input(a) == input(b))) return {};
    const Ints &start_a = node(a).attrs.get_ints("start"), &end_a = node(a).attrs.get_ints("end");
    const Ints &start_b = node(b).attrs.get_ints("start"), &end_b = node(b).attrs.get_ints("end");
    for (int k = 0; k < shape(a).rank(); ++k) {
      const bool fits =
          k == axis ? end_a[at(k)] == start_b[at(k)] : start_a[at(k)] == start_b[at(k)] && end_a[at(k)] == end_b[at(k)];
      if (!fits) return {};
    }
    return best(slice(value(input(a)), start_a, end_b));
  }

  Value sum_rule(Ref ref) {
    const Ref from = input(ref);
    if (shape(from).elements() == shape(ref).elements() && shape(ref).elements() > 0) {
      return reshape(value(from), shape(ref));  // every axis summed has extent 1
    }
    // The inner value is read by this sum only: otherwise it has to be made anyway, and is the cheaper thing to read.
    if (rewriter_.uses(from.node) > 1) return {};
    if (is(from, "sum")) return sum_of_sum(ref);
    if (is(from, "reshape")) return sum_of_reshape(ref);
    return {};
  }

  std::vector<int> sum_axes(Ref ref) const {
    return plain_axes(node(ref).attrs.get_ints("axes"), shape(input(ref)).rank());
  }

  Value sum_of_sum(Ref ref) {
    const Ref inner = input(ref);
    const Ref source = input(inner);
    const std::vector<int> summed = sum_axes(inner);
    const bool inner_keeps = node(inner).attrs.get_bool("keepdims");
    std::vector<int> source_axis;  // of each axis of the inner sum
    for (int axis = 0; axis < shape(source).rank(); ++axis) {
      if (inner_keeps || !std::binary_search(summed.begin(), summed.end(), axis)) source_axis.push_back(axis);
    }
    Ints axes(summed.begin(), summed.end());
    for (int axis : sum_axes(ref)) axes.push_back(source_axis[at(axis)]);
    std::sort(axes.begin(), axes.end());
    axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
    return sum_to_shape(source, axes, ref);
  }

  Value sum_to_shape(Ref source, const Ints& axes, Ref result) {
    const bool keepdims = shape(result).rank() == shape(source).rank();
    return reshape(best(sum(value(source), axes, keepdims)), shape(result));
  }

  // A reshape that only adds or removes axes of extent 1 leaves the other axes in their order.
  Value sum_of_reshape(Ref ref) {
    const Ref view = input(ref);
    const Ref source = input(view);
    const auto long_axes = [&](Ref of) {
      std::vector<int> axes;
      for (int axis = 0; axis < shape(of).rank(); ++axis) {
        if (shape(of)[axis] != 1) axes.push_back(axis);
      }
      return axes;
    };
    const std::vector<int> outside = long_axes(view), inside = long_axes(source), summed = sum_axes(ref);
    if (outside.size() != inside.size()) return {};
    Ints axes;
    for (std::size_t i = 0; i < outside.size(); ++i) {
      if (shape(view)[outside[i]] != shape(source)[inside[i]]) return {};
      if (std::binary_search(summed.begin(), summed.end(), outside[i])) axes.push_back(inside[i]);
    }
    if (axes.empty()) return reshape(value(source), shape(ref));
    return sum_to_shape(source, axes, ref);
  }

  Value cast_rule(Ref ref) {
    const Ref from = input(ref);
    if (graph_.type(from).dtype == graph_.type(ref).dtype) return value(from);
    if (is(from, "cast") && widens_exactly(graph_.type(input(from)).dtype, graph_.type(from).dtype)) {
      return cast(value(input(from)), graph_.type(ref).dtype);
    }
    return {};
  }

  Graph& graph_;
  Rewriter rewriter_;
};

}  // namespace

void simplify_views(Graph& graph, PassNotes&) {
  for_each_graph(graph, [](Graph& g) { Simplifier(g).run(); });
}

}  // namespace paoding
