// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/stamp_times.h"

#include <algorithm>

#include "base/check.h"

namespace paoding {
namespace {

using profile::Recorder;
using profile::steady_ns;

constexpr std::int64_t kFirstNs = 100'000'000, kBetweenNs = 1'000'000'000;  // between readings of a clock
constexpr std::int64_t kLateNs = 100'000'000;          // after which a replay that was launched before has been read
constexpr std::int64_t kAtLeastOneNs = 3'000'000'000;  // to wait for the only reading, while others' work has the GPU
constexpr std::int64_t kMostOffNs = 2'000;             // before the recording says so
constexpr std::size_t kToldAtOnce = 2048;              // spans, some 0.2 ms

}  // namespace

StampTimes& StampTimes::get() {
  static auto* the_times = new StampTimes;  // never destroyed: a recording may end after main()
  return *the_times;
}

void StampTimes::start(double budget) {
  const std::lock_guard lock(mutex_);
  budget_ = budget;
  for (auto& [device, clock] : clocks_) {
    clock.line = {};
    clock.waiting.clear();
    clock.copies.clear();
    clock.told_to = 0;
    clock.next_ns = 0;
  }
  tracks_.clear();
  parts_.clear();
  known_.clear();
  ends_.clear();
  lost_ = unplaced_ = plain_ = 0;
  recording_.fetch_add(1);
  is_on_ = true;
}

void StampTimes::look_at_clock(const gpu::GpuDevice& device) {
  const std::int64_t now = steady_ns();
  const std::lock_guard lock(mutex_);
  Clock& clock = clocks_[device.index()];
  if (!is_on_) return;
  if (now >= clock.next_ns) {
    read(device, &clock, gpu::ClockReader::kPatienceNs);
    place(&clock, false);
  }
  tell(&clock, kToldAtOnce);
}

void StampTimes::read(const gpu::GpuDevice& device, Clock* clock, std::int64_t patience_ns) {
  if (clock->reader == nullptr) clock->reader = std::make_unique<gpu::ClockReader>(device);
  const auto reading = clock->reader->read(patience_ns);
  const bool is_good = reading && clock->line.add(*reading);
  clock->next_ns = steady_ns() + (is_good && clock->line.has_begun() ? kBetweenNs : kFirstNs);
}

void StampTimes::add(StampedReplay replay) {
  const std::lock_guard lock(mutex_);
  if (!is_on_) return;
  replay.seen_ns = steady_ns();
  Clock& clock = clocks_[replay.device];
  if (replay.is_copy) return clock.copies.push_back(std::move(replay));
  clock.waiting.emplace_hint(clock.waiting.end(), replay.launch.number, std::move(replay));
}

void StampTimes::stop() {
  const std::lock_guard lock(mutex_);
  std::int64_t off = 0;
  for (auto& [device, clock] : clocks_) {
    if (clock.waiting.empty() && clock.copies.empty() && clock.line.readings().empty()) continue;
    const gpu::GpuDevice& of = gpu::GpuDevice::get(device);
    of.make_current();
    const std::size_t before = clock.line.readings().size();
    const std::int64_t until = steady_ns() + (before == 0 ? kAtLeastOneNs : 0);
    for (int tries = 0; clock.line.readings().size() == before && (tries < 3 || steady_ns() < until); ++tries) {
      read(of, &clock, std::max(until - steady_ns(), gpu::ClockReader::kPatienceNs));
    }
    place(&clock, true);
    tell(&clock, SIZE_MAX);
    off = std::max(off, clock.line.residual_ns());
  }
  if (off > kMostOffNs) Recorder::add_note("ns that the clocks of GPU and host were apart from a line", off);
  if (plain_ != 0) {
    Recorder::add_note("replays taken to be as long as those that were stamped", plain_,
                       profile::Note::Kind::estimated);
  }
  if (lost_ != 0) Recorder::add_note("stamps of loops that had no room", lost_);
  if (unplaced_ != 0) Recorder::add_note("replays of graphs whose time is not known: no clock was read", unplaced_);
  for (const auto& [replay, of] : parts_) {
    for (const auto& [site, part] : of) Recorder::add_part(replay, site, part.calls, part.ns);
  }
  is_on_ = false;
}

ReplayLaunch StampTimes::next_launch(std::uint32_t run) {
  return {run, launches_.fetch_add(1, std::memory_order_relaxed), steady_ns()};
}

// Places replays in time as far as the ones after them are known.
void StampTimes::place(Clock* clock, bool is_over) {
  if (clock->line.readings().empty()) {
    if (is_over) unplaced_ += std::exchange(clock->waiting, {}).size() + std::exchange(clock->copies, {}).size();
    return;
  }
  std::erase_if(clock->copies, [&](const StampedReplay& copy) {
    const bool is_placed = is_over || clock->line.covers(copy.end_ns);
    if (is_placed) tell(*clock, copy);
    return is_placed;
  });
  // Stamped in full and with their ends only are read at different times: none in between may come later.
  for (const auto& [number, replay] : clock->waiting) {
    if (replay.is_plain) continue;  // its length follows from the replay after it
    const bool is_early = clock->line.covers(replay.end_ns) && replay.launch.at_ns + kLateNs < steady_ns();
    if (!is_early) break;
    clock->told_to = std::max(clock->told_to, number + 1);
  }
  if (is_over) clock->told_to = UINT64_MAX;
}

// In the order in which they were launched.
void StampTimes::tell(Clock* clock, std::size_t most) {
  auto& waiting = clock->waiting;
  while (most > 0 && !waiting.empty() && waiting.begin()->first < clock->told_to) {
    const auto first = waiting.begin();
    const StampedReplay& replay = first->second;
    if (replay.is_plain) {
      const auto end = waiting.lower_bound(clock->told_to);
      const auto next = std::find_if(first, end, [&](const auto& later) {
        return !later.second.is_plain && later.second.stream == replay.stream;
      });
      tell_plain(*clock, replay, next == end ? nullptr : &next->second);
    } else {
      tell(*clock, replay);
    }
    most -= std::min(most, 1 + replay.marks.size());
    waiting.erase(first);
  }
}

profile::TrackId StampTimes::track_of(const StampedReplay& replay) {
  const auto found = tracks_.try_emplace({replay.device, replay.stream}, 0);
  if (found.second) {
    const std::string name = fmt::format("stream {}", tracks_.size());
    found.first->second = Recorder::gpu_track(profile::TrackKind::stream, name, replay.device);
  }
  return found.first->second;
}

// A replay lies after its launch and before it was seen to have ended, however far a busy host's reading was off.
std::int64_t StampTimes::host_ns(const Clock& clock, const StampedReplay& replay, std::int64_t gpu_ns) {
  const std::int64_t begin = clock.line.to_host(replay.begin_ns), end = clock.line.to_host(replay.end_ns);
  const std::int64_t late = std::max<std::int64_t>(end - replay.seen_ns, 0);
  const std::int64_t early = std::max<std::int64_t>(replay.launch.at_ns - (begin - late), 0);
  return clock.line.to_host(gpu_ns) - late + early;
}

void StampTimes::tell(const Clock& clock, const StampedReplay& replay) {
  const auto on_host = [&](std::int64_t gpu_ns) { return host_ns(clock, replay, gpu_ns); };
  if (replay.is_copy) {
    const auto copies = Recorder::gpu_track(profile::TrackKind::copy_engine, "copies", replay.device);
    const std::int64_t start = on_host(replay.begin_ns), length = on_host(replay.end_ns) - start;
    return Recorder::add_gpu(replay.site, replay.launch.run, start, length, copies, replay.launch.run);
  }
  const profile::TrackId track = track_of(replay);
  const auto add = [&](profile::SiteId site, std::int64_t from, std::int64_t to) {
    const std::int64_t start = on_host(from);
    Recorder::add_gpu(site, replay.launch.run, start, on_host(to) - start, track, replay.launch.run);
  };
  lost_ += replay.lost;
  Known& known = known_[replay.site];
  known.delay_ns = std::min(known.delay_ns, on_host(replay.begin_ns) - replay.launch.at_ns);
  ends_[{replay.device, replay.stream}] = on_host(replay.end_ns);
  if (replay.marks.empty()) {
    known.count += 1;
    known.ns += static_cast<double>(replay.end_ns - replay.begin_ns);
    if (replay.end_ns > replay.begin_ns) add(replay.site, replay.begin_ns, replay.end_ns);
    return;
  }
  known.longest_ns = std::max(known.longest_ns, replay.end_ns - replay.begin_ns);
  auto& parts = parts_[replay.site];
  for (std::size_t i = 0; i < replay.marks.size(); ++i) {
    const StampedReplay::Mark& mark = replay.marks[i];
    const std::int64_t end = i + 1 < replay.marks.size() ? replay.marks[i + 1].at_ns : replay.end_ns;
    const std::int64_t from = std::min(end, mark.at_ns + (mark.is_kernels ? replay.stamp_ns : 0));
    add(mark.site, from, end);
    parts[mark.site].calls += 1;
    parts[mark.site].ns += end - from;
  }
  parts[profile::kNone].calls += 1;
  parts[profile::kNone].ns += replay.end_ns - replay.marks.front().at_ns;
}

// A plain replay begins after the one in front of it and its own launch, takes as long as others, and is over when the
// next begins, or by now: the time of others does not move it out of the recording.
void StampTimes::tell_plain(const Clock& clock, const StampedReplay& replay, const StampedReplay* next) {
  const Known& known = known_[replay.site];
  std::int64_t& end = ends_[{replay.device, replay.stream}];
  const std::int64_t delay = known.delay_ns == INT64_MAX ? 0 : known.delay_ns;
  const std::int64_t length =
      known.count > 0 ? static_cast<std::int64_t>(known.ns / static_cast<double>(known.count)) : known.longest_ns;
  const std::int64_t last = next != nullptr ? host_ns(clock, *next, next->begin_ns) : steady_ns();
  const std::int64_t begin = std::min(std::max(end, replay.launch.at_ns + delay), last);
  end = std::min(begin + length, last);
  ++plain_;
  Recorder::add_gpu(replay.site, replay.launch.run, begin, end - begin, track_of(replay), replay.launch.run);
}

}  // namespace paoding
