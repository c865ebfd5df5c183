// SPDX-License-Identifier: Apache-2.0
#include "findings/cpu_limits.h"

#include <algorithm>
#include <map>
#include <utility>

namespace paoding::findings {

namespace {

constexpr std::int64_t kBeyondCaches = std::int64_t{128} << 20;
constexpr double kLargeProduct = 1e8;  // operations: about a ms of some cores

double middle_rate(std::vector<double> rates) {
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
  std::ranges::nth_element(rates, middle);
  return *middle;
}

}  // namespace

DeviceLimits limits_of_cpu(const profile::Trace& trace, const std::vector<KernelWork>& kernels) {
  constexpr std::size_t kLeastCalls = 5;
  std::map<profile::SiteId, std::vector<double>> moving;
  std::map<std::pair<profile::SiteId, Unit>, std::vector<double>> multiplying;
  for (const KernelWork& kernel : kernels) {
    if (kernel.ns <= 0) continue;
    const auto ns = static_cast<double>(kernel.ns);
    const profile::SiteId site = trace.site_id(kernel.span);
    if (kernel.kind == KernelKind::product) {
      if (kernel.flops >= kLargeProduct) multiplying[{site, kernel.arithmetic.unit}].push_back(kernel.flops / ns);
    } else if (kernel.bytes >= kBeyondCaches) {
      moving[site].push_back(static_cast<double>(kernel.bytes) / ns);
    }
  }
  DeviceLimits limits;
  limits.name = "CPU";
  limits.is_of_recording = true;
  for (auto& [site, rates] : moving) {
    if (rates.size() >= kLeastCalls) limits.bytes_per_ns = std::max(limits.bytes_per_ns, middle_rate(std::move(rates)));
  }
  for (auto& [by, rates] : multiplying) {
    double& best = limits.flops_per_ns[static_cast<std::size_t>(by.second)];
    if (rates.size() >= kLeastCalls) best = std::max(best, middle_rate(std::move(rates)));
  }
  return limits;
}

double cpu_product_ns(const DeviceLimits& limits, Unit unit, const ProductShape& shape) {
  constexpr double kOfArithmetic = 32;  // operations a byte, from which on memory hardly matters
  const double rate = limits.rate(unit);
  if (rate <= 0) return 0;
  if (limits.bytes_per_ns <= 0 && shape.flops() < kOfArithmetic * shape.bytes()) return 0;
  const double moved = limits.bytes_per_ns > 0 ? shape.bytes() / limits.bytes_per_ns : 0;
  return std::max(shape.flops() / rate, moved);
}

}  // namespace paoding::findings
