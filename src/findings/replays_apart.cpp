// SPDX-License-Identifier: Apache-2.0
#include "findings/replays_apart.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"

namespace paoding::findings {

using namespace profile;

namespace {

// The kernels of a launch, in order.
using Kernels = std::vector<SpanId>;

std::int64_t time_of(const Trace& trace, const Kernels& kernels) {
  std::int64_t ns = 0;
  for (const SpanId i : kernels) ns += trace.duration(i);
  return ns;
}

// Launches whose kernels were all stamped, by launch.
std::map<SpanId, Kernels> stamped_launches(const Trace& trace) {
  std::map<SpanId, Kernels> launches;
  std::set<SpanId> others;  // with a replay among their works
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (!trace.on_gpu(i) || trace.cause(i) == kNone) continue;
    if (trace.kind(i) == SpanKind::kernel && trace.duration(i) > 0) launches[trace.cause(i)].push_back(i);
    if (trace.kind(i) == SpanKind::replay) others.insert(trace.cause(i));
  }
  std::erase_if(launches, [&](const auto& one) { return others.contains(one.first); });
  for (auto& [launch, kernels] : launches) {
    std::ranges::stable_sort(kernels, {}, [&](SpanId i) { return trace.start(i); });
  }
  return launches;
}

// The launch that took the median time, among those with as many kernels as most have.
Kernels usual(const Trace& trace, const std::vector<Kernels>& launches) {
  std::map<std::size_t, std::vector<const Kernels*>> by_count;
  for (const Kernels& one : launches) by_count[one.size()].push_back(&one);
  auto& most = std::ranges::max_element(by_count, {}, [](const auto& one) { return one.second.size(); })->second;
  std::ranges::stable_sort(most, {}, [&](const Kernels* one) { return time_of(trace, *one); });
  return *most[most.size() / 2];
}

// For each graph, by the site of its replays, a launch that stands for them.
std::map<SiteId, Kernels> examples(const Trace& trace) {
  std::map<SiteId, std::set<SiteId>> kernels_of;
  for (const ReplayPart& part : trace.parts()) {
    if (part.site != kNone) kernels_of[part.replay].insert(part.site);
  }
  std::map<SiteId, Kernels> found;
  if (kernels_of.empty()) return found;
  std::map<SiteId, std::vector<Kernels>> all;
  for (auto& [launch, kernels] : stamped_launches(trace)) {
    for (const auto& [replay, sites] : kernels_of) {
      const bool is_of_it = std::ranges::all_of(kernels, [&](SpanId i) { return sites.contains(trace.site_id(i)); });
      if (is_of_it) all[replay].push_back(kernels);
    }
  }
  for (const auto& [replay, launches] : all) found[replay] = usual(trace, launches);
  return found;
}

class Apart {
 public:
  Apart(const Trace& from, std::map<SiteId, Kernels> examples, ReplaysApart* to)
      : from_(from), examples_(std::move(examples)), to_(to->trace), original_(to->original) {}

  void build() {
    add_names();
    number_spans();
    for (SpanId i = 0; i < from_.size(); ++i) {
      if (const Kernels* example = example_of(i)) {
        add_kernels(i, *example);
      } else {
        add(i, from_.span(i));
      }
    }
    add_arguments();
    add_rest();
    PD_ASSERT(to_.has_sound_links(), "kernels of a replay stand where it stood");
    to_.finish(Links::known);
  }

 private:
  void add_names() {
    to_.set_window(from_.window_start(), from_.window_end());
    for (const Process& process : from_.processes()) {
      to_.add_process(process.pid, process.rank, from_.text(process.name), process.source);
    }
    for (const ClockAnchor& at : from_.anchors()) {
      to_.add_anchor(at.process, from_.text(at.host), {at.ns, at.system_ns, at.wall_ns});
    }
    for (const Track& track : from_.tracks()) {
      to_.add_track(track.kind, from_.text(track.name), track.device, track.process);
    }
    for (SiteId i = 0; i < from_.sites().size(); ++i) to_.add_site(from_.site_info(i));  // all differ: the same numbers
  }

  const Kernels* example_of(SpanId i) const {
    if (from_.kind(i) != SpanKind::replay || !from_.on_gpu(i)) return nullptr;
    const auto found = examples_.find(from_.site_id(i));
    if (found == examples_.end()) return nullptr;
    const bool has_room = from_.duration(i) > static_cast<std::int64_t>(found->second.size());
    return has_room && !has_work_inside(i) ? &found->second : nullptr;
  }

