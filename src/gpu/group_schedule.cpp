// SPDX-License-Identifier: Apache-2.0
#include "gpu/group_schedule.h"

#include <algorithm>
#include <cstdlib>

#include "base/check.h"
#include "base/rounding.h"
#include "gpu/group_formula.h"

namespace paoding::gpu {
namespace {

// Groups below this are a matter of latency, not of bandwidth.
constexpr std::int64_t kSmallPoints = 64 << 10;
// A CTA of a split reduction reads at least this much: one batch of its loads, a vector per thread and unroll step.
constexpr std::int64_t kSplitBytes = 16 << 10;
// More when it leaves a partial sum per column, until there is a wave of two CTAs per SM.
constexpr std::int64_t kColumnSplitBytes = 32 << 10;
// A reduction is split until the grid holds this many CTAs per SM: one wave, all resident. Of a group that writes what
// it reads too, times as many, with as much more in flight: all of one wave would read, and then all write.
constexpr std::int64_t kCtasPerSm = 4, kMoreWhereWritten = 2;
// A split column keeps its rows per CTA above this, so that partial sums stay below 5% of what is read.
constexpr std::int64_t kRowsPerPartial = 40;
// The last arriver reads at most this many partial elements of an output: 20 a thread.
constexpr std::int64_t kPartialsPerTile = 20 * 256;
// The same where that lets CTAs go through memory in order.
constexpr std::int64_t kOrderedPartials = 32 * 256;
// A load with a larger footprint per CTA does not stay in L1 between the CTAs that share it.
constexpr std::int64_t kSharedLoadBytes = 64 << 10;
constexpr int kThreads = 256;
// Of a CTA that shares a reduction with others so that there is one an SM. Clusters of them that add up out of each
// other's shared memory are slower, which takes 1.3 us more for the loads alone (H200).
constexpr int kSharerThreads = 512;
// Rows of threads of such a CTA that sums columns: more take longer to meet than narrower loads to come.
constexpr int kMostSharerRows = 64;
// Beyond, memory is kept busier by many CTAs, and that is worth more (H200). Columns have more room: as many as a batch
// of any usual length sums up, so that all lengths have one text.
constexpr std::int64_t kMostSharedBytes = 64 << 20, kMostSharedColumnBytes = 256 << 20;
constexpr int kMaxVector = 8;
constexpr int kMaxUnroll = 8;
// A pointwise group holds no more shared rows than this in vectors that are wider than theirs: loading them takes as
// long as the few rows of points that each thread has.
constexpr std::size_t kMostHeldRows = 4;
// Rows of points are walked down from this length on.
constexpr std::int64_t kLeastRowOfPoints = 64;
// Of a group that sums columns and moves elements of 16 bits by 16 bytes: steps in flight, and what of them a thread
// has registers for.
constexpr std::int64_t kColumnUnroll = 4, kColumnUnrollBytes = 192;
// Of a group that reads along one axis and writes along another: a warp reads and writes whole sectors of 32 bytes.
constexpr int kTurnedLanes = 8, kTurnedUnroll = 4;
constexpr std::int64_t kLeastTurnedExtent = 32;

class Scheduler {
 public:
  Scheduler(const Group& group, std::span<const int> alignment, const Target& target, bool may_share, int phase_threads)
      : group_(group),
        alignment_(alignment),
        target_(target),
        may_share_(may_share),
        phase_threads_(phase_threads),
        inner_(group.rank() - 1),
        used_(used_by(group, live_values(group, std::vector<bool>(group.outputs.size(), true))).loads) {
    for (const GroupOutput& output : group_.outputs) is_pointwise_ = is_pointwise_ && output.reduce_mask == 0;
    is_small_ = is_pointwise_ && group_.points() <= kSmallPoints;
    s_.is_phase = phase_threads > 0;
    s_.is_wide = needs_wide_offsets(group_);
  }

  GroupSchedule run() {
    choose_form();
    choose_vector();
    choose_sinks();
    if (s_.form == LoopForm::tile) {
      choose_tile();
    } else {
      choose_sweep();
    }
    order_grid();
    estimate_residents();
    s_.sharers = sharers_;
    s_.why = describe(s_, target_, in_flight_kilobytes());
    return std::move(s_);
  }
  /// False once CTAs were to share reductions, a CTA an SM, and that did not do.
  bool may_share() const { return may_share_; }

