// SPDX-License-Identifier: Apache-2.0
#include "ops/recurrence/packed_weights.h"

#include <algorithm>
#include <array>

#include "ops/recurrence/recurrence_work.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

constexpr int kPackedRank = 5, kByUnitsRank = 3;
constexpr std::int64_t kLeastElements = 16'384;  // as of other weights that are packed: less saves next to nothing

}  // namespace

bool are_packed(const Type& u) { return u.shape.rank() == kPackedRank; }

bool are_by_units(const Type& u) { return u.shape.rank() == kByUnitsRank; }

Value weights_by_units(const Value& u) {
  const std::int64_t hidden = u.shape()[0];
  return transpose(reshape(u, {hidden, u.shape()[1] / hidden, hidden}), std::array<std::int64_t, 3>{2, 1, 0});
}

std::int64_t hidden_of(const Type& u) { return are_packed(u) ? u.shape[1] * u.shape[4] : u.shape[0]; }

std::int64_t packed_depth(const CellDescriptor* cell, const Type& u, const Target& target) {
  if (target.is_gpu() || cell == nullptr) return 0;
  const bool has_one_gate = cell->gates == 1;
  if (u.shape.rank() != 2 || u.shape.elements() < kLeastElements || u.shape[0] % kTileDepth != 0) return 0;
  // Whole panels, and as many for each thread.
  const std::int64_t panels = u.shape[0] / (blocks_together(1) * kUnitBlock), threads = std::max(target.threads, 1);
  if (has_one_gate && (u.shape[0] % (blocks_together(1) * kUnitBlock) != 0 || panels % threads != 0)) return 0;
  if (u.dtype == bf16) return target.has_bf16 && multiplies_pairs() ? 2 : 1;
  return u.dtype == f32 ? 1 : 0;
}

Value packed_weights(const Value& u, std::int64_t depth) {
  const std::int64_t hidden = u.shape()[0], gates = u.shape()[1] / hidden, blocks = hidden / kUnitBlock;
  if (gates == 1) {
    const std::int64_t together = blocks_together(gates);
    const Value parts = reshape(u, {hidden / depth, depth, blocks / together, together, kUnitBlock});
    return transpose(parts, std::array<std::int64_t, 5>{2, 0, 3, 4, 1});
  }
  const Value parts = reshape(u, {hidden / depth, depth, gates, blocks, kUnitBlock});
  return transpose(parts, std::array<std::int64_t, 5>{3, 0, 2, 4, 1});
}

Value plain_weights(const Value& u, std::int64_t gates) {
  const Shape& packed = u.shape();
  if (are_by_units(u.type()) && packed == Shape{packed[0], gates, packed[0]}) {
    return reshape(transpose(u, std::array<std::int64_t, 3>{2, 1, 0}), {packed[0], gates * packed[0]});
  }
  const std::int64_t together = blocks_together(gates);
  if (packed.rank() != kPackedRank || packed[2] != gates * together) return u;
  const std::int64_t hidden = hidden_of(u.type());
  if (packed[0] * packed[3] * together != hidden) return u;
  if (gates == 1) return reshape(transpose(u, std::array<std::int64_t, 5>{1, 4, 0, 2, 3}), {hidden, hidden});
  return reshape(transpose(u, std::array<std::int64_t, 5>{1, 4, 2, 0, 3}), {hidden, gates * hidden});
}

}  // namespace paoding
