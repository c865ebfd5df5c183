// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/trace.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "base/check.h"
#include "base/env.h"
#include "gpu/driver/driver.h"
#include "gpu/profile/cupti_collector.h"
#include "runtime/gpu/phases.h"
#include "runtime/gpu/stamps.h"

namespace paoding {
namespace {

using profile::Recorder;
using profile::steady_ns;

struct Recording {
  std::shared_mutex mutex;  // held alone while CUPTI is started or stopped, so that nothing is launched meanwhile
  State state = State::all;
  CuptiLaunches launches;  // while CUPTI records
  std::atomic<bool> has_cupti = false;
  std::atomic<bool> has_stamps = false;
  std::atomic<bool> has_unseen = false;  // there were runs that neither CUPTI nor stamps record; noted once
  bool is_whole = false;                 // CUPTI records to the end of the recording
  bool is_check = false;                 // CUPTI records the graphs with stamps, to compare both
};

Recording& recording() {
  static auto* the_recording = new Recording;  // never destroyed: a recording may end after main()
  return *the_recording;
}

// Waits for the work that any thread has enqueued.
void wait_for_devices() {
  for (const gpu::GpuDevice* device : GpuStamps::devices()) {
    device->make_current();
    PD_CUDA(gpu::required_driver().cuCtxSynchronize());
  }
}

// Waits first: replays in flight when CUPTI starts were launched without it, and are recorded by their stamps.
void begin_cupti() {
  Recording& now = recording();
  const std::unique_lock lock(now.mutex);
  if (now.has_cupti || now.state == State::cpu || gpu::GpuDevice::count() == 0) return;
  wait_for_devices();
  std::string why_not;
  now.launches = {};
  now.has_cupti = gpu::CuptiCollector::start(&why_not);
  if (!why_not.empty()) Recorder::add_note("CUPTI cannot be used (" + why_not + "); kernels told by their own stamps");
}

// The caller holds the lock.
void end_cupti(Recording& now) {
  if (!now.has_cupti) return;
  now.has_cupti = false;
  wait_for_devices();
  for (const gpu::GpuDevice* device : GpuStamps::devices()) Recorder::add_limit(limit_of(*device));
  gpu::CuptiCollector::Lost lost;
  const std::vector<gpu::GpuActivity> activities = gpu::CuptiCollector::stop(&lost);
  CapturedGraph::drop_twins();
  gpu::CuptiCollector::leave();
  tell_cupti(std::exchange(now.launches, {}), activities, lost);
}

// The share of a program's time that each of these may cost: stamps of all kernels, stamps of begin and end, stamps of
// copies.
constexpr double kBudget = 0.002, kBudgetOfDetails = 0.008;

void start_recording(State state, Detail detail) {
  Recording& now = recording();
  {
    const std::unique_lock lock(now.mutex);
    now.launches = {};
    now.has_cupti = now.has_stamps = now.has_unseen = false;
    now.is_whole = env_flag("PAODING_CUPTI");
    now.is_check = env_text("PAODING_CUPTI") == "stamps";
    now.state = state;
  }
  if (state == State::cpu || gpu::GpuDevice::count() == 0) return;
  GpuPhases::start_recording();
  if (now.is_whole) begin_cupti();
  if (now.has_cupti && !now.is_check) return;
  GpuStamps::start_recording(detail == Detail::op ? kBudget : kBudgetOfDetails);
  now.has_stamps = true;
}

void stop_recording() {
  Recording& now = recording();
  const std::unique_lock lock(now.mutex);
  end_cupti(now);
  if (now.has_stamps) GpuStamps::stop_recording();
  GpuPhases::stop_recording();
}

}  // namespace

void GpuTrace::add_source() {
  static std::once_flag once;
  std::call_once(once, [] {
    Recorder::add_source({start_recording, stop_recording, begin_cupti, [] {
                            Recording& now = recording();
                            const std::unique_lock lock(now.mutex);
                            if (!now.is_whole) end_cupti(now);
                          }});
  });
}

std::vector<profile::SiteId> GpuTrace::sites_of(const LaunchSites& sites, const Schedule& schedule,
                                                FusedKernels& fused) {
  add_source();
  const auto own = [](const char* name) {
    return Recorder::add_site({.name = name, .op = name, .kind = profile::SpanKind::kernel});
  };
  static const profile::SiteId guard = own("commit guard"), poll = own("cancellation poll"), results = own("results");
  Sites all;
  all.reserve(schedule.entries.size());
  for (const LaunchEntry& started : schedule.entries) {
    all.push_back(started.kind == LaunchEntry::Kind::guard     ? guard
                  : started.kind == LaunchEntry::Kind::poll    ? poll
                  : started.kind == LaunchEntry::Kind::results ? results
                  : started.kind == LaunchEntry::Kind::fused   ? fused.site_of(started)
                                                               : sites.of(schedule.launches[started.launch]).kernel);
  }
  return all;
}

GpuTrace::GpuTrace(int device, std::shared_ptr<const Sites> sites, const std::vector<CapturedGraph::Node>& nodes) {
  auto shape = std::make_shared<GraphShape>();
  shape->device = device;
  shape->has_nodes = std::ranges::any_of(nodes, &CapturedGraph::Node::runs_always);
  shape->sites = std::move(sites);
  shape_ = std::move(shape);
  launch_site_ = Recorder::add_site({.name = "graph launch", .kind = profile::SpanKind::launch});
}

bool GpuTrace::uses_cupti() { return recording().has_cupti; }

void GpuTrace::launch(std::uint32_t run, CapturedGraph& graph, GpuStamps& stamps, CUstream stream) {
  Recording& now = recording();
  const auto plain = [&](CUstream of) { graph.launch(of); };
  const auto by_stamps = [&] {
    if (!now.has_stamps || !stamps.launch(run, plain, stream)) plain(stream);
  };
  {
    const std::shared_lock lock(now.mutex);  // so CUPTI does not start meanwhile, nor does the recording end
    if (!now.has_cupti) return by_stamps();
  }
  const std::unique_lock lock(now.mutex);
  now.has_cupti ? launch_twin(run, graph, stamps, stream) : by_stamps();
}

void GpuTrace::launch(std::uint32_t run, const std::function<void(CUstream)>& plain, GpuStamps& stamps,
                      CUstream stream) {
  Recording& now = recording();
  const std::shared_lock lock(now.mutex);
  if (!now.has_stamps) {
    if (now.has_cupti && !now.has_unseen.exchange(true)) {
      Recorder::add_note("kernels of runs on memory of the caller's, which CUPTI is not asked about");
    }
    return plain(stream);
  }
  if (!stamps.launch(run, plain, stream)) plain(stream);
}

// CUPTI makes a launch many times longer; the difference is recorded as the recording's own time.
void GpuTrace::launch_twin(std::uint32_t run, CapturedGraph& graph, GpuStamps& stamps, CUstream stream) {
  static const profile::SiteId stretched =
      Recorder::add_site({.name = "launch under CUPTI", .kind = profile::SpanKind::recording});
  static const profile::SiteId twin = Recorder::add_site({.name = "twin", .kind = profile::SpanKind::recording});
  Recording& now = recording();
  CapturedGraph* launched = &graph;
  {
    const profile::SpanScope seen(twin);
    if (now.is_check) launched = &stamps.next_in_full(run, graph, stream);
    now.launches.graphs.push_back({shape_, launched->make_twin(stream), run});
  }
  const profile::Ticks start = Recorder::now();
  launched->launch_twin(stream);
  const profile::Ticks end = Recorder::now();
  if (!Recorder::active()) return;
  if (alone_ != 0 && end - start > alone_) Recorder::complete(stretched, start + alone_, end);
  Recorder::complete(launch_site_, start, end, run);
}

// Keeps the shortest time of a launch, because longer ones waited for room in the stream.
void GpuTrace::note_alone(profile::Ticks start) {
  const profile::Ticks length = std::max<profile::Ticks>(Recorder::now() - start, 1);
  alone_ = alone_ == 0 ? length : std::min(alone_, length);
}

GpuTrace::Step::Step(const gpu::GpuDevice& device, CUstream stream) : device_(device), stream_(stream) {
  if (!is_wanted()) return;
  start_ns_ = steady_ns();
  if (uses_cupti()) return;
  begin_.emplace(device, true), end_.emplace(device, true);
  begin_->record(stream);
}

void GpuTrace::Step::launched() {
  if (end_) end_->record(stream_);
}

void GpuTrace::Step::ended(profile::SiteId kernel, std::uint32_t run) {
  if (start_ns_ == 0) return;
  const std::int64_t end_ns = steady_ns();
  if (!end_) {
    Recording& now = recording();
    const std::unique_lock lock(now.mutex);
    if (now.has_cupti) now.launches.steps.push_back({device_.index(), kernel, run, start_ns_, end_ns});
    return;
  }
  const auto on_device_ns = static_cast<std::int64_t>(end_->milliseconds_since(*begin_) * 1e6);
  const std::int64_t duration_ns = std::min(on_device_ns, end_ns - start_ns_);
  Recorder::add_limit(limit_of(device_));
  const auto track = Recorder::gpu_track(profile::TrackKind::stream, "stream", device_.index());
  Recorder::add_gpu(kernel, run, end_ns - duration_ns, duration_ns, track);
}

}  // namespace paoding