 private:
  std::int64_t extent(int axis) const { return group_.extents[static_cast<std::size_t>(axis)]; }
  std::int64_t extent_product(const std::vector<int>& axes) const {
    std::int64_t product = 1;
    for (const int axis : axes) product *= extent(axis);
    return product;
  }
  std::int64_t stride(std::size_t operand, int axis) const {
    return operand_strides(group_, operand)[static_cast<std::size_t>(axis)];
  }
  bool varies(std::size_t operand, const std::vector<int>& axes) const {
    return std::any_of(axes.begin(), axes.end(), [&](int axis) { return stride(operand, axis) != 0; });
  }
  /// Bit o: output o reduces this axis. Axes of one class play the same role everywhere and may share an index.
  std::uint64_t axis_class(int axis) const {
    std::uint64_t bits = 0;
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      if ((group_.outputs[o].reduce_mask >> axis) & 1u) bits |= std::uint64_t{1} << o;
    }
    return bits;
  }
  bool has_sink(SinkKind kind) const { return std::find(s_.sinks.begin(), s_.sinks.end(), kind) != s_.sinks.end(); }

  // ---- Axis roles ----
  void choose_form() {
    const std::uint64_t inner_class = axis_class(inner_);
    bool keeps_inner = false;
    for (const GroupOutput& output : group_.outputs) {
      keeps_inner = keeps_inner || (output.reduce_mask != 0 && !((output.reduce_mask >> inner_) & 1u));
    }
    std::vector<int> same, others;  // as the inner axis, or not
    for (int axis = 0; axis < inner_; ++axis) (axis_class(axis) == inner_class ? same : others).push_back(axis);
    // Columns need lanes that stay where they are. So do short rows, where a sweep would leave lanes idle, and
    // pointwise groups of several axes with a long inner one, which then need no division per vector.
    const bool is_short = same.empty() && extent(inner_) <= 32 * 4 && !others.empty();
    const int turned = turned_axis(same);
    const bool is_rows_of_points =
        is_pointwise_ && !same.empty() && (extent(inner_) >= kLeastRowOfPoints || turned >= 0);
    s_.form = keeps_inner || (!is_pointwise_ && is_short) || is_rows_of_points ? LoopForm::tile : LoopForm::sweep;
    s_.inner_axes = {inner_};
    keeps_order_ = s_.form == LoopForm::sweep && may_keep_order(same, others);
    std::vector<int>& same_are = keeps_order_ ? s_.grid_axes : s_.inner_axes;
    if (s_.form == LoopForm::sweep) same_are.insert(same_are.begin(), same.begin(), same.end());
    if (s_.form == LoopForm::sweep && is_pointwise_) separate_shared(&s_.inner_axes);

    // The serial axes: one class, reduced by as many of the column outputs as possible, then the largest.
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
    const auto at = std::find(s_.serial_axes.begin(), s_.serial_axes.end(), turned);
    s_.is_turned = at != s_.serial_axes.end();
    if (s_.is_turned) std::rotate(at, at + 1, s_.serial_axes.end());  // the fastest
    s_.serial_count = extent_product(s_.serial_axes);
  }

  /// Whether CTAs go through memory in its order, though the axes of a sum lie on both sides of the one that it keeps:
  /// each leaves sums of a few rows of the inner axis. Worth more partial sums where as much is written as is read: a
  /// sweep along both axes has its CTAs at places far apart.
  bool may_keep_order(const std::vector<int>& same, const std::vector<int>& others) const {
    if (same.empty() || others.size() != 1 || same.back() > others[0]) return false;
    const bool stores =
        std::ranges::any_of(group_.outputs, [](const GroupOutput& out) { return out.reduce_mask == 0; });
    std::int64_t bytes = 1;  // of an element of the widest operand
    for (std::size_t i = 0; i < group_.operands(); ++i) bytes = std::max(bytes, size_bytes(dtype(i)));
    const std::int64_t vectors = extent(inner_) * bytes / 16, places = extent_product(same);
    const bool fills_warps = vectors >= 64 && 4 * vectors >= 3 * ceil_div(vectors, 32) * 32;
    const std::int64_t tiles = ceil_div(extent(others[0]), kThreads / 32);
    return stores && fills_warps && places * (kThreads / 32) <= kOrderedPartials &&
           tiles * places >= 12 * target_.sm_count;
  }

