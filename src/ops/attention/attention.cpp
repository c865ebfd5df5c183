// SPDX-License-Identifier: Apache-2.0
// attention and attention_grad: composed of products, a softmax and its gradient where no kernel claims them. The
// gradient makes the weights again from the logarithm of their sums, so no matrix of scores is kept.
#include <array>
#include <limits>

#include "base/check.h"
#include "graph/value_scope.h"
#include "ops/attention/attention_form.h"
#include "ops/composing.h"
#include "ops/composition_gradient.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr double kNone = -std::numeric_limits<double>::infinity();  // the score of a key that is not seen
constexpr std::array<std::int64_t, 1> kOverKeys{-1}, kOverQueries{-2};

Value input_at(std::span<const Value> in, int place) {
  return place < 0 ? Value() : in[static_cast<std::size_t>(place)];
}

// The product with its sums as they are, in f32 or f64.
Value wide_product(const Value& a, const Value& b, bool transpose_a, bool transpose_b) {
  if (compute_dtype(a.dtype()) == a.dtype()) return matmul(a, b, transpose_a, transpose_b);
  return call("matmul_wide", {a, b}, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
}

Value both(const Value& a, const Value& b) { return a.valid() && b.valid() ? logical_and(a, b) : a.valid() ? a : b; }

// The composition of a call, forward or backward.
class Composition {
 public:
  Composition(const char* op, std::span<const Value> in, const Attrs& attrs, bool is_gradient)
      : in_(in), attrs_(attrs), form_(checked_form(op, in, attrs, is_gradient)), graph_(in[0].graph()) {
    scores_shape_ = in[kQ].shape().with_dim(-1 + in[kQ].shape().rank(), form_.keys);
  }
  const AttentionForm& form() const { return form_; }

  // Query heads that share a head of keys, one below the other: [.., H, T, n] as [.., K, H / K T, n].
  Value grouped(const Value& rows) const {
    if (form_.group() == 1) return rows;
    const Shape& shape = rows.shape();
    const int rank = shape.rank();
    return reshape(rows, shape.with_dim(rank - 3, form_.key_heads).with_dim(rank - 2, form_.group() * form_.queries));
  }
  Value ungrouped(const Value& rows) const {
    if (form_.group() == 1) return rows;
    const Shape& shape = rows.shape();
    const int rank = shape.rank();
    return reshape(rows, shape.with_dim(rank - 3, form_.heads).with_dim(rank - 2, form_.queries));
  }

  // Scores in f32 or f64, -inf where a query does not see the key.
  Value scores() const {
    const Value &q = in_[kQ], &k = in_[kK];
    Value s;
    if (form_.dtype == form_.wide) {
      s = ungrouped(matmul(grouped(q * form_.scale), k, false, true));
    } else {
      s = ungrouped(wide_product(grouped(q), k, false, true)) * form_.scale;
    }
    if (form_.slopes >= 0) {
      const Value slopes = cast(per_head(input_at(in_, form_.slopes)), form_.wide);
      s = s - slopes * abs(cast(distance(), form_.wide));
    }
    if (form_.bias >= 0) s = s + cast(input_at(in_, form_.bias), form_.wide);
    Value seen = seen_by_values();
    if (form_.hides_later()) seen = both(seen, greater_equal(distance(), -static_cast<double>(form_.right)));
    if (form_.hides_earlier()) seen = both(seen, less_equal(distance(), static_cast<double>(form_.left)));
    return seen.valid() ? select(seen, s, kNone) : s;
  }

  // Keys, or values, with zeros in rows that no query sees: whatever stands there, 0 times it must be 0.
  Value without_unseen(const Value& rows) const {
    Value seen;
    if (Value by_values = seen_by_values(); by_values.valid()) {
      const int rank = scores_shape_.rank();
      Ints dims(static_cast<std::size_t>(rank - by_values.shape().rank()), 1);
      dims.insert(dims.end(), by_values.shape().begin(), by_values.shape().end());
      by_values = reshape(by_values, dims);
      if (dims[static_cast<std::size_t>(rank - 2)] != 1) by_values = any(by_values, kOverQueries, true);
      if (rank > 2 && form_.group() > 1 && dims[static_cast<std::size_t>(rank - 3)] != 1) {
        Ints groups = to_dims(by_values.shape());
        groups[static_cast<std::size_t>(rank - 3)] = form_.key_heads;
        groups[static_cast<std::size_t>(rank - 2)] = form_.group();
        by_values = any(reshape(by_values, groups), kOverQueries, true);
      }
      seen = swap_axes(by_values, -1, -2);
    }
    // The last query sees the last keys, the first one the first.
    const std::int64_t begin = form_.queries > 0 ? form_.first_key(0) : 0;
    const std::int64_t end = form_.queries > 0 ? form_.end_key(form_.queries - 1) : form_.keys;
    if (begin > 0 || end < form_.keys) {
      const Value place = iota(graph_, Shape{form_.keys, 1}, 0, i64);
      if (begin > 0) seen = both(seen, greater_equal(place, begin));
      if (end < form_.keys) seen = both(seen, less(place, end));
    }
    return seen.valid() ? select(seen, rows, 0.0) : rows;
  }

  // 0 for those that dropout takes, the others larger.
  Value dropped(const Value& weights) const {
    if (form_.random < 0) return weights;
    const Value first = input_at(in_, form_.random), run = input_at(in_, form_.random + 1);
    const Value seed = input_at(in_, form_.random + 2);
    const Value index = reshape(iota(graph_, Shape{scores_shape_.elements()}, 0, i64), scores_shape_) + first;
    return call("dropout", {index, run, seed, weights}, {{"stream", form_.stream}, {"probability", form_.dropout}});
  }

  // -inf of a row that sees nothing, which exp() had better not subtract from another.
  static Value without_infinity(const Value& of_rows) { return select(equal(of_rows, kNone), 0.0, of_rows); }

 private:
  static AttentionForm checked_form(const char* op, std::span<const Value> in, const Attrs& attrs, bool is_gradient) {
    std::vector<Type> types;
    for (const Value& value : in) types.push_back(value.type());
    return attention_form(OpCall{*find_op(op), types, attrs, {}, in[0].graph().scope}, is_gradient);
  }

  static Ints to_dims(const Shape& shape) { return {shape.begin(), shape.end()}; }

  // A value of leading axes as one of scores.
  Value per_head(const Value& of_heads) const {
    Ints dims = to_dims(of_heads.shape());
    dims.insert(dims.end(), 2, 1);
    return reshape(of_heads, dims);
  }

  // How many keys the query's position is behind the key: [T, S].
  Value distance() const {
    const Attrs attrs{
        {"shape", Ints{form_.queries, form_.keys}}, {"strides", Ints{1, -1}}, {"start", form_.offset}, {"dtype", i64}};
    return call(*find_op("iota"), {}, attrs, {}, &graph_).front();
  }

  // Keys that mask and lengths let queries see; invalid where there are none.
  Value seen_by_values() const {
    Value seen = input_at(in_, form_.mask);
    if (form_.lengths < 0) return seen;
    const Value lengths = cast(per_head(input_at(in_, form_.lengths)), i64);
    return both(seen, less(iota(graph_, Shape{form_.keys}, 0, i64), lengths));
  }

  std::span<const Value> in_;
  const Attrs& attrs_;
  AttentionForm form_;
  Graph& graph_;
  Shape scores_shape_;
};

Values compose_attention(std::span<const Value> in, const Attrs& attrs) {
  const Composition c("attention", in, attrs, false);
  const AttentionForm& form = c.form();
  Value weights, logs;
  {
    const ValueScope scope("scores", in);
    const Value s = c.scores();
    Value most = stop_gradient(max(s, kOverKeys, true));
    if (form.may_be_blind()) most = Composition::without_infinity(most);
    const Value e = exp(s - most), total = sum(e, kOverKeys, true);
    if (form.may_be_blind()) {
      const Value is_blind = equal(total, 0.0), divisor = select(is_blind, 1.0, total);
      weights = e / divisor;
      logs = select(is_blind, kNone, most + log(divisor));
    } else {
      weights = e / total;
      logs = most + log(total);
    }
    weights = cast(c.dropped(weights), form.dtype);
    logs = reshape(logs, logs.shape().with_removed(logs.shape().rank() - 1));
  }
  const ValueScope scope("values", in);
  return {c.ungrouped(matmul(c.grouped(weights), c.without_unseen(in[kV]))), logs};
}

// The gradient of a value of this shape that was broadcast.
Value summed_to(const Value& value, const Shape& shape) {
  const int extra = value.shape().rank() - shape.rank();
  Ints axes;
  for (int axis = 0; axis < value.shape().rank(); ++axis) {
    if (axis < extra || (shape[axis - extra] == 1 && value.shape()[axis] != 1)) axes.push_back(axis);
  }
  return axes.empty() ? value : reshape(sum(value, axes, true), shape);
}

// The weights p of a row are made again from log-sum-exp. With d = dresult values^T, dvalues = p^T dresult, and the
// scores' gradient is p (d - sum(p d)), where sum(p d) = sum(dresult result).
Values compose_attention_grad(std::span<const Value> in, const Attrs& attrs) {
  const Composition c("attention_grad", in, attrs, true);
  const AttentionForm& form = c.form();
  const Value &result = in[kResult], &dresult = in[kDResult];
  const auto column = [&](const Value& of_rows) {
    return reshape(cast(of_rows, form.wide), of_rows.shape().with_inserted(of_rows.shape().rank(), 1));
  };
  const ValueScope scope("scores", in);
  const Value logs = column(in[kLse]);
  const Value p = exp(c.scores() - (form.may_be_blind() ? Composition::without_infinity(logs) : logs));
  Value shared = sum(cast(dresult, form.wide) * cast(result, form.wide), kOverKeys, true);
  if (form.dlse >= 0) shared = shared - column(input_at(in, form.dlse));
  const Value dp = c.dropped(c.ungrouped(wide_product(c.grouped(dresult), c.without_unseen(in[kV]), false, true)));
  const Value ds = p * (dp - shared);
  const Value narrow_ds = c.grouped(cast(ds, form.dtype)), k = c.without_unseen(in[kK]);
  const Value dq = c.ungrouped(wide_product(narrow_ds, k, false, false)) * form.scale;
  const Value dk = wide_product(narrow_ds, c.grouped(in[kQ]), true, false) * form.scale;
  const Value dv = wide_product(c.grouped(cast(c.dropped(p), form.dtype)), c.grouped(dresult), true, false);
  Values made{cast(dq, form.dtype), cast(dk, form.dtype), cast(dv, form.dtype)};
  if (form.bias >= 0) {
    const Value bias = input_at(in, form.bias);
    made.push_back(cast(summed_to(ds, bias.shape()), bias.dtype()));
  }
  return made;
}

Values attention_gradient(const GradCall& call) {
  const Attrs& attrs = call.node.attrs;
  std::size_t place = kV + 1;
  const auto take = [&](const char* name) { return attrs.get_bool(name) ? static_cast<int>(place++) : -1; };
  const int bias = take("bias");
  take("mask"), take("lengths");
  const int slopes = take("slopes");
  if (slopes >= 0 && call.wanted[static_cast<std::size_t>(slopes)]) return composition_gradient(call);
  const Value &result = call.outputs[0], &logs = call.outputs[1];
  const Value dresult =
      call.grads[0].valid() ? expand(call.grads[0], result.shape()) : expand(scalar_like(result, 0), result.shape());
  Values given{call.inputs[kQ], call.inputs[kK], call.inputs[kV], result, dresult, logs};
  Attrs of_gradient = attrs;
  of_gradient.set("dlse", call.grads[1].valid());
  if (call.grads[1].valid()) given.push_back(expand(call.grads[1], logs.shape()));
  given.insert(given.end(), call.inputs.begin() + kV + 1, call.inputs.end());
  const Values made = paoding::call(*find_op("attention_grad"), given, of_gradient);
  Values gradients(call.inputs.size());
  for (const std::size_t i : {kQ, kK, kV}) gradients[i] = made[i];
  if (bias >= 0) gradients[static_cast<std::size_t>(bias)] = made[3];
  return gradients;
}

// Two products of every pair of a query and a key that it sees, five for a gradient.
OpCost cost_of(const CostCall& call, bool is_gradient) {
  const Shape &q = call.inputs[kQ].shape, &k = call.inputs[kK].shape, &v = call.inputs[kV].shape;
  const int rank = q.rank();
  const std::int64_t T = q[rank - 2], S = k[rank - 2], E = q[rank - 1], F = v[rank - 1];
  const std::int64_t heads = q.with_dim(rank - 1, 1).with_dim(rank - 2, 1).elements();
  const std::int64_t left = call.attrs.get_int("left"), right = call.attrs.get_int("right");
  const std::int64_t offset = call.attrs.get_bool("bottom_right") ? S - T : 0;
  double pairs = 0;
  for (std::int64_t t = 0; t < T; ++t) {
    const std::int64_t first = left < 0 ? 0 : std::clamp<std::int64_t>(t + offset - left, 0, S);
    const std::int64_t end = right < 0 ? S : std::clamp<std::int64_t>(t + offset + right + 1, 0, S);
    pairs += static_cast<double>(std::max<std::int64_t>(end - first, 0));
  }
  const auto multiplied = static_cast<double>(is_gradient ? 3 * E + 2 * F : E + F);
  return {.flops = 2 * pairs * static_cast<double>(heads) * multiplied, .is_product = true, .bounds_time = true};
}

}  // namespace

