// SPDX-License-Identifier: Apache-2.0
// Schedules of groups with own reductions. A row (what the reductions reduce) is walked once per stage by threads of
// one CTA; between the stages its loads stay in registers when they fit. Two forms, as for other groups:
//   sweep  rows are contiguous: kLanes threads walk along one row, kRows rows in a CTA
//   tile   rows are strided, neighbours contiguous: kLanes vectors of neighbouring rows, kRows threads walk each
#include <algorithm>

#include "base/check.h"
#include "gpu/group_formula.h"
#include "gpu/group_schedule.h"
#include "group/staged.h"

namespace paoding::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxThreads = 1024;
// Words of a row, and of column sums, that a thread holds: 80 registers with what else it needs; 1024 threads have 64.
constexpr std::int64_t kHeldWords = 32, kHeldWordsWithColumns = 40;
constexpr int kRereadSteps = 4;  // vectors in flight per thread when rows are read again

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t pow2_ceil(std::int64_t n) {
  std::int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

// Few distinct numbers of steps, so that rows of about one length share a text.
std::int64_t round_steps(std::int64_t steps) {
  return steps <= 8 ? steps : steps <= 16 ? ceil_div(steps, 2) * 2 : ceil_div(steps, 4) * 4;
}

class StagedScheduler {
 public:
  StagedScheduler(const Group& group, std::span<const int> alignment, const Target& target)
      : group_(group), alignment_(alignment), target_(target), inner_(group.rank() - 1), stages_(stages(group)) {
    const std::uint32_t row = row_mask(group);
    for (int axis = 0; axis < group.rank(); ++axis) ((row >> axis) & 1u ? walk_ : kept_).push_back(axis);
    s_.form = (row >> inner_) & 1u ? LoopForm::sweep : LoopForm::tile;
    s_.is_wide = needs_wide_offsets(group);
  }

  GroupSchedule run() {
    choose_sinks();
    choose_vector();
    if (s_.form == LoopForm::sweep) {
      choose_sweep();
    } else {
      choose_tile();
    }
    choose_grid();
    explain();
    return std::move(s_);
  }

 private:
  std::int64_t extent_product(const std::vector<int>& axes) const {
    std::int64_t product = 1;
    for (const int axis : axes) product *= group_.extents[static_cast<std::size_t>(axis)];
    return product;
  }
  std::int64_t stride(std::size_t operand, int axis) const {
    return operand_strides(group_, operand)[static_cast<std::size_t>(axis)];
  }
  bool varies(std::size_t operand, const std::vector<int>& axes) const {
    return std::any_of(axes.begin(), axes.end(), [&](int axis) { return stride(operand, axis) != 0; });
  }

  void choose_sinks() {
    const std::uint32_t row = row_mask(group_), rows = rows_mask(group_);
    for (const GroupOutput& output : group_.outputs) {
      const std::uint32_t mask = output.reduce_mask;
      s_.sinks.push_back(mask == 0                                        ? SinkKind::store
                         : mask == row && output.combine == Combine::none ? SinkKind::once
                         : mask == row                                    ? SinkKind::row
                         : mask == (row | rows)                           ? SinkKind::total
                                                                          : SinkKind::column);
      PD_ASSERT(s_.sinks.back() != SinkKind::column || (mask == rows && s_.form == LoopForm::sweep),
                "staged_refusal() lets such an output through");
    }
  }

  /// 16 bytes of the widest operand that moves once per point, where at least half of the bytes can be moved so.
  void choose_vector() {
    const FormulaUse use = used_by(group_, every_value());
    const auto is_stream = [&](std::size_t i) {
      if (stride(i, inner_) != 1) return false;
      return i < group_.loads.size() ? bool(use.loads[i]) : group_.outputs[i - group_.loads.size()].reduce_mask == 0;
    };
    std::int64_t widest = 0, bytes = 0;
    for (std::size_t i = 0; i < group_.operands(); ++i) {
      if (!is_stream(i)) continue;
      widest = std::max(widest, size_bytes(operand_dtype(group_, i)));
      bytes += size_bytes(operand_dtype(group_, i));
    }
    const std::int64_t inner = group_.extents[static_cast<std::size_t>(inner_)];
    const bool may_be_ragged = s_.form == LoopForm::tile || walk_.size() == 1;
    std::int64_t vector = widest == 0 ? 1 : std::min<std::int64_t>(8, 16 / widest);
    for (; vector > 1; vector /= 2) {
      std::int64_t whole = 0;
      for (std::size_t i = 0; i < group_.operands(); ++i) {
        if (is_stream(i) && fits_vector(group_, i, alignment_[i], static_cast<int>(vector))) {
          whole += size_bytes(operand_dtype(group_, i));
        }
      }
      if (vector <= inner && 2 * whole >= bytes && (may_be_ragged || inner % vector == 0)) break;
    }
    s_.vector = static_cast<int>(vector);
    s_.is_ragged = inner % vector != 0;
    for (std::size_t i = 0; i < group_.operands(); ++i) {
      s_.is_vector.push_back(vector == 1 || fits_vector(group_, i, alignment_[i], s_.vector));
    }
  }

  std::vector<std::int32_t> every_value() const {
    std::vector<std::int32_t> values;
    for (const GroupOutput& output : group_.outputs) values.push_back(output.value);
    for (const GroupReduction& reduction : group_.reductions) values.push_back(reduction.value);
    return values;
  }

  /// Loads that are worth holding: they move along the row and from row to row, and more than one stage reads them, or
  /// the first, for which they must be in flight all at once.
  void choose_held() {
    const int last = last_stage();
    std::vector<int> uses(group_.loads.size(), 0), first(group_.loads.size(), last);
    for (int stage = 0; stage <= last; ++stage) {
      std::vector<std::int32_t> values;
      for (const GroupReduction& reduction : group_.reductions) {
        if (stages_[static_cast<std::size_t>(reduction.value)] == stage) values.push_back(reduction.value);
      }
      if (stage == last) {
        for (const GroupOutput& output : group_.outputs) values.push_back(output.value);
      }
      const FormulaUse use = used_by(group_, values);
      for (std::size_t i = 0; i < use.loads.size(); ++i) {
        if (!use.loads[i]) continue;
        ++uses[i];
        first[i] = std::min(first[i], stage);
      }
    }
    const bool has_rows = extent_product(kept_) > 1;
    s_.is_held.assign(group_.loads.size(), false);
    for (std::size_t i = 0; i < group_.loads.size(); ++i) {
      const bool moves = varies(i, walk_) && (!has_rows || varies(i, kept_));
      s_.is_held[i] = moves && (uses[i] > 1 || (uses[i] == 1 && first[i] == 0));
    }
  }
  /// The pass that writes the outputs: after every reduction.
  int last_stage() const {
    int last = 0;
    for (const GroupReduction& reduction : group_.reductions) {
      last = std::max(last, stages_[static_cast<std::size_t>(reduction.value)] + 1);
    }
    return last;
  }

  /// Registers that a thread needs for one vector of held loads, and of column sums.
  std::int64_t vector_words() const {
    std::int64_t words = 0;
    for (std::size_t i = 0; i < group_.loads.size(); ++i) {
      const std::int64_t count = stride(i, inner_) == 0 ? 1 : s_.vector;
      if (s_.is_held[i]) words += ceil_div(count * size_bytes(group_.loads[i].dtype), 4);
    }
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      const std::int64_t size = size_bytes(group_.expr.dtype_of(group_.outputs[o].value)) == 8 ? 2 : 1;
      if (s_.sinks[o] == SinkKind::column) words += size * s_.vector;
    }
    return std::max<std::int64_t>(words, s_.vector);  // the values of a stage, which the compiler may keep
  }
  bool has_columns() const { return std::find(s_.sinks.begin(), s_.sinks.end(), SinkKind::column) != s_.sinks.end(); }

  void choose_sweep() {
    s_.inner_axes = walk_, s_.serial_axes = kept_;
    std::vector<int> outer(walk_.begin(), walk_.end() - 1);
    s_.inner_vectors = extent_product(outer) * ceil_div(group_.extents[static_cast<std::size_t>(inner_)], s_.vector);
    s_.serial_count = s_.row_count = extent_product(kept_);
    choose_held();
    // As few threads per row as can hold it: sums across fewer, and more rows in flight. At least as many as make a
    // row's loads contiguous, and more while SMs would be left without work.
    const std::int64_t most = has_columns() ? kHeldWordsWithColumns : kHeldWords;
    const auto steps_of = [&](std::int64_t lanes) { return round_steps(ceil_div(s_.inner_vectors, lanes)); };
    std::int64_t lanes = std::min<std::int64_t>(32, pow2_ceil(s_.inner_vectors));
    while (lanes < kMaxThreads && steps_of(lanes) * vector_words() > (lanes > kThreads ? kHeldWords : most)) lanes *= 2;
    while (lanes < kThreads && lanes < s_.inner_vectors &&
           s_.row_count * lanes < std::int64_t{kThreads} * 2 * target_.sm_count) {
      lanes *= 2;
    }
    s_.holds_rows = steps_of(lanes) * vector_words() <= most;
    if (!s_.holds_rows) lanes = s_.row_count >= 2 * target_.sm_count ? 512 : kMaxThreads;
    s_.lanes = static_cast<int>(lanes);
    s_.rows = std::max(1, kThreads / s_.lanes);
    while (s_.rows > 1 && s_.rows / 2 >= s_.row_count && s_.threads() > 32) s_.rows /= 2;
    s_.steps = s_.holds_rows ? static_cast<int>(steps_of(lanes)) : kRereadSteps;
    s_.blocks = ceil_div(s_.row_count, s_.rows);
  }

  void choose_tile() {
    s_.inner_axes = {inner_}, s_.serial_axes = walk_;
    for (const int axis : kept_) {
      if (axis != inner_) s_.grid_axes.push_back(axis);
    }
    s_.serial_count = extent_product(walk_);
    s_.inner_vectors = ceil_div(group_.extents[static_cast<std::size_t>(inner_)], s_.vector);
    s_.row_count = extent_product(s_.grid_axes);
    choose_held();
    // Lanes first while few threads can hold a column; then more threads per column, down to 128 bytes of neighbours.
    const std::int64_t widest_tile = pow2_ceil(s_.inner_vectors);
    std::int64_t lanes = std::min<std::int64_t>(kThreads, widest_tile);
    const auto steps_of = [&](std::int64_t n) { return round_steps(ceil_div(s_.serial_count, kThreads / n)); };
    const auto blocks_of = [&](std::int64_t n) { return s_.row_count * ceil_div(s_.inner_vectors, n); };
    while (lanes > 8 && (steps_of(lanes) * vector_words() > kHeldWords ||
                         (blocks_of(lanes) < 2 * target_.sm_count && s_.serial_count >= 2 * kThreads / lanes))) {
      lanes /= 2;
    }
    s_.holds_rows = steps_of(lanes) * vector_words() <= kHeldWords;
    if (!s_.holds_rows) lanes = std::min<std::int64_t>(blocks_of(32) >= 2 * target_.sm_count ? 32 : 8, widest_tile);
    s_.lanes = static_cast<int>(lanes);
    s_.rows = kThreads / s_.lanes;
    while (s_.rows > 1 && s_.rows / 2 >= s_.serial_count && s_.threads() > 32) s_.rows /= 2;
    s_.steps = s_.holds_rows ? static_cast<int>(steps_of(kThreads / s_.rows)) : kRereadSteps;
    s_.blocks = s_.row_count * ceil_div(s_.inner_vectors, s_.lanes);
  }

  /// One turn per CTA; with results over all rows as many CTAs as are resident, each leaving one partial result.
  void choose_grid() {
    const std::int64_t words = s_.steps * vector_words();
    const std::int64_t residents = !s_.holds_rows ? 2 : words <= 16 ? 4 : words <= 40 ? 3 : 2;
    s_.resident_ctas =
        static_cast<int>(std::max<std::int64_t>(1, residents * kThreads / std::max(kThreads, s_.threads())));
    bool is_persistent = false;
    for (const SinkKind sink : s_.sinks) is_persistent |= sink == SinkKind::column || sink == SinkKind::total;
    const std::int64_t wave = std::int64_t{target_.sm_count} * s_.resident_ctas;
    s_.ctas = is_persistent ? std::min(s_.blocks, wave) : s_.blocks;
  }

  void explain() {
    s_.why = fmt::format("staged {}: {} stages, {} lanes x {} elements, {} rows, {} steps {}; {} turns on {} CTAs",
                         s_.form == LoopForm::sweep ? "sweep" : "tile", last_stage() + 1, s_.lanes, s_.vector, s_.rows,
                         s_.steps, s_.holds_rows ? "held in registers" : "at a time, read again in each stage",
                         s_.blocks, s_.ctas);
  }

  const Group& group_;
  std::span<const int> alignment_;
  const Target& target_;
  int inner_;
  std::vector<int> stages_;
  std::vector<int> walk_, kept_;  // axes
  GroupSchedule s_;
};

}  // namespace

GroupSchedule schedule_staged(const Group& group, std::span<const int> alignment, const Target& target) {
  PD_ASSERT(!group.reductions.empty() && group.points() > 0, "an empty group has no reductions left");
  return StagedScheduler(group, alignment, target).run();
}

}  // namespace paoding::gpu