  /// The axis along which a load of a pointwise group lies whose elements are far apart along the inner one, as in a
  /// transpose; -1 without one, or where latency decides.
  int turned_axis(const std::vector<int>& axes) const {
    if (!is_pointwise_ || is_small_ || extent(inner_) < kLeastTurnedExtent) return -1;
    for (const int axis : axes) {
      for (std::size_t i = 0; i < group_.loads.size(); ++i) {
        const bool is_turned = used_[i] && stride(i, axis) == 1 && std::abs(stride(i, inner_)) > 1;
        if (is_turned && extent(axis) >= kLeastTurnedExtent) return axis;
      }
    }
    return -1;
  }

  /// What reads the same part of a large load should run together, as neighbouring CTAs: an axis along which such a
  /// load stays the same, while it moves along others, becomes a grid axis, which order_grid() then puts first. Where
  /// nothing is reduced it is done for the largest load only: L2 serves what fits it, and threads go on with what they
  /// hold.
  void separate_shared(std::vector<int>* axes) {
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

  std::int64_t distinct_bytes(std::size_t i) const { return distinct_elements(group_, i) * size_bytes(dtype(i)); }
  /// The largest load that stays the same along one of the axes and does not stay in L2 while the kernel streams
  /// through it; -1 if there is none.
  int largest_shared(const std::vector<int>& axes) const {
    int largest = -1;
    for (std::size_t i = 0; i < group_.loads.size(); ++i) {
      const bool is_shared = std::any_of(axes.begin(), axes.end(), [&](int axis) { return stride(i, axis) == 0; });
      if (!used_[i] || !is_shared || distinct_bytes(i) <= target_.last_cache_bytes / 4) continue;
      if (largest < 0 || distinct_bytes(i) > distinct_bytes(static_cast<std::size_t>(largest)))
        largest = static_cast<int>(i);
    }
    return largest;
  }

  void choose_sinks() {
    for (const GroupOutput& output : group_.outputs) {
      const bool reduces_inner = (output.reduce_mask >> inner_) & 1u;
      const bool reduces_serial = s_.serial_axes.empty() || ((output.reduce_mask >> s_.serial_axes[0]) & 1u);
      s_.sinks.push_back(output.reduce_mask == 0 ? SinkKind::store
                         : reduces_inner         ? (reduces_serial ? SinkKind::total : SinkKind::row)
                         : reduces_serial        ? SinkKind::column
                                                 : SinkKind::spread);
    }
  }

  // ---- Vectors: 16 bytes of the widest operand that is contiguous along the inner axis ----

  DType dtype(std::size_t operand) const { return operand_dtype(group_, operand); }
  bool fits_vector(std::size_t i, int vector) const { return gpu::fits_vector(group_, i, alignment_[i], vector); }

  void choose_vector() {
    std::int64_t most = std::min<std::int64_t>(kMaxVector, pow2_floor(extent(inner_)));
    // A small group has too few points for all SMs: narrow vectors spread it over more warps.
    if (is_small_) {
      const std::int64_t threads = s_.is_phase ? phase_threads_ : target_.sm_count * 48;
      most = std::min(most, pow2_floor(std::max<std::int64_t>(1, group_.points() / threads)));
    }
    const bool may_be_ragged = s_.form == LoopForm::tile || s_.inner_axes.size() == 1;
    const std::size_t rows_held = s_.form != LoopForm::tile ? 0 : is_pointwise_ ? kMostHeldRows : group_.loads.size();
    use_vector(vector_of_streams(group_, used_, alignment_, most, may_be_ragged, rows_held));
  }
  void use_vector(int vector) {
    s_.vector = vector;
    s_.is_ragged = extent(inner_) % s_.vector != 0;
    s_.is_vector.clear();
    for (std::size_t i = 0; i < group_.operands(); ++i)
      s_.is_vector.push_back(s_.vector == 1 || fits_vector(i, s_.vector));
    std::vector<int> outer(s_.inner_axes.begin(), s_.inner_axes.end() - 1);
    s_.inner_vectors = extent_product(outer) * ceil_div(extent(inner_), s_.vector);
  }

  // ---- Sizes ----

  /// Bytes that a thread asks for in one step of its loop.
  std::int64_t step_bytes() const {
    const std::vector<int>& loop = s_.form == LoopForm::tile ? s_.serial_axes : s_.inner_axes;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < group_.loads.size(); ++i) {
      if (!used_[i] || !varies(i, loop)) continue;
      const bool is_blocked = s_.block_axis >= 0 && stride(i, s_.block_axis) != 0;
      bytes += size_bytes(dtype(i)) * (stride(i, inner_) != 0 ? s_.vector : 1) * (is_blocked ? s_.block : 1);
    }
    return bytes;
  }
  /// Steps in flight together, so that resident threads (1024 per SM in reductions, 1536 in lighter pointwise
  /// kernels) ask for in_flight_bytes.
  int choose_unroll(std::int64_t steps) const {
    if (is_small_) return 1;
    // Row sums in a tile are shuffles between two batches of loads, while nothing is in flight: larger batches.
    const bool pauses = s_.form == LoopForm::tile && has_sink(SinkKind::row);
    const std::int64_t wanted = target_.in_flight_bytes * (pauses ? 2 : 1);
    const std::int64_t threads = s_.is_phase     ? phase_threads_
                                 : is_pointwise_ ? 1536
                                 : sharers_ > 1  ? kSharerThreads
                                                 : 1024;
    const std::int64_t step = step_bytes();
    std::int64_t unroll = step == 0 ? 1 : pow2_ceil(ceil_div(wanted, threads * step));
    if (has_sink(SinkKind::column) && s_.vector > 4 && step > 0)
      unroll = std::max(unroll, std::min(kColumnUnroll, pow2_floor(kColumnUnrollBytes / step)));
    const std::int64_t most = std::min<std::int64_t>(pauses ? kMaxUnroll / 2 : kMaxUnroll, pow2_ceil(steps));
    const auto made = static_cast<int>(std::clamp<std::int64_t>(unroll, 1, most));
    if (sharers_ == 1) return made;
    // Batches as long as each other, as nothing else fills a short one's gaps; longer ones take the next launch's
    // place. Of columns they are as long as 64 registers allow in two (H200: of 16 bytes 7 are faster than 9), for all
    // lengths.
    if (s_.form == LoopForm::tile) return made < kMaxUnroll ? made : step <= 8 ? 13 : step <= 16 ? 7 : made;
    const std::int64_t longest = std::min<std::int64_t>(made, step <= 16 ? 6 : 4);
    return static_cast<int>(ceil_div(steps, ceil_div(steps, longest)));
  }
  std::int64_t read_bytes() const {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < group_.loads.size(); ++i) {
      if (used_[i] && stride(i, inner_) != 0) bytes += size_bytes(dtype(i));
    }
    return bytes * group_.points();
  }
  /// Parts that each of `tiles` independent pieces of work is split into: none from two CTAs per SM on; else enough
  /// for `waves`, unless the parts get too small to be worth a partial sum.
  std::int64_t choose_split(std::int64_t tiles, std::int64_t waves = 1) const {
    if (s_.is_phase || tiles >= 2 * target_.sm_count) return 1;
    const std::int64_t full = waves * kCtasPerSm * target_.sm_count / tiles;
    std::int64_t by_bytes = read_bytes() / (tiles * kSplitBytes);
    if (has_sink(SinkKind::column)) {
      const std::int64_t two_per_sm = 2 * target_.sm_count / tiles;
      by_bytes = std::max(read_bytes() / (tiles * kColumnSplitBytes), std::min(by_bytes, two_per_sm));
    }
    return std::max<std::int64_t>(1, std::min(full, by_bytes));
  }
  /// CTAs that share each of `tiles` reductions, where all of them together have about a CTA an SM; 1 where not.
  int choose_sharers(std::int64_t tiles) const {
    if (!may_share_ || has_sink(SinkKind::spread)) return 1;
    for (const int sharers : {8, 4, 2}) {
      const std::int64_t ctas = tiles * sharers;
      if (ctas > target_.sm_count * 97 / 100) continue;
      const std::int64_t most = s_.form == LoopForm::tile ? kMostSharedColumnBytes : kMostSharedBytes;
      const bool pays = group_.min_bytes() <= most && read_bytes() >= ctas * kSplitBytes;
      return pays && ctas >= target_.sm_count * 72 / 100 ? sharers : 1;
    }
    return 1;
  }
  /// Whether the split is the one dimension of the grid that is reduced.
  bool shares_whole_reductions() const {
    if (s_.grid.empty() || s_.grid[0].over == GridDim::Over::axis || s_.grid[0].count != sharers_) return false;
    for (std::size_t o = 0; o < s_.sinks.size(); ++o) {
      if (s_.sinks[o] == SinkKind::store) continue;
      for (const GridDim& dim : s_.grid) {
        if (reduces(group_.outputs[o], s_.sinks[o], dim) != (&dim == &s_.grid[0])) return false;
      }
    }
    return s_.block_axis < 0 && s_.chunk_axis < 0;
  }
  std::int64_t grid_axis_product() const {
    std::int64_t product = extent_product(s_.grid_axes);
    return product / s_.block / s_.chunk;
  }

