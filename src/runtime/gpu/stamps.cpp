// SPDX-License-Identifier: Apache-2.0
#include "gpu/profile/stamps.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "base/check.h"
#include "gpu/driver/write_memory.h"
#include "runtime/gpu/copy_stamps.h"
#include "runtime/gpu/stamp_times.h"
#include "runtime/gpu/stamps.h"
#include "runtime/live_set.h"

namespace paoding {
namespace {

using profile::Recorder;

constexpr std::size_t kMostTimed = 4, kMostWhole = 4096;  // replays that the host has not read
constexpr std::size_t kMostListed = 4096;                 // stamps of loops in a replay
constexpr std::uint64_t kFirst = 8;  // launches of a recording: every other has all stamps, which gives their cost
constexpr double kFirstEvery = 16, kLeastEvery = 4, kMostEvery = 256;
constexpr std::uint64_t kMostEndsEvery = 32;
constexpr double kEndsCost = 3.5;  // of a replay's ends, in stamps' kernels (H200: 3.5 us for a chip that is done)
constexpr std::size_t kEnds = 3;   // stamps after all others: the end, and two more, for the time of a stamp's kernel
constexpr std::size_t kStampHead = 2;  // words in front of the stamps that the host gets: the number, when all was over
constexpr int kPatienceMs = 500;       // at the end of a recording, for replays under way in streams of others

profile::SiteId new_replay_site() {
  static std::atomic<int> count{0};
  return Recorder::add_site({.name = "graph replay",
                             .instance = fmt::format("graph{}", count.fetch_add(1)),
                             .kind = profile::SpanKind::replay});
}

// Not before the launch in front of it has ended.
gpu::TextLaunch alone(gpu::TextLaunch launch) {
  launch.overlaps_before = false;
  return launch;
}

}  // namespace

// Replays with one set of stamps, and the ring in which the host finds them.
struct GpuStamps::Replays {
  Replays(const gpu::GpuDevice& device, bool has_all_stamps, std::size_t words_of_each, std::size_t places_of_ring)
      : is_timed(has_all_stamps),
        words(words_of_each),
        places(places_of_ring),
        stamps(device, (words + 1) * sizeof(std::uint64_t)),
        ring(device, places * (words + kStampHead) * sizeof(std::uint64_t)),
        stamp_text(gpu::plan_stamp(device.target())),
        list_text(gpu::plan_list_stamp(kMostListed, device.target())),
        keep_text(gpu::plan_keep_stamps(static_cast<std::int64_t>(words), static_cast<std::int64_t>(places),
                                        device.target())),
        alone_text(alone(stamp_text)),
        stamp(device, stamp_text, 1),
        stamp_alone(device, alone_text, 1),
        list(device, list_text, 2),
        keep(device, keep_text, 3) {
    std::memset(ring.bytes(), 0, ring.size_bytes());
    const std::vector<std::uint64_t> none(words + 1, 0);
    gpu::write_memory(stamps.address(), none.data(), none.size() * sizeof(none[0]));
  }

  void* word(std::size_t i) const { return static_cast<std::uint64_t*>(stamps.pointer()) + i; }
  void start_stamp(std::size_t i, CUstream stream) const {
    void* operands[] = {word(i)};
    stamp.start(stream, operands, {});
  }
  // Launched like a library's kernels: after all work of the launch in front of it.
  void start_stamp_alone(std::size_t i, CUstream stream) const {
    void* operands[] = {word(i)};
    stamp_alone.start(stream, operands, {});
  }
  void start_list_stamp(std::size_t first, std::size_t which, CUstream stream) const {
    void* operands[] = {word(first), reinterpret_cast<void*>(which)};
    list.start(stream, operands, {});
  }
  void start_keep(CUstream stream) const {
    void* operands[] = {stamps.pointer(), word(words), ring.bytes()};
    keep.start(stream, operands, {});
  }
  bool has_room() const { return launched.size() < places; }
  // The next replay's, once it is there: kStampHead words, then the stamps.
  const std::uint64_t* next() const {
    auto* const place = reinterpret_cast<std::uint64_t*>(ring.bytes()) + read % places * (words + kStampHead);
    return std::atomic_ref(*place).load(std::memory_order_acquire) == read + 1 ? place : nullptr;
  }

