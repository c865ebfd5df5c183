// SPDX-License-Identifier: Apache-2.0
// A CUDA graph is captured, instantiated or updated in most steps instead of being launched again. The GPU begins a
// graph that was just made later than one that it knows, too.
#include <fmt/format.h>

#include "findings/rules.h"
#include "findings/words.h"

namespace paoding::findings {

using namespace profile;

namespace {

bool makes_graph(std::string_view name) {
  return has_word(name, {"GraphInstantiate", "GraphExecUpdate", "GraphExecDestroy", "GraphExecKernelNodeSetParams",
                         "GraphAddKernelNode", "StreamEndCapture", "GraphDestroy", "GraphUpload"});
}

// On an H200 a graph that is launched again began 1.2 to 3.3 us after the one before it, and a graph that had
// just been made 7 to 11.
constexpr std::int64_t kBetweenGraphs = 1'500, kMostBetweenGraphs = 3'500;

void follow_closely(const Steps& steps, SpanId launch, Candidate* found) {
  const std::span<const SpanId> works = steps.launched_by(launch);
  if (works.empty()) return;
  const SpanId first = works.front();
  const Trace& trace = steps.trace();
  if (first == steps.spans(trace.track_id(first)).begin) return;
  const std::int64_t before = trace.end(first - 1), gap = trace.start(first) - before;
  if (before < trace.start(launch)) return;  // the GPU had nothing to do, and waited for the launch
  if (gap > kMostBetweenGraphs) found->least.push_back(Edit::gap(first, kMostBetweenGraphs));
  if (gap > kBetweenGraphs) found->most.push_back(Edit::gap(first, kBetweenGraphs));
}

}  // namespace

void find_rebuilt_graph(const Steps& steps, Candidates* out) {
  const Trace& trace = steps.trace();
  Candidate found{.kind = Kind::rebuilt_graph};
  Evidence evidence;
  double steps_with = 0, captured = 0;
  std::vector<signed char> making(trace.sites().size(), -1);  // 2: a capture begins
  for (std::size_t step = 0; step < steps.count(); ++step) {
    bool is_made = false;
    for (const TrackId track : steps.launchers()) {
      const SpanRange own = steps.spans(track, step);
      SpanId capture = kNone;
      bool is_new = false;  // and not launched yet
      for (SpanId i = own.begin; i < own.end; ++i) {
        const SpanKind kind = trace.kind(i);
        if (kind != SpanKind::host && kind != SpanKind::launch) continue;
        signed char& is_one = making[trace.site_id(i)];
        const std::string_view name = trace.name(i);
        if (is_one < 0) is_one = has_word(name, {"StreamBeginCapture"}) ? 2 : makes_graph(name) ? 1 : 0;
        if (is_one == 2) capture = i;
        if (is_new && has_word(name, {"GraphLaunch"})) follow_closely(steps, i, &found), is_new = false;
        if (is_one != 1) continue;
        is_new = is_new || has_word(name, {"Instantiate"});
        is_made = is_made || has_word(name, {"Instantiate", "ExecUpdate"});
        evidence.add(i, static_cast<double>(trace.duration(i)));
        found.least.push_back(Edit::remove(i)), found.most.push_back(Edit::remove(i));
        if (capture == kNone || !has_word(name, {"EndCapture"})) continue;
        captured += static_cast<double>(trace.end(i) - trace.start(capture));
        found.most.push_back(Edit::host(track, trace.start(capture), trace.end(i), 0));
        capture = kNone;
      }
    }
    steps_with += is_made ? 1 : 0;
  }
  const auto count = static_cast<double>(steps.count());
  if (2 * steps_with < count) return;
  const Affected in = evidence.affected(steps);
  found.evidence = evidence.examples(steps);
  found.lost_is = "its own time";
  found.where = steps.where(found.evidence.spans.front().span);
  found.title = "a CUDA graph is made anew in every step";
  found.text = fmt::format(
      "In {:.0f} of {} steps a graph is instantiated or updated: {} for such calls{}.", steps_with, steps.count(),
      in.part(evidence.sum()),
      captured > 0 ? fmt::format(", and {} {} for capturing", time_text(in.each(captured)), in.a_step()) : "");
  found.change = Changes{.pytorch = "static input tensors that are copied into, and one captured graph for each shape",
                         .paoding = "shapes that stay the same from step to step",
                         .others = "keep the instantiated graph for each shape, and launch it again"}
                     .of(steps.source());
  out->add(std::move(found));
}

}  // namespace paoding::findings
