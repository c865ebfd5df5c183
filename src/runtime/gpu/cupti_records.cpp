// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/cupti_records.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "base/check.h"

namespace paoding {
namespace {

using profile::Recorder;
using Activities = std::vector<const gpu::GpuActivity*>;

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

// A kernel of stamps.cu is no op's; of one in front of a library's kernel the node is that kernel's entry.
bool is_stamp(const gpu::GpuActivity& activity) {
  return std::ranges::any_of(std::array{"stamp_", "list_stamp_", "keep_stamps_", "answer_clock_"},
                             [&](const char* name) { return activity.name.starts_with(name); });
}

void add_kernel(const CuptiLaunches::Graph& launch, profile::SiteId site, const gpu::GpuActivity& activity) {
  const auto track =
      Recorder::gpu_track(profile::TrackKind::stream, fmt::format("stream {}", activity.stream), launch.shape->device);
  static const profile::SiteId stamp =
      Recorder::add_site({.name = "stamp", .op = "stamp", .kind = profile::SpanKind::kernel});
  const profile::SiteId seen = is_stamp(activity) ? stamp : run_as(site, activity);
  const std::array<profile::SpanArgument, 4> arguments{{{"registers", activity.registers},
                                                        {"shared bytes", activity.shared_bytes},
                                                        {"threads", activity.threads},
                                                        {"CTAs", activity.ctas}}};
  const bool is_kernel = activity.kind == gpu::GpuActivity::Kind::kernel;
  Recorder::add_gpu(
      seen, launch.run, activity.start_ns, activity.duration_ns, track, launch.run,
      is_kernel ? std::span<const profile::SpanArgument>(arguments) : std::span<const profile::SpanArgument>());
}

// Finds every activity by its node. CUPTI numbers launches of a twin in the order in which they were made; kernels that
// a conditional node runs have no such number, and lie between the beginnings of two launches.
void add_by_nodes(const std::vector<CuptiLaunches::Graph>& made, const Activities& activities) {
  struct Graph {
    std::vector<const CuptiLaunches::Graph*> launches;
    std::map<std::uint32_t, std::int64_t> starts;  // by correlation
    Activities seen;
  };
  std::map<const CapturedGraph::Numbers*, Graph> graphs;
  std::unordered_map<std::uint64_t, Graph*> graph_of;  // of a node
  for (const CuptiLaunches::Graph& launch : made) {
    Graph& graph = graphs[launch.numbers.get()];
    graph.launches.push_back(&launch);
    if (graph.launches.size() > 1) continue;
    for (const auto& [number, entry] : *launch.numbers) graph_of.emplace(number, &graph);
  }
  std::uint64_t foreign = 0, unseen = 0, lost = 0;
  for (const gpu::GpuActivity* activity : activities) {
    const auto found = graph_of.find(activity->node);
    if (found == graph_of.end()) {
      foreign += is_stamp(*activity) ? 0 : 1;
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
      const CuptiLaunches::Graph& launch = *graph.launches[static_cast<std::size_t>(at)];
      add_kernel(launch, (*launch.shape->sites)[numbers->at(activity->node)], *activity);
    }
  }
  if (foreign != 0) Recorder::add_note("nodes of graphs that were launched before, or by others, left out", foreign);
  if (unseen != 0) Recorder::add_note("graph launches that CUPTI did not show", unseen);
  if (lost != 0) Recorder::add_note("nodes of graphs whose launch is not known, left out", lost);
}

// The step that was waited for at the time, if one was.
const CuptiLaunches::Step* step_at(const std::vector<CuptiLaunches::Step>& steps, const gpu::GpuActivity& activity) {
  const auto behind =
      std::upper_bound(steps.begin(), steps.end(), activity.start_ns,
                       [](std::int64_t ns, const CuptiLaunches::Step& step) { return ns < step.start_ns; });
  if (behind == steps.begin()) return nullptr;
  const CuptiLaunches::Step& step = *std::prev(behind);
  return step.device == static_cast<int>(activity.device) && activity.start_ns <= step.end_ns ? &step : nullptr;
}

}  // namespace

void tell_cupti(CuptiLaunches launches, const std::vector<gpu::GpuActivity>& activities,
                const gpu::CuptiCollector::Lost& lost) {
  using Kind = profile::Note::Kind;
  if (lost.dropped != 0) Recorder::add_note("records that CUPTI dropped", lost.dropped, Kind::dropped);
  if (lost.clock_set_ns != 0) {
    Recorder::add_note("ns by which the host's clock was set while CUPTI looked: its times are off by up to that",
                       static_cast<std::uint64_t>(lost.clock_set_ns));
  }
  if (lost.timeless != 0) {
    Recorder::add_note("records of CUPTI without a time, left out", lost.timeless, Kind::timeless);
  }
  std::ranges::stable_sort(launches.steps, {}, &CuptiLaunches::Step::start_ns);
  Activities in_graphs;
  std::uint64_t foreign = 0;
  for (const gpu::GpuActivity& activity : activities) {
    if (activity.graph != 0) {
      in_graphs.push_back(&activity);
    } else if (activity.kind != gpu::GpuActivity::Kind::kernel) {
      add_copy(activity);
    } else if (const CuptiLaunches::Step* step = step_at(launches.steps, activity)) {
      const auto track =
          Recorder::gpu_track(profile::TrackKind::stream, fmt::format("stream {}", activity.stream), step->device);
      Recorder::add_gpu(run_as(step->site, activity), step->run, activity.start_ns, activity.duration_ns, track);
    } else {
      foreign += is_stamp(activity) ? 0 : 1;
    }
  }
  if (foreign != 0) Recorder::add_note("kernels that no paoding program launched, left out", foreign);
  add_by_nodes(launches.graphs, in_graphs);
}

}  // namespace paoding
