// SPDX-License-Identifier: Apache-2.0
// Collectives while no other kernel of the GPU is under way: the step waits for them.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "findings/kernel_rules.h"
#include "findings/wording.h"

namespace paoding::findings {

using namespace profile;

namespace {

std::int64_t covered_by(const std::vector<Interval>& united, std::int64_t start, std::int64_t end) {
  std::int64_t sum = 0;
  auto next = std::ranges::upper_bound(united, start, {}, &Interval::end);
  for (; next != united.end() && next->start < end; ++next) {
    sum += std::min(next->end, end) - std::max(next->start, start);
  }
  return sum;
}

}  // namespace

void find_exposed_collectives(const KernelWorks& works, Candidates* out) {
  const Trace& trace = works.trace();
  std::map<int, std::vector<Interval>> computing;
  std::vector<const KernelWork*> collectives;
  for (const KernelWork& kernel : works.all()) {
    if (kernel.kind == KernelKind::collective) {
      collectives.push_back(&kernel);
    } else if (kernel.is_kernel) {
      append(computing[kernel.device], {trace.start(kernel.span), trace.end(kernel.span)});
    }
  }
  if (collectives.empty()) return;
  for (auto& [device, intervals] : computing) unite(intervals);
  // The last collective of a step has nothing of the step behind it to be hidden by.
  std::map<std::pair<std::uint32_t, int>, const KernelWork*> last;
  for (const KernelWork* kernel : collectives) {
    const KernelWork*& own = last[{kernel->step, kernel->device}];
    if (own == nullptr || trace.end(kernel->span) > trace.end(own->span)) own = kernel;
  }
  Candidate candidate{.kind = Kind::exposed_collectives};
  KernelGroup group(works);
  double all_ns = 0, exposed_ns = 0;
  for (const KernelWork* kernel : collectives) {
    const std::int64_t hidden = covered_by(computing[kernel->device], trace.start(kernel->span), trace.end(kernel->span));
    const std::int64_t exposed = kernel->ns - hidden;
    all_ns += static_cast<double>(kernel->ns);
    constexpr std::int64_t kLeastNs = 1'000;
    if (exposed < kLeastNs) continue;
    exposed_ns += static_cast<double>(exposed);
    group.add(*kernel, static_cast<double>(exposed));
    candidate.most.push_back(Edit::duration(kernel->span, hidden));
    if (last[{kernel->step, kernel->device}] != kernel) candidate.least.push_back(Edit::duration(kernel->span, hidden));
  }
  if (group.is_empty()) return;
  candidate.title = "collectives that no computation hides";
  candidate.text = fmt::format(
      "Collectives take {} of a step, {} of it ({}) while no other kernel of the GPU runs. A collective also lasts while it "
      "waits for the last rank.",
      time_text(group.per_step(all_ns)), time_text(group.per_step(exposed_ns)), percent_text(exposed_ns / all_ns));
  candidate.where = group.where();
  candidate.evidence = group.evidence();
  candidate.change = change_for(works.steps().source(),
                                {"DistributedDataParallel(model, bucket_cap_mb=..., gradient_as_bucket_view=True): smaller "
                                 "buckets start earlier in the backward pass; FSDP: forward_prefetch=True",
                                 "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true", "start collectives as gradients become ready"});
  out->add(std::move(candidate));
}

}  // namespace paoding::findings
