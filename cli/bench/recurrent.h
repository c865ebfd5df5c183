// SPDX-License-Identifier: Apache-2.0
// Recurrent layers of any size as a case: the rows of section R, and `paoding bench lstm_steps`.
#pragma once

#include "cli/bench/case.h"

namespace paoding::cli::bench {

enum class RecurrentKind { lstm, gru, rnn };

struct RecurrentLayers {
  RecurrentKind kind = RecurrentKind::lstm;
  std::int64_t steps = 64, batch = 1, hidden = 512, layers = 1;
  bool is_training = false, has_lengths = false;
  bool has_both_directions = false;
  bool is_step = false;  // one step, its state kept from run to run
};

Case recurrent_case(const RecurrentLayers& layers, DType dtype, bool tf32);

}  // namespace paoding::cli::bench
