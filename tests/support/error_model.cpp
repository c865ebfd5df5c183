// SPDX-License-Identifier: Apache-2.0
#include "tests/support/error_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/support/disturbed_evaluator.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

constexpr int kRuns = 10;
// The factor of the movements' mean square: a uniform disturbance is 0.58 of its largest, a result is rounded once or
// twice more than the nodes that the evaluator disturbs, and ten runs find the mean to a fifth.
constexpr double kMeanSquares = 8;

// The value, moved by at most its rounding when it is stored; the smallest values of f16 are far apart.
double disturbed(double value, DType dtype, double factor, std::mt19937_64* random) {
  std::uniform_real_distribution<double> uniform(-factor, factor);
  const double smallest = dtype == f16 ? std::ldexp(1.0, -25) : 0;
  return value + uniform(*random) * (epsilon(dtype) / 2 * std::fabs(value)) + uniform(*random) * smallest;
}

// Sums are made in f32, those of f64 in f64.
DType sums_in(DType dtype) { return dtype == f64 ? f64 : f32; }

bool has_less_than_f64(const Graph& graph) {
  for (NodeId id = 0; id < graph.size(); ++id) {
    for (const Type& type : graph.node(id).types) {
      if (is_float(type.dtype) && type.dtype != f64) return true;
    }
    for (const auto& body : graph.node(id).bodies) {
      if (has_less_than_f64(*body)) return true;
    }
  }
  return false;
}

double wrapped(double value) { return value - 256 * std::floor(value / 256); }

}  // namespace

std::size_t Expected::vague() const {
  const double most = std::max(1.0, largest(values));
  return static_cast<std::size_t>(std::ranges::count_if(limits, [&](double limit) { return !(limit <= most); }));
}

std::string Expected::problem_with(const std::vector<double>& got) const {
  if (got.size() != values.size()) return fmt::format("has {} elements, not {}", got.size(), values.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == values[i] || std::isinf(limits[i]) || (std::isnan(got[i]) && std::isnan(values[i]))) continue;
    if (std::isfinite(values[i]) && std::fabs(got[i] - values[i]) <= limits[i]) continue;
    return fmt::format("element {} of {} is {}, not {} (within {:.2g})", i, got.size(), got[i], values[i], limits[i]);
  }
  return "";
}

std::map<std::string, Expected> expected_within(const Graph& graph, const Feeds& feeds, double few_roundings) {
  std::map<std::string, Expected> all;
  for (const auto& [name, values] : evaluate_graph(graph, feeds)) all[name] = {values, Dense(values.size(), 0.0)};
  for (int run = 0; run < kRuns; ++run) {
    std::mt19937_64 random(static_cast<std::uint64_t>(run) + 1);
    const Disturb disturb = [&](DType dtype, std::int64_t addends, Dense& values) {
      const double factor = addends == 0 ? 1 : std::sqrt(static_cast<double>(addends));
      const DType rounded_to = addends == 0 ? dtype : sums_in(dtype);
      for (double& value : values) value = disturbed(value, rounded_to, factor, &random);
    };
    for (const auto& [name, moved] : evaluate_graph(graph, feeds, disturb)) {
      Expected& expected = all.at(name);
      for (std::size_t i = 0; i < moved.size(); ++i) {
        const double value = expected.values[i];
        const bool is_same = value == moved[i] || (std::isnan(value) && std::isnan(moved[i]));
        // Non-finite in one of them only: infinite here too.
        expected.limits[i] += is_same ? 0 : std::isfinite(value - moved[i]) ? std::pow(value - moved[i], 2) : INFINITY;
      }
    }
  }
  const double few = few_roundings * epsilon(has_less_than_f64(graph) ? f32 : f64);
  for (const Graph::Fetch& fetch : graph.fetches()) {
    Expected& expected = all.at(fetch.name);
    const DType dtype = graph.type(fetch.ref).dtype;
    const double most = std::max(1.0, largest(expected.values));
    for (std::size_t i = 0; i < expected.values.size(); ++i) {
      double &value = expected.values[i], &limit = expected.limits[i];
      limit = kMeanSquares * std::sqrt(limit / kRuns);
      if (is_float(dtype) && std::isfinite(value)) limit += few * most + epsilon(dtype) / 2 * std::fabs(value);
      if (dtype == u8) value = wrapped(value);
    }
  }
  return all;
}

}  // namespace paoding::testing_program
