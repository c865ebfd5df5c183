// SPDX-License-Identifier: Apache-2.0
// How many threads of a group walk where, in tiles and in sweeps, and how a reduction is split between CTAs.
#include <algorithm>

#include "base/rounding.h"
#include "gpu/codegen/group_scheduler.h"

namespace paoding::gpu {
namespace {

// A CTA of a split reduction reads at least this much: one batch of its loads, a vector per thread and unroll step.
constexpr std::int64_t kSplitBytes = 16 << 10;
// More when it leaves a partial sum per column, until there is a wave of two CTAs per SM.
constexpr std::int64_t kColumnSplitBytes = 32 << 10;
// A reduction is split until the grid holds this many CTAs per SM: one wave, all resident. A group that also stores
// elements of the whole space gets more CTAs by this factor, and as much more in flight: all CTAs of one wave would
// read, and then all write.
constexpr std::int64_t kTileCtasPerSm = 4, kMoreWhereWritten = 2;
// A split column keeps its rows per CTA above this, so that partial sums stay below 5% of the bytes read.
constexpr std::int64_t kRowsPerPartial = 40;
// The last arriver reads at most this many partial elements of an output: 20 a thread.
constexpr std::int64_t kPartialsPerTile = 20 * 256;
// A load with a larger footprint per CTA does not stay in L1 between the CTAs that share it.
constexpr std::int64_t kSharedLoadBytes = 64 << 10;
// Threads of a CTA that shares a reduction with others so that there is one CTA an SM. Clusters that add up out of each
// other's shared memory are slower: the loads alone take 1.3 us more (H200).
constexpr int kSharerThreads = 512;
// Rows of threads of such a CTA that sums columns: more take longer to synchronize than narrower loads to come.
constexpr int kMostSharerRows = 64;
// Beyond, memory is kept busier by many CTAs, and that is worth more (H200). Columns have more room: as many as a batch
// of any usual length sums up, so that all lengths have one text.
constexpr std::int64_t kMostSharedBytes = 64 << 20, kMostSharedColumnBytes = 256 << 20;
constexpr int kMaxUnroll = 8;
// A group that sums columns and moves 16-bit elements by 16 bytes: steps in flight, and the bytes of them that a thread
// has registers for.
constexpr std::int64_t kColumnUnroll = 4, kColumnUnrollBytes = 192;
// A group that reads along one axis and writes along another: a warp reads and writes whole sectors of 32 bytes.
constexpr int kTransposedLanes = 8, kTransposedUnroll = 4;

}  // namespace

std::int64_t Scheduler::step_bytes() const {
  const std::vector<int>& loop = s_.form == LoopForm::tile ? s_.serial_axes : s_.inner_axes;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < group_.loads.size(); ++i) {
    if (!used_[i] || !varies(i, loop)) continue;
    const bool is_blocked = s_.block_axis >= 0 && stride(i, s_.block_axis) != 0;
    bytes += size_bytes(dtype(i)) * (stride(i, inner_) != 0 ? s_.vector : 1) * (is_blocked ? s_.block : 1);
  }
  return bytes;
}

int Scheduler::choose_unroll(std::int64_t steps) const {
  if (is_small_) return 1;
  // Row sums in a tile are shuffles between two batches of loads, while nothing is in flight: larger batches.
  const bool pauses = s_.form == LoopForm::tile && has_sink(SinkKind::row);
  const std::int64_t wanted = target_.in_flight_bytes * (pauses ? 2 : 1);
  const std::int64_t threads = s_.is_stage     ? stage_threads_
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

std::int64_t Scheduler::read_bytes() const {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < group_.loads.size(); ++i) {
    if (used_[i] && stride(i, inner_) != 0) bytes += size_bytes(dtype(i));
  }
  return bytes * group_.points();
}

std::int64_t Scheduler::choose_split(std::int64_t tiles, std::int64_t waves) const {
  if (s_.is_stage || tiles >= 2 * target_.sm_count) return 1;
  const std::int64_t full = waves * kTileCtasPerSm * target_.sm_count / tiles;
  std::int64_t by_bytes = read_bytes() / (tiles * kSplitBytes);
  if (has_sink(SinkKind::column)) {
    const std::int64_t two_per_sm = 2 * target_.sm_count / tiles;
    by_bytes = std::max(read_bytes() / (tiles * kColumnSplitBytes), std::min(by_bytes, two_per_sm));
  }
  return std::max<std::int64_t>(1, std::min(full, by_bytes));
}

