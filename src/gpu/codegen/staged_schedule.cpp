// SPDX-License-Identifier: Apache-2.0
// Schedules of groups with own reductions. A row (the elements of one reduction) is walked once per stage by threads of
// one CTA; between the stages its loads stay in registers when they fit. Two forms, as for other groups:
//   sweep  rows are contiguous: kLanes threads walk along one row, kRows rows in a CTA
//   tile   rows are strided, neighbours contiguous: kLanes vectors of neighbouring rows, kRows threads walk each
#include <algorithm>

#include "base/check.h"
#include "base/rounding.h"
#include "gpu/codegen/group_formula.h"
#include "gpu/codegen/group_schedule.h"
#include "group/staged.h"
#include "scalar/primitive.h"

namespace paoding::gpu {
namespace {

constexpr int kStageThreads = 256;
constexpr int kMaxStageThreads = 1024;
// Words of a row, and of column sums, that a thread holds: with its other needs 80 registers; 1024 threads have 64.
constexpr std::int64_t kHeldWords = 32, kHeldWordsWithColumns = 40;
// The same where a value takes the place of its operands: for a while both are there.
constexpr std::int64_t kCarriedWords = 48;
// The same with the loads of the row after it.
constexpr std::int64_t kFetchedWords = 56;
// Registers of an SM, and those of a thread for all that is not held.
constexpr std::int64_t kRegisters = 65536, kOtherRegisters = 28;
// Fewer vectors than this in a row are not worth a shift; also as many as the elements around them have lanes.
constexpr std::int64_t kShiftedVectors = 16;
// Rows too long to be fetched a turn ahead have a CTA each, of so many threads or as many as hold a row in so few
// vectors: few that wait for each other, many that read and write at different times. Of kernels written by hand for
// 8,192 rows of 1,024, a warp a row took 20.4 us and 128 threads 18.7 (H200). From so many rows an SM on.
constexpr std::int64_t kLanesOfCta = 128, kStepsOfCta = 4, kRowsToSpread = 16;
constexpr int kRereadSteps = 4;  // vectors in flight per thread when rows are read again

// Few distinct numbers of steps, so that rows of about one length share a text.
std::int64_t round_steps(std::int64_t steps) {
  return steps <= 8 ? steps : steps <= 16 ? ceil_div(steps, 2) * 2 : ceil_div(steps, 4) * 4;
}

class StagedScheduler {
 public:
  StagedScheduler(const Group& group, std::span<const int> alignment, const Target& target, int stage_threads)
      : group_(group),
        alignment_(alignment),
        target_(target),
        threads_(stage_threads > 0 ? stage_threads : kStageThreads),
        most_threads_(stage_threads > 0 ? stage_threads : kMaxStageThreads),
        inner_(group.rank() - 1),
        stages_(stages(group)) {
    s_.is_stage = stage_threads > 0;
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
    const auto is_stream = [&](std::size_t i) { return gpu::is_stream(group_, i, use.loads); };
    std::vector<std::size_t> streams;
    for (std::size_t i = 0; i < group_.operands(); ++i) {
      if (is_stream(i)) streams.push_back(i);
    }
    const std::int64_t inner = group_.extents[static_cast<std::size_t>(inner_)];
    const bool may_be_ragged = s_.form == LoopForm::tile || walk_.size() == 1;
    const int vector =
        vector_of_streams(group_, streams, alignment_, std::min<std::int64_t>(8, pow2_floor(inner)), may_be_ragged);
    s_.vector = vector;
    s_.is_ragged = inner % vector != 0;
    for (std::size_t i = 0; i < group_.operands(); ++i) {
      s_.is_vector.push_back(vector == 1 || fits_vector(group_, i, alignment_[i], s_.vector));
    }
    if (streams.empty() || s_.form == LoopForm::tile || walk_.size() > 1 || has_columns()) return;
    // Rows of an odd number of elements: every one begins at another distance from an aligned address.
    const ElementBytes bytes = element_bytes(group_, streams);
    for (std::int64_t shifted = std::min<std::int64_t>(8, 16 / bytes.widest); shifted > vector; shifted /= 2) {
      for (std::size_t like = 0; like < group_.operands() && inner >= kShiftedVectors * shifted; ++like) {
        if (!is_stream(like)) continue;
        std::vector<bool> is_vector;
        std::int64_t whole = 0;
        for (std::size_t i = 0; i < group_.operands(); ++i) {
          is_vector.push_back(stride(i, inner_) == 1 && shifts_like(i, like, shifted));
          if (is_vector.back() && is_stream(i)) whole += size_bytes(operand_dtype(group_, i));
        }
        if (2 * whole < bytes.all || !is_vector[like]) continue;
        s_.vector = static_cast<int>(shifted), s_.shifted_like = static_cast<int>(like);
        s_.is_vector = std::move(is_vector), s_.is_ragged = false;
        return;
      }
    }
  }

