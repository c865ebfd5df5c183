// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/captured_run.h"

#include <utility>

#include "base/check.h"
#include "paoding/cancellation.h"
#include "runtime/gpu/device_error.h"

namespace paoding {

CapturedRun::CapturedRun(const Schedule& schedule, PlanMemory& memory, GpuEntries& entries, GpuHost& host,
                         CompletionFlag flag, const std::string& name, std::function<void()> wait)
    : schedule_(schedule),
      memory_(memory),
      entries_(entries),
      host_(host),
      name_(name),
      wait_(std::move(wait)),
      flag_(std::move(flag)) {
  const auto sites = std::make_shared<const GpuTrace::Sites>(entries.entry_sites());
  const std::vector<GpuStamps::By> by = GpuStamps::by(schedule);
  for (const Segment& segment : schedule.segments) capture_segment(segment, by, sites);
}

void CapturedRun::capture_segment(const Segment& segment, const std::vector<GpuStamps::By>& by,
                                  const std::shared_ptr<const GpuTrace::Sites>& sites) {
  CapturedSegment& captured = segments_.emplace_back(CapturedSegment{segment});
  if (segment.kind != Segment::Kind::graph) return;
  capture_with_flag(segment);
  captured.graph = std::make_unique<ProfiledGraph>(
      memory_.device(), memory_.arena()->graphs, schedule_,
      GpuStamps::Segment{segment.first, segment.end, by, sites, [this](auto... of) { capture(of...); }});
}

// The one graph of a run, with its end: now, since the run that is the first to tell it is waited for. In front of
// the graph without, which is used first.
void CapturedRun::capture_with_flag(const Segment& segment) {
  if (flag_.can(CompletionFlag::Signals::completion)) flag_.prepare();
  for (const auto signals : {CompletionFlag::Signals::results, CompletionFlag::Signals::completion}) {
    if (!flag_.can(signals)) continue;
    signalled_[CompletionFlag::kind(signals)] = std::make_unique<CapturedGraph>(
        memory_.device(), memory_.arena()->graphs, schedule_, segment.first, segment.end,
        [this](std::size_t k, CUstream stream, CUgraphConditionalHandle node) {
          if (flag_.leaves(k)) capture(k, stream, node, nullptr);
        },
        [this, signals](CUstream stream) { flag_.start(signals, stream); });
  }
}

void CapturedRun::capture(std::size_t k, CUstream stream, CUgraphConditionalHandle node, void* stamp) const {
  try {
    entries_.start(k, stream, node, stamp);
  } catch (const Error& error) {
    fail(error.kind(), "{} cannot be captured: {}", entries_.who(schedule_.entries[k].launch), error.what());
  }
}

void CapturedRun::run(std::uint32_t run) {
  memory_.arena()->cancel.pace(schedule_.guards.expected_us);
  const CompletionFlag::Signals signals = flag_.begin_run();
  try {
    bool is_first = true;
    for (std::size_t s = 0; s < segments_.size(); is_first = false) {
      s = run_segment(segments_[s], run, is_first, signals);
    }
  } catch (...) {
    entries_.guard().leave_run();
    throw;
  }
}

// Returns the index of the next segment.
std::size_t CapturedRun::run_segment(CapturedSegment& captured, std::uint32_t run, bool is_first,
                                     CompletionFlag::Signals signals) {
  const Segment& segment = captured.segment;
  {
    const auto lock = entries_.guard().lock();
    if (is_first) entries_.guard().begin_run();
    if (segment.prints) entries_.prints().clear();
    if (segment.kind == Segment::Kind::graph) {
      CapturedGraph* const instead =
          signals == CompletionFlag::Signals::nothing ? nullptr : signalled_[CompletionFlag::kind(signals)].get();
      in_run_of(name_, [&] {
        const bool is_it = captured.graph->launch(run, memory_.stream().get(), instead);
        flag_.launched(is_it ? signals : CompletionFlag::Signals::nothing);
      });
    }
  }
  const LaunchEntry& first = schedule_.entries[segment.first];
  if (segment.kind == Segment::Kind::host) {
    host_.run(*schedule_.host.find(first.launch), run, wait_);
  } else if (segment.kind == Segment::Kind::choice) {
    return segment.targets[target_of(first)];
  } else if (segment.prints) {
    hand_over();
  }
  return segment.next;
}

// Makes a choice on the host. A loop ends where a kernel has left a fault: its condition may follow from that.
std::size_t CapturedRun::target_of(const LaunchEntry& choice) const {
  wait_();
  CancelScope::poll();
  const std::size_t end = schedule_.launches[choice.launch].end;
  if (schedule_.choice_of(choice).is_loop && entries_.guard().has_fault_before(end)) return 0;
  return entries_.taken_by(choice.launch).value_or(0);
}

void CapturedRun::hand_over() const {
  wait_();
  std::size_t launch = 0;
  try {
    entries_.prints().hand_over(&launch);
  } catch (const Error& error) {
    const auto repeats = static_cast<std::size_t>(schedule_.repeats);
    fail_in_repeat(error, launch / (schedule_.launches.size() / repeats) + 1, repeats);
  }
}

void CapturedRun::wait_idle() {
  if (!flag_.has_come()) memory_.arena()->cancel.wait_idle();
  flag_.was_waited_for();
}

const std::byte* CapturedRun::find(const Operand& result) {
  const std::byte* const there = entries_.results().find(result);
  return there != nullptr ? there : flag_.find(result);
}

}  // namespace paoding
