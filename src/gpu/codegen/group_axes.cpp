// SPDX-License-Identifier: Apache-2.0
// Which axes of a group become CTAs, which one loop and which the lanes of a warp.
#include <algorithm>
#include <cstdlib>

#include "base/rounding.h"
#include "gpu/codegen/group_scheduler.h"

namespace paoding::gpu {
namespace {

// Limits for CTAs that walk memory in order and leave partial sums of columns: the most partial sums, since another
// launch has to add them up, and the fewest vectors in a row, so that a row keeps a warp busy.
constexpr std::int64_t kOrderedParts = 1 << 16, kOrderedVectors = 33;
// Pointwise groups whose rows are at least this long run as tiles.
constexpr std::int64_t kLeastRowOfPoints = 64;
// A transposing group stages a tile in shared memory where both axes are at least this long.
constexpr std::int64_t kLeastTransposedExtent = 32;

}  // namespace

void Scheduler::choose_form() {
  const std::uint64_t inner_class = axis_class(inner_);
  bool keeps_inner = false;
  for (const GroupOutput& output : group_.outputs) {
    keeps_inner = keeps_inner || (output.reduce_mask != 0 && !((output.reduce_mask >> inner_) & 1u));
  }
  std::vector<int> same, others;  // axes of the inner axis's class, and the others
  for (int axis = 0; axis < inner_; ++axis) (axis_class(axis) == inner_class ? same : others).push_back(axis);
  // Sums of columns need lanes that keep their column: the tile form. Short rows take it too, since a sweep over them
  // would leave lanes idle, and pointwise groups of several axes with a long inner one, since they then need no
  // division per vector.
  const bool is_short = same.empty() && extent(inner_) <= 32 * 4 && !others.empty();
  const int transposed = transposed_axis(same);
  const bool is_rows_of_points =
      is_pointwise_ && !same.empty() && (extent(inner_) >= kLeastRowOfPoints || transposed >= 0);
  s_.form = keeps_inner || (!is_pointwise_ && is_short) || is_rows_of_points ? LoopForm::tile : LoopForm::sweep;
  s_.inner_axes = {inner_};
  keeps_order_ = s_.form == LoopForm::sweep && may_keep_order(same, others);
  std::vector<int>& same_are = keeps_order_ ? s_.grid_axes : s_.inner_axes;
  if (s_.form == LoopForm::sweep) same_are.insert(same_are.begin(), same.begin(), same.end());
  if (s_.form == LoopForm::sweep && is_pointwise_) separate_shared(&s_.inner_axes);

  // The serial axes are one class: the one that most of the column outputs reduce, and among equals the largest.
  std::vector<int> free = others;
  if (s_.form == LoopForm::tile) free.insert(free.end(), same.begin(), same.end());
  std::sort(free.begin(), free.end());
  std::uint64_t best_class = 0;
  std::int64_t best_misses = -1, best_size = -1;
  for (const int candidate : free) {
    const std::uint64_t bits = axis_class(candidate);
    std::int64_t misses = 0, size = 1;
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      const std::uint32_t mask = group_.outputs[o].reduce_mask;
      if (mask != 0 && !((mask >> inner_) & 1u) && !((bits >> o) & 1u)) ++misses;
    }
    for (const int axis : free) size *= axis_class(axis) == bits ? extent(axis) : 1;
    if (best_misses < 0 || misses < best_misses || (misses == best_misses && size > best_size)) {
      best_class = bits, best_misses = misses, best_size = size;
    }
  }
  for (const int axis : free) (axis_class(axis) == best_class ? s_.serial_axes : s_.grid_axes).push_back(axis);
  if (s_.form == LoopForm::sweep || is_pointwise_) separate_shared(&s_.serial_axes);
  const auto at = std::find(s_.serial_axes.begin(), s_.serial_axes.end(), transposed);
  s_.is_transposed = at != s_.serial_axes.end();
  if (s_.is_transposed) std::rotate(at, at + 1, s_.serial_axes.end());  // the fastest
  s_.serial_count = extent_product(s_.serial_axes);
}

bool Scheduler::may_keep_order(const std::vector<int>& same, const std::vector<int>& others) const {
  if (same.empty() || others.size() != 1 || same.back() > others[0]) return false;
  const bool stores = std::ranges::any_of(group_.outputs, [](const GroupOutput& out) { return out.reduce_mask == 0; });
  std::int64_t bytes = 1;  // bytes of an element of the widest operand
  for (std::size_t i = 0; i < group_.operands(); ++i) bytes = std::max(bytes, size_bytes(dtype(i)));
  const std::int64_t vectors = extent(inner_) * bytes / 16, places = extent_product(same);
  if (!stores || vectors < kOrderedVectors) return false;
  const OrderedCta cta(vectors);
  const std::int64_t parts = places * ceil_div(vectors, cta.lanes), tiles = ceil_div(extent(others[0]), cta.rows);
  return parts <= kOrderedParts && tiles * parts >= 12 * target_.sm_count;
}

int Scheduler::transposed_axis(const std::vector<int>& axes) const {
  if (!is_pointwise_ || is_small_ || extent(inner_) < kLeastTransposedExtent) return -1;
  for (const int axis : axes) {
    for (std::size_t i = 0; i < group_.loads.size(); ++i) {
      const bool is_transposed = used_[i] && stride(i, axis) == 1 && std::abs(stride(i, inner_)) > 1;
      if (is_transposed && extent(axis) >= kLeastTransposedExtent) return axis;
    }
  }
  return -1;
}

void Scheduler::separate_shared(std::vector<int>* axes) {
  const int largest = is_pointwise_ ? largest_shared(*axes) : -1;
  for (std::size_t a = 0; a < axes->size() && axes->size() > 1; ++a) {
    const int axis = (*axes)[a];
    if (axis == inner_ || extent_product(*axes) / extent(axis) < 8) continue;
    for (std::size_t i = 0; i < group_.loads.size(); ++i) {
      const bool is_shared = used_[i] && stride(i, axis) == 0 && varies(i, *axes) && varies(i, s_.inner_axes) &&
                             (!is_pointwise_ || static_cast<int>(i) == largest);
      if (!is_shared) continue;
      s_.grid_axes.push_back(axis);
      axes->erase(axes->begin() + static_cast<std::ptrdiff_t>(a--));
      break;
    }
  }
  std::sort(s_.grid_axes.begin(), s_.grid_axes.end());
}

int Scheduler::largest_shared(const std::vector<int>& axes) const {
  int largest = -1;
  for (std::size_t i = 0; i < group_.loads.size(); ++i) {
    const bool is_shared = std::any_of(axes.begin(), axes.end(), [&](int axis) { return stride(i, axis) == 0; });
    if (!used_[i] || !is_shared || distinct_bytes(i) <= target_.last_cache_bytes / 4) continue;
    if (largest < 0 || distinct_bytes(i) > distinct_bytes(static_cast<std::size_t>(largest)))
      largest = static_cast<int>(i);
  }
  return largest;
}

}  // namespace paoding::gpu
