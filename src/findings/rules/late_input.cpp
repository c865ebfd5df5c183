// SPDX-License-Identifier: Apache-2.0
// The step waits for its input: the thread of the loop is in a data loader while GPUs are idle.
#include <fmt/format.h>

#include "findings/rules.h"
#include "findings/words.h"

namespace paoding::findings {

using namespace profile;

namespace {

// Feeds of paoding's hand over values that are there already; waiting for those is a range of the user's.
bool brings_input(const Trace& trace, SpanId i) {
  const SpanKind kind = trace.kind(i);
  if (kind == SpanKind::feed) return trace.source(i) != Source::paoding;
  const std::string_view name = trace.name(i);
  if (kind == SpanKind::frame) return has_word(name, {"dataloader.py("}) && has_word(name, {"__next__"});
  if (kind != SpanKind::range && kind != SpanKind::host && kind != SpanKind::op) return false;
  return has_word(name, {"dataloader", "data_loader", "load_data", "data loading", "next_batch", "get_batch", "## data",
                         "wait for a batch", "read a batch", "load batch", "IteratorGetNext", "Iterator::GetNext"});
}

}  // namespace

void find_late_data(const Steps& steps, Candidates* out) {
  const Trace& trace = steps.trace();
  const bool has_gpu = !steps.device_spans().empty();
  Candidate found{.kind = Kind::late_data};
  Evidence evidence;
  double inside = 0, steps_with = 0;
  std::vector<signed char> brings(trace.sites().size(), -1);
  for (std::size_t step = 0; step < steps.count(); ++step) {
    const SpanRange own = steps.spans(steps.track(), step);
    const double before = evidence.sum();
    std::int64_t until = 0;
    for (SpanId i = own.begin; i < own.end; ++i) {
      signed char& is_one = brings[trace.site_id(i)];
      if (is_one < 0) is_one = brings_input(trace, i) ? 1 : 0;
      if (is_one == 0 || trace.start(i) < until) continue;
      until = trace.end(i);
      const std::int64_t lost = has_gpu ? steps.idle_in(trace.start(i), until) : trace.duration(i);
      inside += static_cast<double>(trace.duration(i));
      evidence.add(i, static_cast<double>(lost));
      found.least.push_back(Edit::move(i));
      found.most.push_back(Edit::remove(i));
    }
    steps_with += evidence.sum() > before ? 1 : 0;
  }
  if (evidence.count() == 0 || evidence.sum() <= 0) return;
  found.evidence = evidence.worst();
  const std::string_view name = trace.name(found.evidence.front());
  found.title = has_gpu ? "the GPU waits for data" : "the loop waits for data";
  found.text = fmt::format(
      "In {:.0f} of {} steps {} while the thread of the loop is in {}: {}; the longest {} {}. The thread is there "
      "for {} a step in all.",
      steps_with, steps.count(), has_gpu ? "GPUs are idle" : "nothing is computed", quoted(name),
      of_a_step(steps, evidence.sum()), has_gpu ? "idle time in one of them is" : "one takes",
      time_text(evidence.longest()), time_text(inside / static_cast<double>(steps.count())));
  found.where = steps.where(found.evidence.front());
  const bool has_workers = has_word(name, {"MultiProcessing"});
  found.change =
      Changes{
          .pytorch = has_workers
                         ? "DataLoader: more num_workers, a larger prefetch_factor or cheaper transforms: its workers "
                           "do not keep up"
                         : "DataLoader(..., num_workers=4, persistent_workers=True, pin_memory=True)",
          .jax = "prefetch: put the next batch onto the device (jax.device_put) while this step runs",
          .paoding = "read the next batch on a thread of its own while this step runs",
          .others = "prepare the next batch on another thread while this step runs"}
          .of(steps.source());
  found.verify = steps.source() == Source::paoding ? "reader-ahead" : "";
  out->add(std::move(found));
}

}  // namespace paoding::findings
