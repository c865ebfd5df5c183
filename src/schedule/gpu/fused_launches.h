// SPDX-License-Identifier: Apache-2.0
// Launches of a captured run as one: of those that do not touch each other's results (gpu/codegen/grouped_launch.h), of
// those that read them partition by partition (gpu/codegen/vertical_launch.h), and of recurrent layers one above the
// other (gpu/codegen/pipelined_launch.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/codegen/fused_launch.h"
#include "plan/plan.h"
#include "schedule/schedule.h"

namespace paoding {

/// The kernels of a schedule's fused launches.
class FusedLaunches {
 public:
  enum class Kind : std::uint8_t { grouped, vertical, pipelined };
  /// One source and its schedule, for every turn of the loop that its steps are in.
  struct Kernel {
    Kind kind = Kind::grouped;
    std::vector<const Step*> steps;
    std::vector<std::unique_ptr<gpu::FusedLaunch>> launches;  // one after the other, as the steps' own
    std::string expected;                                     // of a run, for notes
  };
  std::vector<Kernel> kernels;

  /// The number of the kernel of these steps, split along these axes where they are a vertically fused launch; one
  /// without launches where it is new.
  std::size_t find_or_add(Kind kind, const std::vector<const Step*>& steps, const std::vector<int>& axes = {});

 private:
  std::map<std::pair<std::vector<const Step*>, std::vector<int>>, std::size_t> numbers_;
};

}  // namespace paoding