  // A stream does one thing after the other. Where stamps say otherwise, it is not known which kernel the other work
  // stood in, so such a replay stays whole, and the order of the spans and their parents are those of the trace given.
  bool has_work_inside(SpanId replay) const {
    const SpanId next = replay + 1;
    return next < from_.size() && from_.track_id(next) == from_.track_id(replay) &&
           from_.start(next) < from_.end(replay);
  }

  void number_spans() {
    SpanId next = 0;
    number_.reserve(from_.size());
    for (SpanId i = 0; i < from_.size(); ++i) {
      const Kernels* example = example_of(i);
      number_.push_back(next);
      next += example == nullptr ? 1 : static_cast<SpanId>(example->size());
    }
    to_.reserve(next);
    original_.reserve(next);
  }

  void add(SpanId i, Span span) {
    if (span.parent != kNone) span.parent = number_[span.parent];
    if (span.cause != kNone) span.cause = number_[span.cause];
    const SpanId id = to_.add(span);
    if (id == kNone) return;  // all lie in the window
    if (const Cut cut = from_.cut(i); cut.at_start || cut.at_end) to_.set_cut(id, cut);
    original_.push_back(i);
  }

  // One behind the other, each at least a ns long, so that their order is that of their times.
  void add_kernels(SpanId replay, const Kernels& example) {
    const auto count = static_cast<std::int64_t>(example.size());
    const double share =
        static_cast<double>(from_.duration(replay) - count) / static_cast<double>(time_of(from_, example));
    const auto end_of = [&](std::int64_t before, std::int64_t k) {
      return from_.start(replay) + k + static_cast<std::int64_t>(share * static_cast<double>(before));
    };
    std::int64_t before = 0, k = 0;
    for (const SpanId kernel : example) {
      Span span = from_.span(replay);
      span.site = from_.site_id(kernel);
      span.start_ns = end_of(before, k);
      before += from_.duration(kernel);
      ++k;
      const std::int64_t end = k == count ? from_.end(replay) : end_of(before, k);
      span.duration_ns = end - span.start_ns;
      add(replay, span);
    }
  }

  void add_arguments() {
    for (const ArgumentColumn& column : from_.columns()) {
      const ColumnId id = to_.add_column(from_.text(column.name), column.type);
      for (std::size_t at = 0; at < column.of.size(); ++at) {
        const SpanId of = number_[column.of[at]];
        if (column.type == ArgumentType::text) {
          to_.add_argument(of, id, from_.text(column.text(at)));
        } else {
          to_.add_argument_bits(of, id, column.bits[at]);
        }
      }
    }
  }

  // Findings read neither flows nor memory that is held.
  void add_rest() {
    for (const Limit& limit : from_.limits()) to_.add_limit(limit);
    for (const Phase& phase : from_.phases()) to_.add_phase(phase);
    for (const Note& note : from_.notes()) to_.add_note(note.text, note.count, note.kind);
    if (from_.span_cost_ns() > 0) to_.add_note("", from_.span_cost_ns(), Note::Kind::span_cost);
    for (const Counter& counter : from_.counters()) {
      to_.add_counter(counter.device, from_.text(counter.name), counter.process);
    }
    for (const Sample& sample : from_.samples()) to_.add_sample(sample);
  }

  const Trace& from_;
  const std::map<SiteId, Kernels> examples_;
  Trace& to_;
  std::vector<SpanId>& original_;
  std::vector<SpanId> number_;  // of each span, in the new trace: its own, or that of the first of its kernels
};

}  // namespace

std::optional<ReplaysApart> take_replays_apart(const Trace& trace) {
  std::map<SiteId, Kernels> found = examples(trace);
  const auto is_one = [&](SpanId i) { return trace.kind(i) == SpanKind::replay && found.contains(trace.site_id(i)); };
  bool has_any = false;
  for (SpanId i = 0; i < trace.size() && !has_any && !found.empty(); ++i) has_any = is_one(i);
  if (!has_any) return {};
  ReplaysApart made;
  Apart(trace, std::move(found), &made).build();
  return made;
}

}  // namespace paoding::findings
