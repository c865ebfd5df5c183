// SPDX-License-Identifier: Apache-2.0
// A CUDA graph is captured, instantiated or updated in most steps instead of being launched again.
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
      for (SpanId i = own.begin; i < own.end; ++i) {
        const SpanKind kind = trace.kind(i);
        if (kind != SpanKind::host && kind != SpanKind::launch) continue;
        signed char& is_one = making[trace.site_id(i)];
        const std::string_view name = trace.name(i);
        if (is_one < 0) is_one = has_word(name, {"StreamBeginCapture"}) ? 2 : makes_graph(name) ? 1 : 0;
        if (is_one == 2) capture = i;
        if (is_one != 1) continue;
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
  found.evidence = evidence.worst();
  found.where = steps.where(found.evidence.front());
  found.title = "a CUDA graph is made anew in every step";
  found.text =
      fmt::format("In {:.0f} of {} steps a graph is instantiated or updated: {} for such calls{}.", steps_with,
                  steps.count(), of_a_step(steps, evidence.sum()),
                  captured > 0 ? fmt::format(", and {} a step for capturing", time_text(captured / count)) : "");
  found.change = Changes{.pytorch = "static input tensors that are copied into, and one captured graph for each shape",
                         .paoding = "shapes that stay the same from step to step",
                         .others = "keep the instantiated graph for each shape, and launch it again"}
                     .of(steps.source());
  out->add(std::move(found));
}

}  // namespace paoding::findings
