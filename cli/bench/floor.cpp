// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/floor.h"

#include <algorithm>

#include "base/unit_rates.h"
#include "cli/numbers.h"
#include "paoding/ops.h"

namespace paoding::cli::bench {
namespace {

// Operations per us of an H200's units.
double gpu_product_rate(const Case& work) {
  const DType products = work.precision != DType::f32 ? work.precision : work.dtype;
  const UnitRates rates = unit_rates(named_target("h200"));
  return 1e3 * rates[static_cast<std::size_t>(unit_of(products, work.tf32))];
}

}  // namespace

Floors::Floors(const Device& device, const MachineFacts& machine)
    : device_(device), is_h200_(machine.name.find("H200") != std::string::npos) {}

Floor Floors::of(const Case& work, bool is_cold, bool is_wall, int sets, const Effort& effort) {
  const Need& need = work.need;
  if (device_.kind == DeviceKind::cpu) {
    const double memory = need.bytes() > 0 ? time_pass(need.read, need.written, need.updated, sets, effort).median : 0;
    const double products = need.flops > 0 ? need.flops / cpu_product_rate(work.dtype) : 0;
    const double us = std::max(memory, products);
    return {us, us, products > memory ? "products" : "memory"};
  }
  if (!is_h200_) return {};
  const double launch = is_wall ? kWallUs : kLaunchUs;
  if (need.floor_us > 0) return {need.floor_us, need.floor_us + (is_wall ? kWallUs - kLaunchUs : 0), "count"};
  if (need.bytes() <= 0) return {};
  double rate = need.written < 0.1 * need.bytes() ? kReadRate : kMixedRate;
  if (!is_cold && need.footprint() < kCachedBytes) rate = kCachedRate;
  const double memory = need.bytes() / rate, products = need.flops / gpu_product_rate(work);
  const double us = std::max(memory, products);
  return {us, us + launch, products > memory ? "products" : "memory"};
}

double Floors::cpu_product_rate(DType dtype) {
  if (const auto known = product_rates_.find(dtype); known != product_rates_.end()) return known->second;
  constexpr std::int64_t kSide = 1024;
  Graph graph;
  const Value a = graph.input("a", dtype, {kSide, kSide}), b = graph.input("b", dtype, {kSide, kSide});
  graph.fetch("c", matmul(a, b));
  Program program(graph);
  for (const char* name : {"a", "b"}) {
    program.set_input(program.input_index(name), random_tensor({dtype, {kSide, kSide}}, 1, name));
  }
  const double us = time_waiting(program, 1, Effort{5, 20, 0.3}).min;
  return product_rates_[dtype] = 2.0 * kSide * kSide * kSide / us;
}

}  // namespace paoding::cli::bench
