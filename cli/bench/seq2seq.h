// SPDX-License-Identifier: Apache-2.0
// A training step of the attention seq2seq of any size as a case: section S, and `paoding bench g2p` and `seq2seq`.
#pragma once

#include "cli/bench/case.h"
#include "models/seq2seq.h"

namespace paoding::cli::bench {

struct Seq2SeqSize {
  models::Seq2SeqOptions model;
  std::int64_t batch = 64, source_steps = 10, target_steps = 10;
  bool has_lengths = false;     // source positions beyond a row's length are not seen
  bool scales_loss = false;     // as training in f16 does
  bool data_parallel = false;   // trained by several ranks
  bool sums_over_time = false;  // loss: mean over the batch, summed over time, rather than the mean of all
};
/// Spelling: 2+2 LSTM layers of 256, 30 letters, 42 phonemes, 10 x 10 steps, batch 64.
Seq2SeqSize g2p_size();
/// Translation: 2+2 LSTM layers of 512, 17,191 and 7,709 words, 50 x 50 steps, batch 128, dropout 0.2.
Seq2SeqSize translation_size();

/// Loss, gradients clipped to a norm of 5, Adam. `name`: "g2p" or "seq2seq".
Case seq2seq_case(const char* name, const Seq2SeqSize& size, DType dtype, bool tf32);

/// Builds it into `graph`.
void build_seq2seq_step(Graph& graph, const Seq2SeqSize& size, DType dtype);
Tensor feed_seq2seq(const Seq2SeqSize& size, const std::string& name, const Type& type);

}  // namespace paoding::cli::bench
