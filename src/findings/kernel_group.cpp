// SPDX-License-Identifier: Apache-2.0
#include "findings/kernel_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

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

namespace {

// The function that an elementwise kernel of ATen applies: "CUDAFunctor_add", "silu_kernel".
std::string_view computed_by(std::string_view name) {
  if (name.find("elementwise_kernel") == name.npos) return {};
  const auto is_word = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  std::string_view found;
  for (std::size_t i = 0; i < name.size();) {
    std::size_t end = i;
    while (end < name.size() && is_word(name[end])) ++end;
    const std::string_view word = name.substr(i, end - i);
    const bool is_wrapper = word.find("elementwise_kernel") != word.npos || word.starts_with("gpu_kernel_impl") ||
                            word == "BinaryFunctor" || word == "AUnaryFunctor" || word == "BUnaryFunctor";
    if (!is_wrapper && (word.find("Functor") != word.npos || word.find("_kernel") != word.npos)) return word;
    if (is_wrapper && found.empty() && word.find("Functor") != word.npos) found = word;
    i = std::max(end, i + 1);
  }
  return found;
}

// Without its result's type, its spaces and its templates' arguments.
std::string short_name(std::string_view name) {
  if (name.starts_with("void ")) name.remove_prefix(5);
  const std::size_t open = name.find_first_of("<(", 1);
  std::string_view bare = name.substr(0, open);
  if (const std::size_t colons = bare.rfind("::"); colons != bare.npos) bare.remove_prefix(colons + 2);
  if (bare.empty()) bare = name;
  constexpr std::size_t kLongest = 70;
  return bare.size() <= kLongest ? std::string(bare) : std::string(bare.substr(0, kLongest)) + "...";
}

}  // namespace

std::string how_to_record_shapes(profile::Source source) {
  switch (source) {
    case profile::Source::pytorch: return "torch.profiler.profile(record_shapes=True) records them";
    case profile::Source::nsight_systems: return "torch.autograd.profiler.emit_nvtx(record_shapes=True) records them";
    default: return "this profiler does not record them";
  }
}

std::string kernel_title(const KernelWorks& works, const KernelWork& kernel) {
  const std::string_view op = works.op_name(kernel);
  if (!op.empty()) return std::string(op);
  const std::string_view name = works.kernel_name(kernel);
  if (const std::string_view computed = computed_by(name); !computed.empty()) {
    return fmt::format("elementwise {}", computed);
  }
  return short_name(name);
}

void KernelGroup::add(const KernelWork& kernel, double saved_ns) {
  kernels_.push_back({&kernel, saved_ns});
  saved_ns_ += saved_ns;
  ns_ += static_cast<double>(kernel.ns);
}

double KernelGroup::per_step(double value) const {
  return value / static_cast<double>(std::max<std::size_t>(works_.steps().count(), 1));
}

Where KernelGroup::where() const {
  const auto most = std::ranges::max_element(kernels_, {}, &Entry::saved_ns);
  return most == kernels_.end() ? Where{} : works_.steps().where(most->kernel->span);
}

std::vector<SpanId> KernelGroup::evidence() const {
  std::vector<Entry> sorted = kernels_;
  const std::size_t count = std::min(sorted.size(), kMostEvidence);
  std::partial_sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(count), sorted.end(),
                    [](const Entry& a, const Entry& b) { return a.saved_ns > b.saved_ns; });
  std::vector<SpanId> spans;
  for (std::size_t i = 0; i < count; ++i) spans.push_back(sorted[i].kernel->span);
  return spans;
}

std::string KernelGroup::ops(std::size_t most) const {
  struct Sum {
    double saved = 0, count = 0;
  };
  std::map<std::string, Sum> sums;
  for (const Entry& entry : kernels_) {
    Sum& sum = sums[kernel_title(works_, *entry.kernel)];
    sum.saved += entry.saved_ns;
    sum.count += 1;
  }
  std::vector<std::pair<std::string, Sum>> sorted(sums.begin(), sums.end());
  std::ranges::stable_sort(sorted, std::ranges::greater(), [](const auto& one) { return one.second.saved; });
  std::string text;
  for (std::size_t i = 0; i < std::min(most, sorted.size()); ++i) {
    text += fmt::format("{}{} ({} a step)", i == 0 ? "" : ", ", sorted[i].first,
                        count_text(per_step(sorted[i].second.count), "call", "calls"));
  }
  if (sorted.size() > most) text += ", ...";
  return text;
}

}  // namespace paoding::findings
