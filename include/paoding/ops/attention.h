// SPDX-License-Identifier: Apache-2.0
// Attention. Where no kernel runs it as a whole, its products stand in two scopes, "scores" and "values".
#pragma once

#include <utility>

#include "paoding/graph.h"

namespace paoding {

struct AttentionOptions {
  Value mask = {};      // a bool that broadcasts to [.., T, S]: false where a query must not see a key
  Value lengths = {};   // [B] integers: keys at and beyond a row's length are not seen; B is the first axis of keys
  bool causal = false;  // query t sees keys up to its position: right = 0
  double scale = 0;     // of the scores; 1 / sqrt(E) when 0
  double dropout = 0;   // of the weights
  Value bias = {};      // a float that broadcasts to [.., T, S], added to the scores; -inf hides a key
  Value slopes = {};    // floats that broadcast to [.., H]: scores lose so much a key of distance (Press et al. 2022)
  bool bottom_right =
      false;                // query t stands at position t + S - T, so that the last one is beside the last key; else t
  std::int64_t left = -1;   // so many keys before its position a query sees; -1: all
  std::int64_t right = -1;  // so many keys behind it; -1: all
};

/// softmax(scale queries keys^T + bias) values over the keys that are seen: queries [.., H, T, E], keys [.., K, S, E],
/// values [.., K, S, F] give [.., H, T, F] (Vaswani et al. 2017). K divides H: H / K heads of queries share one of keys
/// (Shazeer 2019, Ainslie et al. 2023); other leading axes broadcast, and all may be absent. A query that sees no key
/// gets zeros, and gives zeros to gradients. Dropout's numbers depend on a weight's place in [.., H, T, S] alone.
/// Floats. It is the op `attention`, which a kernel may run without a matrix of scores.
/// Error (shape) when something does not fit, (argument) when a number is out of range.
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