  int least_threads() const { return s_.is_phase ? phase_threads_ : is_small_ ? 128 : kThreads; }

  // ---- Tile: lanes stay on columns, threads walk down the serial axes ----

  void choose_tile() {
    const std::int64_t vectors = s_.inner_vectors;
    int threads = least_threads();
    if (is_pointwise_) {
      // The widest tile that leaves at most 1/8 more lanes idle than the best one.
      double best = 0;
      auto use = [&](int lanes) { return double(vectors) / double(ceil_div(vectors, lanes) * lanes); };
      for (int lanes = 8; lanes <= threads; lanes *= 2) best = std::max(best, use(lanes));
      s_.lanes = threads;
      while (s_.lanes > 8 && use(s_.lanes) < best - 0.125) s_.lanes /= 2;
      if (s_.is_turned) s_.lanes = kTurnedLanes;
    } else {
      s_.lanes = static_cast<int>(std::min<std::int64_t>(32, pow2_ceil(vectors)));
      if (s_.is_phase && !has_sink(SinkKind::row)) {
        s_.lanes = static_cast<int>(std::min<std::int64_t>(phase_threads_ / 4, pow2_ceil(vectors)));
      } else if (has_sink(SinkKind::column) && !has_sink(SinkKind::row)) {
        if (share_columns())
          threads = kSharerThreads;
        else
          narrow_columns();
      }
    }
    s_.rows = threads / s_.lanes;
    const bool may_shrink = is_small_ && !s_.is_phase;
    while (may_shrink && s_.rows > 1 && s_.rows / 2 >= s_.serial_count && s_.lanes * s_.rows > 64) s_.rows /= 2;
    choose_block_axis();

    const std::int64_t tiles = ceil_div(vectors, s_.lanes) * grid_axis_product();
    const std::int64_t steps = ceil_div(s_.serial_count, s_.rows);
    const bool keeps_serial = !has_sink(SinkKind::column) && !has_sink(SinkKind::total);
    s_.unroll = s_.is_turned ? kTurnedUnroll : choose_unroll(steps);
    if (keeps_serial) {
      // Nothing is carried along: a CTA does one batch, or up to 8 while 16 CTAs per SM remain, to reuse what it holds.
      const std::int64_t batch = s_.rows * s_.unroll;
      const std::int64_t ctas = tiles * ceil_div(s_.serial_count, batch);
      s_.serial_chunk = batch * std::clamp<std::int64_t>(ctas / (16 * target_.sm_count), 1, 8);
    } else {
      std::int64_t split = sharers_ > 1 ? sharers_ : choose_split(tiles);
      if (has_sink(SinkKind::column) && sharers_ == 1)
        split = std::min(split, std::max<std::int64_t>(1, s_.serial_count / kRowsPerPartial));
      s_.serial_chunk = ceil_div(ceil_div(s_.serial_count, split), s_.rows) * s_.rows;
    }
    s_.inner_chunk = s_.lanes;
    choose_chunk_axis();
    for (std::size_t a = s_.grid_axes.size(); a-- > 0;) {
      const int axis = s_.grid_axes[a];
      s_.grid.push_back({GridDim::Over::axis, axis,
                         extent(axis) / (axis == s_.block_axis   ? s_.block
                                         : axis == s_.chunk_axis ? s_.chunk
                                                                 : 1)});
    }
  }

