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
#include <map>

#include "graph/keep_names.h"
#include "graph/number_everywhere.h"
#include "ops/axes.h"
#include "ops/views.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/axis_runs.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

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
  explicit Simplifier(Graph& graph) : graph_(graph), rewriter_(graph) {
    is_computed_with_.resize(static_cast<std::size_t>(graph.size()), 0);
    for (NodeId id = 0; id < graph.size(); ++id) {
      const Node& user = graph.node(id);
      if (user.op->kind != OpKind::formula) continue;
      for (const Ref& ref : user.inputs) {
        if (graph.type(ref).shape == user.types[0].shape) is_computed_with_[static_cast<std::size_t>(ref.node)] = 1;
      }
    }
  }

  void run() {
    for (NodeId id = 0; id < rewriter_.first_new; ++id) {
      if (rewriter_.enter(id).types.size() != 1) continue;
      rewriter_.replace({id, 0}, best(graph_.value({id, 0})).ref());
    }
    rewriter_.finish();
  }

 private:
  const Node& node(Ref ref) const { return graph_.node(ref.node); }
  bool is(Ref ref, ViewForm view) const { return node(ref).op->view == view; }
  /// Whether every element is the attribute `value`.
  bool is_uniform(Ref ref) const { return node(ref).op->is_uniform; }
  /// Whether elements follow from their places, by the attributes `start` and `strides`.
  bool is_counted(Ref ref) const { return node(ref).op->is(OpRole::generated) && !is_uniform(ref); }
  bool is_converted(Ref ref) const { return node(ref).op->conversion == Conversion::value; }
  Ref input(Ref ref, std::size_t i = 0) const { return node(ref).inputs[i]; }
  Value value(Ref ref) { return graph_.value(ref); }
  const Shape& shape(Ref ref) const { return graph_.type(ref).shape; }

  // A rule's result may be simplified further; every rule makes the expression smaller, so this ends.
  Value best(Value made) {
    for (Value better = apply_rule(made.ref()); better.valid(); better = apply_rule(made.ref())) made = better;
    return made;
  }

  // The simpler value for `ref`; invalid when it is as simple as it gets.
  Value apply_rule(Ref ref) {
    switch (node(ref).op->view) {
      case ViewForm::reshaped: return reshape_rule(ref);
      case ViewForm::broadcast: return expand_rule(ref);
      case ViewForm::sliced: return slice_rule(ref);
      case ViewForm::transposed: return transpose_rule(ref);
      case ViewForm::padded: return pad_rule(ref);
      case ViewForm::concatenated: return concat_rule(ref);
      case ViewForm::none: break;
    }
    if (node(ref).op->contracts) return matmul_rule(ref);
    if (node(ref).op->is(OpRole::constant)) return constant_rule(ref);
    if (node(ref).op->kind == OpKind::reduction) return reduction_rule(ref);
    if (is_converted(ref)) return cast_rule(ref);
    if (node(ref).op->is(OpRole::sum) && node(ref).inputs.size() == 1) return value(input(ref));
    return {};
  }

  Value full_like(Ref constant, const Shape& target) {
    return full_of(graph_, target, *node(constant).attrs.find("value"), graph_.type(constant).dtype);
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
    // Goes from the last axis on: runs of axes with as many elements on both sides. Those of the source must be evenly
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
    Ints strides = node(from).attrs.get_ints("strides");
    const SliceRange range = slice_range(node(ref));
    std::int64_t start = node(from).attrs.get_int("start");
    if (shape(ref).elements() == 0) return iota_like(from, shape(ref), strides, 0);
    for (std::size_t axis = 0; axis < strides.size(); ++axis) {
      start += range.start[axis] * strides[axis];
      strides[axis] *= range.step[axis];
    }
    return iota_like(from, shape(ref), strides, start);
  }

  Value reshape_rule(Ref ref) {
    const Ref from = input(ref);
    if (shape(from) == shape(ref)) return value(from);
    if (is(from, ViewForm::reshaped)) return reshape(value(input(from)), shape(ref));
    if (node(from).op->kind == OpKind::reduction) return reshape_of_reduction(ref);
    if (node(from).op->kind == OpKind::formula) return reshape_of_formula(ref);
    if (is_uniform(from)) return full_like(from, shape(ref));
    if (is_counted(from)) return reshape_of_iota(from, shape(ref));
    if (is(from, ViewForm::broadcast) && shape(input(from)).elements() == 1) {  // one constant, whatever the shape
      return expand(best(reshape(value(input(from)), Shape{})), shape(ref));
    }
    return {};
  }

  // Applies where it costs nothing to reshape the operands instead, so that groups can take the formula and its
  // readers: a product with a bias, of which rows are seen as [time, batch].
  Value reshape_of_formula(Ref ref) {
    const Ref from = input(ref);
    const Node formula = node(from);  // a copy: nodes are added
    if (rewriter_.uses(from.node) != 1 || formula.inputs.empty() || shape(from).elements() == 0) return {};
    std::vector<Shape> shapes;
    for (const Ref& operand : formula.inputs) {
      const auto reshaped = reshaped_operand(shape(operand), shape(from), shape(ref));
      const bool is_free = reshaped && (*reshaped == shape(operand) || is_reshaped_freely(operand));
      if (!is_free) return {};
      shapes.push_back(*reshaped);
    }
    const KeepNames keep(graph_, formula);
    Values operands;
    for (std::size_t i = 0; i < shapes.size(); ++i)
      operands.push_back(best(reshape(value(formula.inputs[i]), shapes[i])));
    const Value made = call(*formula.op, operands, formula.attrs)[0];
    return made.type() == graph_.type(ref) ? made : Value();
  }

  // Whether the value is dense in memory however it is read.
  bool is_reshaped_freely(Ref ref) const {
    return node(ref).op->is_run_by_kernel() || node(ref).op->is(OpRole::source) || is(ref, ViewForm::reshaped) ||
           node(ref).op->is_scan();
  }

  Value expand_rule(Ref ref) {
    const Ref from = input(ref);
    if (shape(from) == shape(ref)) return value(from);
    if (is(from, ViewForm::broadcast)) return expand(value(input(from)), shape(ref));
    if (is_uniform(from)) return full_like(from, shape(ref));
    if (is_counted(from)) return expand_of_iota(from, shape(ref));
    if (is(from, ViewForm::reshaped) && shape(input(from)).rank() == 0) return expand(value(input(from)), shape(ref));
    return {};
  }

  Value slice_rule(Ref ref) {
    const Ref from = input(ref);
    const SliceRange range = slice_range(node(ref));
    bool is_whole = shape(from) == shape(ref);  // as long as the whole: it is the whole, unless it is reversed
    for (int axis = 0; axis < shape(ref).rank(); ++axis) is_whole &= range.step[at(axis)] > 0 || shape(ref)[axis] <= 1;
    if (is_whole) return value(from);
    if (is_uniform(from)) return full_like(from, shape(ref));
    if (is_counted(from)) return slice_of_iota(ref);
    if (is(from, ViewForm::sliced)) {
      return slice(value(input(from)), slice_of_slice(slice_range(node(from)), range, shape(ref)));
    }
    if (is(from, ViewForm::concatenated)) return slice_of_concat(ref);
    if (is(from, ViewForm::padded)) return slice_of_pad(ref);
    return {};
  }

  // The lowest and the highest index that a slice that is not empty takes along an axis.
  static std::pair<std::int64_t, std::int64_t> reach(const SliceRange& range, int axis) {
    const std::int64_t first = range.start[at(axis)];
    const std::int64_t last = first + (range.extent(axis) - 1) * range.step[at(axis)];
    return std::minmax(first, last);
  }

  Value slice_of_concat(Ref ref) {
    const Ref whole = input(ref);
    SliceRange range = slice_range(node(ref));
    const int axis = concat_axis(node(whole));
    const std::int64_t count = shape(ref)[axis];
    if (count == 0) return {};
    const auto [lowest, highest] = reach(range, axis);
    const Ints& ends = piece_ends(whole, axis);
    const auto found = std::ranges::upper_bound(ends, lowest);
    if (found == ends.end() || highest >= *found) return {};
    const auto k = static_cast<std::size_t>(found - ends.begin());
    set_axis(&range, axis, range.start[at(axis)] - (k == 0 ? 0 : ends[k - 1]), count, range.step[at(axis)]);
    return slice(value(input(whole, k)), range);
  }

  // The index after which each piece of a concatenation ends.
  const Ints& piece_ends(Ref concat, int axis) {
    const auto [it, is_new] = piece_ends_.try_emplace(concat.node);
    std::int64_t end = 0;
    for (std::size_t k = 0; is_new && k < node(concat).inputs.size(); ++k) {
      it->second.push_back(end += shape(input(concat, k))[axis]);
    }
    return it->second;
  }

  // A slice between the padding is a slice of the operand; one inside the padding is a constant.
  Value slice_of_pad(Ref ref) {
    const Ref from = input(ref);
    if (shape(ref).elements() == 0) return full(graph_, shape(ref), 0, graph_.type(ref).dtype);
    const Padding padding = padding_of(node(from));
    const Shape& inner = shape(input(from));
    SliceRange range = slice_range(node(ref));
    bool is_inside = true;
    for (int axis = 0; axis < inner.rank(); ++axis) {
      const std::int64_t before = padding.before[at(axis)], pitch = padding.interior[at(axis)] + 1;
      const std::int64_t last = before + (inner[axis] - 1) * pitch;
      const auto [lowest, highest] = reach(range, axis);
      if (inner[axis] == 0 || highest < before || lowest > last) {
        return full(graph_, shape(ref), padding.value, graph_.type(ref).dtype);
      }
      const std::int64_t start = range.start[at(axis)] - before, step = range.step[at(axis)];
      is_inside &= lowest >= before && highest <= last && start % pitch == 0 && step % pitch == 0;
      if (is_inside) set_axis(&range, axis, start / pitch, shape(ref)[axis], step / pitch);
    }
    return is_inside ? slice(value(input(from)), range) : Value();
  }

  Value transpose_rule(Ref ref) {
    const Ref from = input(ref);
    const std::vector<int> permutation = permutation_of(node(ref));
    if (std::ranges::is_sorted(permutation)) return value(from);
    if (is_uniform(from)) return full_like(from, shape(ref));
    if (is(from, ViewForm::transposed)) {
      const std::vector<int> inner = permutation_of(node(from));
      std::vector<int> joint;
      for (const int axis : permutation) joint.push_back(inner[at(axis)]);
      return transpose(value(input(from)), joint);
    }
    std::vector<int> long_axes;  // axes of extent 1 may move freely
    for (const int axis : permutation) {
      if (shape(from)[axis] != 1) long_axes.push_back(axis);
    }
    if (std::ranges::is_sorted(long_axes) && shape(from).elements() > 0) return reshape(value(from), shape(ref));
    if (node(from).op->kind == OpKind::formula) return transposed_away(from, permutation, 0);
    return node(from).op->contracts ? transposed_product(from, permutation) : Value();
  }

  // (a b)^T = b^T a^T, where nobody reads the product as it is: it is written the way its reader wants it.
  Value transposed_product(Ref product, std::vector<int> permutation) {
    const std::size_t last = permutation.size() - 1;
    std::swap(permutation[last], permutation[last - 1]);
    if (rewriter_.uses(product.node) > 1 || !std::ranges::is_sorted(permutation)) return {};
    const Node made = node(product);  // a copy: call() may move the nodes
    const Attrs flags{{"transpose_a", !made.attrs.get_bool("transpose_b")},
                      {"transpose_b", !made.attrs.get_bool("transpose_a")}};
    return call(*made.op, Values{value(made.inputs[1]), value(made.inputs[0])}, flags).front();
  }

  // transpose(ref, permutation) without a transpose, where those in front of an elementwise chain cancel it: the chain
  // then keeps one layout. Invalid when they do not, or when the chain is needed as it is too.
  Value transposed_away(Ref ref, const std::vector<int>& permutation, int depth) {
    constexpr int kMostOps = 16;
    if (shape(ref).rank() == 0) return value(ref);
    if (shape(ref).rank() != static_cast<int>(permutation.size())) return {};
    if (is(ref, ViewForm::transposed) && inverse(permutation_of(node(ref))) == permutation) return value(input(ref));
    if (node(ref).op->kind != OpKind::formula || rewriter_.uses(ref.node) > 1 || depth == kMostOps) return {};
    Values inputs;
    for (const Ref each : std::vector<Ref>(node(ref).inputs)) {
      inputs.push_back(transposed_away(each, permutation, depth + 1));
      if (!inputs.back().valid()) return {};
    }
    const Node made = node(ref);  // a copy: call() may move the nodes
    return call(*made.op, inputs, made.attrs).front();
  }

  // A product of a transposed matrix is a product with its flag flipped.
  Value matmul_rule(Ref ref) {
    Values in;
    bool flags[2] = {node(ref).attrs.get_bool("transpose_a"), node(ref).attrs.get_bool("transpose_b")};
    bool changed = false;
    for (std::size_t i = 0; i < 2; ++i) {
      const Ref from = input(ref, i);
      in.push_back(value(from));
      if (!is(from, ViewForm::transposed)) continue;
      std::vector<int> permutation = permutation_of(node(from));
      std::swap(permutation[permutation.size() - 1], permutation[permutation.size() - 2]);
      if (!std::ranges::is_sorted(permutation)) continue;
      in.back() = value(input(from));
      flags[i] = !flags[i];
      changed = true;
    }
    if (!changed) return {};
    return call(*node(ref).op, in, {{"transpose_a", flags[0]}, {"transpose_b", flags[1]}}).front();
  }

  // Only for a constant whose elements are equal: kernels have it as an immediate and do not read it.
  Value constant_rule(Ref ref) {
    if (const Ints* exact = std::get_if<Ints>(node(ref).attrs.find("values"))) {
      const bool is_one = std::ranges::all_of(*exact, [&](std::int64_t each) { return each == exact->front(); });
      return is_one ? full(graph_, shape(ref), exact->front(), graph_.type(ref).dtype) : Value();
    }
    const std::vector<double>& values = node(ref).attrs.get_floats("values");
    const bool is_one_number = std::ranges::all_of(values, [&](double each) { return has_same_bits(each, values[0]); });
    if (!is_one_number) return {};
    return full(graph_, shape(ref), values.empty() ? 0 : values[0], graph_.type(ref).dtype);
  }

  Value pad_rule(Ref ref) {
    const Ref from = input(ref);
    if (shape(from) == shape(ref)) return value(from);
    Padding outer = padding_of(node(ref));
    const double* number = is_uniform(from) ? std::get_if<double>(node(from).attrs.find("value")) : nullptr;
    if (number != nullptr && has_same_bits(*number, outer.value)) return full_like(from, shape(ref));
    if (shape(from).elements() == 0) return full(graph_, shape(ref), outer.value, graph_.type(ref).dtype);
    if (!is(from, ViewForm::padded)) return {};
    const Padding inner = padding_of(node(from));
    if (!outer.is_plain() || !has_same_bits(inner.value, outer.value)) return {};
    for (std::size_t i = 0; i < outer.before.size(); ++i) {
      outer.before[i] += inner.before[i];
      outer.after[i] += inner.after[i];
    }
    outer.interior = inner.interior;
    return pad(value(input(from)), outer);
  }

  // Neighbours that are adjacent slices of one value are one slice; empty pieces go.
  Value concat_rule(Ref ref) {
    if (node(ref).inputs.size() == 1) return value(input(ref));
    const int axis = concat_axis(node(ref));
    Values pieces;
    for (const Ref piece : node(ref).inputs) {
      if (shape(piece)[axis] == 0 && shape(ref)[axis] != 0) continue;
      const Value combined = pieces.empty() ? Value() : combine(pieces.back().ref(), piece, axis);
      if (combined.valid()) {
        pieces.back() = combined;
      } else {
        pieces.push_back(value(piece));
      }
    }
    if (pieces.size() == node(ref).inputs.size()) return {};
    return pieces.size() == 1 ? pieces[0] : concat(pieces, axis);
  }

  Value combine(Ref a, Ref b, int axis) {
    if (!is(a, ViewForm::sliced) || !is(b, ViewForm::sliced) || !(input(a) == input(b))) return {};
    SliceRange first = slice_range(node(a));
    const SliceRange second = slice_range(node(b));
    if (first.step != second.step) return {};
    const std::int64_t step = first.step[at(axis)], count = shape(a)[axis] + shape(b)[axis];
    if (shape(a)[axis] == 0 || shape(b)[axis] == 0) return {};
    for (int k = 0; k < shape(a).rank(); ++k) {
      const bool fits = k == axis ? first.start[at(k)] + shape(a)[k] * step == second.start[at(k)]
                                  : first.start[at(k)] == second.start[at(k)] && shape(a)[k] == shape(b)[k];
      if (!fits) return {};
    }
    set_axis(&first, axis, first.start[at(axis)], count, step);
    return best(slice(value(input(a)), first));
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
    // A value that is also computed with in its own shape had better be reduced so too: one kernel then does both.
    const auto at = static_cast<std::size_t>(from.node);
    if (is(from, ViewForm::reshaped) && at < is_computed_with_.size() && is_computed_with_[at] != 0) return {};
    if (is(from, ViewForm::reshaped)) return reduction_of_reshape(ref);
    // The inner value is read by this one only: otherwise it has to be made anyway, and is the cheaper thing to read.
    if (rewriter_.uses(from.node) > 1) return {};
    if (node(from).op == node(ref).op) return reduction_of_reduction(ref);
    if (is(from, ViewForm::transposed)) return reduction_of_transpose(ref);
    return {};
  }

  // The reduction first: less is left to transpose, and often nothing.
  Value reduction_of_transpose(Ref ref) {
    const Ref view = input(ref);
    const std::vector<int> permutation = permutation_of(node(view)), gone = reduced_axes(ref);
    Ints axes;
    std::vector<int> kept;  // axes of the source in the order of the result
    for (std::size_t i = 0; i < permutation.size(); ++i) {
      if (std::ranges::binary_search(gone, static_cast<int>(i))) {
        axes.push_back(permutation[i]);
      } else {
        kept.push_back(permutation[i]);
      }
    }
    std::vector<int> order(kept);  // of the reduction's axes
    for (int& axis : order) axis = static_cast<int>(std::ranges::count_if(kept, [&](int k) { return k < axis; }));
    const Value made = best(reduced(ref, value(input(view)), axes, false));
    return reshape(best(order.empty() ? made : transpose(made, order)), shape(ref));
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

  // The reduced axis may have been several axes, or a part of more that are all reduced.
  Value reduction_of_reshape(Ref ref) {
    const Ref view = input(ref), source = input(view);
    const std::vector<int> gone = reduced_axes(ref);
    if (shape(source).elements() == 0) return {};
    Ints axes;
    for (const AxisRun& run : axis_runs(shape(source), shape(view))) {
      const auto reduced =
          std::ranges::count_if(run.to, [&](int axis) { return std::ranges::binary_search(gone, axis); });
      if (reduced != 0 && reduced != std::ssize(run.to)) return {};
      if (reduced != 0) axes.insert(axes.end(), run.from.begin(), run.from.end());
    }
    if (axes.empty()) return reshape(value(source), shape(ref));
    return reduced_to_shape(source, axes, ref);
  }

  Value cast_rule(Ref ref) {
    const Ref from = input(ref);
    if (graph_.type(from).dtype == graph_.type(ref).dtype) return value(from);
    if (is_converted(from) && widens_exactly(graph_.type(input(from)).dtype, graph_.type(from).dtype)) {
      return cast(value(input(from)), graph_.type(ref).dtype);
    }
    return {};
  }

  Graph& graph_;
  Rewriter rewriter_;
  std::map<NodeId, Ints> piece_ends_;   // of concatenations
  std::vector<char> is_computed_with_;  // by an op that gives as many elements
};

}  // namespace

void simplify_views(Graph& graph, PassNotes&) {
  for_each_graph(graph, [](Graph& g) { Simplifier(g).run(); });
}

}  // namespace paoding
