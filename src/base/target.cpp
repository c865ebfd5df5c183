// SPDX-License-Identifier: Apache-2.0
#include "base/target.h"

#include <algorithm>
#include <cctype>

#include "base/check.h"

namespace paoding {
namespace {

// Measured on an H200, whose vendor states 4.8 TB/s: reads 4.6, copies 3.95, triads 4.15. One cost a byte read and one
// a byte written give all three.
constexpr double kReadShare = 4.6 / 4.8, kWriteShare = 3.46 / 4.8;
// The rate of reads out of L2 for each SM, and how long memory takes to answer under load.
constexpr double kCachedBytesPerSm = 64e3, kLatencyUs = 1.415;

constexpr std::int64_t kMiB = std::int64_t{1} << 20, kGiB = std::int64_t{1} << 30;

Target with_sizes(Target target, std::int64_t memory_bytes, std::int64_t cache_bytes, std::int64_t shared_bytes) {
  target.memory_bytes = memory_bytes;
  target.last_cache_bytes = cache_bytes;
  target.shared_bytes = shared_bytes;
  target.libraries = {{"cublaslt", 130100}, {"cudnn", 91900}};
  return target;
}

Target cpu_target(std::string name, VectorIsa isa) {
  Target target;
  target.name = std::move(name);
  target.isa = isa;
  target.threads = 1;
  return target;
}

}  // namespace

std::string arch_name(int major, int minor) {
  const bool has_own_instructions = (major == 9 || major == 10) && minor == 0;
  return fmt::format("sm_{}{}{}", major, minor, has_own_instructions ? "a" : "");
}

double Target::stream_us(double read_bytes, double written_bytes) const {
  return read_bytes / read_bytes_per_us + written_bytes / write_bytes_per_us;
}

std::int64_t Target::version_of(std::string_view library) const {
  const auto it = std::find_if(libraries.begin(), libraries.end(), [&](const auto& l) { return l.name == library; });
  return it == libraries.end() ? 0 : it->version;
}

Target gpu_target(std::string name, int major, int minor, int sm_count, double bandwidth) {
  Target target;
  target.name = std::move(name);
  target.kind = DeviceKind::cuda;
  target.major = major, target.minor = minor;
  target.sm_count = sm_count;
  target.read_bytes_per_us = kReadShare * bandwidth;
  target.write_bytes_per_us = kWriteShare * bandwidth;
  target.cached_bytes_per_us = kCachedBytesPerSm * sm_count;
  target.in_flight_bytes = static_cast<std::int64_t>(target.read_bytes_per_us / sm_count * kLatencyUs) & ~1023;
  return target;
}

const std::vector<Target>& named_targets() {
  static const auto* targets = new std::vector<Target>{
      with_sizes(gpu_target("t4", 7, 5, 40, 0.32e6), 16 * kGiB, 4 * kMiB, 64 << 10),
      with_sizes(gpu_target("a100", 8, 0, 108, 2.04e6), 80 * kGiB, 40 * kMiB, 163 << 10),
      with_sizes(gpu_target("l40s", 8, 9, 142, 0.86e6), 48 * kGiB, 96 * kMiB, 99 << 10),
      with_sizes(gpu_target("h100", 9, 0, 132, 3.35e6), 80 * kGiB, 50 * kMiB, 227 << 10),
      with_sizes(gpu_target("h200", 9, 0, 132, 4.8e6), 141 * kGiB, 60 * kMiB, 227 << 10),
      with_sizes(gpu_target("b200", 10, 0, 148, 8e6), 180 * kGiB, 126 * kMiB, 227 << 10),
      cpu_target("avx2", VectorIsa::avx2),
      cpu_target("avx512", VectorIsa::avx512),
      cpu_target("neon", VectorIsa::neon),
  };
  return *targets;
}

Target described_gpu(std::string name, int major, int minor, int sm_count, double bandwidth) {
  std::string words = name + " ";
  std::transform(words.begin(), words.end(), words.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const Target& known : named_targets()) {
    const bool is_same = known.is_gpu() && known.major == major && known.minor == minor;
    if (!is_same || words.find(known.name + " ") == std::string::npos) continue;
    Target target = known;
    target.name = std::move(name);
    target.sm_count = sm_count;
    return target;
  }
  return gpu_target(std::move(name), major, minor, sm_count, bandwidth);
}

const Target& named_target(std::string_view name) {
  const std::vector<Target>& all = named_targets();
  const auto it = std::find_if(all.begin(), all.end(), [&](const Target& target) { return target.name == name; });
  if (it == all.end()) {
    std::vector<std::string> names;
    for (const Target& target : all) names.push_back(target.name);
    fail(ErrorKind::argument, "target: there is none named '{}'; there are: {}", name, fmt::join(names, ", "));
  }
  return *it;
}

}  // namespace paoding