  /// Tiles so narrow that a few CTAs each make a CTA an SM, down to 64 bytes of a row.
  bool share_columns() {
    for (int lanes = s_.lanes; lanes >= 4; lanes /= 2) {
      sharers_ = choose_sharers(ceil_div(s_.inner_vectors, lanes) * grid_axis_product());
      if (sharers_ == 1) continue;
      s_.lanes = lanes;
      if (kSharerThreads / lanes > kMostSharerRows && s_.vector == kMaxVector) {
        use_vector(kMaxVector / 2);
        s_.lanes *= 2;
      }
      return true;
    }
    return false;
  }

  /// Narrower tiles make more of them, so fewer partial sums per tile and less for the last arriver to read; down to
  /// 8 lanes (128 bytes of a row), since narrower ones waste parts of cache lines.
  void narrow_columns() {
    for (; s_.lanes > 8; s_.lanes /= 2) {
      const std::int64_t tiles = ceil_div(s_.inner_vectors, s_.lanes) * grid_axis_product();
      const std::int64_t split = choose_split(tiles);
      if (tiles * split >= target_.sm_count && (split == 1 || split * s_.lanes * s_.vector <= kPartialsPerTile)) break;
    }
  }

  /// When a large load is the same for all indices of a grid axis, a thread does two of them per load: L2 is asked half
  /// as often. Only while 8 CTAs per SM remain.
  void choose_block_axis() {
    if (is_pointwise_ || has_sink(SinkKind::spread)) return;
    const std::int64_t ctas = ceil_div(s_.inner_vectors, s_.lanes) * grid_axis_product();
    if (ctas < 16 * target_.sm_count) return;
    for (const int axis : s_.grid_axes) {
      if (extent(axis) % 2 != 0) continue;
      bool is_shared = false, is_needed = false;
      for (std::size_t i = 0; i < group_.loads.size(); ++i) {
        if (!used_[i] || stride(i, inner_) == 0 || !varies(i, s_.serial_axes)) continue;
        const std::int64_t footprint = s_.serial_count * s_.lanes * s_.vector * size_bytes(dtype(i));
        if (stride(i, axis) != 0)
          is_needed = true;
        else if (footprint >= kSharedLoadBytes)
          is_shared = true;
      }
      if (is_shared && is_needed) {
        s_.block_axis = axis, s_.block = 2;
        return;
      }
    }
  }

