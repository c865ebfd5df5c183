// SPDX-License-Identifier: Apache-2.0
// Views of views become one view, or nothing; sums of sums and the like one; casts there and back none.
//
//   before:  %1 = slice(%0, start = [0, 2], end = [4, 8])     after:  %2 = slice(%0, start = [1, 3], end = [2, 5])
//            %2 = slice(%1, start = [1, 1], end = [2, 3])             fetch %2, %0
//            %3 = reshape(%0, shape = [8, 4])
//            %4 = reshape(%3, shape = [4, 8])
//            fetch %2, %4
#include <algorithm>
#include <array>

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
    if (node(ref).op->kind == OpKind::reduction) return reduction_rule(ref);
    if (op == "cast") return cast_rule(ref);
    if (op == "add_n" && node(ref).inputs.size() == 1) return value(input(ref));
    return {};
  }

  Value full_like(Ref constant, const Shape& target) {
    return full(graph_, target, node(constant).attrs.get_float("value"), graph_.type(constant).dtype);
  }

  // A view of an iota is an iota, as long as its strides say where the elements are.
  Value iota_like(Ref from, const Shape& target, const Ints& strides, std::int64_t start) {
    const Attrs attrs{{"shape", Ints(target.begin(), target.end())},
                      {"strides", strides},
                      {"start", start},
                      {"dtype", graph_.type(from).dtype}};
    return call(*find_op("iota"), {}, attrs, {}, &graph_).front();
  }

  Value reshape_of_iota(Ref from, const Shape& target) {
    const Ints& old = node(from).attrs.get_ints("strides");
    const Shape& source = shape(from);
    Ints strides(static_cast<std::size_t>(target.rank()), 0);
    // From the last axis on: runs of axes with as many elements on both sides. Those of the source must be evenly
    // spaced, as one axis of them would be.
    int a = source.rank() - 1, b = target.rank() - 1;
    if (target.elements() == 0) return iota_like(from, target, strides, 0);
    while (b >= 0) {
      while (a >= 0 && source[a] == 1) --a;
      if (a < 0) break;  // only extents of 1 are left
      const std::int64_t step = old[at(a)];
      std::int64_t in = source[a], out = 1;
      for (--a; b >= 0 && out < in;) {
        strides[at(b)] = target[b] == 1 ? 0 : step * out;
        out *= target[b--];
        while (out > in) {
          while (source[a] == 1) --a;
          if (old[at(a)] != step * in) return {};
          in *= source[a--];
        }
      }
    }
    return iota_like(from, target, strides, node(from).attrs.get_int("start"));
  }

  Value expand_of_iota(Ref from, const Shape& target) {
    const Shape& source = shape(from);
    const int offset = target.rank() - source.rank();
    Ints strides(static_cast<std::size_t>(target.rank()), 0);
    for (int axis = 0; axis < source.rank(); ++axis) {
      if (source[axis] != 1) strides[at(axis + offset)] = node(from).attrs.get_ints("strides")[at(axis)];
    }
    return iota_like(from, target, strides, node(from).attrs.get_int("start"));
  }

  Value slice_of_iota(Ref ref) {
    const Ref from = input(ref);
    const Ints &strides = node(from).attrs.get_ints("strides"), &first = node(ref).attrs.get_ints("start");
    std::int64_t start = node(from).attrs.get_int("start");
    if (shape(ref).elements() == 0) return iota_like(from, shape(ref), strides, 0);
    for (std::size_t axis = 0; axis < strides.size(); ++axis) start += first[axis] * strides[axis];
    return iota_like(from, shape(ref), strides, start);
  }

  Value reshape_rule(Ref ref) {
    const Ref from = input(ref);
    if (shape(from) == shape(ref)) return value(from);
    if (is(from, "reshape")) return reshape(value(input(from)), shape(ref));
    if (node(from).op->kind == OpKind::reduction) return reshape_of_reduction(ref);
    if (is(from, "full")) return full_like(from, shape(ref));
    if (is(from, "iota")) return reshape_of_iota(from, shape(ref));
    if (is(from, "expand") && shape(input(from)).elements() == 1) {  // one number, whatever the shape
      return expand(best(reshape(value(input(from)), Shape{})), shape(ref));
    }
    return {};
  }

  Value expand_rule(Ref ref) {
    const Ref from = input(ref);
    if (shape(from) == shape(ref)) return value(from);
    if (is(from, "expand")) return expand(value(input(from)), shape(ref));
    if (is(from, "full")) return full_like(from, shape(ref));
    if (is(from, "iota")) return expand_of_iota(from, shape(ref));
    if (is(from, "reshape") && shape(input(from)).rank() == 0) return expand(value(input(from)), shape(ref));
    return {};
  }

  Value slice_rule(Ref ref) {
    const Ref from = input(ref);
    if (shape(from) == shape(ref)) return value(from);  // as long as the whole: it is the whole
    if (is(from, "full")) return full_like(from, shape(ref));
    if (is(from, "iota")) return slice_of_iota(ref);
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

  Value reduced(Ref like, const Value& from, const Ints& axes, bool keepdims) {
    return call(*node(like).op, std::array{from}, {{"axes", axes}, {"keepdims", keepdims}}).front();
  }

  // Reduced axes that a reshape puts back as extents of 1 can be kept.
  Value reshape_of_reduction(Ref ref) {
    const Ref from = input(ref);
    if (node(from).attrs.get_bool("keepdims") || rewriter_.uses(from.node) > 1) return {};
    const Shape& source = shape(input(from));
    const std::vector<int> axes = reduced_axes(from);
    if (shape(ref).rank() != source.rank() || axes.empty()) return {};
    for (int axis = 0; axis < source.rank(); ++axis) {
      const bool is_reduced = std::binary_search(axes.begin(), axes.end(), axis);
      if (shape(ref)[axis] != (is_reduced ? 1 : source[axis])) return {};
    }
    return reduced(from, value(input(from)), Ints(axes.begin(), axes.end()), true);
  }

  Value reduction_rule(Ref ref) {
    const Ref from = input(ref);
    if (shape(from).elements() == shape(ref).elements() && shape(ref).elements() > 0) {
      return reshape(value(from), shape(ref));  // every reduced axis has extent 1
    }
    // The inner value is read by this one only: otherwise it has to be made anyway, and is the cheaper thing to read.
    if (rewriter_.uses(from.node) > 1) return {};
    if (node(from).op == node(ref).op) return reduction_of_reduction(ref);
    if (is(from, "reshape")) return reduction_of_reshape(ref);
    return {};
  }

  std::vector<int> reduced_axes(Ref ref) const {
    return plain_axes(node(ref).attrs.get_ints("axes"), shape(input(ref)).rank());
  }

  Value reduction_of_reduction(Ref ref) {
    const Ref inner = input(ref);
    const Ref source = input(inner);
    const std::vector<int> gone = reduced_axes(inner);
    const bool inner_keeps = node(inner).attrs.get_bool("keepdims");
    std::vector<int> source_axis;  // of each axis of the inner reduction
    for (int axis = 0; axis < shape(source).rank(); ++axis) {
      if (inner_keeps || !std::binary_search(gone.begin(), gone.end(), axis)) source_axis.push_back(axis);
    }
    Ints axes(gone.begin(), gone.end());
    for (int axis : reduced_axes(ref)) axes.push_back(source_axis[at(axis)]);
    std::sort(axes.begin(), axes.end());
    axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
    return reduced_to_shape(source, axes, ref);
  }

  Value reduced_to_shape(Ref source, const Ints& axes, Ref result) {
    const bool keepdims = shape(result).rank() == shape(source).rank();
    return reshape(best(reduced(result, value(source), axes, keepdims)), shape(result));
  }

  // A reshape that only adds or removes axes of extent 1 leaves the other axes in their order.
  Value reduction_of_reshape(Ref ref) {
    const Ref view = input(ref);
    const Ref source = input(view);
    const auto long_axes = [&](Ref of) {
      std::vector<int> axes;
      for (int axis = 0; axis < shape(of).rank(); ++axis) {
        if (shape(of)[axis] != 1) axes.push_back(axis);
      }
      return axes;
    };
    const std::vector<int> outside = long_axes(view), inside = long_axes(source), gone = reduced_axes(ref);
    if (outside.size() != inside.size()) return {};
    Ints axes;
    for (std::size_t i = 0; i < outside.size(); ++i) {
      if (shape(view)[outside[i]] != shape(source)[inside[i]]) return {};
      if (std::binary_search(gone.begin(), gone.end(), outside[i])) axes.push_back(inside[i]);
    }
    if (axes.empty()) return reshape(value(source), shape(ref));
    return reduced_to_shape(source, axes, ref);
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