  const bool is_timed;
  const std::size_t words, places;
  gpu::DeviceMemory stamps;  // and how many replays there were
  gpu::PinnedMemory ring;
  gpu::TextLaunch stamp_text, list_text, keep_text, alone_text;
  gpu::LoadedKernel stamp, stamp_alone, list, keep;
  std::unique_ptr<CapturedGraph> graph;  // none where entries are launched one by one
  std::uint64_t read = 0;
  std::deque<ReplayLaunch> launched;  // and not read
  std::size_t stale = 0;              // of these the first ones: of recordings that are over
};

std::vector<GpuStamps::By> GpuStamps::by(const Schedule& schedule) {
  std::vector<By> by(schedule.entries.size(), By::kernel);
  for (std::size_t k = 0; k < by.size(); ++k) {
    const LaunchEntry& entry = schedule.entries[k];
    if (schedule.members(entry).empty()) continue;
    const gpu::TextPlan* text = schedule.launches[entry.launch].step->text.get();
    if (text != nullptr && text->launches.empty()) {
      by[k] = By::nothing;
    } else if (text != nullptr && text->launches.front().leaves_stamp) {
      by[k] = By::itself;
    }
  }
  for (const LaunchEntry& entry : schedule.entries) {
    if (!schedule.holds_bodies(entry) || !schedule.choice_of(entry).is_loop) continue;
    for (const auto& [begin, end] : schedule.choice_of(entry).bodies) {
      for (std::size_t k = begin; k < end; ++k) {
        if (by[k] != By::nothing) by[k] = By::list;
      }
    }
  }
  return by;
}

GpuStamps::GpuStamps(const gpu::GpuDevice& device, GraphBudget* budget, const Schedule& schedule, Segment segment)
    : device_(device),
      budget_(budget),
      schedule_(schedule),
      segment_(std::move(segment)),
      has_list_(std::ranges::find(segment_.by, By::list) != segment_.by.end()),
      replay_site_(new_replay_site()) {
  LiveSet<GpuStamps>::get().insert(this);
}

GpuStamps::~GpuStamps() {
  if (budget_ == nullptr) {
    finish();
  } else {
    const std::lock_guard lock(mutex_);
    drain();
  }
  LiveSet<GpuStamps>::get().erase(this);
}

std::unique_ptr<GpuStamps::Replays> GpuStamps::make(bool is_timed) {
  const std::size_t list = segment_.end - segment_.first + kEnds;
  const std::size_t words = !is_timed ? 1 : list + (has_list_ ? 1 + 2 * kMostListed : 0);
  auto made = std::make_unique<Replays>(device_, is_timed, words, is_timed ? kMostTimed : kMostWhole);
  if (budget_ == nullptr) return made;
  bool has_begun = false;
  made->graph = std::make_unique<CapturedGraph>(
      device_, *budget_, schedule_, segment_.first, segment_.end,
      [&](std::size_t k, CUstream stream, CUgraphConditionalHandle node) { start(*made, k, stream, node, &has_begun); },
      [&](CUstream stream) { start_end(*made, stream); });
  return made;
}

void GpuStamps::launch(const Replays& replays, CUstream stream) const {
  if (replays.graph != nullptr) return replays.graph->launch(stream);
  bool has_begun = false;
  for (std::size_t k = segment_.first; k < segment_.end; ++k) start(replays, k, stream, 0, &has_begun);
  start_end(replays, stream);
}

// Without all stamps a replay has that of the first entry which launches something.
void GpuStamps::start(const Replays& replays, std::size_t k, CUstream stream, CUgraphConditionalHandle node,
                      bool* has_begun) const {
  const std::size_t first = segment_.first, list = segment_.end - first + kEnds;
  const bool is_stamped = replays.is_timed || !*has_begun;
  *has_begun |= segment_.by[k] != By::nothing;
  const By by = is_stamped ? segment_.by[k] : By::nothing;
  const std::size_t word = replays.is_timed ? k - first : 0;
  if (by == By::kernel) replays.start_stamp(word, stream);
  if (by == By::list) replays.start_list_stamp(list, k - first, stream);
  segment_.start(k, stream, node, by == By::itself ? replays.word(word) : nullptr);
}

void GpuStamps::start_end(const Replays& replays, CUstream stream) const {
  const std::size_t count = segment_.end - segment_.first;
  if (replays.is_timed) {
    replays.start_stamp(count, stream);
    replays.start_stamp_alone(count + 1, stream), replays.start_stamp_alone(count + 2, stream);
  }
  replays.start_keep(stream);
}

profile::Limit limit_of(const gpu::GpuDevice& device) {
  const Target& target = device.target();
  return {.device = device.index(),
          .bytes_per_ns = target.read_bytes_per_us / 1e3,
          .flops_per_ns = unit_rates(target),
          .name = target.name,
          .sms = target.sm_count};
}

void GpuStamps::begin_recording() {
  recording_ = StampTimes::get().recording();
  launches_ = 0;
  every_ = static_cast<std::uint64_t>(kFirstEvery);
  least_timed_ns_ = least_whole_ns_ = stamp_ns_ = 0;
  ends_every_ = 1;
  has_failed_ = false;
  for (Replays* replays : {timed_.get(), whole_.get()}) {
    if (replays != nullptr) replays->stale = replays->launched.size();
  }
  Recorder::add_limit(limit_of(device_));
}

bool GpuStamps::launch(std::uint32_t run, const std::function<void(CUstream)>& plain, CUstream stream) {
  static const auto launch_site = [](const char* name) {
    return Recorder::add_site({.name = name, .kind = profile::SpanKind::launch});
  };
  static const profile::SiteId of_graph = launch_site("graph launch"), of_each = launch_site("launches one by one");
  static const profile::SiteId own = Recorder::add_site({.name = "stamps", .kind = profile::SpanKind::recording});
  const std::lock_guard lock(mutex_);
  if (recording_ != StampTimes::get().recording()) begin_recording();
  if (has_failed_) return false;
  is_awake_ = true;
  stream_ = stream;
  bool has_entries = false;  // enqueued, which a failure of theirs is not stamps'
  try {
    const std::uint64_t every = launches_ < kFirst ? 2 : every_;
    const bool is_timed = launches_ % every == 0 && (timed_ == nullptr || timed_->has_room());
    const bool has_ends = is_timed || launches_ < kFirst || launches_ % ends_every_ == 0;
    std::unique_ptr<Replays>& replays = is_timed ? timed_ : whole_;
    if (has_ends) {
      const profile::SpanScope seen(own);
      drain();
      StampTimes::get().look_at_clock(device_);
      if (replays == nullptr) replays = make(is_timed);
    }
    if (has_ends && !replays->has_room()) return false;
    const profile::SpanScope seen(budget_ != nullptr ? of_graph : of_each, run);
    const ReplayLaunch launched = StampTimes::get().next_launch(run);
    has_entries = budget_ == nullptr;
    has_ends ? launch(*replays, stream) : plain(stream);
    if (has_ends) {
      replays->launched.push_back(launched);
    } else {
      StampTimes::get().add(
          {.launch = launched, .device = device_.index(), .stream = stream_, .site = replay_site_, .is_plain = true});
    }
    ++launches_;
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::device || has_entries) throw;
    has_failed_ = true;
    Recorder::add_note(fmt::format("kernels of a graph that got no stamps ({})", error.what()));
    return false;
  }
}

