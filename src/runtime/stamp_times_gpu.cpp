// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "runtime/stamp_times.h"

namespace paoding {
namespace {

using profile::Recorder;

constexpr std::int64_t kFirstNs = 100'000'000, kBetweenNs = 1'000'000'000;  // between readings of a clock
constexpr std::int64_t kMostOffNs = 2'000;                                  // before the recording says so

std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

StampTimes& StampTimes::get() {
  static auto* the_times = new StampTimes;  // never destroyed: a recording may end behind main()
  return *the_times;
}

void StampTimes::start(double budget) {
  const std::lock_guard lock(mutex_);
  budget_ = budget;
  for (auto& [device, clock] : clocks_) {
    clock.line = {};
    clock.waiting.clear();
    clock.next_ns = 0;
  }
  tracks_.clear();
  parts_.clear();
  lost_ = unplaced_ = 0;
  recording_.fetch_add(1);
  is_on_ = true;
}

void StampTimes::look_at_clock(const gpu::GpuDevice& device) {
  const std::int64_t now = steady_ns();
  const std::lock_guard lock(mutex_);
  Clock& clock = clocks_[device.index()];
  if (!is_on_ || now < clock.next_ns) return;
  read(device, &clock);
  tell(&clock, false);
}

void StampTimes::read(const gpu::GpuDevice& device, Clock* clock) {
  if (clock->reader == nullptr) clock->reader = std::make_unique<gpu::ClockReader>(device);
  const bool is_first = clock->line.readings().empty();
  clock->next_ns = steady_ns() + (is_first ? kFirstNs : kBetweenNs);
  if (const auto reading = clock->reader->read()) clock->line.add(*reading);
}

void StampTimes::add(StampedReplay replay) {
  const std::lock_guard lock(mutex_);
  if (is_on_) clocks_[replay.device].waiting.push_back(std::move(replay));
}

void StampTimes::stop() {
  const std::lock_guard lock(mutex_);
  std::int64_t off = 0;
  for (auto& [device, clock] : clocks_) {
    if (clock.waiting.empty() && clock.line.readings().empty()) continue;
    const gpu::GpuDevice& of = gpu::GpuDevice::get(device);
    of.make_current();
    const std::size_t before = clock.line.readings().size();
    for (int tries = 0; tries < 3 && clock.line.readings().size() == before; ++tries) read(of, &clock);
    tell(&clock, true);
    off = std::max(off, clock.line.residual_ns());
  }
  if (off > kMostOffNs) Recorder::add_note("ns that the clocks of GPU and host were apart from a line", off);
  if (lost_ != 0) Recorder::add_note("stamps of loops that had no room", lost_);
  if (unplaced_ != 0) Recorder::add_note("replays of graphs whose time is not known: no clock was read", unplaced_);
  for (const auto& [replay, of] : parts_) {
    for (const auto& [site, part] : of) Recorder::add_part(replay, site, part.calls, part.ns);
  }
  is_on_ = false;
}

void StampTimes::tell(Clock* clock, bool is_over) {
  const auto is_early = [&](const StampedReplay& replay) { return is_over || clock->line.covers(replay.end_ns); };
  for (const StampedReplay& replay : clock->waiting) {
    if (!is_early(replay)) continue;
    if (clock->line.readings().empty()) {
      ++unplaced_;
    } else {
      tell(*clock, replay);
    }
  }
  std::erase_if(clock->waiting, is_early);
}

void StampTimes::tell(const Clock& clock, const StampedReplay& replay) {
  const auto found = tracks_.try_emplace({replay.device, replay.stream}, 0);
  if (found.second) {
    const std::string name = fmt::format("stream {}", tracks_.size());
    found.first->second = Recorder::gpu_track(profile::TrackKind::stream, name, replay.device);
  }
  const auto add = [&](profile::SiteId site, std::int64_t from, std::int64_t to) {
    const std::int64_t start = clock.line.to_host(from);
    Recorder::add_gpu(site, replay.run, start, clock.line.to_host(to) - start, found.first->second, replay.run);
  };
  lost_ += replay.lost;
  if (replay.marks.empty()) {
    if (replay.end_ns > replay.begin_ns) add(replay.site, replay.begin_ns, replay.end_ns);
    return;
  }
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

}  // namespace paoding
