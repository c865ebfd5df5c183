// SPDX-License-Identifier: Apache-2.0
#include "gpu/profile/cupti_collector.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>

#include "base/check.h"
#include "base/env.h"
#include "base/one_line.h"
#include "gpu/driver/driver.h"
#include "gpu/profile/cupti_library.h"
#include "profile/clock.h"

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
  std::int64_t offset_ns = 0;   // steady_clock minus CUPTI's clock, at start
  std::int64_t started_ns = 0;  // by CUPTI's
  bool has_callbacks = false;
};

Collection& collection() {
  static auto* the_collection = new Collection;  // never destroyed: CUPTI's threads may outlive main()
  return *the_collection;
}

constexpr std::int64_t kMostOffNs = 2'000, kMostDriftPpm = 100;

using profile::steady_ns;

// Both clocks read as close together as can be: the tightest of several tries.
std::int64_t clock_offset() {
  std::int64_t best_gap = INT64_MAX, offset = 0;
  for (int i = 0; i < 20; ++i) {
    const std::int64_t before = steady_ns();
    std::uint64_t cupti_now = 0;
    PD_CUPTI(cupti()->cuptiGetTimestamp(&cupti_now));
    const std::int64_t after = steady_ns();
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
    activity.registers = kernel->registersPerThread;
    activity.shared_bytes = std::int64_t{kernel->staticSharedMemory} + kernel->dynamicSharedMemory;
    activity.threads = std::int64_t{kernel->blockX} * kernel->blockY * kernel->blockZ;
    activity.ctas = std::int64_t{kernel->gridX} * kernel->gridY * kernel->gridZ;
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
    activity.kind = GpuActivity::Kind::memcpy;
    place(*copy);
    activity.bytes = static_cast<std::int64_t>(copy->bytes);
    activity.is_from_host = copy->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
    activity.is_to_host = copy->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
    // Copies that are asynchronous by name wait when the host's memory is pageable, except for a few bytes to the GPU.
    const auto is_pageable = [](std::uint8_t kind) { return kind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE; };
    activity.is_async = (copy->flags & CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC) != 0 && !is_pageable(copy->dstKind) &&
                        (!is_pageable(copy->srcKind) || activity.bytes <= kMostTaken);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto* fill = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
    activity.kind = GpuActivity::Kind::memset;
    place(*fill);
    activity.bytes = static_cast<std::int64_t>(fill->bytes);
  } else {
    return;
  }
  if (activity.start_ns == 0 || activity.duration_ns < 0) {
    ++all->lost.timeless;  // it would move all that comes after it
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

// A launch may start while the one in front of it ends, and then waits for it: its own time begins after that.
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

}  // namespace

std::uint64_t node_number(CUgraphExec exec, std::uint32_t node) {
  std::uint32_t graph = 0;
  PD_CUPTI(cupti()->cuptiGetGraphExecId(exec, &graph));
  return std::uint64_t{graph} << 32 | node;
}

bool CuptiCollector::start(std::string* why_not) {
  if (cupti() == nullptr) {
    *why_not = cupti_problem();
    return false;
  }
  if (cupti()->cuptiGetGraphExecId == nullptr || cupti()->cuptiFinalize == nullptr) {
    *why_not = cupti_library().path() + " is too old: it does not number graphs, or cannot be let go of";
    return false;
  }
  Collection& all = collection();
  try {
    if (!all.has_callbacks) PD_CUPTI(cupti()->cuptiActivityRegisterCallbacks(give_buffer, take_buffer));
    all.has_callbacks = true;
    for (CUpti_ActivityKind kind : kKinds) PD_CUPTI(cupti()->cuptiActivityEnable(kind));
    PD_CUPTI(cupti()->cuptiActivityFlushAll(1));  // drops records that an earlier recording left behind
    const std::lock_guard lock(all.mutex);
    all.activities.clear();
    all.lost = {};
    all.offset_ns = clock_offset();
    all.started_ns = steady_ns() - all.offset_ns;
  } catch (const Error& error) {
    *why_not = error.what();
    const std::string other = env_text("CUDA_INJECTION64_PATH");
    if (!other.empty()) *why_not += "; another tool looks at this process: " + one_line(other);
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
  const std::int64_t end_offset = clock_offset();
  const std::lock_guard lock(all.mutex);
  // The two clocks drift apart evenly, by some ppm; more is a clock that was set, and nobody knows when.
  const std::int64_t drift = end_offset - all.offset_ns;
  const std::int64_t length = std::max<std::int64_t>(steady_ns() - end_offset - all.started_ns, 1);
  if (std::abs(drift) > kMostOffNs + length / 1'000'000 * kMostDriftPpm) all.lost.clock_set_ns = std::abs(drift);
  const double rate = static_cast<double>(drift) / static_cast<double>(length);
  for (GpuActivity& activity : all.activities) {
    const auto since = static_cast<double>(activity.start_ns - all.started_ns);
    activity.start_ns += all.offset_ns + static_cast<std::int64_t>(rate * since);
  }
  std::stable_sort(all.activities.begin(), all.activities.end(),
                   [](const GpuActivity& a, const GpuActivity& b) { return a.start_ns < b.start_ns; });
  cut_waits(&all.activities);
  *lost = all.lost;
  return std::move(all.activities);
}

void CuptiCollector::leave() {
  PD_CUPTI(cupti()->cuptiFinalize());
  collection().has_callbacks = false;
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

void CuptiCollector::leave() {}

std::uint64_t node_number(CUgraphExec, std::uint32_t) { fail(ErrorKind::device, "{}", cupti_problem()); }

#endif

}  // namespace paoding::gpu
