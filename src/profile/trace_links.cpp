// SPDX-License-Identifier: Apache-2.0
// Links in a trace: the span around each, on its track, and the host's span that started work of a GPU. They are found
// by sorting spans with correlation numbers, and only where work of a GPU needs a cause.
#include <algorithm>
#include <compare>
#include <tuple>

#include "base/check.h"
#include "profile/trace.h"

namespace paoding::profile {
namespace {

// Spans by a number that several may share, each number's in the order in which they were added. A number is one of its
// process.
class Numbered {
 public:
  using Number = std::uint64_t;
  explicit Numbered(const Trace& trace) : trace_(trace) {}

  void add(std::uint32_t number, SpanId span) {
    if (number != 0) spans_.push_back({of_process(number, span), span});
  }
  void sort() {
    if (!std::ranges::is_sorted(spans_, {}, &Entry::number)) std::ranges::stable_sort(spans_, {}, &Entry::number);
  }
  /// How many there are of it in the process of the span.
  std::size_t count(std::uint32_t number, SpanId of) {
    look_up(number, of);
    return to_ - from_;
  }
  /// The span of the last of them; kNone where there is none.
  SpanId last(std::uint32_t number, SpanId of) {
    look_up(number, of);
    return from_ == to_ ? kNone : spans_[to_ - 1].span;
  }
  /// The span of the first.
  SpanId first(std::uint32_t number, SpanId of) {
    look_up(number, of);
    return from_ == to_ ? kNone : spans_[from_].span;
  }
  template <class Take>
  void for_each(Take&& take) const {
    for (const Entry& entry : spans_) take(static_cast<std::uint32_t>(entry.number), entry.span);
  }

 private:
  struct Entry {
    Number number;
    SpanId span;
  };
  Number of_process(std::uint32_t number, SpanId span) const {
    return Number{trace_.track(span).process} << 32 | number;
  }
  // Work of one launch comes one behind the other: most often it is the number of before.
  void look_up(std::uint32_t of, SpanId span) {
    const Number number = of == 0 ? 0 : of_process(of, span);
    if (number == number_) return;
    const auto range = std::ranges::equal_range(spans_, number, {}, &Entry::number);
    number_ = number;
    from_ = static_cast<std::size_t>(range.begin() - spans_.begin());
    to_ = static_cast<std::size_t>(range.end() - spans_.begin());
  }

  const Trace& trace_;
  std::vector<Entry> spans_;
  Number number_ = 0;
  std::size_t from_ = 0, to_ = 0;
};

// A step of a run: which instance of which op.
struct LinkedStep {
  std::uint32_t run;
  StringId op, instance;
  SpanId span;

  auto of() const { return std::tuple(run, op, instance); }
  auto operator<=>(const LinkedStep&) const = default;
};

}  // namespace

void Trace::link_parents() {
  std::vector<SpanId> open;
  for (SpanId i = 0; i < size(); ++i) {
    const auto over = [&](SpanId s) {
      return track_[s] != track_[i] || end(s) < start(i) || (end(s) == start(i) && duration(i) > 0);
    };
    while (!open.empty() && over(open.back())) open.pop_back();
    if (parent_[i] == kNone) {
      // Spans that overlap without containing each other are siblings, so look further out for one that contains this.
      const auto behind = std::partition_point(open.begin(), open.end(), [&](SpanId s) { return end(s) >= end(i); });
      if (behind != open.begin()) parent_[i] = *std::prev(behind);
    }
    PD_ASSERT(parent_[i] == kNone || parent_[i] < i, "a span's parent starts after it or is on a later track");
    if (run_[i] == 0 && parent_[i] != kNone) run_[i] = run_[parent_[i]];
    if (kind(i) == SpanKind::instant) continue;
    // A span that ends no later than this one contains no later span that this one does not, so it is closed.
    while (!open.empty() && end(open.back()) <= end(i)) open.pop_back();
    open.push_back(i);
  }
}

void Trace::link_causes() {
  if (std::ranges::none_of(tracks_, [](const Track& track) { return track.kind != TrackKind::thread; })) return;
  Numbered correlated(*this), launches(*this), copies(*this);  // copies by the number that their source gave them
  for (SpanId i = 0; i < size(); ++i) {
    if (on_gpu(i)) continue;
    correlated.add(correlation_[i], i);  // the innermost comes last
    const SpanKind of = kind(i);
    if (of == SpanKind::launch || of == SpanKind::compute) launches.add(run_[i], i);
    const bool has_own_number = parent_[i] == kNone || run_[parent_[i]] != run_[i];
    if (of == SpanKind::memcpy && has_own_number) copies.add(run_[i], i);
  }
  for (Numbered* numbered : {&correlated, &launches, &copies}) numbered->sort();

  std::vector<LinkedStep> works;
  for (SpanId i = 0; i < size(); ++i) {
    if (!on_gpu(i)) continue;
    if (cause_[i] == kNone) cause_[i] = correlated.last(correlation_[i], i);
    if (cause_[i] == kNone && kind(i) == SpanKind::memcpy) cause_[i] = copies.last(run_[i], i);
    if (cause_[i] == kNone) {
      const std::size_t count = launches.count(run_[i], i);
      if (count == 1) cause_[i] = launches.last(run_[i], i);
      if (count > 1) works.push_back({run_[i], site(i).op, site(i).instance, i});
    }
    if (run_[i] == 0 && cause_[i] != kNone) run_[i] = run_[cause_[i]];
  }
  if (works.empty()) return;

  // A run with several launches was run step by step: the n-th launch for an op instance started its n-th GPU span, and
  // the last all that come behind.
  std::vector<LinkedStep> steps;
  launches.for_each([&](std::uint32_t run, SpanId i) { steps.push_back({run, site(i).op, site(i).instance, i}); });
  std::ranges::sort(steps);
  std::ranges::sort(works);
  for (auto work = works.begin(), step = steps.begin(); work != works.end();) {
    const auto of = work->of();
    step = std::lower_bound(step, steps.end(), of,
                            [](const LinkedStep& s, const auto& wanted) { return s.of() < wanted; });
    for (auto next = step; work != works.end() && work->of() == of; ++work) {
      if (next == steps.end() || next->of() != of) continue;
      cause_[work->span] = next->span;
      if (std::next(next) != steps.end() && std::next(next)->of() == of) ++next;
    }
  }
}

// Links the feeds of a run (the copies to a GPU, where there were any) to the run's first launch.
void Trace::link_feeds() {
  std::vector<bool> is_copied(size());
  std::vector<LinkedStep> sources;
  Numbered launches(*this);
  for (SpanId i = 0; i < size(); ++i) {
    if (on_gpu(i)) continue;
    if (kind(i) == SpanKind::launch) launches.add(run_[i], i);
    const SpanId p = parent_[i];
    if (kind(i) != SpanKind::memcpy || p == kNone || kind(p) != SpanKind::feed || run_[p] == 0) continue;
    is_copied[p] = true;
    sources.push_back({run_[p], 0, 0, i});
  }
  launches.sort();
  for (SpanId i = 0; i < size(); ++i) {
    if (kind(i) == SpanKind::feed && run_[i] != 0 && !is_copied[i]) sources.push_back({run_[i], 0, 0, i});
  }
  for (const LinkedStep& source : sources) {
    const SpanId launch = launches.first(source.run, source.span);
    if (launch != kNone && start(launch) >= start(source.span)) flows_.push_back({source.span, launch});
  }
}

}  // namespace paoding::profile
