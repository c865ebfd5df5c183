// SPDX-License-Identifier: Apache-2.0
#include "findings/kernel_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "findings/operand_text.h"
#include "profile/kernel_name.h"
#include "profile/row_names.h"

namespace paoding::findings {

std::string rate_text(double bytes_per_ns) {
  return bytes_per_ns < 1000 ? fmt::format("{:.0f} GB/s", bytes_per_ns)
                             : fmt::format("{:.2f} TB/s", bytes_per_ns / 1e3);
}

std::string change_for(profile::Source source, const ChangeText& text) {
  switch (source) {
    case profile::Source::paoding: return text.paoding;
    case profile::Source::jax:
    case profile::Source::tensorflow: return text.jax;
    default: return text.pytorch;
  }
}

std::string how_to_record_shapes(profile::Source source) {
  switch (source) {
    case profile::Source::pytorch: return "torch.profiler.profile(record_shapes=True) records them";
    case profile::Source::nsight_systems: return "torch.autograd.profiler.emit_nvtx(record_shapes=True) records them";
    case profile::Source::paoding: return "recordings of version 5 and later have them";
    default: return "this profiler does not record them";
  }
}

std::string kernel_title(const KernelWorks& works, const KernelWork& kernel) {
  const std::string_view op = works.op_name(kernel);
  if (!op.empty()) return std::string(op);
  constexpr std::size_t kLongest = 70;
  return profile::cut_to(profile::short_kernel_name(works.kernel_name(kernel)), kLongest);
}

void KernelGroup::add(const KernelWork& kernel, double saved_ns) {
  kernels_.push_back({&kernel, saved_ns});
  if (steps_.empty() || steps_.back() != kernel.step) steps_.push_back(kernel.step);
  saved_ns_ += saved_ns;
  ns_ += static_cast<double>(kernel.ns);
}

Affected KernelGroup::affected() const { return findings::affected(works_.steps(), steps_); }

Where KernelGroup::where() const {
  const auto most = std::ranges::max_element(kernels_, {}, &Entry::saved_ns);
  return most == kernels_.end() ? Where{} : works_.steps().where(most->kernel->span);
}

Evidence KernelGroup::lost() const {
  Evidence lost;
  for (const Entry& entry : kernels_) lost.add(entry.kernel->span, entry.saved_ns);
  return lost;
}

std::string KernelGroup::ops(std::size_t most) const {
  return counts([&](const KernelWork& kernel) { return kernel_title(works_, kernel); }, most);
}

std::string KernelGroup::casts() const {
  constexpr std::size_t kMost = 4;
  return counts([&](const KernelWork& kernel) { return cast_text(works_.steps().operands_of(kernel.span)); }, kMost);
}

// The first few names, those first that would save most; "" is no name.
std::string KernelGroup::counts(const std::function<std::string(const KernelWork&)>& name, std::size_t most) const {
  struct Sum {
    double saved = 0, count = 0;
  };
  std::map<std::string, Sum> sums;
  for (const Entry& entry : kernels_) {
    Sum& sum = sums[name(*entry.kernel)];
    sum.saved += entry.saved_ns;
    sum.count += 1;
  }
  sums.erase("");
  std::vector<std::pair<std::string, Sum>> sorted(sums.begin(), sums.end());
  std::ranges::stable_sort(sorted, std::ranges::greater(), [](const auto& one) { return one.second.saved; });
  std::string text;
  const Affected of = affected();
  for (std::size_t i = 0; i < std::min(most, sorted.size()); ++i) {
    const auto& [own, sum] = sorted[i];
    const double count = of.each(sum.count);
    text += i == 0 ? "" : ", ";
    text += count < 1 ? fmt::format("{} ({} in all)", own, count_text(sum.count, "call", "calls"))
                      : fmt::format("{} ({} a step)", own, count_text(count, "call", "calls"));
  }
  if (sorted.size() > most) text += ", ...";
  return text;
}

}  // namespace paoding::findings