void register_attention() {
  const std::vector<AttrSpec> attrs{
      {.name = "scale", .example = 1.0, .required = true, .doc = "of the products of queries and keys"},
      {.name = "left", .example = std::int64_t{-1}, .doc = "so many keys before its position a query sees; -1: all"},
      {.name = "right", .example = std::int64_t{-1}, .doc = "so many keys behind it; 0 is causal, -1: all"},
      {.name = "bottom_right",
       .example = false,
       .doc = "the last query stands at the last key's position, instead of the first at the first's"},
      {.name = "bias", .example = false, .doc = "whether a float is added to scores, which it broadcasts to"},
      {.name = "mask", .example = false, .doc = "whether there is a bool, false where a key is not seen"},
      {.name = "lengths", .example = false, .doc = "whether keys at and beyond a length, an integer, are not seen"},
      {.name = "slopes", .example = false, .doc = "whether scores lose so much a key of distance (ALiBi)"},
      {.name = "dropout", .example = 0.0, .doc = "of weights; the inputs first, run and seed are there when not 0"},
      {.name = "stream", .example = std::int64_t{0}, .doc = "of the random numbers"},
  };
  const auto with = [](Attrs more) {
    Attrs made{{"scale", 0.5}};
    for (const auto& [name, value] : more.entries()) made.set(name, value);
    return made;
  };
  const Attrs plain = with({}), causal = with({{"right", std::int64_t{0}}});
  const Attrs last = with({{"right", std::int64_t{0}}, {"bottom_right", true}});
  const Attrs window = with({{"left", std::int64_t{2}}, {"right", std::int64_t{1}}, {"bias", true}});
  const Attrs masked = with({{"mask", true}, {"bias", true}}), counted = with({{"lengths", true}, {"slopes", true}});
  const Attrs thinned = with({{"dropout", 0.25}, {"stream", std::int64_t{3}}, {"right", std::int64_t{0}}});

  // ---- attention ----
  register_op({
      .name = "attention",
      .summary = "softmax(scale q k^T + bias) v over keys that are seen, and the logarithms of the softmax's sums",
      .kind = OpKind::composed,
      .inputs = {"q", "k", "v", "bias", "mask", "lengths", "slopes", "first", "run", "seed"},
      .optional_inputs = 7,
      .attrs = attrs,
      .cost = [](const CostCall& call) { return cost_of(call, false); },
      .narrow_inputs = kV + 1,
      .gradient = attention_gradient,
      .compose = compose_attention,
      .cases = {{.shapes = {{2, 3, 4}, {2, 5, 4}, {2, 5, 3}}, .attrs = plain},
                {.shapes = {{4, 3}, {4, 3}, {4, 5}}, .attrs = causal},
                {.shapes = {{2, 4, 3, 2}, {2, 2, 6, 2}, {2, 2, 6, 5}}, .attrs = last},
                {.shapes = {{2, 2, 5, 4}, {2, 1, 6, 4}, {2, 1, 6, 4}, {2, 1, 6}}, .attrs = window},
                {.shapes = {{2, 2, 3, 4}, {2, 2, 9, 4}, {2, 2, 9, 4}, {2, 1, 1, 9}, {3, 9}},
                 .attrs = masked,
                 .dtypes = {f32, f32, f32, f32, boolean}},
                {.shapes = {{2, 2, 3, 4}, {2, 2, 5, 4}, {2, 2, 5, 4}, {2, 1}, {2}},
                 .attrs = counted,
                 .dtypes = {f32, f32, f32, i32, f32}},
                {.shapes = {{2, 4, 4}, {2, 4, 4}, {2, 4, 4}, {}, {}, {}},
                 .attrs = thinned,
                 .dtypes = {f32, f32, f32, i64, i64, i64}},
                {.shapes = {{0, 3, 4}, {0, 5, 4}, {0, 5, 4}}, .attrs = plain},
                {.shapes = {{2, 0, 4}, {2, 5, 4}, {2, 5, 4}}, .attrs = causal},
                {.shapes = {{2, 4}, {3, 4}, {3, 4}}, .attrs = plain, .dtypes = {f32, f32, i32}, .error = "v i32"},
                {.shapes = {{3, 2, 4}, {2, 2, 4}, {2, 2, 4}}, .attrs = plain, .error = "K divides H"},
                {.shapes = {{2, 4}, {3, 4}, {3, 4}, {2, 2}},
                 .attrs = with({{"bias", true}}),
                 .error = "bias is f32[2,2], needed is a float that broadcasts to [2, 3]"},
                {.shapes = {{2, 4}, {3, 4}, {3, 4}}, .attrs = masked, .error = "bias is missing"},
                {.shapes = {{2, 4}, {3, 4}, {3, 4}, {3}}, .attrs = plain, .error = "there are 4 inputs"},
                {.shapes = {{2, 4}, {3, 4}, {3, 4}}, .attrs = with({{"left", std::int64_t{-2}}}), .error = "left = -2"},
                {.shapes = {{2, 4}, {3, 4}, {3, 4}}, .attrs = with({{"dropout", 1.0}}), .error = "probability = 1"}},
  });

  // ---- attention_grad ----
  std::vector<AttrSpec> of_gradient = attrs;
  of_gradient.push_back({.name = "dlse", .example = false, .doc = "whether there is a gradient of lse"});
  register_op({
      .name = "attention_grad",
      .summary = "gradients of attention for q, k, v and the bias where there is one",
      .kind = OpKind::composed,
      .inputs = {"q", "k", "v", "result", "dresult", "lse", "dlse", "bias", "mask", "lengths", "slopes", "first", "run",
                 "seed"},
      .optional_inputs = 8,
      .attrs = of_gradient,
      .cost = [](const CostCall& call) { return cost_of(call, true); },
      .narrow_inputs = kDResult + 1,
      .gradient = composition_gradient,
      .compose = compose_attention_grad,
      .cases = {{.shapes = {{2, 3, 4}, {2, 5, 4}, {2, 5, 3}, {2, 3, 3}, {2, 3, 3}, {2, 3}}, .attrs = plain},
                {.shapes = {{2, 4, 3, 2}, {2, 2, 6, 2}, {2, 2, 6, 5}, {2, 4, 3, 5}, {2, 4, 3, 5}, {2, 4, 3}, {2, 4, 3}},
                 .attrs = with({{"right", std::int64_t{0}}, {"bottom_right", true}, {"dlse", true}})},
                {.shapes = {{4, 3}, {4, 3}, {4, 2}, {4, 2}, {4, 2}, {4}, {1, 4}}, .attrs = window},
                {.shapes = {{3, 4}, {3, 4}, {3, 4}, {3, 4}, {3, 4}, {2}}, .attrs = plain, .error = "lse is f32[2]"}},
  });
}

}  // namespace paoding
