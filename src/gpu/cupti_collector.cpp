// SPDX-License-Identifier: Apache-2.0
#include "gpu/cupti_collector.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>

#include "gpu/cupti_library.h"
#include "gpu/driver.h"

namespace paoding::gpu {

const std::string& CuptiCollector::problem() { return cupti_problem(); }

#if PD_HAS_CUPTI

namespace {

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;

// Kernels are the most frequent; a graph's kernels are seen one by one only while GRAPH_TRACE is off.
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET};

struct Collection {
  std::mutex mutex;
  std::vector<GpuActivity> activities;  // times are CUPTI's until stop()
  CuptiCollector::Lost lost;
  std::int64_t offset_ns = 0;  // steady_clock minus CUPTI's clock, at start
  bool has_callbacks = false;
  CUpti_SubscriberHandle subscriber = nullptr;
  std::string nodes_problem;
};

Collection& collection() {
  static auto* the_collection = new Collection;  // never destroyed: CUPTI's threads may outlive main()
  return *the_collection;
}

// Both clocks read as close together as can be: the tightest of several tries.
std::int64_t clock_offset() {
  std::int64_t best_gap = INT64_MAX, offset = 0;
  for (int i = 0; i < 20; ++i) {
    const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
    const std::int64_t before = now();
    std::uint64_t cupti_now = 0;
    PD_CUPTI(cupti()->cuptiGetTimestamp(&cupti_now));
    const std::int64_t after = now();
    if (after - before < best_gap) {
      best_gap = after - before;
      offset = before + (after - before) / 2 - static_cast<std::int64_t>(cupti_now);
    }
  }
  return offset;
}

void add_record(const CUpti_Activity* record, Collection* all) {
  GpuActivity activity;
  const auto place = [&](const auto& of) {
    activity.start_ns = static_cast<std::int64_t>(of.start);
    activity.duration_ns = static_cast<std::int64_t>(of.end - of.start);
    activity.device = of.deviceId;
    activity.stream = of.streamId;
    activity.correlation = of.correlationId;
    activity.graph = of.graphId;
    activity.node = of.graphNodeId;
  };
  // Records are read by the version of the first fields only, which older libraries write too.
  if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || record->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel9*>(record);
    activity.kind = GpuActivity::Kind::kernel;
    place(*kernel);
    activity.name = kernel->name != nullptr ? kernel->name : "";
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
    activity.kind = GpuActivity::Kind::memcpy;
    place(*copy);
    activity.bytes = static_cast<std::int64_t>(copy->bytes);
    activity.is_from_host = copy->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
    activity.is_to_host = copy->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
    // What is asynchronous by its name waits where the host's memory is pageable.
    const auto is_pageable = [](std::uint8_t kind) { return kind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE; };
    activity.is_async = (copy->flags & CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC) != 0 && !is_pageable(copy->srcKind) &&
                        !is_pageable(copy->dstKind);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto* fill = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
    activity.kind = GpuActivity::Kind::memset;
    place(*fill);
    activity.bytes = static_cast<std::int64_t>(fill->bytes);
  } else {
    return;
  }
  if (activity.start_ns == 0 || activity.duration_ns < 0) {
    ++all->lost.timeless;  // it would move all that comes behind it
    return;
  }
  all->activities.push_back(std::move(activity));
}

// CUPTI calls these from its own threads.
void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = *buffer != nullptr ? kBufferBytes : 0;
  *most_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid_bytes) {
  Collection& all = collection();
  const std::lock_guard lock(all.mutex);
  CUpti_Activity* record = nullptr;
  while (cupti()->cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) add_record(record, &all);
  std::size_t dropped = 0;
  if (cupti()->cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped) == CUPTI_SUCCESS) all.lost.dropped += dropped;
  std::free(buffer);
}

// A launch may start while the one in front of it ends, and then waits for it: its own time begins behind that.
void cut_waits(std::vector<GpuActivity>* activities) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> ends;  // of a device and stream
  for (GpuActivity& activity : *activities) {
    std::int64_t& end = ends[{activity.device, activity.stream}];
    const std::int64_t own_end = activity.start_ns + activity.duration_ns;
    if (activity.kind == GpuActivity::Kind::kernel && activity.start_ns < end && own_end > end) {
      activity.start_ns = end;
      activity.duration_ns = own_end - end;
    }
    end = std::max(end, own_end);
  }
}

thread_local std::vector<std::pair<std::uint64_t, std::uint64_t>>* clones_here = nullptr;

// Called within cuGraphInstantiate, by its thread.
void CUPTIAPI see_clone(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  if (clones_here == nullptr || domain != CUPTI_CB_DOMAIN_RESOURCE || id != CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED)
    return;
  const auto* resource = static_cast<const CUpti_ResourceData*>(data);
  const auto* graph = static_cast<const CUpti_GraphData*>(resource->resourceDescriptor);
  std::uint64_t from = 0, made = 0;
  if (cupti()->cuptiGetGraphNodeId(graph->originalNode, &from) != CUPTI_SUCCESS) return;
  if (cupti()->cuptiGetGraphNodeId(graph->node, &made) != CUPTI_SUCCESS) return;
  clones_here->emplace_back(from, made);
}

