// SPDX-License-Identifier: Apache-2.0
// The precision in which the readers of each value of a graph want it: the policy of mixed_precision.
// - products and convolutions read 16 bits
// - ops that move values without computing (views, concatenations, selections, gather, max pools) want their inputs as
// their results are wanted
// - fetched or assigned values are computed in f32 from the nearest product on; so are the keys of sort and topk
// - a loop's carry is f32, unless nothing but products reads it, which would round it anyway, or it is a product's
// result, which does not add up from step to step
// - scatter_add, which adds up in f32, reads 16 bits only where a product wants them too
// - other kernels (cumsum, those in branches) read f32
// - arithmetic and reductions are done in f32 and read either
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "paoding/graph.h"

namespace paoding {

/// How the readers of an f32 value want it; bits.
enum Need : std::uint8_t {
  kNarrow = 1,  // by products: in 16 bits
  kWide = 2,    // in f32
  kExact = 4,   // in f32, and not computed from rounded results of arithmetic
  kEither = 8,  // by arithmetic, which reads any version
  kWish = 16,   // in f32 where it need not be there in 16 bits
};
inline bool wants_narrow(unsigned bits) { return (bits & kNarrow) != 0; }
inline bool wants_wide(unsigned bits) { return (bits & (kWide | kExact)) != 0; }
/// Whether a computed, not moved, value is best in f32, which then costs no more than its memory.
inline bool is_best_wide(unsigned bits) { return wants_wide(bits) || (bits & (kWish | kNarrow)) == kWish; }

/// How mixed_precision deals with an op.
enum class PrecisionRole : std::uint8_t {
  none,
  product,
  mover,
  barrier,
  storage,
  formula,
  reduction,
  adder,
  scan,
  other
};
PrecisionRole precision_role(const Node& node);

class PrecisionNeeds {
 public:
  explicit PrecisionNeeds(Graph& graph);
  /// Bits of Need of a value of `graph` or of a body in it; 0 for values that are not f32.
  unsigned of(const Graph& graph, Ref ref) const {
    return needs_.at(&graph)[static_cast<std::size_t>(ref.node)][static_cast<std::size_t>(ref.output)];
  }

 private:
  void prepare(Graph& graph);
  void walk(Graph& graph, unsigned fetched);
  void walk_node(Graph& graph, NodeId id);
  void walk_scan(Graph& graph, NodeId id);
  void need(const Graph& graph, Ref ref, unsigned bits);

  std::map<const Graph*, std::vector<std::vector<std::uint8_t>>> needs_;
  bool has_changed_ = false;
};

}  // namespace paoding
