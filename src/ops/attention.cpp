// SPDX-License-Identifier: Apache-2.0
// Attention, of products and softmax.
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/one_line.h"
#include "graph/value_scope.h"
#include "ops/composing.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "paoding/range.h"

namespace paoding {
namespace {

Value both(const Value& a, const Value& b) { return a.valid() ? call("logical_and", {a, b}) : b; }

// The weights of scores over the last axis: 0 where `counts` is false, also in rows where it is nowhere true.
Value weights_of(const Value& scores, const Value& counts) {
  if (!counts.valid()) return softmax(scores);
  const double lowest = scores.dtype() == f16 ? -6e4 : -1e30;  // finite: a row of infinities has no softmax
  const Value weights = softmax(select(counts, scores, scalar_like(scores, lowest)));
  return select(counts, weights, scalar_like(weights, 0));
}

// The weights that scaled_dot_product_attention() gives the values.
Value attention_weights(const Value& queries, const Value& keys, const Value& values, const AttentionOptions& options) {
  const char* op = "scaled_dot_product_attention";
  const Shape &q = queries.shape(), &k = keys.shape(), &v = values.shape();
  if (q.rank() < 2 || k.rank() < 2 || v.rank() < 2 || q[q.rank() - 1] != k[k.rank() - 1] ||
      k[k.rank() - 2] != v[v.rank() - 2]) {
    fail_in_scope(
        op, queries, ErrorKind::shape,
        fmt::format("queries have shape {}, keys {}, values {}; needed are [.., T, E], [.., S, E], [.., S, F]",
                    to_string(q), to_string(k), to_string(v)));
  }
  check_range(op, "scale", options.scale, {});
  const ValueScope scope("scores", std::array{queries, keys, values});
  const double scale = options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(q[q.rank() - 1]));
  const Value scores = matmul(queries * scale, keys, false, true);
  const int rank = scores.shape().rank();
  const std::int64_t T = scores.shape()[rank - 2], S = scores.shape()[rank - 1];
  Value counts = options.mask;
  if (counts.valid()) {
    Shape joint;
    if (counts.dtype() != boolean || !broadcast(counts.shape(), scores.shape(), &joint) || !(joint == scores.shape())) {
      fail_in_scope(op, queries, ErrorKind::shape,
                    fmt::format("mask is {}, needed is a bool that broadcasts to {}", to_string(counts.type()),
                                to_string(scores.shape())));
    }
  }
  if (options.causal) counts = both(counts, causal_mask(scores.graph(), T, S));
  if (options.lengths.valid()) {
    if (rank < 3 || !is_integer(options.lengths.dtype()) || !(options.lengths.shape() == Shape{k[0]})) {
      fail_in_scope(op, queries, ErrorKind::shape,
                    fmt::format("lengths are {}, needed are integers [B], B the first of at least 3 axes of keys {}",
                                to_string(options.lengths.type()), to_string(k)));
    }
    std::vector<std::int64_t> aligned(static_cast<std::size_t>(rank), 1);
    aligned.front() = k[0];
    aligned.back() = S;
    counts = both(counts, reshape(sequence_mask(options.lengths, S), aligned));
  }
  return dropout(weights_of(scores, counts), options.dropout);
}

}  // namespace

Value scaled_dot_product_attention(const Value& queries, const Value& keys, const Value& values,
                                   const AttentionOptions& options) {
  const Value weights = attention_weights(queries, keys, values, options);
  const ValueScope scope("values", std::array{queries, keys, values});
  return matmul(weights, values);
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
