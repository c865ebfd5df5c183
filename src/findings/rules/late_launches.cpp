// SPDX-License-Identifier: Apache-2.0
// The GPU has finished before the host launches its next work: the host's work between launches is the bottleneck.
#include <fmt/format.h>

#include <map>
#include <set>

#include "findings/rules.h"
#include "findings/words.h"

namespace paoding::findings {

using namespace profile;

namespace {

// Launching a graph of n nodes costs the host about so much; the lower bound is generous to the host as it is now.
constexpr std::int64_t kGraph = 20'000, kGraphNode = 1'000, kQuickGraph = 10'000, kQuickNode = 500;
constexpr double kLeastLaunches = 8;  // of a step: fewer are not worth a graph

bool is_launching(HostUse use) { return use == HostUse::ops || use == HostUse::launch || use == HostUse::run; }
bool is_anything(HostUse use) { return is_launching(use) || is_users(use) || use == HostUse::copy; }

// Cuts of a thread's time between two moments where it is at such uses, which leave `kept` of it in all.
void cut_uses(const Steps& steps, TrackId track, Interval of, bool (*is_cut)(HostUse), std::int64_t kept,
              std::vector<Edit>* edits) {
  const std::vector<UseSegment>& segments = steps.thread_times()[track].segments;
  auto next = std::ranges::upper_bound(segments, of.start, {}, &UseSegment::end);
  std::vector<Interval> cut;
  for (; next != segments.end() && next->start < of.end; ++next) {
    if (is_cut(next->use)) append(cut, {std::max(next->start, of.start), std::min(next->end, of.end)});
  }
  double sum = 0;
  for (const Interval& one : cut) sum += static_cast<double>(one.end - one.start);
  const double share = sum > 0 ? std::min(1.0, static_cast<double>(kept) / sum) : 1;
  for (const Interval& one : cut) {
    const auto ns = static_cast<std::int64_t>(share * static_cast<double>(one.end - one.start));
    edits->push_back(Edit::host(track, one.start, one.end, ns));
  }
}

}  // namespace

void find_late_launches(const Steps& steps, Candidates* out) {
  const Trace& trace = steps.trace();
  if (steps.device_spans().empty()) return;
  Candidate found{.kind = Kind::late_launches};
  double launches = 0, works = 0;
  for (std::size_t step = 0; step < steps.count(); ++step) {
    for (const TrackId track : steps.launchers()) {
      const SpanRange own = steps.spans(track, step);
      Interval of{0, 0};
      std::int64_t nodes = 0;
      for (SpanId i = own.begin; i < own.end; ++i) {
        if (steps.launched_by(i).empty()) continue;
        if (nodes == 0) of.start = trace.start(i);
        of.end = trace.start(i);
        ++nodes, launches += 1, works += static_cast<double>(steps.launched_by(i).size());
      }
      if (nodes < 2) continue;
      cut_uses(steps, track, of, is_launching, kGraph + kGraphNode * nodes, &found.least);
      cut_uses(steps, track, of, is_anything, kQuickGraph + kQuickNode * nodes, &found.most);
    }
  }
  if (launches < kLeastLaunches * static_cast<double>(steps.count())) return;
  Evidence evidence;
  double in_user_code = 0;
  std::set<std::size_t> in_steps;
  std::map<std::string, double> by_op;
  for (const Idle& idle : steps.idle()) {
    if (idle.launch == kNone || idle.late_ns() <= 0) continue;
    const std::vector<UseSegment>& host = steps.thread_times()[trace.track_id(idle.launch)].segments;
    auto next = std::ranges::upper_bound(host, idle.start, {}, &UseSegment::end);
    double late = 0;
    for (; next != host.end() && next->start < idle.launched; ++next) {
      const auto ns = static_cast<double>(std::min(next->end, idle.launched) - std::max(next->start, idle.start));
      if (is_launching(next->use)) late += ns;
      if (is_users(next->use) || next->use == HostUse::copy) in_user_code += ns;
    }
    if (late <= 0) continue;
    evidence.add(idle.after, late);
    in_steps.insert(steps.at(idle.start));
    const SpanId op = steps.outermost_op_of(idle.launch);
    if (op != kNone) by_op[std::string(trace.text(trace.site(op).op))] += late;
  }
  const double whole = static_cast<double>(steps.count()) * static_cast<double>(steps.average_ns());
  if (evidence.sum() + in_user_code < 0.01 * whole || evidence.count() == 0) return;
  if (2 * in_steps.size() < steps.count()) return;  // a step here and there is late for a reason of its own
  const auto count = static_cast<double>(steps.count());
  const Affected in = affected(steps, {in_steps.begin(), in_steps.end()});
  found.evidence = evidence.examples(steps);
  found.lost_is = "idle time of the GPU in front of it";
  found.title = "the GPU waits for launches";
  found.text = fmt::format(
      "{:.0f} launches a step start {:.0f} works of a GPU{}, and {:.0f} of them come after it has run dry: it is idle "
      "for {} while the host is in ops and launches",
      launches / count, works / count, in.are_all() ? "" : fmt::format("; in {} of {} steps", in.steps, in.of),
      in.each(static_cast<double>(evidence.count())), in.part(evidence.sum()));
  if (in_user_code > 0)
    found.text += fmt::format(", and for {} while it is in other code between them", time_text(in.each(in_user_code)));
  found.text += '.';
  found.where = steps.where(found.evidence.spans.front().span);
  found.where.op.clear();
  if (!by_op.empty()) {
    const auto most = std::ranges::max_element(by_op, {}, [](const auto& one) { return one.second; });
    found.text += fmt::format(" Most of it is in front of work of {}: {} {}.", quoted(most->first),
                              time_text(in.each(most->second)), in.a_step());
    found.where.op = most->first;
  }
  found.change =
      Changes{.pytorch = "torch.compile(model, mode=\"reduce-overhead\"), or a torch.cuda.CUDAGraph of the step",
              .jax = "one jax.jit around the whole step; several steps in one jax.lax.scan",
              .paoding = "one program for the step, which runs as a captured graph",
              .others = "launch the step as one CUDA graph (cudaStreamBeginCapture)"}
          .of(steps.source());
  found.verify = steps.source() == Source::paoding ? "captured" : "";
  out->add(std::move(found));
}

}  // namespace paoding::findings
