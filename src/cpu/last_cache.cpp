// SPDX-License-Identifier: Apache-2.0
#include "cpu/last_cache.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

namespace paoding {
namespace {

std::string line_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "32768K", "1M", or bytes.
std::int64_t bytes_of(const std::string& size) {
  char* end = nullptr;
  const std::int64_t count = std::strtoll(size.c_str(), &end, 10);
  return *end == 'K' ? count << 10 : *end == 'M' ? count << 20 : *end == 'G' ? count << 30 : count;
}

}  // namespace

std::int64_t last_cache_bytes(const std::function<bool(int)>& may_use, const std::string& root) {
  std::int64_t bytes = 0;
  std::set<std::string> seen;  // who shares a cache
  const std::filesystem::path processors = root + "/sys/devices/system/cpu";
  for (int processor = 0;; ++processor) {
    const std::filesystem::path caches = processors / ("cpu" + std::to_string(processor));
    std::error_code none;
    if (!std::filesystem::exists(caches, none)) return bytes;
    if (!may_use(processor)) continue;
    int last = 0;
    std::filesystem::path found;
    for (int index = 0;; ++index) {
      const std::filesystem::path cache = caches / "cache" / ("index" + std::to_string(index));
      if (!std::filesystem::exists(cache, none)) break;
      const int level = std::atoi(line_of(cache / "level").c_str());
      if (line_of(cache / "type") != "Instruction" && level >= last) last = level, found = cache;
    }
    if (last > 0 && seen.insert(line_of(found / "shared_cpu_list")).second) bytes += bytes_of(line_of(found / "size"));
  }
}

std::int64_t last_cache_bytes() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  const bool is_known = sched_getaffinity(0, sizeof usable, &usable) == 0;
  const auto may_use = [&](int processor) {
    return !is_known || (processor < CPU_SETSIZE && CPU_ISSET(static_cast<std::size_t>(processor), &usable));
  };
  const std::int64_t bytes = last_cache_bytes(may_use);
  return bytes > 0 ? bytes : 32 << 20;
}

std::int64_t second_cache_bytes() { return std::max<std::int64_t>(sysconf(_SC_LEVEL2_CACHE_SIZE), 0); }

}  // namespace paoding
