// SPDX-License-Identifier: Apache-2.0
// Drawing from distributions that the model makes.
#pragma once

#include <cstdint>

#include "paoding/graph.h"

namespace paoding {

struct CategoricalOptions {
  /// The divisor of the logits: below 1 likely categories become more likely. 0 is the largest logit, no drawing.
  double temperature = 1;
  /// Only so many of the largest logits are drawn from, of equal ones the first; all when 0.
  std::int64_t top_k = 0;
  /// Only the most likely of those are drawn from, until they have this share of the probability together (Holtzman et
  /// al. 2020): a category is drawn from while those before it have less. 1 is no limit.
  double top_p = 1;
};

/// One category per row, drawn with the probabilities softmax(logits / temperature) of those that top_k and top_p
/// leave: logits [.., V] give i64 [..]. Drawn on the device, by the largest of logits plus noise of Gumbel's (Gumbel
/// 1954); the noise comes from random_uniform(), so that equal seeds give equal draws on every device; for the purpose
/// "sampling", unless a RandomPurpose says another. No gradient.
/// f16 and bf16 are computed in f32. Error (dtype) unless logits are floats, (shape) when they have no axis or no
/// category, (argument) when an option is out of range.
Value categorical(const Value& logits, const CategoricalOptions& options = {});

}  // namespace paoding
