// SPDX-License-Identifier: Apache-2.0
// Attention of several heads: as few products as the values given allow.
#include <cmath>

#include "base/check.h"
#include "base/one_line.h"
#include "graph/value_scope.h"
#include "nn/layer_check.h"
#include "nn/within_root.h"
#include "paoding/nn.h"
#include "paoding/ops/dynamic.h"
#include "paoding/ops/position.h"

namespace paoding::nn {
namespace {

std::string place(const Graph& graph) { return in_scope(graph.scope.str()); }

constexpr std::array<std::int64_t, 4> kExchanged{0, 2, 1, 3};  // [B, T, heads, E] and [B, heads, T, E]

}  // namespace

MultiHeadAttention::MultiHeadAttention(Graph& graph, std::string_view name, std::int64_t width, std::int64_t heads,
                                       const MultiHeadAttentionOptions& options)
    : name_(name),
      width_(width),
      heads_(heads),
      dropout_(options.training ? options.dropout : 0),
      rotary_base_(options.rotary_base) {
  const LayerCheck check("multi-head attention", name);
  check.widths({{"width", width}, {"heads", heads}});
  check.number("key_width", static_cast<double>(options.key_width), Range::at_least(0));
  check.number("value_width", static_cast<double>(options.value_width), Range::at_least(0));
  check.number("dropout", options.dropout, Range::from_up_to(0, 1));
  check.number("rotary_base", options.rotary_base, Range::at_least(0));
  check.is_float(options.dtype);
  if (width % heads != 0) {
    fail(ErrorKind::argument, "multi-head attention '{}': width {} does not divide into {} heads", one_line(name),
         width, heads);
  }
  const std::int64_t key_width = options.key_width == 0 ? width : options.key_width;
  const std::int64_t value_width = options.value_width == 0 ? width : options.value_width;
  const Initializer initial = options.initial ? options.initial : xavier_uniform();
  const auto parameter = [&](const char* what, const Shape& shape, const Initializer& start) {
    return graph.parameter(fmt::format("{}/{}", name, what), options.dtype, shape, start);
  };
  if (key_width == width && value_width == width) {
    weight = parameter("in/weight", {width, 3 * width}, initial);
  } else {
    query_weight = parameter("query/weight", {width, width}, initial);
    key_weight = parameter("key/weight", {key_width, width}, initial);
    value_weight = parameter("value/weight", {value_width, width}, initial);
  }
  output_weight =
      parameter("out/weight", {width, width}, options.output_initial ? options.output_initial : within_root(width));
  if (!options.bias) return;
  bias = parameter("in/bias", {3 * width}, {});
  output_bias = parameter("out/bias", {width}, {});
}

// `count` of the three projections from `first` on, of x [B, T, W], beside each other: [B, T, count width]. The scopes
// are those of the parameters.
Value MultiHeadAttention::projected(const Value& x, std::int64_t first, std::int64_t count) const {
  const char* names[] = {"query", "key", "value"};
  const ValueScope scope(weight.valid() ? "in" : names[first], x);
  const auto part = [&](const Value& whole, int axis) {
    return count == 3 ? whole : slice(whole, axis, first * width_, (first + count) * width_);
  };
  const Shape& shape = x.shape();
  const Value separate = first == 0 ? query_weight : first == 1 ? key_weight : value_weight;
  Value y = matmul(reshape(x, Shape{shape[0] * shape[1], shape[2]}), weight.valid() ? part(weight, 1) : separate);
  if (bias.valid()) y = y + part(bias, 0);
  return reshape(y, Shape{shape[0], shape[1], count * width_});
}

// Part i of [B, T, n width] as [B, heads, T, width / heads].
Value MultiHeadAttention::heads_of(const Value& all, std::int64_t part) const {
  const Shape& shape = all.shape();
  const Value mine = slice(all, 2, part * width_, (part + 1) * width_);
  return transpose(reshape(mine, Shape{shape[0], shape[1], heads_, width_ / heads_}), kExchanged);
}

// Applies rotary positions: [B, heads, T, E] whose first elements stand at `position`, at 0 when that is absent.
Value MultiHeadAttention::turned(const Value& heads, const Value& position) const {
  if (rotary_base_ == 0) return heads;
  Value positions = iota(heads.graph(), Shape{heads.shape()[2]}, 0, i64);
  if (position.valid() && position.shape().rank() == 0) positions = positions + position;
  if (position.valid() && position.shape().rank() == 1) {
    positions = positions + reshape(position, Shape{position.shape()[0], 1, 1});
  }
  return rotary_embedding(heads, positions, rotary_base_);
}

Value MultiHeadAttention::joined(const Value& query, const KeysAndValues& memory, const AttentionOptions& given) const {
  AttentionOptions options = given;
  options.dropout = dropout_;
  for (Value* each : {&options.mask, &options.bias}) {  // [B, T, S], of all heads
    if (each->valid() && each->shape().rank() == 3) *each = reshape(*each, each->shape().with_inserted(1, 1));
  }
  const Value seen = scaled_dot_product_attention(query, memory.keys, memory.values, options);
  const ValueScope out("out", seen);
  const std::int64_t batch = query.shape()[0], steps = query.shape()[2];
  Value y = matmul(reshape(transpose(seen, kExchanged), Shape{batch * steps, width_}), output_weight);
  if (output_bias.valid()) y = y + output_bias;
  return reshape(y, Shape{batch, steps, width_});
}

Value MultiHeadAttention::operator()(const Value& queries, const Value& keys, const Value& values,
                                     const AttentionOptions& options) const {
  const ValueScope scope(name_, std::array{queries, keys, values});
  const Shape &q = queries.shape(), &k = keys.shape(), &v = values.shape();
  const std::int64_t key_width = weight.valid() ? width_ : key_weight.shape()[0];
  const std::int64_t value_width = weight.valid() ? width_ : value_weight.shape()[0];
  if (q.rank() != 3 || k.rank() != 3 || v.rank() != 3 || q[0] != k[0] || k[0] != v[0] || k[1] != v[1] ||
      q[2] != width_ || k[2] != key_width || v[2] != value_width) {
    fail(ErrorKind::shape,
         "multi-head attention: queries have shape {}, keys {}, values {}; needed are [B, T, {}], [B, S, {}], [B, S, "
         "{}]{}",
         to_string(q), to_string(k), to_string(v), width_, key_width, value_width, place(queries.graph()));
  }
  Value query, key, value;
  if (weight.valid() && keys == values) {
    const bool is_self = queries == keys;
    const Value all = is_self ? projected(queries, 0, 3) : projected(keys, 1, 2);
    query = heads_of(is_self ? all : projected(queries, 0, 1), 0);
    key = heads_of(all, is_self ? 1 : 0);
    value = heads_of(all, is_self ? 2 : 1);
  } else {
    query = heads_of(projected(queries, 0, 1), 0);
    key = heads_of(projected(keys, 1, 1), 0);
    value = heads_of(projected(values, 2, 1), 0);
  }
  return joined(turned(query, {}), {turned(key, {}), value}, options);
}

KeysAndValues MultiHeadAttention::project(const Value& keys, const Value& values) const {
  const ValueScope scope(name_, std::array{keys, values});
  const Shape &k = keys.shape(), &v = values.shape();
  const std::int64_t key_width = weight.valid() ? width_ : key_weight.shape()[0];
  const std::int64_t value_width = weight.valid() ? width_ : value_weight.shape()[0];
  if (k.rank() != 3 || v.rank() != 3 || k[0] != v[0] || k[1] != v[1] || k[2] != key_width || v[2] != value_width) {
    fail(ErrorKind::shape, "multi-head attention: keys have shape {}, values {}; needed are [B, S, {}], [B, S, {}]{}",
         to_string(k), to_string(v), key_width, value_width, place(keys.graph()));
  }
  if (weight.valid() && keys == values) {
    const Value both = projected(keys, 1, 2);
    return {turned(heads_of(both, 0), {}), heads_of(both, 1)};
  }
  return {turned(heads_of(projected(keys, 1, 1), 0), {}), heads_of(projected(values, 2, 1), 0)};
}

Value MultiHeadAttention::attend(const Value& queries, const KeysAndValues& memory, const AttentionOptions& options,
                                 const Value& position) const {
  const ValueScope scope(name_, std::array{queries, memory.keys, memory.values});
  const Shape &q = queries.shape(), &k = memory.keys.shape();
  if (q.rank() != 3 || q[2] != width_ || k.rank() != 4 || !(k == memory.values.shape()) || k[0] != q[0] ||
      k[1] != heads_ || k[3] != width_ / heads_) {
    fail(ErrorKind::shape,
         "multi-head attention: queries have shape {}, keys {}, values {}; needed are [B, T, {}] and twice [B, {}, S, "
         "{}]{}",
         to_string(q), to_string(k), to_string(memory.values.shape()), width_, heads_, width_ / heads_,
         place(queries.graph()));
  }
  return joined(turned(heads_of(projected(queries, 0, 1), 0), position), memory, options);
}

KeysAndValues MultiHeadAttention::empty_cache(Graph& graph, std::int64_t batch, std::int64_t length) const {
  const Shape shape{batch, heads_, length, width_ / heads_};
  return {zeros(graph, shape, output_weight.dtype()), zeros(graph, shape, output_weight.dtype())};
}

MultiHeadAttention::Step MultiHeadAttention::step(const Value& x, const KeysAndValues& cache,
                                                  const Value& position) const {
  const ValueScope scope(name_, std::array{x, cache.keys, cache.values});
  const Shape &in = x.shape(), &kept = cache.keys.shape();
  const auto wrong = [&](const std::string& what) {
    fail(ErrorKind::shape, "multi-head attention: {}{}", what, place(x.graph()));
  };
  if (!weight.valid()) wrong("a step needs keys and values as wide as queries");
  if (in.rank() != 3 || in[2] != width_ || kept.rank() != 4 || !(kept == cache.values.shape()) || kept[0] != in[0] ||
      kept[1] != heads_ || kept[3] != width_ / heads_ || kept[2] < in[1]) {
    wrong(fmt::format("x has shape {}, the cache {} and {}; needed are [B, T, {}] and twice [B, {}, at least T, {}]",
                      to_string(in), to_string(kept), to_string(cache.values.shape()), width_, heads_,
                      width_ / heads_));
  }
  const bool is_shared = position.shape().rank() == 0;
  if (position.dtype() != i64 || (!is_shared && !(position.shape() == Shape{in[0]} && in[1] == 1))) {
    wrong(fmt::format("position is {}, needed is i64[], or i64[{}] of single steps; there are {}",
                      to_string(position.type()), in[0], in[1]));
  }
  const Value all = projected(x, 0, 3);
  const Value slots = iota(x.graph(), Shape{kept[2]}, 0, i64);
  // One position for each row, [B, 1, 1, 1].
  const Value rows = is_shared ? position : reshape(position, Shape{in[0], 1, 1, 1});
  const auto written = [&](const Value& old, const Value& now) {
    if (is_shared) return dynamic_update_slice(old, now, 2, position);
    return select(equal(reshape(slots, Shape{kept[2], 1}), rows), now, old);
  };
  const KeysAndValues next{written(cache.keys, turned(heads_of(all, 1), position)),
                           written(cache.values, heads_of(all, 2))};
  // [T, S], or [B, 1, 1, S].
  const Value own = iota(x.graph(), Shape{in[1], 1}, 0, i64) + rows;
  const AttentionOptions options{.mask = less_equal(slots, own)};
  return {joined(turned(heads_of(all, 0), position), next, options), next};
}

}  // namespace paoding::nn
