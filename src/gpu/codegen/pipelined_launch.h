// SPDX-License-Identifier: Apache-2.0
// Recurrent layers one above the other in one launch, each some steps behind the one below
// (ops/recurrence/gpu/recurrence_pipelined.cu). The product of the lower layer's states and the weights of the upper
// one's input is made step by step in the launch too: by a member that is the upper layer once more, those weights in
// place of its own.
#pragma once

#include <vector>

#include "gpu/codegen/grouped_launch.h"

namespace paoding::gpu {

/// Whether layers of these sources may be in one pipeline.
bool may_be_pipelined(const TextLaunch& below, const TextLaunch& above);

class PipelinedLaunch final : public GroupedLaunch {
 public:
  /// `layers`: from the lowest one on. `u`: which of their operands are weights.
  PipelinedLaunch(const std::vector<FusedMember>& layers, std::size_t u, const Target& target);

  /// Members in the order of the kernels alone: a layer, a product of its states and weights, the layer above it ..
  void place(std::size_t member, void* const* operands, void* workspace, void* tickets) override;

 private:
  std::size_t members_, operands_, u_;
};

}  // namespace paoding::gpu