  /// Whether both operands' rows begin at the same distance from whole vectors.
  bool shifts_like(std::size_t i, std::size_t like, std::int64_t vector) const {
    const std::int64_t piece = std::min<std::int64_t>(16, vector * size_bytes(operand_dtype(group_, i)));
    return alignment_[i] % piece == 0 &&
           std::ranges::all_of(kept_, [&](int axis) { return (stride(i, axis) - stride(like, axis)) % vector == 0; });
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

  std::int64_t held_words(const std::vector<bool>& is_held) const {
    std::int64_t words = 0;
    for (std::size_t i = 0; i < group_.loads.size(); ++i) {
      const std::int64_t count = stride(i, inner_) == 0 ? 1 : s_.vector;
      if (is_held[i]) words += ceil_div(count * size_bytes(group_.loads[i].dtype), 4);
    }
    return words;
  }
  /// Registers that a thread needs for one vector of held loads, and of column sums.
  std::int64_t vector_words() const {
    std::int64_t words = held_words(s_.is_held);
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      const std::int64_t size = size_bytes(group_.expr.dtype_of(group_.outputs[o].value)) == 8 ? 2 : 1;
      if (s_.sinks[o] == SinkKind::column) words += size * s_.vector;
    }
    return std::max<std::int64_t>(words, s_.vector);  // the values of a stage, which the compiler may keep
  }
  /// Registers for a vector of held loads and of one value made of them.
  std::int64_t carrying_words() const { return held_words(s_.is_held) + s_.vector; }
  bool has_columns() const { return std::find(s_.sinks.begin(), s_.sinks.end(), SinkKind::column) != s_.sinks.end(); }
  /// With results over all rows CTAs stay, and go from row to row.
  bool is_persistent() const {
    return has_columns() || std::find(s_.sinks.begin(), s_.sinks.end(), SinkKind::total) != s_.sinks.end();
  }

  void choose_sweep() {
    s_.inner_axes = walk_, s_.serial_axes = kept_;
    std::vector<int> outer(walk_.begin(), walk_.end() - 1);
    const std::int64_t inner = group_.extents[static_cast<std::size_t>(inner_)];
    s_.inner_vectors = s_.shifted_like >= 0 ? inner / s_.vector : extent_product(outer) * ceil_div(inner, s_.vector);
    s_.serial_count = s_.row_count = extent_product(kept_);
    choose_held();
    // Uses as few threads per row as can hold it: sums across fewer, and more rows in flight. There are at least as
    // many as make a row's loads contiguous, and more while SMs would be left without work.
    const std::int64_t most = has_columns() ? kHeldWordsWithColumns : kHeldWords;
    const auto steps_of = [&](std::int64_t lanes) { return round_steps(ceil_div(s_.inner_vectors, lanes)); };
    std::int64_t lanes = std::min<std::int64_t>(32, pow2_ceil(s_.inner_vectors));
    if (s_.is_stage) {
      lanes = std::clamp<std::int64_t>(threads_ / pow2_ceil(s_.row_count), kPhaseLanes, threads_);
      lanes = std::min(lanes, pow2_ceil(s_.inner_vectors));
    }
    while (lanes < most_threads_ && steps_of(lanes) * vector_words() > (lanes > threads_ ? kHeldWords : most))
      lanes *= 2;
    while (!s_.is_stage && lanes < threads_ && lanes < s_.inner_vectors &&
           s_.row_count * lanes < std::int64_t{threads_} * 2 * target_.sm_count) {
      lanes *= 2;
    }
    s_.holds_rows = steps_of(lanes) * vector_words() <= most;
    if (s_.holds_rows && lanes > 32 && !carried_values().empty()) {
      while (lanes < most_threads_ / 2 && steps_of(lanes) * carrying_words() > kCarriedWords) lanes *= 2;
    }
    if (!s_.holds_rows)
      lanes = s_.row_count >= 2 * target_.sm_count ? std::min<std::int64_t>(512, most_threads_) : most_threads_;
    const std::int64_t held = steps_of(lanes) * (vector_words() + held_words(s_.is_held));
    has_cta_a_row_ = !s_.is_stage && s_.holds_rows && !is_persistent() && held > kFetchedWords &&
                     s_.row_count >= kRowsToSpread * target_.sm_count;
    while (has_cta_a_row_ && lanes < threads_ && (lanes < kLanesOfCta || steps_of(lanes) > kStepsOfCta)) lanes *= 2;
    s_.lanes = static_cast<int>(lanes);
    s_.rows = has_cta_a_row_ ? 1 : std::max(1, threads_ / s_.lanes);
    while (!s_.is_stage && s_.rows > 1 && s_.rows / 2 >= s_.row_count && s_.threads() > 32) s_.rows /= 2;
    s_.steps = s_.holds_rows ? static_cast<int>(steps_of(lanes)) : kRereadSteps;
    s_.blocks = ceil_div(s_.row_count, s_.rows);
    if (s_.holds_rows && s_.steps * carrying_words() <= kCarriedWords) s_.carried = carried_values();
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
    std::int64_t lanes = std::min<std::int64_t>(threads_, widest_tile);
    const auto steps_of = [&](std::int64_t n) { return round_steps(ceil_div(s_.serial_count, threads_ / n)); };
    const auto blocks_of = [&](std::int64_t n) { return s_.row_count * ceil_div(s_.inner_vectors, n); };
    while (lanes > 8 && (steps_of(lanes) * vector_words() > kHeldWords ||
                         (blocks_of(lanes) < 2 * target_.sm_count && s_.serial_count >= 2 * threads_ / lanes))) {
      lanes /= 2;
    }
    s_.holds_rows = steps_of(lanes) * vector_words() <= kHeldWords;
    if (!s_.holds_rows) lanes = std::min<std::int64_t>(blocks_of(32) >= 2 * target_.sm_count ? 32 : 8, widest_tile);
    s_.lanes = static_cast<int>(lanes);
    s_.rows = threads_ / s_.lanes;
    while (!s_.is_stage && s_.rows > 1 && s_.rows / 2 >= s_.serial_count && s_.threads() > 32) s_.rows /= 2;
    s_.steps = s_.holds_rows ? static_cast<int>(steps_of(threads_ / s_.rows)) : kRereadSteps;
    s_.blocks = s_.row_count * ceil_div(s_.inner_vectors, s_.lanes);
    if (s_.holds_rows && s_.steps * carrying_words() <= kCarriedWords) s_.carried = carried_values();
  }

