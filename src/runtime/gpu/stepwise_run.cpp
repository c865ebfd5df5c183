// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/stepwise_run.h"

#include "base/cancel_poll.h"
#include "base/check.h"
#include "runtime/gpu/device_error.h"
#include "runtime/gpu/trace.h"

namespace paoding {

StepwiseRun::StepwiseRun(const Schedule& schedule, const PlanMemory& memory, const GpuEntries& entries, GpuHost& host,
                         const std::string& name, const ExecutorOptions& options)
    : schedule_(schedule),
      memory_(memory),
      entries_(entries),
      host_(host),
      name_(name),
      on_step_(options.on_step),
      watcher_(options.watcher),
      sites_(entries.launch_sites()) {
  GpuTrace::add_source();
}

void StepwiseRun::run(std::uint32_t run) {
  entries_.prints().clear();
  const auto wait = [this] { memory_.stream().wait_idle(); };
  in_run_of(name_, wait);  // feeds are there: who looks on reads them before the first step
  const CancelPoll poll;
  std::vector<std::vector<std::byte>> kept;
  bool is_commit = false;
  try {
    for (std::size_t s = 0; s < schedule_.segments.size();) {
      const Segment& segment = schedule_.segments[s];
      s = segment.next;
      for (std::size_t k = segment.first; k < segment.end; ++k) {
        const std::size_t launch = schedule_.entries[k].launch;
        const bool commits = launches_[launch].is_commit;
        if (!commits) poll();
        if (commits && !is_commit && on_step_) kept = memory_.parameters();
        is_commit = commits;
        if (segment.kind == Segment::Kind::host) {
          host_.run(*schedule_.host.find(launch), 0, wait);
        } else if (segment.kind == Segment::Kind::choice) {
          s = segment.targets[*entries_.taken_by(launch)];
        } else {
          run_step(launch, run);
        }
      }
    }
  } catch (...) {
    if (is_commit && on_step_) memory_.set_parameters(kept);
    throw;
  }
}

void StepwiseRun::run_step(std::size_t i, std::uint32_t run) {
  const Launch& launch = launches_[i];
  const auto read = [&](std::size_t operand) { return memory_.read(launch, operand); };
  if (watcher_ != nullptr) watcher_->before(launch, read);
  try {
    start_seen(i, run);
  } catch (const Error& error) {
    fail(ErrorKind::device, "{} failed: {}", entries_.who(i), error.what());
  }
  entries_.guard().check_launch(i);
  if (launch.step->kind == Step::Kind::print) entries_.prints().hand_over(&i);
  if (watcher_ != nullptr) watcher_->after(launch, read);
  if (on_step_) show(launch);
}

// Starts the launch and waits for it, with its spans in a recording.
void StepwiseRun::start_seen(std::size_t i, std::uint32_t run) const {
  const StepSites sites = sites_.of(launches_[i]);
  const gpu::Stream& stream = memory_.stream();
  const profile::SpanScope op(sites.op, run);
  GpuTrace::Step seen(memory_.device(), stream.get());
  {
    const profile::SpanScope compute(sites.compute, run);
    entries_.start_launch(i, stream.get());
  }
  seen.launched();
  stream.wait_idle();
  seen.ended(sites.kernel, run);
}

void StepwiseRun::show(const Launch& launch) const {
  StepSeen step{launch.step->label.op, launch.step->label.scope, launch.instance, {}};
  for (std::size_t k = launch.step->reads; k < launch.step->operands.size(); ++k) {
    step.results.push_back(memory_.read(launch, k));
  }
  on_step_(step);
}

}  // namespace paoding
