// SPDX-License-Identifier: Apache-2.0
#include "gpu/codegen/group_schedule.h"

#include <algorithm>

#include "base/check.h"
#include "base/rounding.h"
#include "gpu/codegen/group_formula.h"
#include "gpu/codegen/group_scheduler.h"

namespace paoding::gpu {
namespace {

// Groups below this are a matter of latency, not of bandwidth.
constexpr std::int64_t kSmallPoints = 64 << 10;
// A pointwise group holds no more shared rows than this in vectors that are wider than theirs: loading them takes as
// long as the few rows of points that each thread has.
constexpr std::size_t kMostHeldRows = 4;
// From so many CTAs per resident one on, waiting for tickets takes longer than a second launch: 1.1 us (H200).
constexpr std::int64_t kWavesToAddLater = 2;

}  // namespace

Scheduler::Scheduler(const Group& group, std::span<const int> alignment, const Target& target, bool may_share,
                     int stage_threads)
    : group_(group),
      alignment_(alignment),
      target_(target),
      may_share_(may_share),
      stage_threads_(stage_threads),
      inner_(group.rank() - 1),
      used_(used_by(group, live_values(group, std::vector<bool>(group.outputs.size(), true))).loads) {
  for (const GroupOutput& output : group_.outputs) is_pointwise_ = is_pointwise_ && output.reduce_mask == 0;
  is_small_ = is_pointwise_ && group_.points() <= kSmallPoints;
  s_.is_stage = stage_threads > 0;
  s_.is_wide = needs_wide_offsets(group_);
}

GroupSchedule Scheduler::run() {
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
  if (has_partial_sums()) {
    const std::string refusal = adding_later_refusal();
    s_.adds_later = refusal.empty();
    s_.why += s_.adds_later ? "; a second launch, which starts early, adds up what CTAs leave"
                            : fmt::format("; the last CTA to come adds up, as {}", refusal);
  }
  return std::move(s_);
}

void Scheduler::choose_sinks() {
  for (const GroupOutput& output : group_.outputs) {
    const bool reduces_inner = (output.reduce_mask >> inner_) & 1u;
    const bool reduces_serial = s_.serial_axes.empty() || ((output.reduce_mask >> s_.serial_axes[0]) & 1u);
    s_.sinks.push_back(output.reduce_mask == 0 ? SinkKind::store
                       : reduces_inner         ? (reduces_serial ? SinkKind::total : SinkKind::row)
                       : reduces_serial        ? SinkKind::column
                                               : SinkKind::spread);
  }
}

void Scheduler::choose_vector() {
  std::int64_t most = std::min<std::int64_t>(kMaxVector, pow2_floor(extent(inner_)));
  // A small group has too few points for all SMs: narrow vectors spread it over more warps.
  if (is_small_) {
    const std::int64_t threads = s_.is_stage ? stage_threads_ : target_.sm_count * 48;
    most = std::min(most, pow2_floor(std::max<std::int64_t>(1, group_.points() / threads)));
  }
  const bool may_be_ragged = s_.form == LoopForm::tile || s_.inner_axes.size() == 1;
  const std::size_t rows_held = s_.form != LoopForm::tile ? 0 : is_pointwise_ ? kMostHeldRows : group_.loads.size();
  use_vector(vector_of_streams(group_, used_, alignment_, most, may_be_ragged, rows_held));
}

void Scheduler::use_vector(int vector) {
  s_.vector = vector;
  s_.is_ragged = extent(inner_) % s_.vector != 0;
  s_.is_vector.clear();
  for (std::size_t i = 0; i < group_.operands(); ++i)
    s_.is_vector.push_back(s_.vector == 1 || fits_vector(i, s_.vector));
  std::vector<int> outer(s_.inner_axes.begin(), s_.inner_axes.end() - 1);
  s_.inner_vectors = extent_product(outer) * ceil_div(extent(inner_), s_.vector);
}

void Scheduler::order_grid() {
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

void Scheduler::estimate_residents() {
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
  const bool is_light = !s_.is_transposed && !s_.is_wide && words <= 20 && group_.expr.size() <= 16;
  if (is_pointwise_ && !is_small_ && is_light) s_.resident_ctas = 8;
  if (keeps_order_) s_.resident_ctas = std::max(1, s_.resident_ctas * (is_light ? 2 : 1) * kThreads / s_.threads());
}

bool Scheduler::has_partial_sums() const {
  for (std::size_t o = 0; o < s_.sinks.size(); ++o) {
    if (s_.sinks[o] == SinkKind::store) continue;
    for (const GridDim& dim : s_.grid) {
      if (reduces(group_.outputs[o], s_.sinks[o], dim)) return true;
    }
  }
  return false;
}

std::string Scheduler::adding_later_refusal() const {
  if (keeps_order_) return "";
  if (target_.major < 9) return "launches of this chip do not start early";
  if (!has_sink(SinkKind::store)) return "none has anything else to write";
  if (s_.form != LoopForm::sweep) return "each has many sums";
  const std::int64_t resident = s_.resident_ctas * target_.sm_count;
  return s_.ctas < kWavesToAddLater * resident ? "hardly any waits for its ticket in another's place" : "";
}

double Scheduler::in_flight_kilobytes() const {
  const std::int64_t resident = std::min<std::int64_t>(ceil_div(s_.ctas, target_.sm_count), 1536 / s_.threads());
  const std::int64_t most = is_pointwise_ ? resident : std::min<std::int64_t>(resident, s_.resident_ctas);
  return double(most * s_.threads() * s_.unroll * step_bytes()) / 1024;
}

// Whether a CTA an SM does shows when everything else has been chosen for it; where it does not, it is chosen anew.
GroupSchedule schedule_group(const Group& group, std::span<const int> alignment, const Target& target,
                             int stage_threads) {
  PD_ASSERT(group.rank() >= 1 && group.points() > 0, "an empty or rank 0 group is rewritten before it is scheduled");
  PD_ASSERT(alignment.size() == group.operands(), "one alignment per operand");
  const bool may_share = target.major >= 9 && stage_threads == 0;
  Scheduler shared(group, alignment, target, may_share, stage_threads);
  GroupSchedule schedule = shared.run();
  if (!may_share || shared.may_share()) return schedule;
  return Scheduler(group, alignment, target, false, 0).run();
}

}  // namespace paoding::gpu