  std::vector<std::int32_t> pass_values(int pass) const {
    std::vector<std::int32_t> values;
    for (const GroupReduction& reduction : group_.reductions) {
      if (stages_[static_cast<std::size_t>(reduction.value)] == pass) values.push_back(reduction.value);
    }
    for (std::size_t o = 0; pass == last_stage() && o < group_.outputs.size(); ++o) {
      if (s_.sinks[o] != SinkKind::once) values.push_back(group_.outputs[o].value);
    }
    return values;
  }

  /// Values that a later pass would have to compute again, at some cost, stay in the registers of loads that nothing
  /// needs any more then: the powers of a softmax instead of its logits.
  std::vector<CarriedValue> carried_values() const {
    std::vector<CarriedValue> carried;
    const std::vector<bool> in_row = varies_along(group_, row_mask(group_));
    const std::int64_t room = std::max<std::int64_t>(held_words(s_.is_held), s_.vector);
    std::vector<bool> known(static_cast<std::size_t>(group_.expr.size()), false);
    for (int pass = 0; pass < last_stage(); ++pass) {
      const FormulaUse now = used_by(group_, pass_values(pass), known);
      std::vector<bool> read_later(known.size(), false);
      for (int later = pass + 1; later <= last_stage(); ++later) {
        const FormulaUse use = used_by(group_, pass_values(later), known);
        for (std::size_t i = 0; i < known.size(); ++i) {
          if (!use.nodes[i] || known[i] || now.nodes[i]) continue;
          for (const std::int32_t arg : group_.expr[static_cast<std::int32_t>(i)].args) {
            if (arg >= 0) read_later[static_cast<std::size_t>(arg)] = true;
          }
        }
      }
      const std::vector<bool> known_before = known;
      for (std::size_t i = 0; i < known.size(); ++i) {
        if (!read_later[i] || !now.nodes[i] || known[i] || !in_row[i]) continue;
        const auto node = static_cast<std::int32_t>(i);
        if (group_.expr.dtype_of(node) == boolean || !is_costly(node, known_before)) continue;
        known[i] = true;
        if (words_after(pass, known) > room) {
          known[i] = false;
        } else {
          carried.push_back({node, pass});
        }
      }
    }
    return carried;
  }
  /// Registers for a vector of the values that later passes need, if the known nodes were carried.
  std::int64_t words_after(int pass, const std::vector<bool>& known) const {
    std::vector<bool> is_held(group_.loads.size(), false);
    for (int later = pass + 1; later <= last_stage(); ++later) {
      const FormulaUse use = used_by(group_, pass_values(later), known);
      for (std::size_t i = 0; i < is_held.size(); ++i) is_held[i] = is_held[i] || (use.loads[i] && s_.is_held[i]);
    }
    std::int64_t words = held_words(is_held);
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (known[i]) words += size_bytes(group_.expr.dtype_of(static_cast<std::int32_t>(i))) / 4 * s_.vector;
    }
    return words;
  }
  /// Whether working out a node takes more than some additions: a quotient, an exponential, a load from memory.
  bool is_costly(std::int32_t node, const std::vector<bool>& known) const {
    const FormulaUse use = used_by(group_, {node}, known);
    for (std::size_t i = 0; i < use.loads.size(); ++i) {
      if (use.loads[i] && !s_.is_held[i] && varies(i, walk_) && node_is_made(node)) return true;
    }
    for (std::size_t i = 0; i < use.nodes.size(); ++i) {
      if (!use.nodes[i] || known[i]) continue;
      const Prim prim = group_.expr[static_cast<std::int32_t>(i)].prim;
      if (primitive(prim).rule == PrimRule::real || prim == Prim::floor_divide || prim == Prim::remainder ||
          prim == Prim::random_bits) {
        return true;
      }
    }
    return false;
  }
  bool node_is_made(std::int32_t node) const { return primitive(group_.expr[node].prim).rule != PrimRule::leaf; }

