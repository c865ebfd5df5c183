// SPDX-License-Identifier: Apache-2.0
// Copies from pageable memory: the driver stages them, and the call returns when it has.
#include <fmt/format.h>

#include <map>
#include <unordered_set>

#include "findings/rules.h"
#include "findings/words.h"

namespace paoding::findings {

using namespace profile;

namespace {

constexpr std::int64_t kLarge = std::int64_t{1} << 16;  // bytes from which on a copy's rate says something
constexpr double kBus = 50;  // GB/s that pinned copies do not exceed where the trace has none: PCIe 5 with 16 lanes

// "from pageable memory to the GPU", or the other way, or both.
std::string_view ways_text(double bytes_to_gpu, double bytes) {
  if (bytes_to_gpu <= 0) return "from the GPU to pageable memory";
  return bytes_to_gpu < bytes ? "between the GPU and pageable memory" : "from pageable memory to the GPU";
}

}  // namespace

void find_pageable_copies(const Steps& steps, Candidates* out) {
  const Trace& trace = steps.trace();
  FactReader facts(steps);
  double best_pinned = 0;  // bytes a ns to a GPU
  std::vector<SpanId> copies;
  bool is_said = false;
  for (const SpanId i : steps.device_spans()) {
    if (trace.kind(i) != SpanKind::memcpy) continue;
    const bool is_to_gpu = trace.site(i).copy == Copy::host_to_device;
    // Small copies to the host bring a value that is waited for, pinned or not.
    if (!is_to_gpu && (trace.site(i).copy != Copy::device_to_host || trace.bytes(i) < kLarge)) continue;
    const std::string_view memory = facts.of(i).memory;
    is_said = is_said || !memory.empty();
    const bool is_large = trace.bytes(i) >= kLarge && trace.duration(i) > 0;
    if (memory == "pinned" && is_large) {
      best_pinned = std::max(best_pinned, static_cast<double>(trace.bytes(i)) / static_cast<double>(trace.duration(i)));
    }
    if (memory == "pageable") copies.push_back(i);
  }
  if (!is_said && steps.source() != Source::paoding && !steps.device_spans().empty()) {
    return out->say_nothing(Kind::pageable_copies,
                            "the trace does not say whether memory that is copied from is pinned");
  }
  if (copies.empty()) return;
  Candidate found{.kind = Kind::pageable_copies};
  Evidence evidence;
  double bytes = 0, bytes_to_gpu = 0, ns = 0, calls = 0;
  std::unordered_set<SpanId> pageable(copies.begin(), copies.end());
  constexpr std::int64_t kCall = 10'000;  // that the call takes once it waits for nothing
  for (const SpanId i : copies) {
    const auto own = static_cast<double>(std::max<std::int64_t>(trace.bytes(i), 0));
    bytes += own, ns += static_cast<double>(trace.duration(i));
    if (trace.site(i).copy == Copy::host_to_device) bytes_to_gpu += own;
    const SpanId call = trace.cause(i);
    evidence.add(i, static_cast<double>(trace.duration(i)));
    if (trace.bytes(i) >= kLarge) {
      const double rate = best_pinned > 0 ? best_pinned : kBus;
      const auto pinned = static_cast<std::int64_t>(static_cast<double>(trace.bytes(i)) / rate);
      found.most.push_back(Edit::duration(i, std::min(trace.duration(i), pinned)));
    }
    if (call == kNone) continue;
    calls += static_cast<double>(trace.duration(call));
    for (std::vector<Edit>* edits : {&found.least, &found.most}) {
      edits->push_back(Edit::no_wait(call));
      edits->push_back(Edit::duration(call, std::min(trace.duration(call), kCall)));
    }
  }
  // The synchronisation that a framework puts behind such a copy.
  double waits = 0;
  for (const Wait& wait : steps.waits()) {
    if (!pageable.contains(wait.for_work) || trace.cause(wait.for_work) == wait.span) continue;
    waits += static_cast<double>(trace.duration(wait.span));
    for (std::vector<Edit>* edits : {&found.least, &found.most}) edits->push_back(Edit::no_wait(wait.span));
  }
  const Affected in = evidence.affected(steps);
  // Feeds and results ask for different changes: the way of most bytes decides.
  const bool are_feeds = 2 * bytes_to_gpu >= bytes;
  found.evidence = evidence.examples(steps);
  found.lost_is = "its own time";
  found.where = steps.where(found.evidence.spans.front().span);
  found.title = are_feeds ? "copies to the GPU come from pageable memory" : "copies from the GPU go to pageable memory";
  found.text = fmt::format(
      "{} {} {}, {:.3g} MB at {:.3g} GB/s; the calls hold the host for {}{}.", in.have(),
      count_text(in.each(static_cast<double>(copies.size())), "copy", "copies"), ways_text(bytes_to_gpu, bytes),
      in.each(bytes) / 1e6, ns > 0 ? bytes / ns : 0, in.part(calls),
      waits > 0 ? fmt::format(", and synchronisations after them for {} {}", time_text(in.each(waits)), in.a_step())
                : "");
  if (best_pinned > 0) found.text += fmt::format(" Pinned copies in this trace reach {:.3g} GB/s.", best_pinned);
  found.change =
      Changes{.pytorch = are_feeds ? "DataLoader(..., pin_memory=True) and x.to(device, non_blocking=True)"
                                   : "a pinned tensor that is made once (torch.empty(..., pin_memory=True)), "
                                     "pinned.copy_(x, non_blocking=True), and reading it behind an event, a step "
                                     "later or on another thread",
              .paoding = are_feeds ? "feeds in pinned memory"
                                   : "fetch_later: results come by pinned memory while the next run goes on",
              .others = are_feeds ? "copy from pinned memory (cudaHostAlloc) with cudaMemcpyAsync"
                                  : "copy into pinned memory (cudaHostAlloc) with cudaMemcpyAsync, and read "
                                    "it behind an event"}
          .of(steps.source());
  found.verify = steps.source() != Source::paoding ? "" : are_feeds ? "pinned-feeds" : "fetch-later";
  out->add(std::move(found));
}

}  // namespace paoding::findings
