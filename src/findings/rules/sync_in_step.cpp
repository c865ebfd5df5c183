// SPDX-License-Identifier: Apache-2.0
// The host waits for the GPU in the middle of a step, and while it then works towards the next launch the GPU is idle.
#include <fmt/format.h>

#include <map>

#include "findings/rules.h"
#include "findings/words.h"

namespace paoding::findings {

using namespace profile;

namespace {

// Copies to a GPU from memory that has to be staged wait too; that is another finding.
bool is_for_staged_copy(const Trace& trace, FactReader& facts, const Wait& wait) {
  if (wait.for_work == kNone || trace.kind(wait.for_work) != SpanKind::memcpy) return false;
  return trace.site(wait.for_work).copy == Copy::host_to_device && facts.of(wait.for_work).memory == "pageable";
}

bool is_for_copy_to_gpu(const Trace& trace, SpanId work) {
  return work != kNone && trace.kind(work) == SpanKind::memcpy && trace.site(work).copy == Copy::host_to_device;
}

// A recorder waits for the GPU when it ends, behind all that the last step launched.
bool is_last_of_all(const Steps& steps, const Wait& wait) {
  if (wait.step + 1 < steps.count()) return false;
  const SpanRange all = steps.spans(steps.trace().track_id(wait.span));
  for (SpanId i = wait.span + 1; i < all.end; ++i) {
    if (!steps.launched_by(i).empty()) return false;
  }
  return true;
}

// The GPU's idle time after the wait is the recorder's, which is at work until the next launch.
bool is_the_recorders(const Steps& steps, const Wait& wait) {
  const Trace& trace = steps.trace();
  std::int64_t recording = 0;
  const SpanRange all = steps.spans(trace.track_id(wait.span));
  for (SpanId i = wait.span + 1; i < all.end && steps.launched_by(i).empty(); ++i) {
    if (trace.kind(i) == SpanKind::recording) recording += trace.duration(i);
  }
  return 2 * recording > wait.idle_ns;
}

struct SameWaits {
  Evidence evidence;
  double waited = 0;
  std::map<std::size_t, std::vector<SpanId>> by_step;
  SpanId for_work = kNone;  // of the first
};

// The wait, and all that is there for it: the call, or the op that reads the value, with its copy.
void leave_out(const Steps& steps, SpanId wait, std::vector<Edit>* edits) {
  const Trace& trace = steps.trace();
  const SpanId op = steps.outermost_op_of(wait);
  edits->push_back(Edit::no_wait(wait));
  if (op == kNone) {
    edits->push_back(Edit::remove(wait));
    return;
  }
  edits->push_back(Edit::host(trace.track_id(op), trace.start(op), trace.end(op), 0));
  for (SpanId i = op; i < steps.spans(trace.track_id(op)).end && trace.start(i) < trace.end(op); ++i) {
    for (const SpanId work : steps.launched_by(i)) {
      if (trace.kind(work) == SpanKind::memcpy) edits->push_back(Edit::remove(work));
    }
  }
}

std::string_view pytorch_change(std::string_view op, bool is_to_gpu) {
  if (has_word(op, {"aten::item", "_local_scalar_dense", "aten::is_nonzero"})) {
    return "keep the value on the GPU (loss.detach()) and call .item() every 100th step only";
  }
  if (has_word(op, {"nonzero", "masked_select", "unique", "aten::index"})) {
    return "an op whose result has a fixed size, such as torch.where, in place of one that asks for the number of "
           "elements";
  }
  if (has_word(op, {"aten::to", "aten::_to_copy", "aten::copy_", "aten::cpu"})) {
    if (is_to_gpu) return "x.to(device, non_blocking=True) from pinned memory, which waits for nothing";
    return "copy with non_blocking=True into pinned memory, and read it one step later";
  }
  return "no torch.cuda.synchronize() in the step";
}

}  // namespace

void find_sync_in_step(const Steps& steps, Candidates* out) {
  const Trace& trace = steps.trace();
  FactReader facts(steps);
  std::map<std::string, SameWaits> groups;
  for (const Wait& wait : steps.waits()) {
    if (wait.waited_ns == 0 || is_last_of_all(steps, wait) || is_for_staged_copy(trace, facts, wait)) continue;
    if (wait.idle_ns > 0 && is_the_recorders(steps, wait)) continue;
    const SpanId op = steps.outermost_op_of(wait.span);
    const std::string name(op == kNone ? trace.name(wait.span) : trace.text(trace.site(op).op));
    SameWaits& group = groups[name];
    if (group.for_work == kNone) group.for_work = wait.for_work;
    group.evidence.add(wait.span, static_cast<double>(wait.idle_ns));
    group.waited += static_cast<double>(wait.waited_ns);
    group.by_step[wait.step].push_back(wait.span);
  }
  for (auto& [name, group] : groups) {
    // Once in all is no habit of the step: a recorder waits where it begins.
    if (group.evidence.sum() <= 0 || group.by_step.size() < 2) continue;
    Candidate found{.kind = Kind::sync_in_step};
    for (const auto& [step, spans] : group.by_step) {
      const auto before = group.by_step.find(step - 1);
      for (std::size_t n = 0; n < spans.size(); ++n) {
        const bool has_before = step > 0 && before != group.by_step.end() && n < before->second.size();
        found.least.push_back(Edit::defer_wait(spans[n], has_before ? before->second[n] : kNone));
        leave_out(steps, spans[n], &found.most);
      }
    }
    found.evidence = group.evidence.examples(steps);
    found.lost_is = "idle time of the GPU after it";
    const SpanId worst = found.evidence.spans.front().span;
    std::vector<std::size_t> waiting;
    for (const auto& [step, spans] : group.by_step) waiting.push_back(step);
    const Affected in = affected(steps, std::move(waiting));
    found.where = steps.where(worst);
    found.title = "the host waits for the GPU inside of the step";
    found.text = fmt::format(
        "{} the host waits in {} for {} {} until the GPU has caught up; after that the GPU is idle for {} until it "
        "gets new work.",
        times_text(group.evidence.count(), in), quoted(name), time_text(in.each(group.waited)), in.a_step(),
        in.part(group.evidence.sum()));
    found.change = Changes{.pytorch = pytorch_change(name, is_for_copy_to_gpu(trace, group.for_work)),
                           .jax = in.are_all() ? "read the value (float(x), np.asarray(x)) some steps later, or not in "
                                                 "every step"
                                               : "x.copy_to_host_async(), and np.asarray(x) some steps later or on "
                                                 "another thread",
                           .paoding = "leave the result on the device and fetch it some steps later",
                           .others = "wait for an event of the step before, or not in every step"}
                       .of(steps.source());
    found.verify = steps.source() == Source::paoding ? "fetch-later" : "";
    out->add(std::move(found));
  }
}

}  // namespace paoding::findings
