// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU, or pinned memory, is allocated or freed in steps: the driver does so slowly, and freeing waits.
#include <fmt/format.h>

#include "findings/rules.h"
#include "findings/words.h"

namespace paoding::findings {

using namespace profile;

namespace {

bool allocates(std::string_view name) {
  if (has_word(name, {"Async", "FromPool"})) return false;  // in the order of a stream
  for (const std::string_view call :
       {"cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaHostRegister", "cudaHostUnregister", "hipMalloc", "hipFree",
        "hipHostMalloc", "cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemCreate", "cuMemMap", "cuMemUnmap",
        "cuMemRelease", "hipExtMalloc"}) {
    if (name.starts_with(call)) return true;
  }
  return false;
}

}  // namespace

void find_allocation_in_step(const Steps& steps, Candidates* out) {
  const Trace& trace = steps.trace();
  Candidate found{.kind = Kind::allocation_in_step};
  Evidence evidence;
  double steps_with = 0, idle = 0, frees = 0;
  std::vector<signed char> allocating(trace.sites().size(), -1);
  for (std::size_t step = 0; step < steps.count(); ++step) {
    const std::size_t before = evidence.count();
    for (const TrackId track : steps.launchers()) {
      const SpanRange own = steps.spans(track, step);
      for (SpanId i = own.begin; i < own.end; ++i) {
        const SpanKind kind = trace.kind(i);
        if (kind != SpanKind::host && kind != SpanKind::launch && kind != SpanKind::wait) continue;
        signed char& is_one = allocating[trace.site_id(i)];
        if (is_one < 0) is_one = allocates(trace.name(i)) ? 1 : 0;
        if (is_one == 0) continue;
        const std::int64_t lost = std::min(trace.duration(i), steps.idle_in(trace.start(i), trace.end(i)));
        idle += static_cast<double>(lost);
        evidence.add(i, static_cast<double>(trace.duration(i)));
        frees += trace.name(i).starts_with("cudaFree") ? 1 : 0;
        // It also waits for work that is under way, which would have to be waited for anyway.
        found.least.push_back(Edit::duration(i, trace.duration(i) - lost));
        found.most.push_back(Edit::remove(i));
      }
    }
    steps_with += evidence.count() > before ? 1 : 0;
  }
  if (evidence.count() == 0) return;
  const Affected in = evidence.affected(steps);
  found.evidence = evidence.examples(steps);
  found.lost_is = "its own time";
  found.where = steps.where(found.evidence.spans.front().span);
  found.title = "memory is allocated in the step";
  found.text = fmt::format("{} such as {} in {:.0f} of {} steps take the host {}; GPUs are idle for {} {} meanwhile.",
                           count_text(static_cast<double>(evidence.count()), "call", "calls"),
                           quoted(trace.name(found.evidence.spans.front().span)), steps_with, steps.count(),
                           in.part(evidence.sum()), time_text(in.each(idle)), in.a_step());
  // PyTorch's allocator keeps its memory; it frees some when it is told to, or when memory is short.
  const bool is_emptied = frees >= steps_with && steps_with > 0;
  found.change =
      Changes{.pytorch = is_emptied ? "no torch.cuda.empty_cache() in the loop: it gives memory back that the next "
                                      "ops ask for again. Where nothing calls it, memory is short: smaller batches "
                                      "or checkpointed activations"
                                    : "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; keep shapes alike",
              .jax = "XLA_PYTHON_CLIENT_PREALLOCATE=true",
              .paoding = "keep the program and its device tensors between steps",
              .others = "allocate in front of the loop, or with cudaMallocAsync"}
          .of(steps.source());
  out->add(std::move(found));
}

}  // namespace paoding::findings