CapturedGraph& GpuStamps::next_in_full(std::uint32_t run, CapturedGraph& plain, CUstream stream) {
  const std::lock_guard lock(mutex_);
  if (recording_ != StampTimes::get().recording()) begin_recording();
  is_awake_ = true;
  stream_ = stream;
  drain();
  StampTimes::get().look_at_clock(device_);
  if (timed_ == nullptr) timed_ = make(true);
  if (!timed_->has_room()) return plain;
  timed_->launched.push_back(StampTimes::get().next_launch(run));
  ++launches_;
  return *timed_->graph;
}

void GpuStamps::drain() {
  if (timed_ != nullptr) drain(*timed_, &least_timed_ns_);
  if (whole_ != nullptr) drain(*whole_, &least_whole_ns_);
  if (least_timed_ns_ == 0 || least_whole_ns_ == 0) return;
  const double more = static_cast<double>(least_timed_ns_ - least_whole_ns_) / static_cast<double>(least_whole_ns_);
  // A replay that is stamped in full has ends too, which are most of the cost in a short run.
  const double ends = kEndsCost * static_cast<double>(stamp_ns_) / static_cast<double>(least_whole_ns_);
  const double budget = StampTimes::get().budget();
  every_ = static_cast<std::uint64_t>(std::clamp(std::ceil((more + ends) / budget), kLeastEvery, kMostEvery));
  ends_every_ = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(ends / budget), 1, kMostEndsEvery);
}

