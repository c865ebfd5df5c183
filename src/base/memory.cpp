// SPDX-License-Identifier: Apache-2.0
#include "base/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace paoding {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

std::int64_t limit_of(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return kUnlimited;
  }
  return static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(kUnlimited)));
}

// Reads a file of /proc or /sys into a buffer of the caller's, because an allocation could fail here.
template <std::size_t kSize>
const char* read_text(const char* path, char (&text)[kSize]) {
  text[0] = 0;
  if (std::FILE* file = std::fopen(path, "re")) {
    text[std::fread(text, 1, kSize - 1, file)] = 0;
    std::fclose(file);
  }
  return text;
}

// The size in a line "key: size kB", in bytes; -1 without such a line.
std::int64_t kilobytes_of(const char* text, const char* key) {
  const char* found = std::strstr(text, key);
  return found == nullptr ? -1 : std::atoll(found + std::strlen(key)) * 1024;
}

// How much of a limit is in use; -1 when nobody knows.
std::int64_t in_use(const char* key) {
  char text[4096];
  return kilobytes_of(read_text("/proc/self/status", text), key);
}

std::int64_t control_group_bytes() {
  char text[64];
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    const std::int64_t bytes = std::atoll(read_text(path, text));  // "max" is 0
    if (bytes > 0) return bytes;
  }
  return kUnlimited;
}

}  // namespace

std::string size_text(std::int64_t bytes) {
  constexpr std::pair<std::int64_t, const char*> kUnits[] = {
      {std::int64_t{1} << 40, "TB"}, {1 << 30, "GB"}, {1 << 20, "MB"}, {1 << 10, "KB"}};
  for (const auto& [unit, name] : kUnits) {
    if (bytes < unit) continue;
    const double count = static_cast<double>(bytes) / static_cast<double>(unit);
    return fmt::format("{:.{}f} {}", count, count < 100 ? 1 : 0, name);
  }
  return fmt::format("{} bytes", bytes);
}

bool has_address_limit() { return limit_of(RLIMIT_AS) != kUnlimited || limit_of(RLIMIT_DATA) != kUnlimited; }

std::int64_t machine_bytes() {
  struct sysinfo info {};
  if (sysinfo(&info) != 0) return sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  return std::min(static_cast<std::int64_t>(info.totalram + info.totalswap) * info.mem_unit, control_group_bytes());
}

std::string memory_left() {
  struct Limit {
    int resource;
    const char *option, *key;
  };
  constexpr Limit kLimits[] = {{RLIMIT_AS, "-v", "VmSize:"}, {RLIMIT_DATA, "-d", "VmData:"}};
  std::string tightest;
  std::int64_t least = kUnlimited;
  for (const auto& [resource, option, key] : kLimits) {
    const std::int64_t limit = limit_of(resource), used = in_use(key);
    const std::int64_t left = std::max<std::int64_t>(limit - std::max<std::int64_t>(used, 0), 0);
    if (limit == kUnlimited || left >= least) continue;
    least = left;
    tightest = fmt::format("ulimit {} leaves {} of {}", option, size_text(left), size_text(limit));
  }
  if (!tightest.empty()) return tightest;
  char text[4096];
  const std::int64_t free = kilobytes_of(read_text("/proc/meminfo", text), "MemAvailable:");
  if (free < 0) return fmt::format("the machine has {}", size_text(machine_bytes()));
  return fmt::format("{} of {} are free", size_text(std::min(free, machine_bytes())), size_text(machine_bytes()));
}

void fail_without_memory(std::string_view what, std::int64_t bytes) {
  fail(ErrorKind::device, "{}: needs {} of memory, but {}", what, size_text(bytes), memory_left());
}

void require_memory(std::string_view what, std::int64_t bytes) {
  void* made =
      mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) fail_without_memory(what, bytes);
  munmap(made, static_cast<std::size_t>(bytes));
}

}  // namespace paoding
