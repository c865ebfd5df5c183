// SPDX-License-Identifier: Apache-2.0
// Kernels whose CTAs do not fill the GPU: fewer than it has multiprocessors, or a few more than fit at once.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "findings/kernel_group.h"
#include "findings/kernel_rules.h"
#include "findings/words.h"

namespace paoding::findings {

using namespace profile;

namespace {

// Kernels whose CTAs do more work the fewer they are. Those of collectives and recurrences wait; others are not known.
bool is_divisible(KernelKind kind) {
  switch (kind) {
    case KernelKind::product:
    case KernelKind::convolution:
    case KernelKind::attention:
    case KernelKind::normalization:
    case KernelKind::softmax:
    case KernelKind::reduction:
    case KernelKind::pointwise:
    case KernelKind::cast:
    case KernelKind::layout:
    case KernelKind::gather:
    case KernelKind::pooling: return true;
    default: return false;
  }
}

// A scan along rows gives each CTA some rows, and few rows leave the others with nothing to do. Sorts, which are of the
// same kind, are steps that wait for each other.
bool is_scan(const Trace& trace, const KernelWork& kernel) {
  return kernel.kind == KernelKind::sort &&
         (has_word(trace.name(kernel.span), {"scan", "cumsum", "cumprod", "cummax", "cummin"}) ||
          has_word(trace.text(trace.site(kernel.span).op), {"cumsum", "cumprod", "cummax", "cummin"}));
}

// Another kernel of the GPU that ran beside it has the multiprocessors.
std::vector<bool> ran_alone(const KernelWorks& works) {
  const Trace& trace = works.trace();
  std::vector<bool> alone(works.all().size(), true);
  struct Last {
    std::size_t at;
    std::int64_t end;
  };
  std::map<int, Last> last;
  for (std::size_t i = 0; i < works.all().size(); ++i) {
    const KernelWork& kernel = works.all()[i];
    if (!kernel.is_kernel) continue;
    const std::int64_t start = trace.start(kernel.span), end = trace.end(kernel.span);
    const auto before = last.find(kernel.device);
    if (before != last.end() && before->second.end > start) {
      const std::int64_t shared = std::min(before->second.end, end) - start;
      if (shared * 4 > kernel.ns) alone[i] = false;
      if (shared * 4 > works.all()[before->second.at].ns) alone[before->second.at] = false;
    }
    if (before == last.end() || end > before->second.end) last[kernel.device] = {i, end};
  }
  return alone;
}

// The least that the work itself allows.
double bound_ns(const KernelWorks& works, const KernelWork& kernel) {
  const DeviceLimits& limits = works.limits(kernel.device);
  double ns = 2 * static_cast<double>(works.floor_ns());
  if (limits.is_known()) ns = std::max(ns, static_cast<double>(kernel.bytes) / limits.bytes_per_ns);
  if (const double rate = limits.rate(kernel.arithmetic.unit); rate > 0) ns = std::max(ns, kernel.flops / rate);
  return ns;
}

void add_tails(const KernelWorks& works, const std::vector<bool>& alone, Candidates* out) {
  constexpr double kLeastLoss = 0.2, kMostTurns = 5;
  Candidate candidate{.kind = Kind::small_grid};
  KernelGroup group(works);
  double worst = 1;
  const KernelWork* worst_kernel = nullptr;
  for (std::size_t i = 0; i < works.all().size(); ++i) {
    const KernelWork& kernel = works.all()[i];
    const bool is_tiled = kernel.kind == KernelKind::product || kernel.kind == KernelKind::convolution;
    const DeviceLimits& limits = works.limits(kernel.device);
    const int at_once = works.ctas_of_sm(kernel);
    constexpr std::int64_t kLeastNs = 10'000;
    if (!alone[i] || !is_tiled || limits.sms <= 0 || at_once <= 0 || kernel.ctas <= 0 || kernel.ns < kLeastNs) continue;
    // Tiles of one turn take as long as all of it: without shared memory and registers the turn's size is not known.
    if (kernel.registers <= 0 || limits.shared_of_sm <= 0) continue;
    const double turns = static_cast<double>(kernel.ctas) / (static_cast<double>(limits.sms) * at_once);
    const double share = turns / std::ceil(turns);
    if (turns <= 1 || turns > kMostTurns || share > 1 - kLeastLoss) continue;
    const auto ns = static_cast<double>(kernel.ns);
    const double most = std::max(ns * share, std::min(ns, bound_ns(works, kernel)));
    if (most >= ns) continue;
    group.add(kernel, ns - most);
    candidate.most.push_back(Edit::duration(kernel.span, static_cast<std::int64_t>(most)));
    candidate.least.push_back(Edit::duration(kernel.span, static_cast<std::int64_t>((most + ns) / 2)));
    if (share < worst || worst_kernel == nullptr) worst = share, worst_kernel = &kernel;
  }
  if (group.is_empty()) return;
  const double turns = static_cast<double>(worst_kernel->ctas) /
                       (static_cast<double>(works.limits(worst_kernel->device).sms) * works.ctas_of_sm(*worst_kernel));
  candidate.title = "the last turn of products is nearly empty";
  candidate.text =
      group.in_steps() + fmt::format(
                             "{} a step ({}) have a few CTAs more than fit at once: {} fills the GPU {:.2f} times, "
                             "which takes {:.0f} turns. "
                             "Mostly {}.",
                             count_text(group.per_step(static_cast<double>(group.count())), "product", "products"),
                             time_text(group.per_step(group.ns())), kernel_title(works, *worst_kernel), turns,
                             std::ceil(turns), group.ops());
  candidate.where = group.where();
  candidate.evidence = group.examples();
  candidate.lost_is = "what it would take less";
  candidate.change = change_for(
      works.steps().source(),
      {"another batch size or width, so that tiles fill whole turns; torch.compile(model, "
       "mode='max-autotune') tries other tiles",
       "another batch size or width; --xla_gpu_autotune_level tries other tiles", "--tune tries other tiles"});
  out->add(std::move(candidate));
}

// With its launch goes the host's time for the op around it.
void remove_with_host(const KernelWorks& works, const KernelWork& kernel, std::vector<Edit>* edits) {
  const Trace& trace = works.trace();
  edits->push_back(Edit::remove(kernel.span));
  const SpanId op = works.steps().outermost_op_of(kernel.span);
  if (op != kNone && !trace.on_gpu(op)) {
    edits->push_back(Edit::host(trace.track_id(op), trace.start(op), trace.end(op), 0));
  }
}

// Sums and softmax of one shape right behind each other are of independent parts: nothing stands in between that could
// make one's operand of another's result. For each kernel the first of those that it stands with, kAlone of others.
constexpr std::size_t kAlone = ~std::size_t{0};

std::vector<std::size_t> leads_of_equal_kernels(const KernelWorks& works) {
  constexpr std::size_t kLeast = 4;
  const Trace& trace = works.trace();
  std::vector<std::size_t> leads(works.all().size(), kAlone);
  std::map<TrackId, std::vector<std::size_t>> open;
  const auto close = [&](std::vector<std::size_t>& run) {
    if (run.size() >= kLeast) {
      for (const std::size_t i : run) leads[i] = run.front();
    }
    run.clear();
  };
  for (std::size_t i = 0; i < works.all().size(); ++i) {
    const KernelWork& kernel = works.all()[i];
    if (!kernel.is_kernel) continue;
    std::vector<std::size_t>& run = open[trace.track_id(kernel.span)];
    const bool may_be_one = (kernel.kind == KernelKind::softmax || kernel.kind == KernelKind::reduction) &&
                            kernel.call != kNone && works.call_of(kernel).work->elements > 0;
    if (!run.empty()) {
      const KernelWork& first = works.all()[run.front()];
      const bool is_equal = may_be_one && first.step == kernel.step && first.ctas == kernel.ctas &&
                            trace.site_id(first.span) == trace.site_id(kernel.span) &&
                            works.call_of(first).work == works.call_of(kernel).work;
      if (!is_equal) close(run);
    }
    if (may_be_one) run.push_back(i);
  }
  for (auto& [track, run] : open) close(run);
  return leads;
}

bool are_equal_products(const KernelWorks& works, const KernelWork& a, const KernelWork& b) {
  if (a.step != b.step || a.kind != KernelKind::product || b.kind != KernelKind::product) return false;
  const Trace& trace = works.trace();
  if (trace.site_id(a.span) != trace.site_id(b.span) || a.ctas != b.ctas || a.call == kNone || b.call == kNone)
    return false;
  return works.call_of(a).work == works.call_of(b).work;
}

// Products of one shape right behind each other, with nothing in between that could make one's factor of another's
// result, are independent as a rule: one batched product does them all.
void add_equal_products(const KernelWorks& works, Candidates* out) {
  constexpr std::size_t kLeast = 4;
  constexpr double kLongestFloors = 20;
  std::map<TrackId, std::vector<const KernelWork*>> streams;
  for (const KernelWork& kernel : works.all()) {
    if (kernel.is_kernel) streams[works.trace().track_id(kernel.span)].push_back(&kernel);
  }
  Candidate candidate{.kind = Kind::small_grid};
  KernelGroup group(works);
  std::size_t longest = 0;
  for (const auto& [stream, kernels] : streams) {
    for (std::size_t i = 0; i < kernels.size();) {
      std::size_t end = i + 1;
      double ns = static_cast<double>(kernels[i]->ns);
      while (end < kernels.size() && are_equal_products(works, *kernels[i], *kernels[end])) {
        ns += static_cast<double>(kernels[end++]->ns);
      }
      const std::size_t count = end - i;
      const OpWork& work = *works.call_of(*kernels[i]).work;
      const DeviceLimits& limits = works.limits(kernels[i]->device);
      // Where the result of one could be the factor of the next they may be a chain.
      const bool is_chain = !work.product || work.product->n == work.product->k;
      if (count >= kLeast && !is_chain &&
          ns < kLongestFloors * static_cast<double>(works.floor_ns()) * static_cast<double>(count)) {
        longest = std::max(longest, count);
        const double rate = limits.rate(work.unit);
        const double most = rate > 0 ? std::min(ns, work.product->flops() * static_cast<double>(count) / rate +
                                                        2 * static_cast<double>(works.floor_ns()))
                                     : ns;
        candidate.least.push_back(Edit::duration(kernels[i]->span, static_cast<std::int64_t>(ns)));
        candidate.most.push_back(Edit::duration(kernels[i]->span, static_cast<std::int64_t>(most)));
        for (std::size_t k = i; k < end; ++k) {
          group.add(*kernels[k], static_cast<double>(kernels[k]->ns) * (1 - most / ns));
          if (k == i) continue;
          for (std::vector<Edit>* edits : {&candidate.least, &candidate.most})
            remove_with_host(works, *kernels[k], edits);
        }
      }
      i = end;
    }
  }
  if (group.is_empty()) return;
  candidate.title = "products of one shape are launched one by one";
  candidate.text =
      group.in_steps() + fmt::format(
                             "{} a step ({}) have the shape of the one right before them, up to {} in a row: as one "
                             "batched product they are "
                             "launched once and fill the GPU. Mostly {}.",
                             count_text(group.per_step(static_cast<double>(group.count())), "product", "products"),
                             time_text(group.per_step(group.ns())), longest, group.ops());
  candidate.where = group.where();
  candidate.evidence = group.examples();
  candidate.lost_is = "what it would take less";
  candidate.change =
      change_for(works.steps().source(),
                 {"one torch.bmm (or einsum) over all of them instead of a loop",
                  "jax.vmap or one einsum over all of them instead of a loop",
                  "one batched product; the pass combine_matmul makes one of products that share a factor"});
  out->add(std::move(candidate));
}

}  // namespace

void find_small_grid(const KernelWorks& works, Candidates* out) {
  add_equal_products(works, out);
  if (!works.has_grids()) {
    if (!works.all().empty()) out->say_nothing(Kind::small_grid, "the trace does not say the grids of kernels");
    return;
  }
  bool is_known = false;
  for (const KernelWork& kernel : works.all()) is_known = is_known || works.limits(kernel.device).sms > 0;
  if (!is_known) {
    out->say_nothing(Kind::small_grid, "the trace does not say how many multiprocessors the GPU has");
    return;
  }
  const std::vector<bool> alone = ran_alone(works);
  const std::vector<std::size_t> leads = leads_of_equal_kernels(works);
  Candidate candidate{.kind = Kind::small_grid};
  KernelGroup group(works);
  const KernelWork* worst = nullptr;
  double worst_saved = 0;
  for (std::size_t i = 0; i < works.all().size(); ++i) {
    const KernelWork& kernel = works.all()[i];
    const int sms = works.limits(kernel.device).sms;
    const std::int64_t least_ns = std::max<std::int64_t>(5'000, 3 * works.floor_ns());
    const bool could_spread = is_divisible(kernel.kind) || is_scan(works.trace(), kernel);
    if (!alone[i] || !kernel.is_kernel || !could_spread || kernel.ctas <= 0 || sms <= 0) continue;
    if (kernel.ns < least_ns || kernel.ctas * 2 > sms) continue;
    const auto ns = static_cast<double>(kernel.ns);
    const double bound = bound_ns(works, kernel);
    const double most = std::max(ns * static_cast<double>(kernel.ctas) / sms, bound);
    const double least = std::max(ns * 2 * static_cast<double>(kernel.ctas) / sms, bound);
    if (most >= ns) continue;
    group.add(kernel, ns - most);
    if (ns - most > worst_saved) worst_saved = ns - most, worst = &kernel;
    if (leads[i] == kAlone) {
      candidate.most.push_back(Edit::duration(kernel.span, static_cast<std::int64_t>(most)));
    } else if (leads[i] == i) {
      // One launch for all of them takes no less than one did.
      const double count = static_cast<double>(std::ranges::count(leads, i));
      candidate.most.push_back(
          Edit::duration(kernel.span, static_cast<std::int64_t>(std::max({ns, most * count, bound * count}))));
    } else {
      remove_with_host(works, kernel, &candidate.most);
    }
    if (least < ns) candidate.least.push_back(Edit::duration(kernel.span, static_cast<std::int64_t>(least)));
  }
  if (!group.is_empty()) {
    candidate.title = "kernels have too few CTAs for the GPU";
    candidate.text =
        group.in_steps() +
        fmt::format(
            "{} a step ({}) use at most half of the GPU's {} multiprocessors: {} has {} and takes {}. Mostly {}.",
            count_text(group.per_step(static_cast<double>(group.count())), "kernel", "kernels"),
            time_text(group.per_step(group.ns())), works.limits(worst->device).sms, kernel_title(works, *worst),
            count_text(static_cast<double>(worst->ctas), "CTA", "CTAs"), time_text(static_cast<double>(worst->ns)),
            group.ops());
    candidate.where = group.where();
    candidate.evidence = group.examples();
    candidate.lost_is = "what it would take less";
    candidate.change = change_for(works.steps().source(),
                                  {"a larger batch, or small kernels of independent parts together (torch.bmm, "
                                   "torch.stack, torch.compile)",
                                   "a larger batch, or jax.vmap over the independent parts",
                                   "a larger batch; independent products are grouped by the pass combine_matmul"});
    out->add(std::move(candidate));
  }
  add_tails(works, alone, out);
}

}  // namespace paoding::findings
