// SPDX-License-Identifier: Apache-2.0
// An encoder that is trained to name tokens that are hidden from it (Devlin et al. 2019, BERT; drawn anew in every step
// as by Liu et al. 2019), with one matrix for reading tokens and for scoring them.
#pragma once

#include <vector>

#include "paoding/nn/transformer.h"

namespace paoding::models {

struct MaskedModelOptions {
  std::int64_t vocabulary = 257;  // its last token stands for hidden ones
  std::int64_t hidden = 256, layers = 6, heads = 8;
  std::int64_t context = 256;  // tokens that it has positions for
  double dropout = 0;          // of embeddings, attention weights and the results of parts; 0 when not training
  DType dtype = DType::f32;
};

/// Texts [B, T] of ids, batch first, of `lengths` [B], integers: tokens behind them are not seen.
class MaskedModel {
 public:
  /// Error (argument) when heads do not divide hidden.
  MaskedModel(Graph& graph, const MaskedModelOptions& options);

  std::int64_t mask() const { return options_.vocabulary - 1; }
  /// Scores [B, T, vocabulary] of the token at every place.
  Value logits(const Value& written, const Value& lengths) const;
  /// Cross entropy of those of `texts` that `chosen`, a bool [B, T], says, where they are hidden.
  Value loss(const Value& texts, const Value& lengths, const Value& chosen) const;
  /// The same for 15% of the tokens, drawn anew in every run: of them 80% are hidden, 10% are any token, 10% stay.
  Value training_loss(const Value& texts, const Value& lengths) const;

 private:
  Value loss_of(const Value& written, const Value& texts, const Value& lengths, const Value& chosen) const;

  Graph& graph_;
  MaskedModelOptions options_;
  nn::Embedding tokens_;
  nn::LearnedPositions positions_;
  std::vector<nn::TransformerEncoderLayer> layers_;
  nn::LayerNorm norm_;
  Value bias_;  // of the scores
};

}  // namespace paoding::models
