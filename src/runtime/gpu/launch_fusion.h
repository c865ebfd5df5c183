// SPDX-License-Identifier: Apache-2.0
// Launches of a captured run as one: of those that do not touch each other's results (gpu/codegen/grouped_launch.h),
// and of those that read them partition by partition (gpu/codegen/vertical_launch.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpu/codegen/fused_launch.h"
#include "gpu/driver/loaded_kernel.h"
#include "plan/plan.h"
#include "profile/recorder.h"

namespace paoding {

class VerticalFusion;

class LaunchFusion {
 public:
  LaunchFusion() = default;
  /// `bases`: the address of every slot. Only neighbours of one `kind` go together.
  LaunchFusion(const std::vector<Launch>& launches, const std::vector<CUdeviceptr>& bases, const std::vector<int>& kind,
               const Target& target);

  /// The sources, once each.
  std::vector<std::string> sources() const;
  void load(const gpu::GpuDevice& device);

  std::int64_t saved_launches() const;
  /// One line for each launch of several; and which groups that read the one in front of them stay apart, and why.
  const std::vector<std::string>& notes() const { return notes_; }
  /// Whether launch `i` runs in a launch with others.
  bool has(std::size_t i) const { return !place_of_.empty() && place_of_[i].fused >= 0; }
  bool is_first(std::size_t i) const { return place_of_[i].is_first; }
  /// Starts all members of a fused launch at the first, and nothing at the others. `run_of` gives the run that a launch
  /// alone would get.
  void start(std::size_t i, CUstream stream, const std::function<KernelRun(std::size_t)>& run_of) const;
  /// The first launches of joins, each with the site of its kernel.
  std::vector<std::pair<std::size_t, profile::SiteId>> sites() const;

 private:
  // One source and its schedule, for every turn of the loop that its steps are in.
  struct Kernel {
    std::vector<const Step*> steps;
    std::vector<std::unique_ptr<gpu::FusedLaunch>> launches;  // one after the other, as the steps' own
    std::vector<gpu::LoadedKernel> loaded;
    std::string expected;  // of a run
  };
  struct FusedSteps {
    Kernel* kernel = nullptr;
    std::vector<std::size_t> launches;
  };
  struct Place {
    int fused = -1;
    bool is_first = false;
  };

  void add(std::vector<std::size_t> launches, Kernel* kernel);
  void take_notes(const std::vector<Launch>& launches, VerticalFusion* vertical);

  // Maps steps, and the axes along which those of a vertically fused launch are split, to kernels.
  std::map<std::pair<std::vector<const Step*>, std::vector<int>>, Kernel> kernels_;
  std::vector<FusedSteps> fused_;
  std::vector<Place> place_of_;  // per launch; empty without joins
  std::vector<std::string> notes_;
};

/// The notes() of a captured run of the plan; no GPU is needed.
std::vector<std::string> notes_of_fused_launches(const Plan& plan);

}  // namespace paoding
