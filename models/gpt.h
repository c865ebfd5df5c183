// SPDX-License-Identifier: Apache-2.0
// A language model of decoder layers (Radford et al. 2019, GPT-2): norms before the parts, learned positions, and one
// matrix for reading tokens and for scoring them.
#pragma once

#include <vector>

#include "models/beam_search.h"
#include "paoding/nn/transformer.h"

namespace paoding::models {

struct GptOptions {
  std::int64_t vocabulary = 256, hidden = 256, layers = 6, heads = 8;
  std::int64_t context = 256;  // tokens that it has positions for
  double dropout = 0;          // of embeddings, attention weights and the results of parts; 0 when not training
  DType dtype = DType::f32;
};

/// Texts [B, T] of ids, batch first. Parameters: "tokens/weight" [vocabulary, hidden], "positions/weight" [context,
/// hidden], those of a TransformerDecoderLayer "block0", "block1" .., "norm/gamma" and "norm/beta". Initial values as
/// GPT-2 has them: normal of deviation 0.02, of matrices that add to the sums 0.02 / sqrt(2 layers), biases 0.
class Gpt {
 public:
  /// Error (argument) when heads do not divide hidden.
  Gpt(Graph& graph, const GptOptions& options);

  /// Scores [B, T, vocabulary] of the token after each of `written` [B, T]. Error (shape) when T is above the context.
  Value logits(const Value& written) const;
  /// Cross entropy of `labels` [B, T], given `written` [B, T] up to each of them; negative labels do not count.
  Value loss(const Value& written, const Value& labels) const;

  /// The most likely continuations of texts [B, T] of these lengths [B], at least 1; T + steps is at most the context.
  BeamSearch search(const Value& written, const Value& lengths, const BeamSearchOptions& options) const;
  /// Continuations that are drawn: `uniform` [steps, B] in [0, 1) chooses each token by the probabilities
  /// softmax(logits / temperature), f32 [] and above 0, up to the token `end`. Numbers come from outside so that a file
  /// of a model draws too, whose runs keep no state. One hypothesis a row; its total is of temperature 1.
  BeamSearch draw(const Value& written, const Value& lengths, const Value& uniform, const Value& temperature,
                  std::int64_t end) const;

 private:
  struct Start {
    Value last;    // [B]: the last token of each text, which is the first that is read again
    Values state;  // positions [B] of that token, then keys and values of each layer
  };
  Start start(const Value& written, const Value& lengths, std::int64_t steps) const;
  Continuation step(const Value& tokens, const Values& state) const;
  Value scores(const Value& h) const;

  Graph& graph_;
  GptOptions options_;
  nn::Embedding tokens_;
  nn::LearnedPositions positions_;
  std::vector<nn::TransformerDecoderLayer> blocks_;
  nn::LayerNorm norm_;
};

}  // namespace paoding::models
