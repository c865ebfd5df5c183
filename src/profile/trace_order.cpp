// SPDX-License-Identifier: Apache-2.0
// Spans in their order: by track, start and containment. Threads write a span when it ends, so that the spans
// inside of it stand right in front of it: such tracks are put in order by one sweep, others by sorting.
#include <algorithm>
#include <functional>
#include <future>
#include <numeric>
#include <span>
#include <system_error>

#include "profile/trace.h"

namespace paoding::profile {
namespace {

// Columns in another order, one after the other: each is written over the one before it of its type. Memory that is new
// costs more than the order.
template <class T>
class Permuted {
 public:
  explicit Permuted(const std::vector<SpanId>& order) : order_(order) {}
  Permuted& operator()(std::vector<T>& column) {
    // Many have one value for all: no parent, no run.
    if (column.empty() || std::ranges::adjacent_find(column, std::ranges::not_equal_to()) == column.end()) return *this;
    sorted_.resize(column.size());
    for (std::size_t i = 0; i < order_.size(); ++i) sorted_[i] = column[order_[i]];
    column.swap(sorted_);
    return *this;
  }

 private:
  const std::vector<SpanId>& order_;
  std::vector<T> sorted_;
};

// From trees whose root comes last (postorder) to trees whose root comes first (preorder): a node's place is where its
// tree begins, behind the roots of all trees around it.
template <class Before>
void put_roots_first(std::span<SpanId> spans, const Before& before) {
  std::vector<std::size_t> begin(spans.size());  // of the tree whose root is here
  std::vector<std::size_t> roots;                // of the trees so far
  for (std::size_t i = 0; i < spans.size(); ++i) {
    begin[i] = i;
    for (; !roots.empty() && before(spans[i], spans[roots.back()]); roots.pop_back()) begin[i] = begin[roots.back()];
    roots.push_back(i);
  }
  std::vector<SpanId> sorted(spans.size());
  std::vector<std::size_t> around;  // where the trees around begin
  for (std::size_t i = spans.size(); i-- > 0;) {
    while (!around.empty() && around.back() > i) around.pop_back();
    sorted[begin[i] + around.size()] = spans[i];
    around.push_back(begin[i]);
  }
  std::ranges::copy(sorted, spans.begin());
}

// Files of others list spans in a few stretches that are in order: all ops, then all launches. False where there are
// many.
template <class Iterator, class Before>
bool merge_few_runs(Iterator from, Iterator to, const Before& before) {
  std::vector<Iterator> ends{from};
  const auto most = static_cast<std::size_t>((to - from) / 64 + 1);
  for (Iterator i = from; std::next(i) < to; ++i) {
    if (!before(*std::next(i), *i)) continue;
    if (ends.size() > most) return false;
    ends.push_back(std::next(i));
  }
  ends.push_back(to);
  while (ends.size() > 2) {
    std::vector<Iterator> merged{from};
    for (std::size_t i = 2; i < ends.size(); i += 2) {
      std::inplace_merge(ends[i - 2], ends[i - 1], ends[i], before);
      merged.push_back(ends[i]);
    }
    if (merged.back() != to) merged.push_back(to);
    ends = std::move(merged);
  }
  return true;
}

}  // namespace

bool Trace::comes_before(SpanId a, SpanId b) const {
  if (track_[a] != track_[b]) return track_[a] < track_[b];
  if (start_[a] != start_[b]) return start_[a] < start_[b];
  if (duration_[a] != duration_[b]) return duration_[a] > duration_[b];
  return kind(a) < kind(b);
}

// The later one of spans that are alike in all of this contains the other.
bool Trace::is_around(SpanId a, SpanId b) const { return comes_before(a, b) || (a > b && !comes_before(b, a)); }

// The spans of each are in the order in which they were added.
std::vector<SpanId> Trace::by_track() const {
  std::vector<std::size_t> place(tracks_.size() + 1);
  for (const TrackId track : track_) ++place[track + 1];
  std::partial_sum(place.begin(), place.end(), place.begin());
  std::vector<SpanId> order(size());
  for (SpanId i = 0; i < size(); ++i) order[place[track_[i]]++] = i;
  return order;
}

void Trace::sort_spans() {
  const auto before = [this](SpanId a, SpanId b) { return is_around(a, b); };
  std::vector<SpanId> order = by_track();
  for (auto from = order.begin(); from != order.end();) {
    const TrackId track = track_[*from];
    const auto to = std::upper_bound(from, order.end(), track, [&](TrackId t, SpanId i) { return t < track_[i]; });
    if (!merge_few_runs(from, to, before)) {
      put_roots_first({from, to}, before);
      if (!std::is_sorted(from, to, before)) std::sort(from, to, before);
    }
    from = to;
  }
  if (std::ranges::is_sorted(order)) return;

  const auto permute_wide = [&] {
    Permuted<std::int64_t>{order}(start_)(duration_)(bytes_);
    Permuted<double>{order}(flops_);
    Permuted<Cut>{order}(cut_);
  };
  constexpr std::size_t kWorthTwo = 1 << 17;  // spans, for which another thread is started
  std::future<void> beside;
  if (size() >= kWorthTwo) {
    try {
      beside = std::async(std::launch::async, permute_wide);
    } catch (const std::system_error&) {  // no more threads are to be had
    }
  }
  Permuted<std::uint32_t> numbers(order);
  numbers(track_)(site_)(run_)(correlation_);
  if (beside.valid()) {
    beside.get();
  } else {
    permute_wide();
  }
  const auto is_linked = [](SpanId id) { return id != kNone; };
  if (std::ranges::none_of(parent_, is_linked) && std::ranges::none_of(cause_, is_linked) && columns_.empty() &&
      flows_.empty()) {
    return;
  }
  std::vector<SpanId> place(size());
  for (SpanId i = 0; i < order.size(); ++i) place[order[i]] = i;
  numbers(parent_)(cause_);
  for (SpanId& p : parent_) p = p == kNone ? kNone : place[p];
  for (SpanId& c : cause_) c = c == kNone ? kNone : place[c];
  for (ArgumentColumn& column : columns_) {
    for (SpanId& of : column.of) of = place[of];
  }
  for (Flow& flow : flows_) flow = {place[flow.from], place[flow.to]};
}

}  // namespace paoding::profile
