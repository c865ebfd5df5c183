// SPDX-License-Identifier: Apache-2.0
// Attention of several heads: as few products as the values given allow.
#include <cmath>

#include "base/check.h"
#include "base/one_line.h"
#include "graph/value_scope.h"
#include "nn/layer_check.h"
#include "paoding/nn.h"

namespace paoding::nn {
namespace {

std::string place(const Graph& graph) { return in_scope(graph.scope.str()); }

Initializer within_root(std::int64_t width) {
  const double bound = 1 / std::sqrt(static_cast<double>(width));
  return uniform(-bound, bound);
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(Graph& graph, std::string_view name, std::int64_t width, std::int64_t heads,
                                       const MultiHeadAttentionOptions& options)
    : name_(name), width_(width), heads_(heads), dropout_(options.training ? options.dropout : 0) {
  const LayerCheck check("multi-head attention", name);
  check.widths({{"width", width}, {"heads", heads}});
  check.number("key_width", static_cast<double>(options.key_width), Range::at_least(0));
  check.number("value_width", static_cast<double>(options.value_width), Range::at_least(0));
  check.number("dropout", options.dropout, Range::from_up_to(0, 1));
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
  output_weight = parameter("out/weight", {width, width}, within_root(width));
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

Value MultiHeadAttention::operator()(const Value& queries, const Value& keys, const Value& values,
                                     const AttentionOptions& given) const {
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
  // Of [B, T, n width], part i as [B, heads, T, width / heads].
  constexpr std::array<std::int64_t, 4> kExchanged{0, 2, 1, 3};
  const auto heads_of = [&](const Value& all, std::int64_t i) {
    const Shape& shape = all.shape();
    const Value mine = slice(all, 2, i * width_, (i + 1) * width_);
    return transpose(reshape(mine, Shape{shape[0], shape[1], heads_, width_ / heads_}), kExchanged);
  };
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
  AttentionOptions options = given;
  options.dropout = dropout_;
  if (options.mask.valid() && options.mask.shape().rank() == 3) {
    options.mask = reshape(options.mask, options.mask.shape().with_inserted(1, 1));
  }
  const Value seen = scaled_dot_product_attention(query, key, value, options);
  const ValueScope out("out", seen);
  const Value joined = reshape(transpose(seen, kExchanged), Shape{q[0] * q[1], width_});
  Value y = matmul(joined, output_weight);
  if (output_bias.valid()) y = y + output_bias;
  return reshape(y, q);
}

}  // namespace paoding::nn
