// SPDX-License-Identifier: Apache-2.0
// Parts that the benchmarks share: timing a Program, errors against float64, and facts about the machine.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "paoding/program.h"

namespace paoding::cli::bench {

double microseconds_since(std::chrono::steady_clock::time_point start);

/// Times in microseconds of one unit of work.
struct Samples {
  double median = 0, min = 0, max = 0;
  int count = 0;
  double p99 = 0;  // 99th percentile
};
/// "12.3 [12.1, 14.0]"
std::string to_string(const Samples& samples);

/// How long to measure: at least `least` samples, then until `most` samples or `seconds` have gone by.
struct Effort {
  int least = 50;
  int most = 200;
  double seconds = 0.5;
  static Effort quick() { return {10, 50, 0.2}; }
};

/// Calls `work` after a warm-up and divides the time of each call by `units`. `before` is called before each, untimed.
Samples time_work(const std::function<void()>& work, double units, const Effort& effort,
                  const std::function<void()>& before = {});

/// run() and wait(), as a caller that needs the result sees it; `units` pieces of work in each run.
Samples time_waiting(Program& program, double units, const Effort& effort);
/// Runs started back to back and waited for once: the device's time of a run when no caller holds it up. A sample is as
/// many runs as take about 2 ms.
Samples time_back_to_back(Program& program, double units, const Effort& effort);

/// A pass over memory by all threads of the CPU, in microseconds: so many bytes read, so many written, `updated` of
/// both in place; rotates among `sets` of buffers, and stores are non-temporal where these exceed the last-level cache.
/// This is the time that memory alone costs work with the same traffic.
Samples time_pass(double read, double written, double updated, int sets, const Effort& effort);

/// Largest |got - expected| over the largest |expected|; infinite when anything is non-finite.
double max_relative_error(const Tensor& got, std::span<const double> expected);
/// The error up to which a result of this dtype counts as right.
double tolerance(DType dtype);

/// Name, cache and memory of a device.
struct MachineFacts {
  std::string name;              // "NVIDIA H200", "AMD EPYC, 2 threads"
  std::int64_t cache_bytes = 0;  // L2 of a GPU, last level of a CPU
  std::int64_t free_bytes = 0;   // memory that can be used
};
MachineFacts machine_facts(const Device& device);

/// A line that says so when other work keeps this machine busy, else "".
std::string load_warning();

/// Writes `json` and a line end to a file, for --json. Error (file).
void write_json(const std::string& path, const std::string& json);

}  // namespace paoding::cli::bench
