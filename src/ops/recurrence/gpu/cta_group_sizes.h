// SPDX-License-Identifier: Apache-2.0
// Bytes of a CTA group, and cells of a thread: its fit (gpu/cta_group.cpp) and its times (gpu/cta_group_times.cpp)
// follow from them.
#pragma once

#include <algorithm>

#include "base/rounding.h"
#include "ops/recurrence/gpu/cta_group.h"

namespace paoding {

constexpr std::int64_t kMostSimtRows = 4;  // that keep sums, recurrence_simt.cu

// The size of a factor: lanes take it as f32.
inline std::int64_t factor_bytes(const LayerExtents& layer, const CtaGroup& cta_group) {
  return cta_group.simt_fma ? 4 : size_bytes(layer.dtype);
}

// The bytes of a warp's fragment.
inline std::int64_t fragment_bytes(const LayerExtents& layer, const CtaGroup& cta_group) {
  return fragment_pieces(layer, cta_group) * 512;
}
// The bytes of a CTA's chunk.
inline std::int64_t chunk_bytes(const LayerExtents& layer, const CtaGroup& cta_group) {
  return cta_group.chunk_fragments * fragment_bytes(layer, cta_group) * cta_group.warps;
}

// The bytes that a CTA of a gradient sends its partial-sum peers a step.
inline std::int64_t gate_bytes(const LayerExtents& layer, const CtaGroup& cta_group) {
  return cta_group.rows * cta_group.units * layer.gates * 4;
}

// Rows of a unit's parts in memory, and where threads leave the sums of these (recurrence_backward_memory.cu).
inline std::int64_t part_rows(const CtaGroup& cta_group) {
  const std::int64_t paired = ceil_div(cta_group.rows, 8) / 2 * 16;
  return cta_group.rows <= 2 ? cta_group.rows : paired >= cta_group.rows ? paired : round_up(cta_group.rows, 4);
}
inline std::int64_t total_bytes(const CtaGroup& cta_group) {
  const std::int64_t piece = cta_group.rows <= 2 ? 1 : 4, pieces = part_rows(cta_group) / piece * cta_group.units;
  const std::int64_t sharers = std::clamp<std::int64_t>(cta_group.warps * 32 / pieces, 1, cta_group.givers());
  return sharers * cta_group.units * (part_rows(cta_group) + piece) * 4;
}

// The bytes that a CTA gets from all others a step.
inline std::int64_t got_bytes(const LayerExtents& layer, const CtaGroup& cta_group) {
  if (!layer.is_backward)
    return cta_group.ctas * cta_group.units * (cta_group.ll_protocol ? 4 : factor_bytes(layer, cta_group)) *
           cta_group.rows;
  if (cta_group.simt_fma) return cta_group.depth_pieces * 16 * cta_group.rows;
  if (cta_group.exchange == Exchange::memory) return cta_group.givers() * part_rows(cta_group) * cta_group.units * 4;
  const bool is_in_pairs = size_bytes(layer.dtype) == 2;  // recurrence_backward_cluster.cu
  const std::int64_t gap = !is_in_pairs ? 4 : cta_group.units % 16 == 0 ? 8 : 0;
  return cta_group.ctas * (is_in_pairs ? ceil_div(cta_group.rows, 2) : cta_group.rows) * (cta_group.units + gap) * 4;
}

// Cells of a thread.
inline std::int64_t cells(const CtaGroup& cta_group) {
  return cta_group.keeps_sums
             ? cta_group.tiles
             : ceil_div(cta_group.units * cta_group.rows, cta_group.warps * (cta_group.ll_protocol ? 8 : 32));
}

}  // namespace paoding
