// SPDX-License-Identifier: Apache-2.0
// A recurrent language model: which word follows, given those before (Zaremba, Sutskever, Vinyals 2014), with one
// matrix for reading words and for scoring them (Press, Wolf 2017).
#pragma once

#include "models/beam_search.h"
#include "paoding/nn.h"

namespace paoding::models {

struct LanguageModelOptions {
  std::int64_t vocabulary = 1000, hidden = 256, layers = 2;
  double dropout = 0;  // of embeddings, between layers and before scoring; 0 when not training
};

/// Texts [T, B] of ids, time first.
class LanguageModel {
 public:
  LanguageModel(Graph& graph, const LanguageModelOptions& options);

  /// Cross entropy of `labels` [T, B], given `written` [T, B] before each of them; negative labels do not count.
  Value loss(const Value& written, const Value& labels) const;
  /// The most likely continuations of texts [T, B] of these lengths [B], at least 1.
  BeamSearch search(const Value& written, const Value& lengths, const BeamSearchOptions& options) const;

 private:
  Value read(const Value& words) const { return dropout(embedding_(words), options_.dropout); }
  Value logits(const Value& h) const;

  Graph& graph_;
  LanguageModelOptions options_;
  nn::Embedding embedding_;
  nn::Lstm lstm_;
  Value bias_;
};

}  // namespace paoding::models
