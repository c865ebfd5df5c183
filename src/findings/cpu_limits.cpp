// SPDX-License-Identifier: Apache-2.0
#include "findings/cpu_limits.h"

#include <algorithm>
#include <map>
#include <utility>

namespace paoding::findings {

namespace {

constexpr std::int64_t kBeyondCaches = std::int64_t{128} << 20;

double middle_rate(std::vector<double> rates) {
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
  std::ranges::nth_element(rates, middle);
  return *middle;
}

}  // namespace

DeviceLimits limits_of_cpu(const profile::Trace& trace, const std::vector<KernelWork>& kernels) {
  constexpr std::size_t kLeastCalls = 5;
  std::map<profile::SiteId, std::vector<double>> moving;
  for (const KernelWork& kernel : kernels) {
    if (kernel.ns <= 0) continue;
    const auto ns = static_cast<double>(kernel.ns);
    const profile::SiteId site = trace.site_id(kernel.span);
    if (kernel.kind != KernelKind::product && kernel.bytes >= kBeyondCaches) {
      moving[site].push_back(static_cast<double>(kernel.bytes) / ns);
    }
  }
  DeviceLimits limits;
  limits.name = "CPU";
  limits.is_of_recording = true;
  for (auto& [site, rates] : moving) {
    if (rates.size() >= kLeastCalls) limits.bytes_per_ns = std::max(limits.bytes_per_ns, middle_rate(std::move(rates)));
  }
  return limits;
}

}  // namespace paoding::findings
