// SPDX-License-Identifier: Apache-2.0
// Decides a schedule's properties that follow from the group's operands.
#include <algorithm>
#include <cstdlib>

#include "gpu/codegen/group_schedule.h"

namespace paoding::gpu {
namespace {

// From so many rows of the inner axis on, the registers that a thread holds for all of its rows cost nothing.
constexpr std::int64_t kRowsToHoldFor = 64;

}  // namespace

bool needs_wide_offsets(const Group& group) {
  constexpr std::int64_t kLimit = (std::int64_t{1} << 31) - (1 << 16);  // room for one step past the end
  if (group.points() >= kLimit) return true;
  for (std::size_t i = 0; i < group.operands(); ++i) {
    std::int64_t reach = 0;
    for (std::size_t axis = 0; axis < group.extents.size(); ++axis) {
      reach += std::abs(operand_strides(group, i)[axis]) * (group.extents[axis] - 1);
    }
    if (reach >= kLimit) return true;
  }
  return false;
}

bool reduces(const GroupOutput& output, SinkKind sink, const GridDim& dim) {
  if (dim.over == GridDim::Over::axis) return ((output.reduce_mask >> dim.axis) & 1u) != 0;
  const SinkKind within = dim.over == GridDim::Over::serial ? SinkKind::column : SinkKind::row;
  return sink == within || sink == SinkKind::total;
}

bool fits_vector(const Group& group, std::size_t i, std::int64_t alignment, int vector) {
  const std::vector<std::int64_t>& strides = operand_strides(group, i);
  const std::int64_t size = size_bytes(operand_dtype(group, i)), piece = std::min<std::int64_t>(16, vector * size);
  if (strides.back() != 1 || alignment % piece != 0) return false;
  return std::all_of(strides.begin(), strides.end() - 1,
                     [&](std::int64_t step) { return step * size % piece == 0 && step % vector == 0; });
}

bool is_stream(const Group& group, std::size_t i, const std::vector<bool>& used) {
  if (operand_strides(group, i).back() != 1) return false;
  return i < group.loads.size() ? bool(used[i]) : group.outputs[i - group.loads.size()].reduce_mask == 0;
}

bool is_shared_row(const Group& group, std::size_t i) {
  if (i >= group.loads.size() || group.points() < kRowsToHoldFor * group.extents.back()) return false;
  const std::vector<std::int64_t>& strides = operand_strides(group, i);
  return std::all_of(strides.begin(), strides.end() - 1, [](std::int64_t step) { return step == 0; });
}

int vector_of_streams(const Group& group, const std::vector<bool>& used, std::span<const int> alignment,
                      std::int64_t most, bool may_be_ragged, std::size_t rows_held) {
  std::vector<std::size_t> streams, rows;
  for (std::size_t i = 0; i < group.operands(); ++i) {
    if (is_stream(group, i, used)) (is_shared_row(group, i) ? rows : streams).push_back(i);
  }
  if (rows.size() > rows_held || streams.empty()) streams.insert(streams.end(), rows.begin(), rows.end());
  return vector_of_streams(group, streams, alignment, most, may_be_ragged);
}

ElementBytes element_bytes(const Group& group, std::span<const std::size_t> operands) {
  ElementBytes bytes;
  for (const std::size_t i : operands) {
    bytes.widest = std::max(bytes.widest, size_bytes(operand_dtype(group, i)));
    bytes.all += size_bytes(operand_dtype(group, i));
  }
  return bytes;
}

int vector_of_streams(const Group& group, std::span<const std::size_t> streams, std::span<const int> alignment,
                      std::int64_t most, bool may_be_ragged) {
  const ElementBytes bytes = element_bytes(group, streams);
  std::int64_t vector = streams.empty() ? 1 : std::min(16 / bytes.widest, most);
  for (; vector > 1; vector /= 2) {
    std::int64_t whole = 0;
    for (const std::size_t i : streams) {
      if (fits_vector(group, i, alignment[i], static_cast<int>(vector))) whole += size_bytes(operand_dtype(group, i));
    }
    if (2 * whole >= bytes.all && (may_be_ragged || group.extents.back() % vector == 0)) break;
  }
  return static_cast<int>(vector);
}

}  // namespace paoding::gpu
