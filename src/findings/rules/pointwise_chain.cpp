// SPDX-License-Identifier: Apache-2.0
// Elementwise kernels one behind the other read again the results of the one before. As one kernel they read and write
// less, and are launched once.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "findings/kernel_group.h"
#include "findings/kernel_rules.h"
#include "findings/own_work.h"

namespace paoding::findings {

using namespace profile;

namespace {

bool is_elementwise(const KernelWork& kernel) {
  return kernel.is_kernel && (kernel.kind == KernelKind::pointwise || kernel.kind == KernelKind::cast);
}

// Sizes that follow from grids are rounded up to whole CTAs.
bool are_as_many(const KernelWork& a, const KernelWork& b) {
  constexpr std::int64_t kOfCta = 2048;
  const std::int64_t more = std::max(a.elements, b.elements), fewer = std::min(a.elements, b.elements);
  const std::int64_t rounded = a.is_by_grid || b.is_by_grid ? kOfCta : 0;
  return more - fewer <= rounded;
}

// The rate that a fused kernel would have: the device's, or where that is not known the best of this trace.
double rate_of(const KernelWorks& works, int device) {
  const DeviceLimits& limits = works.limits(device);
  if (limits.is_known()) return limits.bytes_per_ns;
  constexpr std::int64_t kLarge = 16 << 20;
  double best = 0;
  for (const KernelWork& kernel : works.all()) {
    if (is_elementwise(kernel) && kernel.bytes >= kLarge && kernel.ns > 0) {
      best = std::max(best, static_cast<double>(kernel.bytes) / static_cast<double>(kernel.ns));
    }
  }
  return best;
}

// One tensor of its elements.
double tensor_bytes(const KernelWork& kernel) {
  if (kernel.element_bytes > 0) return static_cast<double>(kernel.elements) * kernel.element_bytes;
  return static_cast<double>(kernel.bytes) / 3;  // no more than that: at least one is read, and one written
}

// A cast of the same types again is one of another tensor.
bool goes_on_with(const Trace& trace, const KernelWork& before, const KernelWork& kernel) {
  const bool is_same_cast = kernel.kind == KernelKind::cast && trace.site_id(before.span) == trace.site_id(kernel.span);
  return before.step == kernel.step && !is_same_cast && are_as_many(before, kernel);
}

// Passes of ours make a reduction part of the group that computes its operand.
bool is_reduction_behind(const KernelWorks& works, const KernelWork& before, const KernelWork& kernel) {
  return works.steps().source() == Source::paoding && kernel.kind == KernelKind::reduction && kernel.bytes > 0 &&
         kernel.elements > 0 && goes_on_with(works.trace(), before, kernel);
}

void finish(const KernelWorks& works, double rate, std::vector<const KernelWork*> kernels,
            std::vector<PointwiseChain>* chains) {
  if (kernels.size() < 2) return;
  PointwiseChain chain;
  double bytes = 0, tensor = 0, longest = 0, usual = 0;
  for (const KernelWork* kernel : kernels) {
    const auto of_usual = static_cast<double>(works.usual_ns(*kernel));
    longest = std::max(longest, of_usual), usual += of_usual;
    bytes += static_cast<double>(kernel->bytes);
    chain.ns += static_cast<double>(kernel->ns);
    if (kernel->kind == KernelKind::cast) chain.casts_ns += static_cast<double>(kernel->ns);
    if (kernel->kind == KernelKind::reduction) continue;  // its result is small
    const double own = tensor_bytes(*kernel);
    tensor = tensor == 0 ? own : std::min(tensor, own);
  }
  const double links = static_cast<double>(kernels.size()) - 1;
  const auto floor = static_cast<double>(works.floor_ns());
  const auto ns = [&](double moved) { return std::min(chain.ns, std::max(floor, rate > 0 ? moved / rate : 0)); };
  // Each link saves a write and a read. Other inputs may come from outside, or be results in between.
  // A kernel that is slow for its strides makes the fused one slow.
  const double at_least = kernels.back()->kind == KernelKind::reduction ? tensor : 2 * tensor;
  const double fewer = std::max(bytes - 2 * links * tensor, at_least);
  if (works.are_on_cpu()) {
    // Kernels that memory keeps busy take as much less as bytes are fewer. Where they compute much, that takes as long
    // as before, and only the bytes that do not move are saved.
    const bool is_simple = std::ranges::all_of(kernels, [&](const KernelWork* kernel) {
      return is_of_simple_operations(works.trace(), works.trace().site(kernel->span));
    });
    // Other work holds up a call that takes longer than usual, and the fused one for as large a share of its time.
    const auto without = [&](double moved) {
      if (usual <= 0 || (!is_simple && rate <= 0)) return chain.ns;
      const double left = is_simple ? usual * moved / bytes : usual - (bytes - moved) / rate;
      return chain.ns * std::max(longest, left) / usual;
    };
    chain.least_ns = without(fewer);
    chain.most_ns = std::min(chain.least_ns, without(at_least));
  } else {
    chain.least_ns = std::max(longest, ns(fewer));
    chain.most_ns = std::min(chain.least_ns, ns(at_least));
  }
  chain.kernels = std::move(kernels);
  chains->push_back(std::move(chain));
}

// One kernel in the place of the first. Replays only shorten the host's time: there each takes its share.
void add_edits(const KernelWorks& works, const PointwiseChain& chain, double fused_ns, std::vector<Edit>* edits) {
  for (const KernelWork* kernel : chain.kernels) {
    const double share = fused_ns / chain.ns;
    const bool is_first = kernel == chain.kernels.front();
    if (works.are_on_cpu()) {
      edits->push_back(
          Edit::duration(kernel->span, static_cast<std::int64_t>(share * static_cast<double>(kernel->ns))));
    } else {
      edits->push_back(is_first ? Edit::duration(kernel->span, static_cast<std::int64_t>(fused_ns))
                                : Edit::remove(kernel->span));
    }
  }
}

// Where the pass has put steps together, it left others apart for a reason.
bool was_fused(const KernelWorks& works) {
  const Trace& trace = works.trace();
  return works.steps().source() == Source::paoding && std::ranges::any_of(works.all(), [&](const KernelWork& kernel) {
           return is_fused(trace, trace.site(kernel.span));
         });
}

}  // namespace

std::vector<PointwiseChain> pointwise_chains(const KernelWorks& works) {
  const Trace& trace = works.trace();
  std::map<TrackId, std::vector<const KernelWork*>> open;
  std::map<int, double> rates;
  std::vector<PointwiseChain> chains;
  const auto rate = [&](int device) {
    const auto [found, is_new] = rates.try_emplace(device, 0);
    if (is_new) found->second = rate_of(works, device);
    return found->second;
  };
  for (const KernelWork& kernel : works.all()) {
    std::vector<const KernelWork*>& chain = open[trace.track_id(kernel.span)];
    const bool fits =
        is_elementwise(kernel) && kernel.elements > 0 && kernel.bytes > 0 && !works.call_of(kernel).work->is_users;
    const bool goes_on = fits && !chain.empty() && goes_on_with(trace, *chain.back(), kernel);
    if (!chain.empty() && is_reduction_behind(works, *chain.back(), kernel)) chain.push_back(&kernel);
    if (!goes_on) {
      finish(works, rate(kernel.device), std::move(chain), &chains);
      chain.clear();
    }
    if (fits) chain.push_back(&kernel);
  }
  for (auto& [track, chain] : open) {
    if (chain.empty()) continue;
    const double own = rate(chain.front()->device);
    finish(works, own, std::move(chain), &chains);
  }
  return chains;
}

void find_pointwise_chain(const KernelWorks& works, Candidates* out) {
  std::int64_t sized_ns = 0, all_ns = 0;
  for (const KernelWork& kernel : works.all()) {
    if (!is_elementwise(kernel)) continue;
    all_ns += kernel.ns;
    if (kernel.elements > 0 && kernel.bytes > 0) sized_ns += kernel.ns;
  }
  if (all_ns == 0 || was_fused(works)) return;
  if (sized_ns * 2 < all_ns) {
    out->say_nothing(Kind::pointwise_chain,
                     fmt::format("the trace does not say the sizes of {} of the elementwise kernels, by time: {}",
                                 percent_text(1 - static_cast<double>(sized_ns) / static_cast<double>(all_ns)),
                                 how_to_record_shapes(works.steps().source())));
    if (sized_ns == 0) return;
  }
  Candidate candidate{.kind = Kind::pointwise_chain};
  KernelGroup group(works);
  std::size_t chains = 0, longest = 0;
  double fused_ns = 0, kept_ns = 0;
  for (const PointwiseChain& chain : pointwise_chains(works)) {
    const double together = chain.ns;
    if (chain.most_ns >= together || chain.is_of_casts()) continue;
    for (const KernelWork* kernel : chain.kernels) {
      group.add(*kernel, static_cast<double>(kernel->ns) * (1 - chain.most_ns / together));
    }
    add_edits(works, chain, chain.least_ns, &candidate.least);
    add_edits(works, chain, chain.most_ns, &candidate.most);
    ++chains;
    longest = std::max(longest, chain.kernels.size());
    fused_ns += chain.most_ns;
    kept_ns += chain.least_ns;
  }
  // Pairs are everywhere, and it takes many of them to be worth a change.
  constexpr double kLeastOfPairs = 0.03;
  const double saved = (group.ns() - kept_ns) / works.all_steps_ns();
  if (group.is_empty() || (longest == 2 && saved < kLeastOfPairs)) return;
  candidate.title = "elementwise kernels in a row could be one kernel each";
  candidate.text =
      group.in_steps() +
      fmt::format(
          "{} a step stand in {} on equally many elements, up to {} in a row: {} of the step, {} as one kernel each, "
          "which "
          "reads its inputs once. Most of it: {}.",
          count_text(group.per_step(static_cast<double>(group.count())), "elementwise kernel", "elementwise kernels"),
          count_text(group.per_step(static_cast<double>(chains)), "chain", "chains"), longest,
          time_text(group.per_step(group.ns())), time_text(group.per_step(fused_ns)), group.ops());
  candidate.where = group.where();
  candidate.evidence = group.examples();
  candidate.lost_is = "what it would take less";
  candidate.change =
      change_for(works.steps().source(),
                 {"model = torch.compile(model)  # or one Triton or CUDA kernel for the chain",
                  "put the chain under one jax.jit: XLA fuses what it sees together",
                  "let the pass fuse_groups see it: no fetch of a value in between, no --no-pass fuse_groups"});
  if (works.steps().source() == Source::paoding) candidate.verify = "pass fuse_groups";
  out->add(std::move(candidate));
}

}  // namespace paoding::findings
