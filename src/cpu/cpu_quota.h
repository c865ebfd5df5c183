// SPDX-License-Identifier: Apache-2.0
// How much of the machine's processors a control group leaves to this process: a container "with 2 cores" of 64 is
// allowed to run on all of them, but is stopped for the rest of every tenth of a second once it has had its share.
#pragma once

#include <string>

namespace paoding {

/// The processors that the control groups around this process let it keep busy, rounded down, at least 1; 0: no limit.
/// `root` stands for / in tests, with proc/self/cgroup and sys/fs/cgroup below it.
int cpu_quota(const std::string& root = "");

}  // namespace paoding
