// SPDX-License-Identifier: Apache-2.0
// Chooses the schedule of a group of one pass: group_axes.cpp which axes play which role, group_tile.cpp the sizes of
// tiles and sweeps, group_schedule.cpp vectors and the grid.
#pragma once

#include <algorithm>
#include <vector>

#include "base/rounding.h"
#include "gpu/codegen/group_schedule.h"

namespace paoding::gpu {

/// The threads of a CTA where CTAs go through memory in order, a vector each: of whole rows, or of a part of a row that
/// is longer. The last load of such a CTA holds it up: a warp a row took 1 us more of 36, and half a row of 8 channels
/// by 4 vectors a thread 0.7 (H200).
struct OrderedCta {
  static constexpr std::int64_t kMostThreads = 512;
  std::int64_t lanes, rows;

  explicit OrderedCta(std::int64_t vectors)
      : lanes(ceil_div(vectors, ceil_div(vectors, kMostThreads))), rows(pow2_floor(kMostThreads / lanes)) {}
};

/// One choice of a schedule; run() is called once.
class Scheduler {
 public:
  Scheduler(const Group& group, std::span<const int> alignment, const Target& target, bool may_share,
            int stage_threads);
  GroupSchedule run();
  /// False once CTAs were to share reductions, a CTA an SM, and that did not do.
  bool may_share() const { return may_share_; }

 private:
  // Threads of a CTA where nothing asks for others, and elements of a vector.
  static constexpr int kThreads = 256, kMaxVector = 8;

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
  DType dtype(std::size_t operand) const { return operand_dtype(group_, operand); }
  bool fits_vector(std::size_t i, int vector) const { return gpu::fits_vector(group_, i, alignment_[i], vector); }
  std::int64_t distinct_bytes(std::size_t i) const { return distinct_elements(group_, i) * size_bytes(dtype(i)); }

  // ---- Axis roles ----

  void choose_form();
  /// Whether CTAs go through memory in its order, though the axes of a sum lie on both sides of the one that it keeps:
  /// each leaves sums of a few rows of the inner axis. Worth more partial sums where as much is written as is read: a
  /// sweep along both axes has its CTAs at places far apart.
  bool may_keep_order(const std::vector<int>& same, const std::vector<int>& others) const;
  /// The axis along which a load of a pointwise group lies whose elements are far apart along the inner one, as in a
  /// transpose; -1 without one, or where latency decides.
  int transposed_axis(const std::vector<int>& axes) const;
  /// CTAs that read the same part of a large load should run together, as neighbours: an axis along which such a load
  /// stays the same, while it moves along others, becomes a grid axis, which order_grid() then puts first. Where
  /// nothing is reduced this is done for the largest load only: L2 serves loads that fit it, and threads go on with the
  /// values they hold.
  void separate_shared(std::vector<int>* axes);
  /// The largest load that stays the same along one of the axes and does not stay in L2 while the kernel streams
  /// through it; -1 if there is none.
  int largest_shared(const std::vector<int>& axes) const;

  // ---- Sinks and vectors: 16 bytes of the widest operand that is contiguous along the inner axis ----

  void choose_sinks();
  void choose_vector();
  void use_vector(int vector);

  // ---- Sizes ----

  /// Bytes that a thread asks for in one step of its loop.
  std::int64_t step_bytes() const;
  /// Steps in flight together, so that resident threads (1024 per SM in reductions, 1536 in lighter pointwise
  /// kernels) ask for in_flight_bytes.
  int choose_unroll(std::int64_t steps) const;
  std::int64_t read_bytes() const;
  /// Parts that each of `tiles` independent pieces of work is split into: none from two CTAs per SM on; else enough
  /// for `waves`, unless the parts get too small to be worth a partial sum.
  std::int64_t choose_split(std::int64_t tiles, std::int64_t waves = 1) const;
  /// CTAs that share each of `tiles` reductions, where all of them together have about a CTA an SM; 1 where not.
  int choose_sharers(std::int64_t tiles) const;
  /// Whether the split is the one dimension of the grid that is reduced.
  bool shares_whole_reductions() const;
  std::int64_t grid_axis_product() const {
    std::int64_t product = extent_product(s_.grid_axes);
    return product / s_.block / s_.chunk;
  }
  int least_threads() const { return s_.is_stage ? stage_threads_ : is_small_ ? 128 : kThreads; }

  // ---- Tile: lanes stay on columns, threads walk down the serial axes ----

  void choose_tile();
  /// Tiles so narrow that a few CTAs each make a CTA an SM, down to 64 bytes of a row.
  bool share_columns();
  /// Narrower tiles make more of them, so fewer partial sums per tile and less for the last arriver to read; down to
  /// 8 lanes (128 bytes of a row), since narrower ones waste parts of cache lines.
  void narrow_columns();
  /// When a large load is the same for all indices of a grid axis, a thread does two of them per load: L2 is asked half
  /// as often. Only while 8 CTAs per SM remain.
  void choose_block_axis();
  /// When row sums are reduced over a grid axis too, every CTA along it leaves a partial sum per row. A CTA that does
  /// several indices of that axis leaves one. Only while 12 CTAs per SM remain.
  void choose_chunk_axis();

  // ---- Sweep: lanes walk along the inner axes, one row of threads per serial index ----

  void choose_sweep();

  // ---- The grid ----

  /// Orders the grid: inner first, then serial, then axes from the inside out; but a dimension along which large loads
  /// stay the same goes before, so that the CTAs that share them run together and find them in L2.
  void order_grid();
  /// 4 CTAs of 256 threads leave 64 registers a thread, which hold the loads in flight and the sums of most groups;
  /// light pointwise groups fit 32 and fill the SM, so that their grid has no small second wave.
  void estimate_residents();
  double in_flight_kilobytes() const;

  // ---- Who adds up the CTAs' partial sums ----

  bool has_partial_sums() const;
  /// Why the last CTA to come adds up, not a second launch; "" where one does.
  std::string adding_later_refusal() const;

  const Group& group_;
  std::span<const int> alignment_;
  const Target& target_;
  bool may_share_;
  int stage_threads_;
  int inner_;
  std::vector<bool> used_;
  bool is_pointwise_ = true;  // nothing is reduced
  bool is_small_ = false;     // pointwise, and latency decides
  bool keeps_order_ = false;  // may_keep_order()
  int sharers_ = 1;           // CTAs that share each reduction, where all of them are about a CTA an SM
  GroupSchedule s_;
};

}  // namespace paoding::gpu
