// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/serve_metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace paoding::cli {
namespace {

std::string header(const char* name, const char* kind, const char* meaning) {
  return fmt::format("# HELP paoding_{} {}\n# TYPE paoding_{} {}\n", name, meaning, name, kind);
}

}  // namespace

void ServeMetrics::count(int status, std::chrono::nanoseconds latency) {
  const auto known = std::find(kStatuses.begin(), kStatuses.end(), status);
  if (known != kStatuses.end()) ++statuses_[static_cast<std::size_t>(known - kStatuses.begin())];
  ++total_;
  if (latency.count() < 0) return;
  const double seconds = std::chrono::duration<double>(latency).count();
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++latencies_[static_cast<std::size_t>(bound - kBounds.begin())];
  nanoseconds_ += latency.count();
}

std::string ServeMetrics::text(const BatchCounts& batches, std::int64_t connections) const {
  std::string text = header("requests_total", "counter", "Requests answered, by HTTP status.");
  for (std::size_t i = 0; i < kStatuses.size(); ++i) {
    text += fmt::format("paoding_requests_total{{code=\"{}\"}} {}\n", kStatuses[i], statuses_[i].load());
  }
  text += header("request_seconds", "histogram", "From a request that was read to its answer.");
  std::int64_t below = 0;
  for (std::size_t i = 0; i <= kBounds.size(); ++i) {
    below += latencies_[i];
    const std::string bound = i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf";
    text += fmt::format("paoding_request_seconds_bucket{{le=\"{}\"}} {}\n", bound, below);
  }
  text += fmt::format("paoding_request_seconds_sum {}\npaoding_request_seconds_count {}\n",
                      static_cast<double>(nanoseconds_) * 1e-9, below);
  const auto number = [&](const char* name, const char* kind, const char* meaning, std::int64_t value) {
    text += header(name, kind, meaning) + fmt::format("paoding_{} {}\n", name, value);
  };
  number("batches_total", "counter", "Batches that were run.", batches.batches);
  number("lines_total", "counter", "Inputs in all batches that were run.", batches.lines);
  number("left_requests_total", "counter", "Requests that were not run, since their client had left.",
         batches.left_requests);
  number("waiting_lines", "gauge", "Inputs that wait for an executor.", batches.waiting_lines);
  number("connections", "gauge", "Connections that are open.", connections);
  return text;
}

}  // namespace paoding::cli
