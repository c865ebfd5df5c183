// SPDX-License-Identifier: Apache-2.0
// The functions of CUPTI that paoding uses, over a Machine: records of the work that it ran.
#if __has_include(<cupti.h>)
#include <cupti.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "tests/gpu/pretend_gpu/machine.h"

#pragma GCC visibility push(default)

namespace {

using paoding::pretend::Machine;

struct Ran {
  Piece piece;
  std::int64_t start_ns, end_ns;
};

struct State {
  CUpti_BuffersCallbackRequestFunc give = nullptr;
  CUpti_BuffersCallbackCompleteFunc take = nullptr;
  std::vector<Ran> records;
  int enabled = 0;          // kinds of activities
  std::size_t dropped = 0;  // records, since somebody asked
};

State& state() {
  static auto* the_state = new State();
  return *the_state;
}

void look() {
  Machine& gpu = Machine::get();
  gpu.ran = {};
  if (state().enabled == 0) return;
  gpu.ran = [](const Piece& piece, std::int64_t start_ns, std::int64_t end_ns) {
    state().records.push_back({piece, start_ns, end_ns});
    state().records.back().piece.work = {};
    const unsigned every = Machine::get().timeless_every;
    if (every != 0 && state().records.size() % every == 0) state().records.back().start_ns = 0;
  };
}

template <class Record>
std::size_t put(std::uint8_t* at, const Ran& ran, CUpti_ActivityKind kind) {
  Record record{};
  record.kind = kind;
  record.start = static_cast<std::uint64_t>(ran.start_ns), record.end = static_cast<std::uint64_t>(ran.end_ns);
  record.streamId = 7;
  record.correlationId = ran.piece.correlation;
  record.graphId = ran.piece.graph, record.graphNodeId = ran.piece.node;
  if constexpr (requires { record.name; }) record.name = ran.piece.name.c_str();
  if constexpr (requires { record.registersPerThread; }) {
    record.registersPerThread = 40, record.staticSharedMemory = 1000, record.dynamicSharedMemory = 24;
    record.blockX = 64, record.blockY = 2, record.blockZ = 1, record.gridX = 3, record.gridY = record.gridZ = 1;
  }
  if constexpr (requires { record.copyKind; }) {
    const auto host = static_cast<std::uint8_t>(ran.piece.is_pageable ? CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE
                                                                      : CUPTI_ACTIVITY_MEMORY_KIND_PINNED);
    const bool from_host = ran.piece.kind == Piece::Kind::from_host, to_host = ran.piece.kind == Piece::Kind::to_host;
    record.srcKind = from_host ? host : static_cast<std::uint8_t>(CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
    record.dstKind = to_host ? host : static_cast<std::uint8_t>(CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
    record.flags = CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC, record.bytes = ran.piece.bytes;
    record.copyKind = ran.piece.kind == Piece::Kind::from_host ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
                      : ran.piece.kind == Piece::Kind::to_host ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                                                               : CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
  }
  std::memcpy(at, &record, sizeof(record));
  return sizeof(record);
}

std::size_t put(std::uint8_t* at, const Ran& ran) {
  switch (ran.piece.kind) {
    case Piece::Kind::kernel: return put<CUpti_ActivityKernel9>(at, ran, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    case Piece::Kind::fill: return put<CUpti_ActivityMemset4>(at, ran, CUPTI_ACTIVITY_KIND_MEMSET);
    default: return put<CUpti_ActivityMemcpy5>(at, ran, CUPTI_ACTIVITY_KIND_MEMCPY);
  }
}

// The records of one launch of a graph get each other's times, in the opposite order.
void turn_times(std::vector<Ran>* records) {
  for (std::size_t begin = 0; begin < records->size();) {
    std::size_t end = begin;
    const std::uint32_t correlation = (*records)[begin].piece.correlation;
    while (end < records->size() && (*records)[end].piece.correlation == correlation) ++end;
    for (std::size_t i = begin, j = end; correlation != 0 && i + 1 < j; ++i) {
      Ran &a = (*records)[i], &b = (*records)[--j];
      std::swap(a.start_ns, b.start_ns), std::swap(a.end_ns, b.end_ns);
    }
    begin = end;
  }
}

decltype(Ran::end_ns) middle(const Ran& ran) { return ran.start_ns + (ran.end_ns - ran.start_ns + 1) / 2; }

// Spoils records as a library would that is at its limits, or another program's beside it.
void spoil(std::vector<Ran>* records) {
  const paoding::pretend::CuptiFaults faults = Machine::get().cupti_faults;
  std::vector<Ran> made;
  std::size_t i = 0;
  const auto is_hit = [&i](unsigned every) { return every != 0 && i % every == every - 1; };
  for (; i < records->size(); ++i) {
    Ran& ran = (*records)[i];
    if (is_hit(faults.lost_every)) {
      ++state().dropped;
      continue;
    }
    if (is_hit(faults.backwards_every)) std::swap(ran.start_ns, ran.end_ns);
    if (is_hit(faults.overlapping_every)) {
      ran.end_ns += 100'000;
      const bool has_next = i + 1 < records->size() && (*records)[i + 1].piece.correlation == ran.piece.correlation;
      if (has_next) ran.end_ns = std::max(ran.end_ns, middle((*records)[i + 1]));
    }
    if (is_hit(faults.foreign_every)) ran.piece.node ^= std::uint64_t{77} << 40;
    made.push_back(ran);
    if (is_hit(faults.doubled_every)) made.push_back(ran);
  }
  if (faults.shuffled != 0) std::shuffle(made.begin(), made.end(), std::mt19937(faults.shuffled));
  *records = std::move(made);
}

}  // namespace

CUptiResult cuptiGetVersion(std::uint32_t* version) { return *version = CUPTI_API_VERSION, CUPTI_SUCCESS; }
CUptiResult cuptiGetResultString(CUptiResult, const char** text) { return *text = "pretended", CUPTI_SUCCESS; }
CUptiResult cuptiGetTimestamp(std::uint64_t* now) {
  *now = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count() +
                                    Machine::get().cupti_faults.clock_step_ns);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc give,
                                           CUpti_BuffersCallbackCompleteFunc take) {
  state().give = give, state().take = take;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind) {
  const std::lock_guard lock(Machine::get().mutex);
  if (const int refusal = Machine::get().cupti_faults.refusal; refusal != 0) return static_cast<CUptiResult>(refusal);
  ++state().enabled;
  look();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind) {
  const std::lock_guard lock(Machine::get().mutex);
  state().enabled = std::max(state().enabled - 1, 0);
  look();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(std::uint32_t) {
  std::vector<Ran> records;
  {
    const std::lock_guard lock(Machine::get().mutex);
    records = std::exchange(state().records, {});
    if (!Machine::get().keeps_order) turn_times(&records);
    spoil(&records);
  }
  constexpr std::size_t kMostBytes = 512;  // of a record
  for (auto next = records.begin(); next != records.end();) {
    std::uint8_t* buffer = nullptr;
    std::size_t size = 0, most = 0, used = 0;
    state().give(&buffer, &size, &most);
    while (next != records.end() && used + kMostBytes <= size) used += put(buffer + used, *next++);
    state().take(nullptr, 0, buffer, size, used);
  }
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t bytes, CUpti_Activity** record) {
  const auto size_of = [](const CUpti_Activity* at) -> std::size_t {
    return at->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ? sizeof(CUpti_ActivityKernel9)
           : at->kind == CUPTI_ACTIVITY_KIND_MEMSET          ? sizeof(CUpti_ActivityMemset4)
                                                             : sizeof(CUpti_ActivityMemcpy5);
  };
  std::uint8_t* next = *record == nullptr ? buffer : reinterpret_cast<std::uint8_t*>(*record) + size_of(*record);
  if (next >= buffer + bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* dropped) {
  return *dropped = std::exchange(state().dropped, 0), CUPTI_SUCCESS;
}

CUptiResult cuptiGetGraphExecId(CUgraphExec exec, std::uint32_t* number) {
  return *number = exec->number, CUPTI_SUCCESS;
}
// The collecting must have ended.
CUptiResult cuptiFinalize() {
  const std::lock_guard lock(Machine::get().mutex);
  if (state().enabled != 0) return CUPTI_ERROR_INVALID_OPERATION;
  state() = {};
  look();
  return CUPTI_SUCCESS;
}

#pragma GCC visibility pop
#endif