  /// When row sums are reduced over a grid axis too, every CTA along it leaves a partial sum per row. A CTA that does
  /// several indices of that axis leaves one. Only while 12 CTAs per SM remain.
  void choose_chunk_axis() {
    constexpr std::int64_t kMaxRowSlots = 2048;
    if (!has_sink(SinkKind::row) || has_sink(SinkKind::spread) || has_sink(SinkKind::total)) return;
    if (s_.serial_chunk * s_.block > kMaxRowSlots) return;
    const std::int64_t ctas =
        ceil_div(s_.inner_vectors, s_.lanes) * grid_axis_product() * ceil_div(s_.serial_count, s_.serial_chunk);
    for (const int axis : s_.grid_axes) {
      if (axis == s_.block_axis) continue;
      bool fits = true;
      for (std::size_t o = 0; o < s_.sinks.size(); ++o) {
        // Columns are written once per index of the chunk, so they must be whole there.
        const std::uint32_t mask = group_.outputs[o].reduce_mask;
        bool is_whole = s_.serial_chunk >= s_.serial_count;
        for (const int other : s_.grid_axes) is_whole = is_whole && !((mask >> other) & 1u);
        const bool reduces = (mask >> axis) & 1u;
        if (s_.sinks[o] == SinkKind::row && !reduces) fits = false;
        if (s_.sinks[o] == SinkKind::column && !is_whole) fits = false;
      }
      if (!fits) continue;
      std::int64_t chunk = 1;
      while (chunk < 8 && extent(axis) % (2 * chunk) == 0 && ctas / (2 * chunk) >= 12 * target_.sm_count) chunk *= 2;
      if (chunk == 1) continue;
      s_.chunk_axis = axis, s_.chunk = chunk;
      s_.row_slots = static_cast<int>(pow2_ceil(s_.serial_chunk * s_.block));
      return;
    }
  }

