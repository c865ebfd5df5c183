// SPDX-License-Identifier: Apache-2.0
// The shape of a Nest: the axes that one tile covers, in which order loops run around it, and how threads share them
// out.
#include <algorithm>
#include <functional>
#include <numeric>

#include "base/rounding.h"
#include "cpu/group_kernel_nest.h"
#include "cpu/parallel.h"
#include "scalar/primitive.h"

namespace paoding {
namespace {

constexpr std::int64_t kTileElements = 1024;      // 4 KB of f32: a dozen registers fit in L1
constexpr std::int64_t kShortRow = 128;           // rows up to this long share a tile
constexpr std::int64_t kSquareRows = 16;          // of a tile that transposes: a cache line of f32
constexpr std::int64_t kSplitElements = 64;       // threads divide the innermost axis in whole cache lines
constexpr std::int64_t kSumsInCache = 256 << 10;  // sums up to this size are kept for all columns at once
constexpr std::int64_t kStripElements =
    64 << 10;                            // of a strip whose columns are reduced: values kept between phases stay in L2
constexpr std::int64_t kWholeRows = 32;  // columns up to this long lie in one tile
constexpr int kMaxSplits = 3;

class LoopChooser {
 public:
  LoopChooser(const Group& group, Nest* nest, std::vector<NestLoop>* inner)
      : group_(group), nest_(*nest), inner_(*inner), reduced_(reduced_axes(group)) {}

  void choose(int threads) {
    nest_.empty = group_.points() == 0;
    if (nest_.empty) {
      nest_.shape = {1, 1};
      return;
    }
    if (has_axis(~reduced_, inner()) && reduced_ != 0) {
      choose_column_tile();
    } else {
      choose_row_tile();
    }
    choose_threads(threads);
    // Loops that only select a thread's part stand outside: then the loops inside them are exactly the summed ones.
    std::vector<int> order = loop_order();
    std::stable_partition(order.begin(), order.end(), [&](int axis) {
      return parts_of(axis) > 1 && ceil_div(extent(axis), parts_of(axis)) <= step_of(axis);
    });
    for (const int axis : order) add_loop(axis);
  }

 private:
  int inner() const { return group_.rank() - 1; }
  std::int64_t extent(int axis) const { return axis < 0 ? 1 : group_.extents[static_cast<std::size_t>(axis)]; }
  bool is_reduced(int axis) const { return has_axis(reduced_, axis); }

  static std::int64_t even_part(std::int64_t length) {
    if (length <= kTileElements) return length;
    return round_up(ceil_div(length, ceil_div(length, kTileElements)), kSplitElements);
  }

  void choose_row_tile() {
    const std::int64_t length = extent(inner());
    nest_.shape.cols = even_part(length);
    if (const int across = transposed_axis(); across >= 0 && reduced_ == 0) {
      nest_.row_axis = across;
      nest_.shape = {kSquareRows, kTileElements / kSquareRows};
    } else if (group_.rank() > 1 && length <= kShortRow) {
      nest_.shape.rows = std::min(extent(inner() - 1), kTileElements / length);
      if (nest_.shape.rows > 1) nest_.row_axis = inner() - 1;
    }
  }

  // For a group whose own reductions run down the columns: the rows are a reduced axis.
  void choose_column_tile() {
    int axis = inner() - 1;
    while (!is_reduced(axis)) --axis;
    const std::int64_t length = extent(inner()), rows = extent(axis);
    const std::int64_t all_rows = group_.points() / kept_points(group_, reduced_);
    if (all_rows == rows && rows <= kWholeRows) {
      nest_.shape = {rows, std::min(length, round_up(kTileElements, rows * 16) / rows)};
    } else {
      const std::int64_t strip = std::max(kSplitElements, kStripElements / all_rows / kSplitElements * kSplitElements);
      nest_.shape.cols = std::min({length, strip, kTileElements});
      nest_.shape.rows = std::min(rows, std::max<std::int64_t>(1, kTileElements / nest_.shape.cols));
    }
    if (nest_.shape.rows > 1) nest_.row_axis = axis;
  }

