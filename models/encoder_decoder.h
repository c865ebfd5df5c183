// SPDX-License-Identifier: Apache-2.0
// The transformer (Vaswani et al. 2017): encoder layers that read the source, decoder layers that write the target,
// with norms before the parts (Xiong et al. 2020), learned positions, and one matrix for reading target words and for
// scoring them (Press, Wolf 2017).
#pragma once

#include <vector>

#include "models/beam_search.h"
#include "paoding/nn/transformer.h"

namespace paoding::models {

struct EncoderDecoderOptions {
  std::int64_t source_vocabulary = 30, target_vocabulary = 42, hidden = 512, heads = 8;
  std::int64_t layers = 6;        // of the encoder, and of the decoder
  std::int64_t feed_forward = 0;  // 4 times hidden when 0
  std::int64_t source_positions = 50, target_positions = 50;
  double dropout = 0;  // of embeddings, attention weights and the results of parts; 0 when not training
  DType dtype = DType::f32;
};

/// Sources [S, B] and targets [T, B] of ids, time first; `lengths` [B] of the sources, integers.
class EncoderDecoder {
 public:
  /// Declares every parameter: the same names and shapes whatever the lengths and the dropout. Error (argument) when
  /// heads do not divide hidden.
  EncoderDecoder(Graph& graph, const EncoderDecoderOptions& options);

  /// Cross entropy of `labels` [T, B], given `written` [T, B] before each of them; negative labels do not count.
  Value loss(const Value& source, const Value& lengths, const Value& written, const Value& labels,
             LossReduction reduction = LossReduction::mean) const;
  /// The most likely targets.
  BeamSearch search(const Value& source, const Value& lengths, const BeamSearchOptions& options) const;

 private:
  struct Table {  // words and their places
    nn::Embedding words;
    nn::LearnedPositions places;
  };
  Table table(const char* name, std::int64_t vocabulary, std::int64_t positions);
  Value encoded(const Value& source, const Value& lengths) const;
  Value scores(const Value& h) const;

  Graph& graph_;
  EncoderDecoderOptions options_;
  Table source_, target_;
  std::vector<nn::TransformerEncoderLayer> encoder_;
  std::vector<nn::TransformerDecoderLayer> decoder_;
  nn::LayerNorm encoder_norm_, decoder_norm_;
};

}  // namespace paoding::models