void GpuStamps::drain(Replays& replays, std::int64_t* least_ns) {
  const std::size_t count = segment_.end - segment_.first;
  while (!replays.launched.empty()) {
    const std::uint64_t* const place = replays.next();
    if (place == nullptr) return;
    if (replays.stale > 0) {
      --replays.stale, ++replays.read;
      replays.launched.pop_front();
      continue;
    }
    const std::uint64_t* const stamps = place + kStampHead;
    const auto at = [&](std::size_t i) { return static_cast<std::int64_t>(stamps[i]); };
    StampedReplay seen{
        .launch = replays.launched.front(), .device = device_.index(), .stream = stream_, .site = replay_site_};
    seen.end_ns = static_cast<std::int64_t>(place[1]);
    seen.begin_ns = at(0) != 0 ? at(0) : seen.end_ns;
    if (&replays == timed_.get()) {
      const auto add = [&](std::size_t k, std::int64_t at_ns) {
        seen.marks.push_back(
            {at_ns, (*segment_.sites)[segment_.first + k], segment_.by[segment_.first + k] != By::itself});
      };
      for (std::size_t k = 0; k < count; ++k) {
        if (at(k) != 0) add(k, at(k));
      }
      if (has_list_) {
        const std::uint64_t* const list = stamps + count + kEnds;
        for (std::size_t i = 0; i < std::min<std::size_t>(list[0], kMostListed); ++i) {
          add(list[1 + 2 * i], static_cast<std::int64_t>(list[2 + 2 * i]));
        }
        seen.lost = list[0] - std::min<std::uint64_t>(list[0], kMostListed);
      }
      std::ranges::stable_sort(seen.marks, {}, &StampedReplay::Mark::at_ns);
      seen.end_ns = at(count);
      seen.stamp_ns = at(count + 2) - at(count + 1);
      stamp_ns_ = stamp_ns_ == 0 ? seen.stamp_ns : std::min(stamp_ns_, seen.stamp_ns);
      seen.begin_ns = seen.marks.empty() ? seen.end_ns : seen.marks.front().at_ns;
    }
    replays.launched.pop_front();
    ++replays.read;
    if (const std::int64_t ns = seen.end_ns - seen.begin_ns; ns > 0) {
      *least_ns = *least_ns == 0 ? ns : std::min(*least_ns, ns);
    }
    StampTimes::get().add(std::move(seen));
  }
}

// A stream of somebody else's may be gone, or be captured at the moment, and then no call may ask the driver how far it
// is: the ring tells which replays are under way there.
void GpuStamps::finish() {
  const std::lock_guard lock(mutex_);
  const auto waiting = [&] {
    std::size_t count = 0;
    for (const Replays* replays : {timed_.get(), whole_.get()}) count += replays ? replays->launched.size() : 0;
    return count;
  };
  if (waiting() == 0) return;
  if (budget_ != nullptr) {
    device_.make_current();
    PD_CUDA(gpu::required_driver().cuStreamSynchronize(stream_));
  }
  drain();
  for (int ms = 0; budget_ == nullptr && waiting() > 0 && ms < kPatienceMs; ++ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    drain();
  }
  if (waiting() > 0) Recorder::add_note("runs on memory of the caller's that had not ended", waiting());
}

void GpuStamps::rest() {
  if (!is_awake_) return;
  const std::lock_guard lock(mutex_);
  is_awake_ = false;
  drain();
  for (const Replays* replays : {timed_.get(), whole_.get()}) {
    if (replays != nullptr && replays->graph != nullptr) replays->graph->rest();
  }
}

std::set<const gpu::GpuDevice*> GpuStamps::devices() {
  std::set<const gpu::GpuDevice*> all;
  LiveSet<GpuStamps>::get().for_each([&](const GpuStamps& stamps) { all.insert(&stamps.device_); });
  return all;
}

void GpuStamps::start_recording(double budget) {
  StampTimes::get().start(budget);
  CopyStamps::get().start();
  for (const gpu::GpuDevice* device : devices()) {  // now, not in the first launch
    try {
      gpu::load_stamp_kernels(*device);
      StampTimes::get().look_at_clock(*device);
    } catch (const Error&) {  // the launches will say so
    }
  }
}

void GpuStamps::stop_recording() {
  LiveSet<GpuStamps>::get().for_each([](GpuStamps& stamps) { stamps.finish(); });
  CopyStamps::get().stop();
  StampTimes::get().stop();
}

}  // namespace paoding
