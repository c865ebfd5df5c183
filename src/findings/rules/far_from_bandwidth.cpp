// SPDX-License-Identifier: Apache-2.0
// Kernels that only move bytes, and move them far slower than the GPU's memory allows.
#include <fmt/format.h>

#include <algorithm>

#include "findings/kernel_group.h"
#include "findings/kernel_rules.h"
#include "findings/own_work.h"

namespace paoding::findings {

using namespace profile;

namespace {

bool only_moves(KernelKind kind) {
  switch (kind) {
    case KernelKind::pointwise:
    case KernelKind::cast:
    case KernelKind::copy:
    case KernelKind::layout:
    case KernelKind::fill:
    case KernelKind::gather:
    case KernelKind::reduction:
    case KernelKind::softmax:
    case KernelKind::normalization: return true;
    default: return false;
  }
}

// On a CPU many instructions an element take longer than memory does.
bool may_be_bound_by_memory(const KernelWorks& works, const KernelWork& kernel) {
  return only_moves(kernel.kind) &&
         (!works.are_on_cpu() || is_of_simple_operations(works.trace(), works.trace().site(kernel.span)));
}

std::string reason_not_to_know(const KernelWorks& works, bool has_sizes) {
  if (!has_sizes) return "the trace does not say how many bytes kernels move";
  return works.are_on_cpu() ? "no kernel of this recording is large enough to show the bandwidth of the CPU's memory"
                            : "the bandwidth of the GPU is not known: the trace does not say which it is";
}

}  // namespace

void find_far_from_bandwidth(const KernelWorks& works, Candidates* out) {
  constexpr std::int64_t kLeastBytes = 8 << 20;  // below, latency and the launch decide
  // Rates on a CPU spread: its cores and its memory do other work too.
  const double least_share = works.are_on_cpu() ? 0.3 : 0.6, target = works.are_on_cpu() ? 0.3 : 0.5;
  constexpr double kLeastSaved = 0.05;  // of all steps: for less another kernel seldom pays
  std::int64_t moving_ns = 0, sized_ns = 0;
  bool is_known = false;
  Candidate candidate{.kind = Kind::far_from_bandwidth};
  KernelGroup group(works);
  double bytes = 0;
  const KernelWork* worst = nullptr;
  double worst_saved = 0;
  for (const KernelWork& kernel : works.all()) {
    if (!kernel.is_kernel || !may_be_bound_by_memory(works, kernel) || kernel.ns <= 0) continue;
    moving_ns += kernel.ns;
    if (kernel.bytes <= 0) continue;
    sized_ns += kernel.ns;
    const DeviceLimits& limits = works.limits(kernel.device);
    is_known = is_known || limits.is_known();
    if (!limits.is_known() || kernel.bytes < kLeastBytes) continue;
    const auto ns = static_cast<double>(kernel.ns), own = static_cast<double>(kernel.bytes);
    const auto usual = static_cast<double>(works.usual_ns(kernel));
    if (own / usual >= least_share * limits.bytes_per_ns) continue;
    const double most = std::min(ns, own / limits.bytes_per_ns),
                 least = std::min(ns, own / (target * limits.bytes_per_ns));
    group.add(kernel, ns - most);
    bytes += own;
    if (ns - most > worst_saved) worst_saved = ns - most, worst = &kernel;
    candidate.most.push_back(Edit::duration(kernel.span, static_cast<std::int64_t>(most)));
    candidate.least.push_back(Edit::duration(kernel.span, static_cast<std::int64_t>(least)));
  }
  if (moving_ns > 0 && !is_known) {
    out->say_nothing(Kind::far_from_bandwidth, reason_not_to_know(works, sized_ns > 0));
  }
  if (group.is_empty() || group.saved_ns() < kLeastSaved * works.all_steps_ns()) return;
  const DeviceLimits& limits = works.limits(worst->device);
  candidate.title = "kernels move bytes far slower than memory allows";
  candidate.text =
      group.in_steps() + fmt::format(
                             "{} a step ({}) move {:.0f} MB at {}, where the {} reaches {}{}; the worst is {}: {:.1f} "
                             "MB in {}. Mostly {}.",
                             count_text(group.per_step(static_cast<double>(group.count())), "kernel", "kernels"),
                             time_text(group.per_step(group.ns())), group.per_step(bytes) / 1e6,
                             rate_text(bytes / group.ns()), limits.name, rate_text(limits.bytes_per_ns),
                             limits.reservation(), kernel_title(works, *worst), static_cast<double>(worst->bytes) / 1e6,
                             time_text(static_cast<double>(worst->ns)), group.ops());
  candidate.where = group.where();
  candidate.evidence = group.examples();
  candidate.lost_is = "what it would take less";
  candidate.change =
      change_for(works.steps().source(),
                 {"torch.compile(model), or operands that are contiguous and need no broadcast along their "
                  "last axis",
                  "let XLA fuse it with what is around it, or operands in the order in which they are read",
                  "report its group and shape: another schedule is missing (--explain says which it has)"});
  out->add(std::move(candidate));
}

}  // namespace paoding::findings
