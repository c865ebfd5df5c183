// SPDX-License-Identifier: Apache-2.0
// Which parts of a step of one program are which of another's: by scope, name and shape where these are the same, else
// by what was renamed, by ops that were fused or split, and by the tree of scopes.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "profile/step_parts.h"

namespace paoding::profile {

enum class Alignment {
  same,       // scope, name, shape and size
  resized,    // of another shape or size
  renamed,    // its scope has another name, or lies elsewhere
  fused,      // several of A are fewer of B that do their ops
  split,      // the other way round
  regrouped,  // as many on both sides
  vanished,   // only in A
  appeared,   // only in B
};
std::string_view to_string(Alignment alignment);

/// Parts that are one row: numbers of parts of A and B.
struct AlignedParts {
  Alignment how = Alignment::same;
  std::vector<std::size_t> a, b;
};

/// Every part of both is in one of them.
std::vector<AlignedParts> align(const std::vector<StepPart>& a, const std::vector<StepPart>& b);

}  // namespace paoding::profile
