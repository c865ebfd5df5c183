// SPDX-License-Identifier: Apache-2.0
// Bytes of a team, and cells of a thread: what its fit (team_gpu.cpp) and its times (team_times_gpu.cpp) follow from.
#pragma once

#include <algorithm>

#include "base/rounding.h"
#include "ops/recurrence/team.h"

namespace paoding {

constexpr std::int64_t kMostRowsByLanes = 4;  // that keep sums, recurrence_lanes.cu

// Of what weights are multiplied by: lanes take it as f32.
inline std::int64_t factor_bytes(const LayerExtents& layer, const Team& team) {
  return team.is_by_lanes ? 4 : size_bytes(layer.dtype);
}

// Of a warp.
inline std::int64_t fragment_bytes(const LayerExtents& layer, const Team& team) {
  return fragment_pieces(layer, team) * 512;
}
// Of a CTA.
inline std::int64_t group_bytes(const LayerExtents& layer, const Team& team) {
  return team.group_fragments * fragment_bytes(layer, team) * team.warps;
}

// What a CTA of a gradient tells its neighbours a step.
inline std::int64_t gate_bytes(const LayerExtents& layer, const Team& team) {
  return team.rows * team.units * layer.gates * 4;
}

// Through memory, of a unit's parts; and where threads leave what they add up of these (recurrence_backward_memory.cu).
inline std::int64_t part_rows(const Team& team) {
  const std::int64_t paired = ceil_div(team.rows, 8) / 2 * 16;
  return team.rows <= 2 ? team.rows : paired >= team.rows ? paired : round_up(team.rows, 4);
}
inline std::int64_t total_bytes(const Team& team) {
  const std::int64_t piece = team.rows <= 2 ? 1 : 4, pieces = part_rows(team) / piece * team.units;
  const std::int64_t sharers = std::clamp<std::int64_t>(team.warps * 32 / pieces, 1, team.givers());
  return sharers * team.units * (part_rows(team) + piece) * 4;
}

// What a CTA gets from all others a step.
inline std::int64_t got_bytes(const LayerExtents& layer, const Team& team) {
  if (!layer.is_backward) return team.ctas * team.units * (team.is_marked ? 4 : factor_bytes(layer, team)) * team.rows;
  if (team.is_by_lanes) return team.depth_pieces * 16 * team.rows;
  if (team.exchange == Exchange::memory) return team.givers() * part_rows(team) * team.units * 4;
  const bool is_in_pairs = size_bytes(layer.dtype) == 2;  // recurrence_backward_cluster.cu
  const std::int64_t gap = !is_in_pairs ? 4 : team.units % 16 == 0 ? 8 : 0;
  return team.ctas * (is_in_pairs ? ceil_div(team.rows, 2) : team.rows) * (team.units + gap) * 4;
}

// Cells of a thread.
inline std::int64_t cells(const Team& team) {
  return team.keeps_sums ? team.tiles : ceil_div(team.units * team.rows, team.warps * (team.is_marked ? 8 : 32));
}

}  // namespace paoding
