// SPDX-License-Identifier: Apache-2.0
// Functions of attention: that of the op, and a step of multiplicative attention, of products and softmax.
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/one_line.h"
#include "graph/value_scope.h"
#include "ops/composing.h"
#include "ops/random_key.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "paoding/range.h"

namespace paoding {
namespace {

// The weights of scores over the last axis: 0 where `counts` is false, also in rows where it is nowhere true.
Value weights_of(const Value& scores, const Value& counts) {
  if (!counts.valid()) return softmax(scores);
  const double lowest = scores.dtype() == f16 ? -6e4 : -1e30;  // finite: a row of infinities has no softmax
  const Value weights = softmax(select(counts, scores, scalar_like(scores, lowest)));
  return select(counts, weights, scalar_like(weights, 0));
}

// A value with as many axes as scores have, or with the leading ones `lead` in front of its own last two.
Value with_rank(const Value& value, int rank) {
  std::vector<std::int64_t> dims(static_cast<std::size_t>(rank - value.shape().rank()), 1);
  dims.insert(dims.end(), value.shape().begin(), value.shape().end());
  return dims.size() == static_cast<std::size_t>(value.shape().rank()) ? value : reshape(value, dims);
}

Value with_lead(const Value& value, const Shape& lead, std::int64_t heads) {
  const int rank = lead.rank() + 2;
  const Value aligned = with_rank(value, rank);
  Shape shape = aligned.shape();
  for (int axis = 0; axis < lead.rank(); ++axis) shape = shape.with_dim(axis, axis == rank - 3 ? heads : lead[axis]);
  return shape == aligned.shape() ? aligned : expand(aligned, shape);
}

// Queries, keys and values as the op wants them: of one dtype and one rank, with the same leading axes but for the
// heads of keys, which divide those of queries.
struct Aligned {
  Value q, k, v;
};

Aligned aligned(const char* op, const Value& queries, const Value& keys, const Value& values) {
  const Shape &q = queries.shape(), &k = keys.shape(), &v = values.shape();
  const DType dtype = promote(promote(queries.dtype(), keys.dtype()), values.dtype());
  const auto wrong = [&] {
    fail_in_scope(
        op, queries, ErrorKind::shape,
        fmt::format("queries have shape {}, keys {}, values {}; needed are [.., T, E], [.., S, E], [.., S, F]",
                    to_string(q), to_string(k), to_string(v)));
  };
  if (q.rank() < 2 || k.rank() < 2 || v.rank() < 2 || q[q.rank() - 1] != k[k.rank() - 1] ||
      k[k.rank() - 2] != v[v.rank() - 2]) {
    wrong();
  }
  const auto lead_of = [](const Shape& shape) {
    return shape.with_removed(shape.rank() - 1).with_removed(shape.rank() - 2);
  };
  Shape of_keys, lead;
  if (!broadcast(lead_of(k), lead_of(v), &of_keys)) wrong();
  Shape of_queries = lead_of(q);
  std::int64_t key_heads = 1;
  if (of_keys.rank() > 0) {
    const int last = of_keys.rank() - 1;
    key_heads = of_keys[last];
    // A head of keys may serve several of queries; other axes meet as they broadcast.
    const std::int64_t heads = of_queries.rank() > 0 ? of_queries[of_queries.rank() - 1] : 1;
    if (key_heads > 0 && heads % key_heads == 0) of_keys = of_keys.with_dim(last, 1);
  }
  if (!broadcast(of_queries, of_keys, &lead)) wrong();
  const std::int64_t heads = lead.rank() > 0 ? lead[lead.rank() - 1] : 1;
  if (key_heads == 0 || heads % key_heads != 0) key_heads = heads;
  return {with_lead(cast(queries, dtype), lead, heads), with_lead(cast(keys, dtype), lead, key_heads),
          with_lead(cast(values, dtype), lead, key_heads)};
}

}  // namespace

Value scaled_dot_product_attention(const Value& queries, const Value& keys, const Value& values,
                                   const AttentionOptions& options) {
  const char* op = "scaled_dot_product_attention";
  check_range(op, "scale", options.scale, {});
  check_range(op, "dropout: probability", options.dropout, Range::from_up_to(0, 1));
  check_range(op, "left", static_cast<double>(options.left), Range::at_least(-1));
  check_range(op, "right", static_cast<double>(options.right), Range::at_least(-1));
  const auto [q, k, v] = aligned(op, queries, keys, values);
  const int rank = q.shape().rank();
  const std::int64_t S = k.shape()[rank - 2], E = q.shape()[rank - 1];
  const Shape scores = q.shape().with_dim(rank - 1, S);
  Values inputs{q, k, v};
  Attrs attrs{{"scale", options.scale != 0 ? options.scale
                        : E > 0            ? 1 / std::sqrt(static_cast<double>(E))
                                           : 1.0},
              {"left", options.left},
              {"right", options.causal ? std::int64_t{0} : options.right},
              {"bottom_right", options.bottom_right}};
  const auto add = [&](const char* name, const Value& value) { attrs.set(name, true), inputs.push_back(value); };
  if (options.bias.valid()) add("bias", options.bias);
  if (options.mask.valid()) {
    Shape joint;
    const Value& mask = options.mask;
    if (mask.dtype() != boolean || !broadcast(mask.shape(), scores, &joint) || !(joint == scores)) {
      fail_in_scope(
          op, queries, ErrorKind::shape,
          fmt::format("mask is {}, needed is a bool that broadcasts to {}", to_string(mask.type()), to_string(scores)));
    }
    add("mask", mask);
  }
  if (options.lengths.valid()) {
    const Value& lengths = options.lengths;
    if (rank < 3 || !is_integer(lengths.dtype()) || !(lengths.shape() == Shape{q.shape()[0]})) {
      fail_in_scope(op, queries, ErrorKind::shape,
                    fmt::format("lengths are {}, needed are integers [B], B the first of at least 3 axes of keys {}",
                                to_string(lengths.type()), to_string(keys.shape())));
    }
    std::vector<std::int64_t> dims(static_cast<std::size_t>(rank - 2), 1);
    dims.front() = q.shape()[0];
    const bool is_plain = lengths.dtype() == i32 || lengths.dtype() == i64;
    add("lengths", reshape(is_plain ? lengths : cast(lengths, i64), dims));
  }
  if (options.slopes.valid()) add("slopes", options.slopes);
  if (options.dropout != 0) {
    const RandomKey key = random_key_of_first(q.graph(), scores.elements());
    attrs.set("dropout", options.dropout), attrs.set("stream", key.stream);
    inputs.insert(inputs.end(), {key.index, key.run, key.seed});
  }
  return call(*find_op("attention"), inputs, attrs)[0];
}

std::pair<Value, Value> multiplicative_attention(const Value& query, const Value& memory, const Value& counts,
                                                 const Value& keys) {
  const char* op = "multiplicative_attention";
  const Shape &q = query.shape(), &m = memory.shape();
  const Value& scored = keys.valid() ? keys : memory;
  if (q.rank() != 2 || m.rank() != 3 || q[0] != m[0] || !(scored.shape() == Shape{m[0], m[1], q[1]})) {
    fail_in_scope(op, query, ErrorKind::shape,
                  fmt::format("query has shape {}, memory {}, keys {}; needed are [B, E], [B, S, F], [B, S, E]",
                              to_string(q), to_string(m), to_string(scored.shape())));
  }
  if (counts.valid() && !(counts.type() == Type{boolean, Shape{m[0], m[1]}})) {
    fail_in_scope(op, query, ErrorKind::shape,
                  fmt::format("counts is {}, needed is bool[{},{}]", to_string(counts.type()), m[0], m[1]));
  }
  const std::array given{query, memory, scored};
  const Value weights = [&] {
    const ValueScope scope("scores", given);
    const Value column = reshape(query, Shape{q[0], q[1], 1});
    return weights_of(reshape(matmul(scored, column), Shape{m[0], m[1]}), counts);
  }();
  const ValueScope scope("values", given);
  const Value row = reshape(weights, Shape{m[0], 1, m[1]});
  return {reshape(matmul(row, memory), Shape{m[0], m[2]}), weights};
}

}  // namespace paoding
