// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

#include "base/check.h"
#include "base/env.h"
#include "gpu/cupti_collector.h"
#include "gpu/driver.h"
#include "runtime/gpu_phases.h"
#include "runtime/gpu_stamps.h"
#include "runtime/gpu_trace.h"

namespace paoding {
namespace {

using profile::Recorder;
using profile::steady_ns;

// Every graph launch of the recording that is under way, in order.
struct GraphLaunch {
  std::shared_ptr<const GpuTrace::Shape> shape;
  std::shared_ptr<const CapturedGraph::Numbers> numbers;
  std::uint32_t run;
};
// A step that was launched by itself and waited for.
struct StepLaunch {
  int device;
  profile::SiteId site;
  std::uint32_t run;
  std::int64_t start_ns, end_ns;
};
using Activities = std::vector<const gpu::GpuActivity*>;

struct Recording {
  std::mutex mutex;
  std::vector<GraphLaunch> launches;
  std::vector<StepLaunch> steps;
  std::atomic<bool> has_cupti = false;
};

Recording& recording() {
  static auto* the_recording = new Recording;  // never destroyed: a recording may end behind main()
  return *the_recording;
}

// Of a program's time: what stamps in full may cost, those of ends, and those of copies, each.
constexpr double kBudget = 0.002, kBudgetOfDetails = 0.008;

void start_recording(State state, Detail detail) {
  Recording& now = recording();
  const std::lock_guard lock(now.mutex);
  now.launches.clear();
  now.steps.clear();
  now.has_cupti = false;
  if (state == State::cpu || gpu::GpuDevice::count() == 0) return;
  GpuPhases::start_recording();
  std::string why_not;
  now.has_cupti = env_flag("PAODING_CUPTI") && gpu::CuptiCollector::start(&why_not);
  if (!why_not.empty()) Recorder::add_note("CUPTI cannot be used (" + why_not + "); kernels told by their own stamps");
  if (!now.has_cupti) return GpuStamps::start_recording(detail == Detail::op ? kBudget : kBudgetOfDetails);
}

void add_copy(const gpu::GpuActivity& activity) {
  profile::SiteInfo info;
  info.kind = activity.kind == gpu::GpuActivity::Kind::memset ? profile::SpanKind::memset : profile::SpanKind::memcpy;
  info.copy = activity.is_from_host ? profile::Copy::host_to_device
              : activity.is_to_host ? profile::Copy::device_to_host
                                    : profile::Copy::same_device;
  info.name = info.kind == profile::SpanKind::memset ? "memset" : std::string(to_string(info.copy));
  info.async = activity.is_async;
  info.bytes = activity.bytes;
  const auto track = Recorder::gpu_track(profile::TrackKind::copy_engine, fmt::format("copies {}", activity.stream),
                                         static_cast<int>(activity.device));
  Recorder::add_gpu(Recorder::add_site(info), 0, activity.start_ns, activity.duration_ns, track);
}

// A library's kernels have a name of their own, which CUPTI knows; a step of several of ours has that of each.
profile::SiteId run_as(profile::SiteId site, const gpu::GpuActivity& activity) {
  if (activity.kind != gpu::GpuActivity::Kind::kernel || activity.name.empty()) return site;
  static auto* const known = new std::map<std::pair<profile::SiteId, std::string>, profile::SiteId>;
  const auto [found, is_new] = known->try_emplace({site, activity.name}, site);
  if (is_new) found->second = Recorder::run_as(site, activity.name);
  return found->second;
}

void add_kernel(const GraphLaunch& launch, profile::SiteId site, const gpu::GpuActivity& activity) {
  const auto track =
      Recorder::gpu_track(profile::TrackKind::stream, fmt::format("stream {}", activity.stream), launch.shape->device);
  Recorder::add_gpu(run_as(site, activity), launch.run, activity.start_ns, activity.duration_ns, track, launch.run);
}

// Every activity by its node. Launches of a twin are numbered by CUPTI as they were made; what a conditional node runs
// has no such number, and lies between the beginnings of two launches.
void add_by_nodes(const std::vector<GraphLaunch>& made, const Activities& activities) {
  struct Graph {
    std::vector<const GraphLaunch*> launches;
    std::map<std::uint32_t, std::int64_t> starts;  // by correlation
    Activities seen;
  };
  std::map<const CapturedGraph::Numbers*, Graph> graphs;
  std::unordered_map<std::uint64_t, Graph*> graph_of;  // of a node
  for (const GraphLaunch& launch : made) {
    Graph& graph = graphs[launch.numbers.get()];
    graph.launches.push_back(&launch);
    if (graph.launches.size() > 1) continue;
    for (const auto& [number, entry] : *launch.numbers) graph_of.emplace(number, &graph);
  }
  std::uint64_t foreign = 0, unseen = 0, lost = 0;
  for (const gpu::GpuActivity* activity : activities) {
    const auto found = graph_of.find(activity->node);
    if (found == graph_of.end()) {
      ++foreign;
      continue;
    }
    found->second->seen.push_back(activity);
    if (activity->correlation == 0) continue;
    const auto [start, is_new] = found->second->starts.try_emplace(activity->correlation, activity->start_ns);
    start->second = std::min(start->second, activity->start_ns);
  }
  for (const auto& [numbers, graph] : graphs) {
    const std::size_t count = graph.launches.size(), shown = graph.starts.size();
    if (shown < count && graph.launches[0]->shape->has_nodes) unseen += count - shown;
    std::vector<std::int64_t> starts;  // those that are shown are the last
    for (const auto& [correlation, start] : graph.starts) starts.push_back(start);
    for (const gpu::GpuActivity* activity : graph.seen) {
      const auto number = activity->correlation != 0
                              ? std::distance(graph.starts.begin(), graph.starts.find(activity->correlation))
                              : std::ranges::upper_bound(starts, activity->start_ns) - starts.begin() - 1;
      const std::ptrdiff_t at = number + static_cast<std::ptrdiff_t>(count) - static_cast<std::ptrdiff_t>(shown);
      if (number < 0 || at < 0) {
        ++lost;
        continue;
      }
      const GraphLaunch& launch = *graph.launches[static_cast<std::size_t>(at)];
      add_kernel(launch, (*launch.shape->sites)[numbers->at(activity->node)], *activity);
    }
  }
  if (foreign != 0) Recorder::add_note("nodes of graphs that were launched before, or by others, left out", foreign);
  if (unseen != 0) Recorder::add_note("graph launches that CUPTI did not show", unseen);
  if (lost != 0) Recorder::add_note("nodes of graphs whose launch is not known, left out", lost);
}

// The step that was waited for at the time, if one was.
const StepLaunch* step_at(const std::vector<StepLaunch>& steps, const gpu::GpuActivity& activity) {
  const auto behind = std::upper_bound(steps.begin(), steps.end(), activity.start_ns,
                                       [](std::int64_t ns, const StepLaunch& step) { return ns < step.start_ns; });
  if (behind == steps.begin()) return nullptr;
  const StepLaunch& step = *std::prev(behind);
  return step.device == static_cast<int>(activity.device) && activity.start_ns <= step.end_ns ? &step : nullptr;
}

void stop_recording() {
  Recording& now = recording();
  const std::lock_guard lock(now.mutex);
  if (!now.has_cupti) {
    GpuStamps::stop_recording();
    return GpuPhases::stop_recording();
  }
  now.has_cupti = false;
  std::set<int> devices;
  for (const GraphLaunch& launch : now.launches) devices.insert(launch.shape->device);
  for (const int device : devices) {  // of any thread's
    const gpu::GpuDevice& of = gpu::GpuDevice::get(device);
    of.make_current();
    PD_CUDA(gpu::required_driver().cuCtxSynchronize());
    Recorder::add_limit(limit_of(of));
  }
  gpu::CuptiCollector::Lost lost;
  const std::vector<gpu::GpuActivity> activities = gpu::CuptiCollector::stop(&lost);
  CapturedGraph::drop_twins();
  gpu::CuptiCollector::leave();
  GpuPhases::stop_recording();
  using Kind = profile::Note::Kind;
  if (lost.dropped != 0) Recorder::add_note("records that CUPTI dropped", lost.dropped, Kind::dropped);
  if (lost.clock_set_ns != 0) {
    Recorder::add_note("ns by which the host's clock was set while CUPTI looked: its times are off by up to that",
                       static_cast<std::uint64_t>(lost.clock_set_ns));
  }
  if (lost.timeless != 0) {
    Recorder::add_note("records of CUPTI without a time, left out", lost.timeless, Kind::timeless);
  }
  std::ranges::stable_sort(now.steps, {}, &StepLaunch::start_ns);
  Activities in_graphs;
  std::uint64_t foreign = 0;
  for (const gpu::GpuActivity& activity : activities) {
    if (activity.graph != 0) {
      in_graphs.push_back(&activity);
    } else if (activity.kind != gpu::GpuActivity::Kind::kernel) {
      add_copy(activity);
    } else if (const StepLaunch* step = step_at(now.steps, activity)) {
      const auto track =
          Recorder::gpu_track(profile::TrackKind::stream, fmt::format("stream {}", activity.stream), step->device);
      Recorder::add_gpu(run_as(step->site, activity), step->run, activity.start_ns, activity.duration_ns, track);
    } else {
      ++foreign;
    }
  }
  if (foreign != 0) Recorder::add_note("kernels that no paoding program launched, left out", foreign);
  add_by_nodes(now.launches, in_graphs);
  now.launches.clear();
}

}  // namespace

void GpuTrace::add_source() {
  static std::once_flag once;
  std::call_once(once, [] { Recorder::add_source({start_recording, stop_recording}); });
}

std::vector<profile::SiteId> GpuTrace::sites_of(const LaunchSites& sites, const std::vector<Launch>& launches,
                                                const std::vector<Started>& order) {
  add_source();
  const auto own = [](const char* name) {
    return Recorder::add_site({.name = name, .op = name, .kind = profile::SpanKind::kernel});
  };
  static const profile::SiteId gate = own("commit gate"), look = own("cancel look"), results = own("results");
  Sites all;
  all.reserve(order.size());
  for (const Started& started : order) {
    all.push_back(started.kind == Started::Kind::gate      ? gate
                  : started.kind == Started::Kind::look    ? look
                  : started.kind == Started::Kind::results ? results
                                                           : sites.of(launches[started.launch]).kernel);
  }
  return all;
}

GpuTrace::GpuTrace(int device, std::shared_ptr<const Sites> sites, const std::vector<CapturedGraph::Node>& nodes) {
  auto shape = std::make_shared<Shape>();
  shape->device = device;
  shape->has_nodes = std::ranges::any_of(nodes, &CapturedGraph::Node::runs_always);
  shape->sites = std::move(sites);
  shape_ = std::move(shape);
  launch_site_ = Recorder::add_site({.name = "graph launch", .kind = profile::SpanKind::launch});
}

bool GpuTrace::uses_cupti() { return recording().has_cupti; }

// While CUPTI looks a launch takes many times what it takes alone: what is more is the recording's.
bool GpuTrace::launch(std::uint32_t run, CapturedGraph& graph, CUstream stream) {
  static const profile::SiteId stretched =
      Recorder::add_site({.name = "launch under CUPTI", .kind = profile::SpanKind::recording});
  static const profile::SiteId twin = Recorder::add_site({.name = "twin", .kind = profile::SpanKind::recording});
  Recording& now = recording();
  const std::lock_guard lock(now.mutex);  // the recording does not end meanwhile
  if (!now.has_cupti) return false;
  {
    const profile::SpanScope seen(twin);
    now.launches.push_back({shape_, graph.make_twin(stream), run});
  }
  const profile::Ticks start = Recorder::now();
  graph.launch_twin(stream);
  const profile::Ticks end = Recorder::now();
  if (!Recorder::active()) return true;
  if (alone_ != 0 && end - start > alone_) Recorder::complete(stretched, start + alone_, end);
  Recorder::complete(launch_site_, start, end, run);
  return true;
}

// The shortest is what it takes: longer ones waited for room in the stream.
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
    const std::lock_guard lock(now.mutex);
    if (now.has_cupti) now.steps.push_back({device_.index(), kernel, run, start_ns_, end_ns});
    return;
  }
  const auto on_device_ns = static_cast<std::int64_t>(end_->milliseconds_since(*begin_) * 1e6);
  const std::int64_t duration_ns = std::min(on_device_ns, end_ns - start_ns_);
  const auto track = Recorder::gpu_track(profile::TrackKind::stream, "stream", device_.index());
  Recorder::add_gpu(kernel, run, end_ns - duration_ns, duration_ns, track);
}

}  // namespace paoding