int Scheduler::choose_sharers(std::int64_t tiles) const {
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

bool Scheduler::shares_whole_reductions() const {
  if (s_.grid.empty() || s_.grid[0].over == GridDim::Over::axis || s_.grid[0].count != sharers_) return false;
  for (std::size_t o = 0; o < s_.sinks.size(); ++o) {
    if (s_.sinks[o] == SinkKind::store) continue;
    for (const GridDim& dim : s_.grid) {
      if (reduces(group_.outputs[o], s_.sinks[o], dim) != (&dim == &s_.grid[0])) return false;
    }
  }
  return s_.block_axis < 0 && s_.chunk_axis < 0;
}

void Scheduler::choose_tile() {
  const std::int64_t vectors = s_.inner_vectors;
  int threads = least_threads();
  if (is_pointwise_) {
    // The widest tile that leaves at most 1/8 more lanes idle than the best one.
    double best = 0;
    auto use = [&](int lanes) { return double(vectors) / double(ceil_div(vectors, lanes) * lanes); };
    for (int lanes = 8; lanes <= threads; lanes *= 2) best = std::max(best, use(lanes));
    s_.lanes = threads;
    while (s_.lanes > 8 && use(s_.lanes) < best - 0.125) s_.lanes /= 2;
    if (s_.is_transposed) s_.lanes = kTransposedLanes;
  } else {
    s_.lanes = static_cast<int>(std::min<std::int64_t>(32, pow2_ceil(vectors)));
    if (s_.is_stage && !has_sink(SinkKind::row)) {
      s_.lanes = static_cast<int>(std::min<std::int64_t>(stage_threads_ / 4, pow2_ceil(vectors)));
    } else if (has_sink(SinkKind::column) && !has_sink(SinkKind::row)) {
      if (share_columns())
        threads = kSharerThreads;
      else
        narrow_columns();
    }
  }
  s_.rows = threads / s_.lanes;
  const bool may_shrink = is_small_ && !s_.is_stage;
  while (may_shrink && s_.rows > 1 && s_.rows / 2 >= s_.serial_count && s_.lanes * s_.rows > 64) s_.rows /= 2;
  choose_block_axis();

  const std::int64_t tiles = ceil_div(vectors, s_.lanes) * grid_axis_product();
  const std::int64_t steps = ceil_div(s_.serial_count, s_.rows);
  const bool keeps_serial = !has_sink(SinkKind::column) && !has_sink(SinkKind::total);
  s_.unroll = s_.is_transposed ? kTransposedUnroll : choose_unroll(steps);
  if (keeps_serial) {
    // No sum is carried along: a CTA does one batch, or up to 8 while 16 CTAs per SM remain, to reuse the values it
    // holds.
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

bool Scheduler::share_columns() {
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

void Scheduler::narrow_columns() {
  for (; s_.lanes > 8; s_.lanes /= 2) {
    const std::int64_t tiles = ceil_div(s_.inner_vectors, s_.lanes) * grid_axis_product();
    const std::int64_t split = choose_split(tiles);
    if (tiles * split >= target_.sm_count && (split == 1 || split * s_.lanes * s_.vector <= kPartialsPerTile)) break;
  }
}

void Scheduler::choose_block_axis() {
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

void Scheduler::choose_chunk_axis() {
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

void Scheduler::choose_sweep() {
  const std::int64_t rows = s_.serial_count * grid_axis_product();
  int threads = least_threads();
  if (is_pointwise_) {
    s_.lanes = threads;
  } else if (s_.is_stage) {  // all rows in one turn, where they are not more than threads
    const std::int64_t rows_at_once = std::min(pow2_ceil(s_.serial_count), std::int64_t{stage_threads_} / kPhaseLanes);
    s_.lanes = static_cast<int>(std::min(stage_threads_ / rows_at_once, pow2_ceil(s_.inner_vectors)));
  } else if (keeps_order_) {
    const OrderedCta cta(s_.inner_vectors);
    s_.lanes = static_cast<int>(cta.lanes);
    threads = s_.lanes * static_cast<int>(std::min(cta.rows, pow2_ceil(s_.serial_count)));
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
  } else if (keeps_order_) {
    s_.inner_chunk = s_.lanes;
  } else {
    const std::int64_t tiles = ceil_div(s_.serial_count, s_.rows) * grid_axis_product();
    const std::int64_t more = has_sink(SinkKind::store) && sharers_ == 1 ? kMoreWhereWritten : 1;
    const std::int64_t split = sharers_ > 1 ? sharers_ : choose_split(tiles, more);
    const std::int64_t whole = std::min(s_.lanes, 32);
    s_.inner_chunk = ceil_div(ceil_div(s_.inner_vectors, split), whole) * whole;
    s_.unroll = choose_unroll(ceil_div(s_.inner_chunk, s_.lanes));
    if (split > 1) s_.unroll = std::min(s_.unroll * static_cast<int>(more), kMaxUnroll);
  }
  for (std::size_t a = s_.grid_axes.size(); a-- > 0;) {
    s_.grid.push_back({GridDim::Over::axis, s_.grid_axes[a], extent(s_.grid_axes[a])});
  }
}

}  // namespace paoding::gpu
