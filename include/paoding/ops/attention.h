// SPDX-License-Identifier: Apache-2.0
// Attention. Its products stand in two scopes, "scores" and "values".
#pragma once

#include <utility>

#include "paoding/graph.h"

namespace paoding {

struct AttentionOptions {
  Value mask = {};      // a bool that broadcasts to [.., T, S]: false where a query must not see a key
  Value lengths = {};   // [B] integers: keys at and beyond a row's length are not seen; B is the first axis of keys
  bool causal = false;  // query t sees keys up to t
  double scale = 0;     // of the scores; 1 / sqrt(E) when 0
  double dropout = 0;   // of the weights
};

/// softmax(scale queries keys^T) values over the keys: queries [.., T, E], keys [.., S, E], values [.., S, F] give
/// [.., T, F] (Vaswani et al. 2017). A query that sees no key gets zeros. Floats.
/// Error (shape) when something does not fit.
Value scaled_dot_product_attention(const Value& queries, const Value& keys, const Value& values,
                                   const AttentionOptions& options = {});

/// One step of multiplicative attention (Luong, Pham, Manning 2015): with query [B, E] and memory [B, S, E] the weights
/// are a [B, S] = softmax(memory query) over positions where `counts` (a bool [B, S]; all when absent) is true, the
/// context is the sum of a memory: [B, E]. Returns {context, weights}. A row where nothing counts has weights 0.
/// For Luong's "general" score pass memory times its matrix as `keys` and keep memory as it is.
/// Error (shape) when something does not fit.
std::pair<Value, Value> multiplicative_attention(const Value& query, const Value& memory, const Value& counts = {},
                                                 const Value& keys = {});

}  // namespace paoding
