// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <mutex>

#include "base/check.h"
#include "gpu/cupti_collector.h"
#include "gpu/driver.h"
#include "runtime/gpu_trace.h"
#include "runtime/sites.h"

namespace paoding {
namespace {

using profile::Recorder;

// Every graph launch of the recording that is under way, in order.
struct GraphLaunch {
  std::shared_ptr<const GpuTrace::Shape> shape;
  std::uint32_t run;
};

struct Recording {
  std::mutex mutex;
  std::vector<GraphLaunch> launches;
  bool has_cupti = false;
};

Recording& recording() {
  static Recording the_recording;
  return the_recording;
}

void start_recording(State state, Detail) {
  Recording& now = recording();
  const std::lock_guard lock(now.mutex);
  now.launches.clear();
  now.has_cupti = false;
  if (state == State::cpu || gpu::GpuDevice::count() == 0) return;
  std::string why_not;
  now.has_cupti = gpu::CuptiCollector::start(&why_not);
  if (!now.has_cupti) {
    Recorder::add_note("CUPTI cannot be used (" + why_not +
                       "); GPU steps were launched one by one and timed with events, which takes longer than a graph");
  }
}

void add_copy(const gpu::GpuActivity& activity) {
  profile::SiteInfo info;
  info.kind = activity.kind == gpu::GpuActivity::Kind::memset ? profile::SpanKind::memset : profile::SpanKind::memcpy;
  info.copy = activity.is_from_host ? profile::Copy::host_to_device
              : activity.is_to_host ? profile::Copy::device_to_host
                                    : profile::Copy::same_device;
  info.name = info.kind == profile::SpanKind::memset ? "memset" : std::string(to_string(info.copy));
  info.async = !activity.is_to_host;  // fetches wait, feeds do not
  info.bytes = activity.bytes;
  const auto track = Recorder::gpu_track(profile::TrackKind::copy_engine, fmt::format("copies {}", activity.stream),
                                         static_cast<int>(activity.device));
  Recorder::add_gpu(Recorder::add_site(info), 0, activity.start_ns, activity.duration_ns, track);
}

// The activities of one graph launch, in order of start, against the nodes that its program has.
void add_graph(const GraphLaunch& launch, const std::vector<const gpu::GpuActivity*>& activities) {
  const auto track = Recorder::gpu_track(profile::TrackKind::stream, fmt::format("stream {}", activities[0]->stream),
                                         launch.shape->device);
  for (std::size_t i = 0; i < activities.size(); ++i) {
    const gpu::GpuActivity& activity = *activities[i];
    Recorder::add_gpu(launch.shape->nodes[i], launch.run, activity.start_ns, activity.duration_ns, track, launch.run);
  }
}

void stop_recording() {
  Recording& now = recording();
  const std::lock_guard lock(now.mutex);
  if (!now.has_cupti) return;
  std::uint64_t dropped = 0;
  const std::vector<gpu::GpuActivity> activities = gpu::CuptiCollector::stop(&dropped);
  if (dropped != 0) Recorder::add_note("records that CUPTI dropped", dropped);

  std::map<std::uint32_t, std::vector<const gpu::GpuActivity*>> by_launch;
  std::vector<std::uint32_t> order;  // correlations of graph launches by their first kernel
  std::uint64_t foreign = 0;
  for (const gpu::GpuActivity& activity : activities) {
    if (activity.graph != 0) {
      auto& list = by_launch[activity.correlation];
      if (list.empty()) order.push_back(activity.correlation);
      list.push_back(&activity);
    } else if (activity.kind != gpu::GpuActivity::Kind::kernel) {
      add_copy(activity);
    } else {
      ++foreign;
    }
  }
  if (foreign != 0) Recorder::add_note("kernels that no paoding program launched, left out", foreign);

  std::size_t matched = 0;
  std::vector<const GraphLaunch*> expected;
  for (const GraphLaunch& launch : now.launches) {
    if (!launch.shape->nodes.empty()) expected.push_back(&launch);
  }
  for (std::size_t i = 0; i < order.size() && i < expected.size(); ++i) {
    const auto& list = by_launch.at(order[i]);
    if (list.size() != expected[i]->shape->nodes.size()) break;  // from here on the order proves nothing
    add_graph(*expected[i], list);
    ++matched;
  }
  if (matched != expected.size() || order.size() != expected.size()) {
    Recorder::add_note(fmt::format("graph launches whose kernels could not be told apart ({} seen, {} made)",
                                   order.size(), expected.size()),
                       std::max(order.size(), expected.size()) - matched);
  }
  now.launches.clear();
}

void add_source_once() {
  static std::once_flag once;
  std::call_once(once, [] { Recorder::add_source({start_recording, stop_recording}); });
}

}  // namespace

std::vector<profile::SiteId> GpuTrace::sites_of(const std::vector<Launch>& launches,
                                                const std::vector<Started>& order) {
  add_source_once();
  const auto own = [](const char* name) {
    return Recorder::add_site({.name = name, .op = name, .kind = profile::SpanKind::kernel});
  };
  static const profile::SiteId gate = own("commit gate"), look = own("cancel look");
  const LaunchSites sites(launches);
  std::vector<profile::SiteId> all;
  all.reserve(order.size());
  for (const Started& started : order) {
    all.push_back(started.kind == Started::Kind::gate   ? gate
                  : started.kind == Started::Kind::look ? look
                                                        : sites.of(launches[started.launch]).kernel);
  }
  return all;
}

GpuTrace::GpuTrace(int device, const std::vector<profile::SiteId>& sites,
                   const std::vector<CapturedGraph::Node>& nodes) {
  auto shape = std::make_shared<Shape>();
  shape->device = device;
  shape->sites = sites;
  for (const CapturedGraph::Node& node : nodes) shape->nodes.push_back(sites[node.of]);
  shape_ = std::move(shape);
  launch_site_ = Recorder::add_site({.name = "graph launch", .kind = profile::SpanKind::launch});
}

bool GpuTrace::sees_graphs() { return recording().has_cupti; }

void GpuTrace::before_graph(std::uint32_t run) {
  Recording& now = recording();
  {
    const std::lock_guard lock(now.mutex);
    now.launches.push_back({shape_, run});
  }
  launch_start_ = Recorder::now();
}

void GpuTrace::after_graph(std::uint32_t run) { Recorder::complete(launch_site_, launch_start_, Recorder::now(), run); }

void GpuTrace::time_steps(std::uint32_t run, std::size_t first, std::size_t end, CUstream stream,
                          const std::function<void(std::size_t)>& start) {
  const gpu::GpuDevice& device = gpu::GpuDevice::get(shape_->device);
  std::vector<gpu::Event> events;
  for (std::size_t k = first; k <= end; ++k) events.emplace_back(device, true);
  // The first event is waited for before anything else is launched, so that its host time is known.
  events[0].record(stream);
  events[0].wait_done();
  const std::int64_t anchor_ns = std::chrono::steady_clock::now().time_since_epoch().count();
  const profile::Ticks launch_start = Recorder::now();
  for (std::size_t k = first; k < end; ++k) {
    start(k);
    events[k - first + 1].record(stream);
  }
  Recorder::complete(launch_site_, launch_start, Recorder::now(), run);
  events.back().wait_done();
  const auto track = Recorder::gpu_track(profile::TrackKind::stream, "stream", shape_->device);
  std::int64_t before_ns = 0;
  for (std::size_t k = first; k < end; ++k) {
    const double at_ms = events[k - first + 1].milliseconds_since(events[0]);
    const auto at_ns = static_cast<std::int64_t>(at_ms * 1e6);
    Recorder::add_gpu(shape_->sites[k], run, anchor_ns + before_ns, at_ns - before_ns, track, run);
    before_ns = at_ns;
  }
}

}  // namespace paoding
