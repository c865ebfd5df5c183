// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/timing.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>

#include "base/check.h"
#include "cli/command.h"
#include "cli/numbers.h"
#include "cpu/last_cache.h"
#include "cpu/parallel.h"
#include "cpu/tile.h"
#include "io/files.h"

#if PAODING_WITH_CUDA
#include "gpu/driver/driver.h"
#endif

namespace paoding::cli::bench {
namespace {

using Clock = std::chrono::steady_clock;

double timed(const std::function<void()>& work) {
  check_interrupted();
  const auto start = Clock::now();
  work();
  return microseconds_since(start);
}

}  // namespace

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

std::string to_string(const Samples& samples) {
  const int digits = samples.median < 100 ? 2 : samples.median < 10000 ? 1 : 0;
  return fmt::format("{:.{}f} [{:.{}f}, {:.{}f}]", samples.median, digits, samples.min, digits, samples.max, digits);
}

Samples time_work(const std::function<void()>& work, double units, const Effort& effort,
                  const std::function<void()>& before) {
  for (int i = 0; i < 2; ++i) {
    if (before) before();
    timed(work);
  }
  std::vector<double> times;
  const auto start = Clock::now();
  const auto is_enough = [&] {
    const auto count = static_cast<int>(times.size());
    return count >= effort.most || (count >= effort.least && microseconds_since(start) > effort.seconds * 1e6);
  };
  while (!is_enough()) {
    if (before) before();
    times.push_back(timed(work) / units);
  }
  std::sort(times.begin(), times.end());
  const std::size_t slow = times.size() * 99 / 100;
  return {times[times.size() / 2], times.front(), times.back(), static_cast<int>(times.size()), times[slow]};
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

namespace {

// The part of `thread` in a buffer.
struct Part {
  std::size_t begin, end;
};
Part part_of(const Tensor& buffer, std::int64_t begin, std::int64_t end, std::int64_t whole) {
  const auto at = [&](std::int64_t i) {
    return static_cast<std::size_t>(static_cast<double>(buffer.shape().elements()) * static_cast<double>(i) /
                                    static_cast<double>(whole));
  };
  return {at(begin), at(end)};
}

// Non-temporal stores, as in generated groups, for memory that the cache would evict before its next use.
void copy_past_caches(float* to, const float* from, std::size_t count) {
  static const TileRoutine stream = find_store(DType::f32, Spacing::dense, true);
  char* const slots[] = {reinterpret_cast<char*>(to), const_cast<char*>(reinterpret_cast<const char*>(from))};
  Instruction copied;
  copied.out = 0, copied.a = 1;
  stream(copied, slots, {1, static_cast<std::int64_t>(count)});
  finish_streaming();
}

// Memory traffic in three parts: bytes updated in place, bytes copied, and the remainder, which is only read or only
// written.
struct Buffers {
  Tensor updated, read, written;
  float sum = 0;

  void pass(int threads, bool is_cold) {
    constexpr std::int64_t kWhole = 1 << 20;
    std::vector<float> sums(static_cast<std::size_t>(threads));
    auto *in_out = updated.data<float>(), *out = written.data<float>();
    const float* in = read.data<float>();
    share_out(threads, kWhole, [&](std::int64_t begin, std::int64_t end, int thread) {
      const Part in_place = part_of(updated, begin, end, kWhole);
      for (std::size_t i = in_place.begin; i < in_place.end; ++i) in_out[i] += 1;
      const Part from = part_of(read, begin, end, kWhole), to = part_of(written, begin, end, kWhole);
      const std::size_t both = std::min(from.end - from.begin, to.end - to.begin);
      if (is_cold) {
        copy_past_caches(out + to.begin, in + from.begin, both);
      } else if (both > 0) {
        std::memcpy(out + to.begin, in + from.begin, both * sizeof(float));
      }
      std::array<float, 16> lanes{};  // so that the compiler may add several at once
      std::size_t i = from.begin + both;
      for (; i + lanes.size() <= from.end; i += lanes.size()) {
        for (std::size_t k = 0; k < lanes.size(); ++k) lanes[k] += in[i + k];
      }
      if (to.begin + both < to.end) std::memset(out + to.begin + both, 0, (to.end - to.begin - both) * sizeof(float));
      for (const float lane : lanes) sums[static_cast<std::size_t>(thread)] += lane;
    });
    for (const float part : sums) sum += part;
  }
};

}  // namespace

Samples time_pass(double read, double written, double updated, int sets, const Effort& effort) {
  const auto ones = [](double bytes) {
    return filled_tensor({f32, {static_cast<std::int64_t>(std::max(bytes, 0.0) / sizeof(float))}}, 1);
  };
  std::vector<Buffers> all(static_cast<std::size_t>(sets));
  for (Buffers& buffers : all) buffers = {ones(updated), ones(read - updated), ones(written - updated)};
  const bool is_cold = (read + written) * sets > static_cast<double>(last_cache_bytes());
  const int threads = read + written < (1 << 18) ? 1 : max_threads();
  return time_work(
      [&] {
        for (Buffers& buffers : all) buffers.pass(threads, is_cold);
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
    return {gpu.target().name, gpu.target().last_cache_bytes, static_cast<std::int64_t>(free)};
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
  facts.cache_bytes = last_cache_bytes();
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
  files::AtomicFile file(path, [](std::string_view head) {  // as report_json() begins, or a file before its rows
    return head == "{}\n" || head.starts_with("{\n\"paoding\":");
  });
  file.write(json.data(), json.size());
  file.write("\n", 1);
  file.commit();
}

}  // namespace paoding::cli::bench