  // ---- Sweep: lanes walk along the inner axes, one row of threads per serial index ----

  void choose_sweep() {
    const std::int64_t rows = s_.serial_count * grid_axis_product();
    int threads = least_threads();
    if (is_pointwise_) {
      s_.lanes = threads;
    } else if (s_.is_phase) {  // all rows in one turn, where they are not more than threads
      const std::int64_t rows_at_once =
          std::min(pow2_ceil(s_.serial_count), std::int64_t{phase_threads_} / kPhaseLanes);
      s_.lanes = static_cast<int>(std::min(phase_threads_ / rows_at_once, pow2_ceil(s_.inner_vectors)));
    } else if (sharers_ = choose_sharers(rows); sharers_ > 1) {
      s_.lanes = threads = kSharerThreads;
    } else {
      // Enough rows give every warp its own; a few are shared by more warps, so that all SMs have work.
      s_.lanes = rows >= 32 * target_.sm_count ? 32 : rows >= 8 * target_.sm_count ? 128 : 256;
      s_.lanes = static_cast<int>(std::min<std::int64_t>(s_.lanes, pow2_ceil(s_.inner_vectors)));
      const std::int64_t needed = std::max<std::int64_t>(64, s_.lanes * pow2_ceil(s_.serial_count));
      threads = static_cast<int>(std::min<std::int64_t>(threads, needed));
    }
    s_.rows = threads / s_.lanes;
    s_.serial_chunk = s_.rows;
    if (is_pointwise_) {
      s_.unroll = choose_unroll(ceil_div(s_.inner_vectors, s_.lanes));
      s_.inner_chunk = std::int64_t{s_.lanes} * s_.unroll;
    } else {
      const std::int64_t tiles = ceil_div(s_.serial_count, s_.rows) * grid_axis_product();
      const std::int64_t more = has_sink(SinkKind::store) && sharers_ == 1 ? kMoreWhereWritten : 1;
      const std::int64_t split = sharers_ > 1 ? sharers_ : choose_split(tiles, more);
      const std::int64_t whole = std::min(s_.lanes, 32);
      s_.inner_chunk = ceil_div(ceil_div(s_.inner_vectors, split), whole) * whole;
      s_.unroll = choose_unroll(ceil_div(s_.inner_chunk, s_.lanes));
      if (split > 1 || keeps_order_) s_.unroll = std::min(s_.unroll * static_cast<int>(more), kMaxUnroll);
    }
    for (std::size_t a = s_.grid_axes.size(); a-- > 0;) {
      s_.grid.push_back({GridDim::Over::axis, s_.grid_axes[a], extent(s_.grid_axes[a])});
    }
  }

  // ---- The grid ----

  /// Inner first, then serial, then axes from the inside out; but a dimension along which large loads stay the same
  /// goes before, so that the CTAs that share them run together and find them in L2.
  void order_grid() {
    const auto put = [&](GridDim::Over over, std::int64_t n) { s_.grid.insert(s_.grid.begin(), {over, -1, n}); };
    if (const auto n = ceil_div(s_.serial_count, s_.serial_chunk); n > 1) put(GridDim::Over::serial, n);
    const bool is_plain = is_pointwise_ && s_.form == LoopForm::sweep && s_.grid.empty();
    if (const auto n = ceil_div(s_.inner_vectors, s_.inner_chunk); n > 1 || is_plain) put(GridDim::Over::inner, n);
    auto reuse = [&](const GridDim& dim) {
      const std::vector<int> axes = dim.over == GridDim::Over::axis     ? std::vector<int>{dim.axis}
                                    : dim.over == GridDim::Over::serial ? s_.serial_axes
                                                                        : s_.inner_axes;
      std::int64_t bytes = 0;
      for (std::size_t i = 0; i < group_.loads.size(); ++i) {
        if (!used_[i] || varies(i, axes)) continue;
        std::int64_t elements = 1;
        if (varies(i, s_.inner_axes)) elements *= s_.inner_chunk * s_.vector;
        if (varies(i, s_.serial_axes)) elements *= std::min(s_.serial_chunk, s_.serial_count);
        const std::int64_t footprint = elements * size_bytes(dtype(i));
        if (footprint >= 4096) bytes += footprint;
      }
      return bytes;
    };
    std::stable_sort(s_.grid.begin(), s_.grid.end(),
                     [&](const GridDim& a, const GridDim& b) { return reuse(a) > reuse(b); });
    if (sharers_ > 1) {  // whose CTAs are neighbours
      std::ranges::stable_partition(s_.grid, [&](const GridDim& dim) {
        return dim.over == (s_.form == LoopForm::tile ? GridDim::Over::serial : GridDim::Over::inner);
      });
    }
    s_.ctas = 1;
    for (const GridDim& dim : s_.grid) s_.ctas *= dim.count;
  }

