// SPDX-License-Identifier: Apache-2.0
// Graphs of attention for tests of its kernels: lengths that no TMA tile divides, bands, heads that share keys, rows
// that see nothing. Feeds may hold NaNs where no query looks.
#pragma once

#include <fmt/format.h>

#include <array>
#include <limits>
#include <memory>
#include <utility>

#include "tests/support/program_check.h"

namespace paoding::testing_program {

struct AttentionCase {
  std::int64_t batch = 1, heads = 1, key_heads = 1, queries = 64, keys = 64, width = 64, value_width = 64;
  DType dtype = bf16;
  std::int64_t left = -1, right = -1;
  bool bottom_right = false, has_lengths = false, is_transposed = false;
  double scale = 0, dropout = 0;
};

inline std::string to_string(const AttentionCase& c) {
  return fmt::format("{} {}/{} heads {} x {}, widths {} {} {}, window {} {}{}{}{}", c.batch, c.heads, c.key_heads,
                     c.queries, c.keys, c.width, c.value_width, to_string(c.dtype), c.left, c.right,
                     c.bottom_right ? " bottom right" : "", c.has_lengths ? ", lengths" : "",
                     c.is_transposed ? ", [B, T, H, E]" : "") +
         (c.dropout > 0 ? fmt::format(", dropout {}", c.dropout) : "");
}

/// Fetches the result and, of a case that is trained, the gradients for all three inputs.
inline std::unique_ptr<Graph> graph_of(const AttentionCase& c, bool is_trained) {
  auto graph = std::make_unique<Graph>();
  const auto rows = [&](const char* name, std::int64_t heads, std::int64_t count, std::int64_t width) {
    if (!c.is_transposed) return graph->input(name, c.dtype, {c.batch, heads, count, width});
    return transpose(graph->input(name, c.dtype, {c.batch, count, heads, width}),
                     std::vector<std::int64_t>{0, 2, 1, 3});
  };
  const Value q = rows("q", c.heads, c.queries, c.width), k = rows("k", c.key_heads, c.keys, c.width);
  const Value v = rows("v", c.key_heads, c.keys, c.value_width);
  AttentionOptions options;
  options.left = c.left, options.right = c.right, options.bottom_right = c.bottom_right, options.scale = c.scale;
  options.dropout = c.dropout;
  if (c.has_lengths) options.lengths = graph->input("lengths", i32, {c.batch});
  const Value result = scaled_dot_product_attention(q, k, v, options);
  graph->fetch("result", result);
  if (!is_trained) return graph;
  const Value seed = graph->input("dresult", c.dtype, result.shape());
  const Values made = gradients(std::array{result}, std::array{q, k, v}, std::array{seed});
  graph->fetch("dq", made[0]), graph->fetch("dk", made[1]), graph->fetch("dv", made[2]);
  return graph;
}

inline Feeds feeds_of(const AttentionCase& c, const Graph& graph, unsigned seed = 3) {
  Feeds feeds = make_feeds(graph, seed);
  for (std::size_t b = 0; c.has_lengths && b < feeds.at("lengths").size(); ++b) {
    feeds.at("lengths")[b] = static_cast<double>((b * 37 + 5) % static_cast<std::size_t>(c.keys + 1));
  }
  return feeds;
}

/// Keys and values that no query sees, since they are behind a row's length, become NaNs.
inline void put_nans_behind_lengths(const AttentionCase& c, Feeds* feeds) {
  for (const auto& [name, width] : {std::pair("k", c.width), std::pair("v", c.value_width)}) {
    Dense& values = feeds->at(name);
    const auto keys = static_cast<std::size_t>(c.keys), elements = static_cast<std::size_t>(width);
    for (std::size_t row = 0; row < values.size() / elements; ++row) {
      const std::size_t batch = row / keys / static_cast<std::size_t>(c.key_heads);
      if (static_cast<double>(row % keys) < feeds->at("lengths")[batch]) continue;
      for (std::size_t i = 0; i < elements; ++i) {
        values[row * elements + i] = std::numeric_limits<double>::quiet_NaN();
      }
    }
  }
}

}  // namespace paoding::testing_program
