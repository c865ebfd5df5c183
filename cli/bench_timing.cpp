// SPDX-License-Identifier: Apache-2.0
#include "bench_timing.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>

#include "base/check.h"
#include "command.h"
#include "cpu/parallel.h"
#include "numbers.h"

#if PAODING_WITH_CUDA
#include "gpu/driver.h"
#endif

namespace paoding::cli {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double timed(const std::function<void()>& work) {
  check_interrupted();
  const auto start = Clock::now();
  work();
  return microseconds_since(start);
}

}  // namespace

std::string to_string(const Samples& samples) {
  const int digits = samples.median < 100 ? 2 : samples.median < 10000 ? 1 : 0;
  return fmt::format("{:.{}f} [{:.{}f}, {:.{}f}]", samples.median, digits, samples.min, digits, samples.max, digits);
}

Samples time_work(const std::function<void()>& work, double units, const Effort& effort) {
  for (int i = 0; i < 2; ++i) timed(work);
  std::vector<double> times;
  const auto start = Clock::now();
  const auto is_enough = [&] {
    const auto count = static_cast<int>(times.size());
    return count >= effort.most || (count >= effort.least && microseconds_since(start) > effort.seconds * 1e6);
  };
  while (!is_enough()) times.push_back(timed(work) / units);
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back(), static_cast<int>(times.size())};
}

Samples time_waiting(Program& program, double units, const Effort& effort) {
  return time_work(
      [&] {
        program.run();
        program.wait();
      },
      units, effort);
}

Samples time_back_to_back(Program& program, double units, const Effort& effort) {
  const auto run_many = [&](int count) {
    for (int i = 0; i < count; ++i) program.run();
    program.wait();
  };
  run_many(2);
  const double one = timed([&] { run_many(4); }) / 4;
  const int count = std::clamp(static_cast<int>(2000 / std::max(one, 1.0)), 1, 1000);
  return time_work([&] { run_many(count); }, units * count, effort);
}

Samples time_copy(std::int64_t bytes, int sets, const Effort& effort) {
  const std::int64_t half = std::max<std::int64_t>(bytes / 2, 1);
  std::vector<Tensor> from, to;
  for (int i = 0; i < sets; ++i) {
    from.emplace_back(DType::u8, Shape{half});
    to.emplace_back(DType::u8, Shape{half});
    std::memset(from.back().bytes(), i, static_cast<std::size_t>(half));
    std::memset(to.back().bytes(), i, static_cast<std::size_t>(half));
  }
  struct Job {
    const std::byte* from;
    std::byte* to;
    std::int64_t bytes;
    int threads;
  };
  return time_work(
      [&] {
        for (int i = 0; i < sets; ++i) {
          const auto k = static_cast<std::size_t>(i);
          Job job{from[k].bytes(), to[k].bytes(), half, half < (1 << 17) ? 1 : max_threads()};
          parallel(
              job.threads,
              [](int thread, void* state) {
                const Job& work = *static_cast<const Job*>(state);
                const std::int64_t begin = work.bytes * thread / work.threads;
                const std::int64_t end = work.bytes * (thread + 1) / work.threads;
                std::memcpy(work.to + begin, work.from + begin, static_cast<std::size_t>(end - begin));
              },
              &job);
        }
      },
      sets, effort);
}

double max_relative_error(const Tensor& got, std::span<const double> expected) {
  PD_ASSERT(got.shape().elements() == static_cast<std::int64_t>(expected.size()), "as many results as expected values");
  double largest = 0, error = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double off = std::abs(element(got, static_cast<std::int64_t>(i)) - expected[i]);
    if (!std::isfinite(off)) return std::numeric_limits<double>::infinity();
    error = std::max(error, off);
  }
  return largest == 0 ? error : error / largest;
}

double tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-12;
    case DType::f32: return 1e-5;
    case DType::f16: return 2e-3;
    default: return 1e-2;
  }
}

MachineFacts machine_facts([[maybe_unused]] const Device& device) {
  MachineFacts facts;
#if PAODING_WITH_CUDA
  if (device.kind == DeviceKind::cuda) {
    const gpu::GpuDevice& gpu = gpu::GpuDevice::get(device.index);
    std::size_t free = 0, total = 0;
    gpu.make_current();
    PD_CUDA(gpu::required_driver().cuMemGetInfo(&free, &total));
    return {gpu.info().name, gpu.info().l2_bytes, static_cast<std::int64_t>(free)};
  }
#endif
  std::string model = "CPU";
  std::ifstream cpu("/proc/cpuinfo");
  for (std::string line; std::getline(cpu, line);) {
    if (line.starts_with("model name")) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  }
  facts.name = fmt::format("{}, {} threads", model, max_threads());
  facts.cache_bytes = std::max<std::int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 1 << 20);
  std::ifstream memory("/proc/meminfo");
  for (std::string line; std::getline(memory, line);) {
    if (line.starts_with("MemAvailable:")) facts.free_bytes = std::atoll(line.c_str() + sizeof "MemAvailable:") * 1024;
  }
  return facts;
}

std::string load_warning() {
  double load = 0;
  if (getloadavg(&load, 1) != 1 || load < 0.5) return "";
  return fmt::format(
      "note: the load average is {:.1f}: other work on this machine disturbs the times; OMP_WAIT_POLICY=passive "
      "lessens it\n",
      load);
}

void write_json(const std::string& path, const std::string& json) {
  std::ofstream file(path);
  file << json << "\n";
  file.close();
  if (!file) fail(ErrorKind::file, "{}: cannot be written", path);
}

}  // namespace paoding::cli
