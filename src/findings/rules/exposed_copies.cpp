// SPDX-License-Identifier: Apache-2.0
// Copies between host and GPU while no kernel is under way, which could run beside the step before.
#include <fmt/format.h>

#include <array>

#include "findings/rules.h"
#include "findings/words.h"

namespace paoding::findings {

using namespace profile;

void find_exposed_copies(const Steps& steps, Candidates* out) {
  const Trace& trace = steps.trace();
  FactReader facts(steps);
  for (const Copy way : {Copy::host_to_device, Copy::device_to_host}) {
    Candidate found{.kind = Kind::exposed_copies};
    Evidence evidence;
    double bytes = 0, whole = 0;
    for (const SpanId i : steps.device_spans()) {
      if (trace.kind(i) != SpanKind::memcpy || trace.site(i).copy != way || facts.of(i).memory == "pageable") continue;
      whole += static_cast<double>(trace.duration(i));
      const std::int64_t exposed = steps.exposed_ns(i);
      if (exposed <= 0) continue;
      bytes += static_cast<double>(std::max<std::int64_t>(trace.bytes(i), 0));
      evidence.add(i, static_cast<double>(exposed));
      found.least.push_back(Edit::move(i));
      found.most.push_back(Edit::duration(i, trace.duration(i) - exposed));
    }
    if (evidence.count() == 0) continue;
    const bool is_to_gpu = way == Copy::host_to_device;
    const Affected in = evidence.affected(steps);
    found.evidence = evidence.examples(steps);
    found.lost_is = "time in which no kernel runs beside it";
    found.where = steps.where(found.evidence.spans.front().span);
    found.title = is_to_gpu ? "copies to the GPU hold up its kernels" : "copies from the GPU hold up its kernels";
    found.text = fmt::format(
        "{} {} {} the GPU, {:.3g} MB, while none of its kernels is under way: {}; copies that way take {} in all steps "
        "together.",
        in.have(), count_text(in.each(static_cast<double>(evidence.count())), "copy", "copies"),
        is_to_gpu ? "to" : "from", in.each(bytes) / 1e6, in.part(evidence.sum()), time_text(whole));
    found.change =
        Changes{
            .pytorch =
                is_to_gpu
                    ? "copy the next batch on a side stream (torch.cuda.Stream, non_blocking=True) while this step runs"
                    : "copy results on a side stream, and read them one step later",
            .jax = is_to_gpu ? "jax.device_put the next batch while this step runs" : "read results one step later",
            .paoding = is_to_gpu ? "double-buffered feeds: hand in the next inputs while this run is under way"
                                 : "leave results on the device, and fetch them one run later",
            .others = "copy on a stream of its own, beside the kernels of the step before"}
            .of(steps.source());
    if (steps.source() == Source::paoding) found.verify = is_to_gpu ? "double-buffered-feeds" : "fetch-later";
    out->add(std::move(found));
  }
}

}  // namespace paoding::findings