  /// Chooses one turn per CTA, or, with results over all rows, as many CTAs as are resident, each leaving one partial
  /// result. It chooses so many too where registers allow them to fetch the rows of the next turn during one, which
  /// would else begin with a wait.
  void choose_grid() {
    const auto choose_residents = [&](std::int64_t words) {
      // A row held by one warp is on its way all at once only where registers are left.
      const bool is_tight = words > 40 || (words >= kHeldWords && s_.lanes <= 32);
      const std::int64_t residents = !s_.holds_rows || is_tight ? 2 : words <= 16 ? 4 : 3;
      s_.resident_ctas =
          static_cast<int>(std::max<std::int64_t>(1, residents * threads_ / std::max(threads_, s_.threads())));
    };
    const std::int64_t words = s_.steps * vector_words(), fetched = s_.steps * held_words(s_.is_held);
    const bool may_fetch = s_.form == LoopForm::sweep && s_.holds_rows && !has_cta_a_row_;
    choose_residents(words + fetched);
    if (may_fetch &&
        !is_persistent()) {  // without sums across rows more CTAs cost nothing, so as many as have registers
      const std::int64_t registers = words + fetched + kOtherRegisters;
      s_.resident_ctas = static_cast<int>(std::clamp<std::int64_t>(kRegisters / (s_.threads() * registers), 1, 3));
    }
    const auto wave = [&] { return std::int64_t{target_.sm_count} * s_.resident_ctas; };
    s_.fetches_ahead =
        !s_.is_stage && may_fetch && fetched > 0 && words + fetched <= kFetchedWords && s_.blocks >= 2 * wave();
    if (!s_.fetches_ahead) choose_residents(words);
    s_.ctas = is_persistent() || s_.fetches_ahead ? std::min(s_.blocks, wave()) : s_.blocks;
  }

  void explain() {
    s_.why = fmt::format("staged {}: {} stages, {} lanes x {} elements, {} rows, {} steps {}; {} turns on {} CTAs",
                         s_.form == LoopForm::sweep ? "sweep" : "tile", last_stage() + 1, s_.lanes, s_.vector, s_.rows,
                         s_.steps, s_.holds_rows ? "held in registers" : "at a time, read again in each stage",
                         s_.blocks, s_.ctas);
    if (s_.shifted_like >= 0) s_.why += "; vectors from the first aligned element of a row on";
    if (s_.fetches_ahead) s_.why += "; rows are fetched a turn ahead";
    if (!s_.carried.empty()) s_.why += fmt::format("; {} values carried from stage to stage", s_.carried.size());
  }

  const Group& group_;
  std::span<const int> alignment_;
  const Target& target_;
  const int threads_, most_threads_;
  int inner_;
  std::vector<int> stages_;
  std::vector<int> walk_, kept_;  // axes
  bool has_cta_a_row_ = false;    // see kLanesOfCta
  GroupSchedule s_;
};

}  // namespace

GroupSchedule schedule_staged(const Group& group, std::span<const int> alignment, const Target& target,
                              int stage_threads) {
  PD_ASSERT(!group.reductions.empty() && group.points() > 0, "an empty group has no reductions left");
  return StagedScheduler(group, alignment, target, stage_threads).run();
}

}  // namespace paoding::gpu
