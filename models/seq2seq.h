// SPDX-License-Identifier: Apache-2.0
// The attention seq2seq: layers of LSTM that read the source, layers of LSTM cells that write the target, fed with the
// last result of attention over the projected source (input feeding; Luong, Pham, Manning 2015).
#pragma once

#include "models/beam_search.h"
#include "paoding/nn.h"

namespace paoding::models {

struct Seq2SeqOptions {
  std::int64_t source_vocabulary = 30, target_vocabulary = 42, hidden = 256;
  std::int64_t layers = 2;         // of the encoder, and of the decoder
  double dropout = 0;              // of embeddings and between layers; 0 when not training
  bool squashes_attention = true;  // tanh on the result of attention, and an output bias
  DType dtype = DType::f32;
};

/// Sources [S, B] and targets [T, B] of ids, time first.
class Seq2Seq {
 public:
  /// Declares every parameter: the same names and shapes whatever the lengths and the dropout.
  Seq2Seq(Graph& graph, const Seq2SeqOptions& options);

  /// The values that the decoder starts from and attends to.
  struct Encoded {
    Value memory;  // [S, B, H], projected
    Value counts;  // bool [S, B, 1]: positions before a row's length; absent: all
    Values state;  // the result of attention [B, H], then h and c of each layer
  };
  Encoded encode(const Value& source, const Value& lengths = {}) const;

  /// One step: the word before, embedded [B, H], and the state, to the next state, whose first value is the result of
  /// attention. The state may have K rows for each of the source's, beside each other (a beam): [B K, H].
  Values step(const Value& word, const Values& state, const Encoded& encoded) const;
  /// Scores of every word: [.., H] to [.., target vocabulary].
  Value logits(const Value& said) const { return output_(said); }

  /// Cross entropy of `labels` [T, B], given `written` [T, B] before each of them; negative labels do not count.
  Value loss(const Encoded& encoded, const Value& written, const Value& labels,
             LossReduction reduction = LossReduction::mean) const;

  /// The most likely targets.
  BeamSearch search(const Encoded& encoded, const BeamSearchOptions& options) const;

 private:
  Value attention(const Value& query, const Encoded& encoded) const;

  Graph& graph_;
  Seq2SeqOptions options_;
  nn::Embedding read_, written_;
  nn::Lstm encoder_, decoder_;  // of the decoder only the cells
  nn::Linear project_, attend_, output_;
};

}  // namespace paoding::models
