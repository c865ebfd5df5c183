// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_quota.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <sstream>

namespace paoding {
namespace {

// The first line of a file, empty where there is none.
std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Processors of "quota period", in microseconds; 0: no limit, which is "max" or -1.
double processors(const std::string& quota, const std::string& period) {
  const double busy = std::atof(quota.c_str()), of = std::atof(period.c_str());
  return busy > 0 && of > 0 ? busy / of : 0;
}

double limit_of(const std::string& folder) {
  std::istringstream both(line_of(folder + "/cpu.max"));  // version 2
  std::string quota, period;
  if (both >> quota >> period) return processors(quota, period);
  return processors(line_of(folder + "/cpu.cfs_quota_us"), line_of(folder + "/cpu.cfs_period_us"));
}

// The smallest limit of a group and those around it. The outermost group that a container sees is its own.
double smallest_limit(const std::string& mount, std::string group) {
  double least = 0;
  while (true) {
    const double limit = limit_of(mount + group);
    if (limit > 0) least = least > 0 ? std::min(least, limit) : limit;
    if (group.empty()) return least;
    group.resize(group.rfind('/'));
  }
}

// Whether one of "cpu,cpuacct" is the processors' controller; of version 2 there are no names.
bool counts_processors(const std::string& controllers) {
  return controllers.empty() || ("," + controllers + ",").find(",cpu,") != std::string::npos;
}

}  // namespace

int cpu_quota(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  double least = 0;
  for (std::string line; std::getline(groups, line);) {  // hierarchy:controllers:/group
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string group = line.substr(second + 1);
    if (!counts_processors(controllers) || group.empty() || group.front() != '/') continue;
    if (group == "/") group.clear();
    for (const std::string& mount : {std::string(controllers.empty() ? "" : "/cpu"), "/" + controllers}) {
      const double limit = smallest_limit(root + "/sys/fs/cgroup" + mount, group);
      if (limit > 0) least = least > 0 ? std::min(least, limit) : limit;
    }
  }
  return least > 0 ? std::max(1, static_cast<int>(std::min(least, 1e6))) : 0;
}

}  // namespace paoding
