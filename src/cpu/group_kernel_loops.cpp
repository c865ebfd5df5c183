// SPDX-License-Identifier: Apache-2.0
// The shape of a Nest: what one tile covers, in which order the loops run around it, and how threads share them out.
#include <algorithm>

#include "cpu/group_kernel_nest.h"
#include "cpu/parallel.h"
#include "scalar/primitive.h"

namespace paoding {
namespace {

constexpr std::int64_t kTileElements = 1024;      // 4 KB of f32: a dozen registers fit in L1
constexpr std::int64_t kShortRow = 128;           // rows up to this long share a tile
constexpr std::int64_t kSquareRows = 16;          // of a tile that transposes: a cache line of f32
constexpr std::int64_t kSplitElements = 64;       // threads divide the innermost axis in whole cache lines
constexpr std::int64_t kSerialBytes = 256 << 10;  // below, waking threads (1 to 7 us) costs more than it saves
constexpr std::int64_t kBytesPerThread = 128 << 10;
constexpr std::int64_t kSumsInCache = 256 << 10;  // sums up to this size are kept for all columns at once

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::int64_t round_up(std::int64_t a, std::int64_t unit) { return ceil_div(a, unit) * unit; }

class LoopChooser {
 public:
  LoopChooser(const Group& group, Nest* nest) : group_(group), nest_(*nest) {}

  int choose(int threads) {
    choose_tile();
    choose_loops(threads);
    return row_axis_;
  }

 private:
  int inner() const { return group_.rank() - 1; }
  std::int64_t extent(int axis) const { return axis < 0 ? 1 : group_.extents[static_cast<std::size_t>(axis)]; }

  void choose_tile() {
    nest_.empty = group_.points() == 0;
    const std::int64_t length = extent(inner());
    nest_.shape.cols = length;
    if (const int across = transposed_axis(); across >= 0) {
      row_axis_ = across;
      nest_.shape = {kSquareRows, kTileElements / kSquareRows};
    } else if (length > kTileElements) {
      nest_.shape.cols = round_up(ceil_div(length, ceil_div(length, kTileElements)), kSplitElements);
    } else if (group_.rank() > 1 && length <= kShortRow) {
      nest_.shape.rows = std::min(extent(inner() - 1), kTileElements / std::max<std::int64_t>(length, 1));
      if (nest_.shape.rows > 1) row_axis_ = inner() - 1;
    }
    if (nest_.empty) nest_.shape = {1, 1};
  }

  // The axis along which some operand is contiguous that is not so along the innermost, or -1. Both then get a part of
  // the tile, or every element would be fetched from a cache line of its own.
  int transposed_axis() const {
    if (nest_.empty || extent(inner()) <= kShortRow) return -1;
    int found = -1;
    auto look = [&](const std::vector<std::int64_t>& strides) {
      if (stride_along(strides, inner()) == 0 || stride_along(strides, inner()) == 1) return;
      for (int axis = 0; axis < inner(); ++axis) {
        if (stride_along(strides, axis) == 1 && extent(axis) >= kSquareRows) found = axis;
      }
    };
    for (const GroupLoad& load : group_.loads) look(load.strides);
    for (const GroupOutput& output : group_.outputs) look(output.strides);
    return found;
  }

  std::int64_t step(int axis) const {
    return axis == inner() ? nest_.shape.cols : axis == row_axis_ ? nest_.shape.rows : 1;
  }

  // Memory order, unless sums of columns would not stay in the cache: then the summed axes become the inner loops, so
  // that one strip of sums is complete before the next begins.
  std::vector<int> loop_order() const {
    const GroupOutput* widest = nullptr;
    for (const GroupOutput& output : group_.outputs) {
      if (has_axis(output.reduce_mask, inner())) return in_order(0);
      if (output.reduce_mask == 0) continue;
      if (!widest || kept_elements(group_, output) > kept_elements(group_, *widest)) widest = &output;
    }
    if (!widest || kept_elements(group_, *widest) * kSumBytes <= kSumsInCache) return in_order(0);
    return in_order(widest->reduce_mask);
  }