  /// 4 CTAs of 256 threads leave 64 registers a thread, which hold the loads in flight and the sums of most groups;
  /// light pointwise groups fit 32 and fill the SM, so that their grid has no small second wave.
  void estimate_residents() {
    std::int64_t words = step_bytes() * s_.unroll / 4;
    if (!is_pointwise_) words += s_.unroll;  // an offset each
    for (std::size_t i = 0; i < group_.loads.size() && s_.form == LoopForm::tile; ++i) {
      if (used_[i] && stride(i, inner_) == 1 && is_shared_row(group_, i))
        words += std::max<std::int64_t>(0, size_bytes(dtype(i)) * s_.vector - 16) / 4;
    }
    for (std::size_t o = 0; o < s_.sinks.size(); ++o) {
      const std::int64_t size = group_.expr.dtype_of(group_.outputs[o].value) == f64 ? 2 : 1;
      if (s_.sinks[o] == SinkKind::column) words += size * s_.vector * s_.block;
      if (s_.sinks[o] == SinkKind::row) words += size * s_.unroll * s_.block;  // shuffled at the same time
      if (s_.sinks[o] == SinkKind::store || s_.sinks[o] == SinkKind::spread) words += size * s_.vector;
    }
    s_.resident_ctas = words <= 32 ? 4 : words <= 64 ? 3 : 2;
    if (sharers_ > 1) {
      s_.resident_ctas = 2;
      if (words > 56 || !shares_whole_reductions()) sharers_ = 1, may_share_ = false;
    }
    if (is_pointwise_ && !is_small_ && !s_.is_turned && !s_.is_wide && words <= 20 && group_.expr.size() <= 16)
      s_.resident_ctas = 8;
  }

  double in_flight_kilobytes() const {
    const std::int64_t resident = std::min<std::int64_t>(ceil_div(s_.ctas, target_.sm_count), 1536 / s_.threads());
    const std::int64_t most = is_pointwise_ ? resident : std::min<std::int64_t>(resident, s_.resident_ctas);
    return double(most * s_.threads() * s_.unroll * step_bytes()) / 1024;
  }

  const Group& group_;
  std::span<const int> alignment_;
  const Target& target_;
  bool may_share_;
  int phase_threads_;
  int inner_;
  std::vector<bool> used_;
  bool is_pointwise_ = true;  // nothing is reduced
  bool is_small_ = false;     // pointwise, and latency decides
  bool keeps_order_ = false;  // may_keep_order()
  int sharers_ = 1;           // CTAs that share each reduction, where all of them are about a CTA an SM
  GroupSchedule s_;
};

}  // namespace

// Whether a CTA an SM does shows when everything else has been chosen for it; where it does not, it is chosen anew.
GroupSchedule schedule_group(const Group& group, std::span<const int> alignment, const Target& target,
                             int phase_threads) {
  PD_ASSERT(group.rank() >= 1 && group.points() > 0, "an empty or rank 0 group is rewritten before it is scheduled");
  PD_ASSERT(alignment.size() == group.operands(), "one alignment per operand");
  const bool may_share = target.major >= 9 && phase_threads == 0;
  Scheduler shared(group, alignment, target, may_share, phase_threads);
  GroupSchedule schedule = shared.run();
  if (!may_share || shared.may_share()) return schedule;
  return Scheduler(group, alignment, target, false, 0).run();
}

}  // namespace paoding::gpu
