// SPDX-License-Identifier: Apache-2.0
// Kernels that do not touch each other's results, in one launch: a launch that ends leaves the chip half empty for two
// microseconds and more, and thirty parameter updates are thirty ends. The sources are those of the kernels alone, as
// functions; each CTA looks up whose it is.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/target.h"
#include "gpu/codegen/fused_launch.h"

namespace paoding::gpu {

/// The kernel of one step that is launched alone so far.
struct FusedMember {
  const TextLaunch* launch = nullptr;
  std::size_t operands = 0;
};

/// Which of these kernels are in one launch, as lists of their places; of two or more each, the others stay alone.
/// Kernels of one source that need nothing but their operands and a LaunchScratch go together: a source of several
/// would be one more to compile, and have the registers of the largest. So do those whose CTAs stay on few of the
/// chip's SMs, as long as all have room there at once.
std::vector<std::vector<std::size_t>> launch_groups_of(std::span<const FusedMember> kernels);

class GroupedLaunch : public FusedLaunch {
 public:
  /// Takes a list that launch_groups_of() returned.
  GroupedLaunch(const std::vector<FusedMember>& members, const Target& target);

  void place(std::size_t member, void* const* operands, void* workspace, void* tickets) override;

 protected:
  void set_operand(std::size_t member, std::size_t operand, void* at);
  void set_workspace(std::size_t member, void* workspace);
  void set_tickets(std::size_t member, void* tickets);
  /// The last of the kernel's own sizes among the member's sizes.
  std::uint64_t& last_size(std::size_t member) { return launch_.sizes[(member + 1) * member_words_ - 1]; }

 private:
  std::size_t operands_ = 0, member_words_ = 0;  // of each member
};

}  // namespace paoding::gpu
