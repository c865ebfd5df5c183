// SPDX-License-Identifier: Apache-2.0
// Which consecutive launches are layers one above the other that may be one launch (gpu/codegen/pipelined_launch.h).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace paoding {

/// The operand of a layer that its input comes as, and the one that is its weights.
inline constexpr std::size_t kPipelineInput = 0, kPipelineWeights = 1;

/// Launches [begin, begin + 2 * layers - 1): a layer, a product of its states, the layer above it ..
struct LayerPipeline {
  std::size_t begin = 0, layers = 0;

  std::size_t end() const { return begin + 2 * layers - 1; }
};

/// `bases`: the address of every slot. Only neighbours of one `kind` go together, to the middle of which no branch
/// leads. `notes` gets a line for each pipeline of the plan that is not one launch after all.
std::vector<LayerPipeline> layer_pipelines_of(const std::vector<Launch>& launches, const std::vector<std::byte*>& bases,
                                              const std::vector<int>& kind, std::vector<std::string>* notes);

}  // namespace paoding