  std::vector<int> in_order(std::uint32_t last) const {
    std::vector<int> order;
    for (const bool late : {false, true}) {
      for (int axis = 0; axis < group_.rank(); ++axis) {
        if (has_axis(last, axis) == late) order.push_back(axis);
      }
    }
    return order;
  }

  std::int64_t work_bytes() const {
    std::int64_t slow_nodes = 0;  // one costs about as much as moving 8 bytes
    for (const ExprNode& node : group_.expr.nodes()) {
      slow_nodes += is_slow(node.prim);
    }
    return group_.min_bytes() + group_.points() * slow_nodes * 8;
  }

  std::int64_t split_units(int axis) const {
    return axis == inner() ? ceil_div(extent(axis), kSplitElements) : extent(axis);
  }

  // How well `threads` share out this axis: 1 when all have the same, less for threads' own sums and for scattering.
  double split_score(int axis, int threads) const {
    const std::int64_t units = split_units(axis);
    double score = double(units) / double(ceil_div(units, threads) * threads);
    for (const GroupOutput& output : group_.outputs) {
      if (has_axis(output.reduce_mask, axis)) {
        const double sum_bytes = 2.0 * threads * double(kept_elements(group_, output) * kSumBytes);
        score -= std::min(1.0, sum_bytes / double(group_.min_bytes()));
      }
    }
    if (axis == inner() && group_.rank() > 1) score -= 0.05;
    return score;
  }

  void choose_loops(int threads) {
    if (nest_.empty) return;
    if (threads == 0) {
      const std::int64_t bytes = work_bytes();
      const std::int64_t useful = std::min<std::int64_t>(max_threads(), bytes / kBytesPerThread);
      threads = bytes < kSerialBytes ? 1 : static_cast<int>(useful);
    }
    const std::vector<int> order = loop_order();
    int split = -1;
    if (threads > 1) {
      double best = -10;
      for (const int axis : order) {
        if (axis == inner() && row_axis_ >= 0) continue;  // rows of a tile stay whole
        const double score = split_score(axis, threads);
        if (score > best + 0.01) best = score, split = axis;
      }
      threads = split < 0 ? 1 : static_cast<int>(std::min<std::int64_t>(threads, split_units(split)));
    }
    if (threads > 1) {
      nest_.threads = threads;
      nest_.split_extent = extent(split);
      nest_.split_unit = split == inner() ? kSplitElements : 1;
    } else {
      split = -1;
    }
    for (const int axis : order) {
      if (extent(axis) <= step(axis) && axis != split) continue;
      NestLoop loop;
      loop.axis = axis;
      loop.extent = extent(axis);
      loop.step = step(axis);
      loop.split = axis == split;
      loop.tile_axis = axis == inner() ? TileAxis::cols : axis == row_axis_ ? TileAxis::rows : TileAxis::none;
      nest_.loops.push_back(loop);
    }
  }

  const Group& group_;
  Nest& nest_;
  int row_axis_ = -1;
};

}  // namespace

std::int64_t stride_along(const std::vector<std::int64_t>& strides, int axis) {
  return axis < 0 ? 0 : strides[static_cast<std::size_t>(axis)];
}

bool has_axis(std::uint32_t axes, int axis) { return axis >= 0 && ((axes >> axis) & 1u); }

std::int64_t kept_elements(const Group& group, const GroupOutput& output) {
  std::int64_t elements = 1;
  for (int axis = 0; axis < group.rank(); ++axis) {
    if (!has_axis(output.reduce_mask, axis)) elements *= group.extents[static_cast<std::size_t>(axis)];
  }
  return elements;
}

int choose_loops(const Group& group, int threads, Nest* nest) { return LoopChooser(group, nest).choose(threads); }

}  // namespace paoding