// Why nodes cannot be told apart, or nothing.
std::string subscribe(CUpti_SubscriberHandle* subscriber) {
  const Cupti& table = *cupti();
  for (const auto& [function, name] : {std::pair{reinterpret_cast<void*>(table.cuptiSubscribe), "cuptiSubscribe"},
                                       {reinterpret_cast<void*>(table.cuptiUnsubscribe), "cuptiUnsubscribe"},
                                       {reinterpret_cast<void*>(table.cuptiEnableCallback), "cuptiEnableCallback"},
                                       {reinterpret_cast<void*>(table.cuptiGetGraphNodeId), "cuptiGetGraphNodeId"}}) {
    if (function == nullptr) return cupti_library().path() + " has no " + name;
  }
  try {
    PD_CUPTI(table.cuptiSubscribe(subscriber, reinterpret_cast<CUpti_CallbackFunc>(see_clone), nullptr));
    PD_CUPTI(table.cuptiEnableCallback(1, *subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

ClonedNodes::ClonedNodes() { clones_here = &clones_; }
ClonedNodes::~ClonedNodes() { clones_here = nullptr; }

// A clone may be made of a clone.
std::unordered_map<std::uint64_t, std::size_t> ClonedNodes::positions(std::span<const CUgraphNode> nodes) const {
  std::unordered_map<std::uint64_t, std::size_t> of, made;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    std::uint64_t number = 0;
    if (cupti()->cuptiGetGraphNodeId(nodes[i], &number) == CUPTI_SUCCESS) of.emplace(number, i);
  }
  for (const auto& [from, clone] : clones_) {
    const auto found = of.find(from);
    if (found == of.end()) continue;
    const std::size_t position = found->second;
    of.emplace(clone, position);
    made.emplace(clone, position);
  }
  return made;
}

std::string CuptiCollector::nodes_problem() { return collection().nodes_problem; }

bool CuptiCollector::start(std::string* why_not) {
  if (cupti() == nullptr) {
    *why_not = cupti_problem();
    return false;
  }
  Collection& all = collection();
  try {
    if (!all.has_callbacks) PD_CUPTI(cupti()->cuptiActivityRegisterCallbacks(give_buffer, take_buffer));
    all.has_callbacks = true;
    for (CUpti_ActivityKind kind : kKinds) PD_CUPTI(cupti()->cuptiActivityEnable(kind));
    PD_CUPTI(cupti()->cuptiActivityFlushAll(1));  // what an earlier recording left behind
    const std::lock_guard lock(all.mutex);
    all.activities.clear();
    all.lost = {};
    all.offset_ns = clock_offset();
    all.nodes_problem = subscribe(&all.subscriber);
  } catch (const Error& error) {
    *why_not = error.what();
    for (CUpti_ActivityKind kind : kKinds) cupti()->cuptiActivityDisable(kind);
    return false;
  }
  return true;
}

std::vector<GpuActivity> CuptiCollector::stop(Lost* lost) {
  Collection& all = collection();
  if (driver() != nullptr) {
    CUcontext current = nullptr;
    if (driver()->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != nullptr) driver()->cuCtxSynchronize();
  }
  cupti()->cuptiActivityFlushAll(1);
  for (CUpti_ActivityKind kind : kKinds) cupti()->cuptiActivityDisable(kind);
  if (all.subscriber != nullptr) cupti()->cuptiUnsubscribe(std::exchange(all.subscriber, nullptr));
  const std::int64_t end_offset = clock_offset();
  const std::lock_guard lock(all.mutex);
  // The two clocks may drift; the middle of both offsets halves the error.
  const std::int64_t offset = all.offset_ns + (end_offset - all.offset_ns) / 2;
  for (GpuActivity& activity : all.activities) activity.start_ns += offset;
  std::stable_sort(all.activities.begin(), all.activities.end(),
                   [](const GpuActivity& a, const GpuActivity& b) { return a.start_ns < b.start_ns; });
  cut_waits(&all.activities);
  *lost = all.lost;
  return std::move(all.activities);
}

#else

bool CuptiCollector::start(std::string* why_not) {
  *why_not = cupti_problem();
  return false;
}

std::vector<GpuActivity> CuptiCollector::stop(Lost* lost) {
  *lost = {};
  return {};
}

std::string CuptiCollector::nodes_problem() { return cupti_problem(); }

ClonedNodes::ClonedNodes() = default;
ClonedNodes::~ClonedNodes() = default;
std::unordered_map<std::uint64_t, std::size_t> ClonedNodes::positions(std::span<const CUgraphNode>) const { return {}; }

#endif

}  // namespace paoding::gpu