  // The axis along which some operand is contiguous that is not so along the innermost, or -1. Both then get a part of
  // the tile, or every element would be fetched from a cache line of its own.
  int transposed_axis() const {
    if (extent(inner()) <= kShortRow) return -1;
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

  // Memory order, unless sums of columns would not stay in the cache: then the summed axes become the inner loops, so
  // that one strip of sums is complete before the next begins.
  std::vector<int> loop_order() const {
    if (reduced_ != 0) return in_order(reduced_);
    const GroupOutput* widest = nullptr;
    for (const GroupOutput& output : group_.outputs) {
      if (has_axis(output.reduce_mask, inner())) return in_order(0);
      if (output.reduce_mask == 0) continue;
      if (!widest || kept_points(group_, output.reduce_mask) > kept_points(group_, widest->reduce_mask)) {
        widest = &output;
      }
    }
    if (!widest) return in_order(0);
    // Every thread has sums of its own, which are combined at the end.
    const std::int64_t threads = std::accumulate(parts_.begin(), parts_.end(), std::int64_t{1}, std::multiplies<>());
    const std::int64_t sums = kept_points(group_, widest->reduce_mask) * threads;
    if (sums * kAccumulatorBytes <= kSumsInCache) return in_order(0);
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

  // ---- threads -----------------------------------------------------------------

  void choose_threads(int threads) {
    if (threads == 0) threads = useful_threads(group_cost(group_));
    if (threads == 1) return;
    best_speed_ = 1;
    std::vector<int> parts(group_.extents.size(), 1);
    try_parts(0, threads, 0, &parts);
    nest_.waits = reduced_ != 0 && best_speed_ < 0.6 * threads;
    parts_ = best_parts_;
  }

  std::int64_t split_unit(int axis) const { return axis == inner() ? kSplitElements : 1; }
  std::int64_t split_units(int axis) const {
    if (is_reduced(axis)) return 1;
    if (axis == inner() && nest_.row_axis >= 0 && nest_.shape.cols == extent(axis)) return 1;  // rows stay whole
    return ceil_div(extent(axis), split_unit(axis));
  }

  void try_parts(int axis, int threads, int splits, std::vector<int>* parts) {
    if (axis == group_.rank() || splits == kMaxSplits) return consider(*parts);
    const std::int64_t most = std::min<std::int64_t>(threads, split_units(axis));
    for (int n = 1; n <= most; ++n) {
      (*parts)[static_cast<std::size_t>(axis)] = n;
      try_parts(axis + 1, threads / n, splits + (n > 1), parts);
    }
    (*parts)[static_cast<std::size_t>(axis)] = 1;
  }

  // How many times faster than one thread: less where parts differ, for threads' own sums and for scattering.
  void consider(const std::vector<int>& parts) {
    double speed = 1;
    int threads = 1;
    for (int axis = 0; axis < group_.rank(); ++axis) {
      const int n = parts[static_cast<std::size_t>(axis)];
      threads *= n;
      speed *= double(split_units(axis)) / double(ceil_div(split_units(axis), n));
      if (n > 1 && axis == inner() && group_.rank() > 1) speed *= 0.95;
    }
    if (threads == 1) return;
    for (const GroupOutput& output : group_.outputs) {
      for (int axis = 0; axis < group_.rank(); ++axis) {
        if (parts[static_cast<std::size_t>(axis)] == 1 || !has_axis(output.reduce_mask, axis)) continue;
        const double sum_bytes = 2.0 * threads * double(kept_points(group_, output.reduce_mask) * kAccumulatorBytes);
        speed *= 1 - std::min(0.9, sum_bytes / double(group_.min_bytes()));
        break;
      }
    }
    if (speed > best_speed_ * 1.01) best_speed_ = speed, best_parts_ = parts;
  }

  int parts_of(int axis) const { return parts_.empty() ? 1 : parts_[static_cast<std::size_t>(axis)]; }
  std::int64_t step_of(int axis) const {
    return axis == inner() ? nest_.shape.cols : axis == nest_.row_axis ? nest_.shape.rows : 1;
  }

  void add_loop(int axis) {
    NestLoop loop;
    loop.axis = axis;
    loop.extent = extent(axis);
    loop.step = step_of(axis);
    loop.tile_axis = axis == inner() ? TileAxis::cols : axis == nest_.row_axis ? TileAxis::rows : TileAxis::none;
    const int parts = parts_of(axis);
    if (parts > 1) {
      loop.split = static_cast<int>(nest_.splits.size());
      nest_.splits.push_back({loop.extent, split_unit(axis), parts});
      nest_.threads *= parts;
    }
    if (loop.extent <= loop.step && parts == 1) return;
    (is_reduced(axis) ? inner_ : nest_.loops).push_back(loop);
  }

  const Group& group_;
  Nest& nest_;
  std::vector<NestLoop>& inner_;
  std::uint32_t reduced_;
  double best_speed_ = 1;
  std::vector<int> best_parts_, parts_;
};

}  // namespace

std::int64_t stride_along(const std::vector<std::int64_t>& strides, int axis) {
  return axis < 0 ? 0 : strides[static_cast<std::size_t>(axis)];
}

bool has_axis(std::uint32_t axes, int axis) { return axis >= 0 && ((axes >> axis) & 1u); }

std::int64_t kept_points(const Group& group, std::uint32_t mask) {
  std::int64_t points = 1;
  for (int axis = 0; axis < group.rank(); ++axis) {
    if (!has_axis(mask, axis)) points *= group.extents[static_cast<std::size_t>(axis)];
  }
  return points;
}

std::uint32_t reduced_axes(const Group& group) {
  return group.reductions.empty() ? 0 : group.reductions[0].reduce_mask;
}

double node_cost(const Group& group, const ExprNode& node) {
  switch (node.prim) {
    case Prim::constant:
    case Prim::reduced: return 0;
    case Prim::input: {
      const GroupLoad& load = group.loads[static_cast<std::size_t>(node.index)];
      const std::int64_t step = load.strides.empty() ? 1 : load.strides.back();
      return step != 0 && step != 1 ? 8 : load.dtype == compute_dtype(load.dtype) ? 0 : 1;
    }
    case Prim::index:
    case Prim::convert:
    case Prim::add:
    case Prim::sub:
    case Prim::mul:
    case Prim::neg:
    case Prim::abs:
    case Prim::minimum:
    case Prim::maximum:
    case Prim::less:
    case Prim::less_equal:
    case Prim::equal:
    case Prim::logical_and:
    case Prim::logical_or:
    case Prim::logical_not:
    case Prim::select: return 1;
    case Prim::div:
    case Prim::sqrt:
    case Prim::rsqrt: return 5;
    case Prim::tanh: return 16;
    default: return 11;
  }
}

double group_cost(const Group& group) {
  constexpr double kNanosecondsPerByte = 0.05, kNanosecondsPerUnit = 0.035;  // measured on a Xeon with AVX-512
  double units = static_cast<double>(group.outputs.size());
  for (const ExprNode& node : group.expr.nodes()) units += node_cost(group, node);
  return static_cast<double>(group.min_bytes()) * kNanosecondsPerByte +
         static_cast<double>(group.points()) * units * kNanosecondsPerUnit;
}

double parallel_cost(double cost, int threads) { return threads == 1 ? cost : cost / threads + fork_nanoseconds(); }

int useful_threads(double cost) { return parallel_cost(cost, max_threads()) < cost ? max_threads() : 1; }

void choose_loops(const Group& group, int threads, Nest* nest, std::vector<NestLoop>* inner) {
  LoopChooser(group, nest, inner).choose(threads);
}

}  // namespace paoding
