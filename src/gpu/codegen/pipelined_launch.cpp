// SPDX-License-Identifier: Apache-2.0
#include "gpu/codegen/pipelined_launch.h"

#include <fmt/format.h>

namespace paoding::gpu {
namespace {

// Bits of Sizes::part, as in recurrence_pipelined.cu; it is the last size.
constexpr std::uint64_t kHandsOn = 1, kHasBelow = 2, kIsInput = 4;

constexpr std::size_t kWeights = 1;  // operand of a product

std::vector<FusedMember> with_inputs(const std::vector<FusedMember>& layers) {
  std::vector<FusedMember> members;
  for (const FusedMember& layer : layers) {
    if (!members.empty()) members.push_back(layer);
    members.push_back(layer);
  }
  return members;
}

}  // namespace

bool may_be_pipelined(const TextLaunch& below, const TextLaunch& above) {
  return below.pipelined_layers > 1 && below.pipelined_layers == above.pipelined_layers && below.block == above.block &&
         below.grid[0] == above.grid[0] && below.sizes == above.sizes && own_text(below) == own_text(above);
}

PipelinedLaunch::PipelinedLaunch(const std::vector<FusedMember>& layers, std::size_t u, const Target& target)
    : GroupedLaunch(with_inputs(layers), target),
      members_(2 * layers.size() - 1),
      operands_(layers[0].operands),
      u_(u) {
  for (std::size_t m = 0; m < members_; ++m) {
    const std::uint64_t of_layer = (m + 1 < members_ ? kHandsOn : 0) | (m > 0 ? kHasBelow : 0);
    last_size(m) = m % 2 == 1 ? kIsInput : of_layer;
  }
  // Clusters begin in the order of their numbers, and none waits for one of a higher number.
  if (launch_.cluster == 1) launch_.is_cooperative = true, launch_.overlaps_before = false;
  launch_.why = fmt::format("{} layers in one pipelined launch: {} CTAs", layers.size(), launch_.grid[0]);
}

void PipelinedLaunch::place(std::size_t member, void* const* operands, void* workspace, void* tickets) {
  if (member % 2 == 1) {
    set_operand(member, u_, operands[kWeights]);
    return;
  }
  GroupedLaunch::place(member, operands, workspace, tickets);
  if (member > 0) {  // its input: the layer once more, but for the weights
    for (std::size_t i = 0; i < operands_; ++i) {
      if (i != u_) set_operand(member - 1, i, operands[i]);
    }
    set_tickets(member - 1, tickets);
  }
  if (member + 1 < members_) set_workspace(member + 1, tickets);  // where the states come from
}

}  // namespace paoding::gpu
