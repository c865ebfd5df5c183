// SPDX-License-Identifier: Apache-2.0
// Kernels that get slower as the GPU's clock sinks. Without samples of the clock nothing is said: kernels get slower
// for other reasons too.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "findings/kernel_group.h"
#include "findings/kernel_rules.h"
#include "profile/step_times.h"

namespace paoding::findings {

using namespace profile;

namespace {

bool is_clock(std::string_view name) {
  std::string small(name);
  std::ranges::transform(small, small.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const bool is_of_gpu =
      small.find("sm") != small.npos || small.find("gpu") != small.npos || small.find("gr") != small.npos;
  const bool is_of_memory = small.find("mem") != small.npos;
  return small.find("clock") != small.npos && is_of_gpu && !is_of_memory;
}

// Samples of the GPU's clock by device, each in order.
std::map<int, std::vector<Sample>> clocks_of(const Trace& trace) {
  std::map<int, std::vector<Sample>> clocks;
  for (const Sample& sample : trace.samples()) {
    const Counter& counter = trace.counters()[sample.counter];
    if (counter.device >= 0 && sample.value > 0 && is_clock(trace.text(counter.name))) {
      clocks[counter.device].push_back(sample);
    }
  }
  return clocks;
}

// In force at a moment; 0 before the first sample.
std::int64_t clock_at(const std::vector<Sample>& samples, std::int64_t ns) {
  const auto next = std::ranges::upper_bound(samples, ns, {}, &Sample::ns);
  return next == samples.begin() ? 0 : std::prev(next)->value;
}

}  // namespace

void find_sinking_clocks(const KernelWorks& works, Candidates* out) {
  if (works.all().empty()) return;
  const Trace& trace = works.trace();
  const auto clocks = clocks_of(trace);
  if (clocks.empty()) {
    out->say_nothing(Kind::sinking_clocks, "the trace has no samples of the GPU's clock");
    return;
  }
  // Kernels of one site and grid, early and late: those of the late third that were slower as the clock sank.
  std::map<std::pair<SiteId, std::int64_t>, std::vector<const KernelWork*>> alike;
  for (const KernelWork& kernel : works.all()) {
    if (kernel.is_kernel && clocks.contains(kernel.device) && kernel.kind != KernelKind::collective) {
      alike[{trace.site_id(kernel.span), kernel.ctas}].push_back(&kernel);
    }
  }
  Candidate candidate{.kind = Kind::sinking_clocks};
  KernelGroup group(works);
  double first = 0, last = 0;
  for (const auto& [site, kernels] : alike) {
    constexpr std::size_t kLeast = 12;
    if (kernels.size() < kLeast) continue;
    const std::size_t third = kernels.size() / 3;
    const std::vector<Sample>& samples = clocks.at(kernels.front()->device);
    const auto middle = [&](std::size_t from, bool is_clock) {
      std::vector<std::int64_t> values;
      for (std::size_t i = from; i < from + third; ++i) {
        values.push_back(is_clock ? clock_at(samples, trace.start(kernels[i]->span)) : kernels[i]->ns);
      }
      return static_cast<double>(median(std::move(values)));
    };
    const double clock_before = middle(0, true), clock_after = middle(kernels.size() - third, true);
    const double ns_before = middle(0, false), ns_after = middle(kernels.size() - third, false);
    constexpr double kLeastSunk = 0.03;
    if (clock_before <= 0 || clock_after <= 0 || ns_before <= 0) continue;
    const double sunk = 1 - clock_after / clock_before, slower = 1 - ns_before / ns_after;
    if (sunk < kLeastSunk || slower < sunk / 2) continue;
    for (const KernelWork* kernel : kernels) {
      const auto clock = static_cast<double>(clock_at(samples, trace.start(kernel->span)));
      if (clock <= 0 || clock >= clock_before) continue;
      const auto ns = static_cast<double>(kernel->ns);
      const double most = ns * clock / clock_before;
      group.add(*kernel, ns - most);
      candidate.most.push_back(Edit::duration(kernel->span, static_cast<std::int64_t>(most)));
      candidate.least.push_back(Edit::duration(kernel->span, static_cast<std::int64_t>((ns + most) / 2)));
    }
    first = std::max(first, clock_before);
    last = last == 0 ? clock_after : std::min(last, clock_after);
  }
  if (group.is_empty()) return;
  candidate.title = "the GPU's clock sinks, and kernels with it";
  candidate.text = fmt::format("The clock sinks from {:.0f} to {:.0f}, and the same kernels take longer with it: {}.",
                               first, last, group.ops());
  candidate.where = group.where();
  candidate.evidence = group.examples();
  candidate.lost_is = "what it would take less";
  candidate.change =
      "look at power and temperature (nvidia-smi -q -d PERFORMANCE); lock the clock for measurements "
      "(nvidia-smi -lgc)";
  out->add(std::move(candidate));
}

}  // namespace paoding::findings
