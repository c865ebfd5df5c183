// SPDX-License-Identifier: Apache-2.0
// Recurrent weights of other frameworks as ours: w [I, gates H], u [P, gates H], b, projection [H, P]; gates i, f, g, o
// (LSTM) and r, z, n (GRU).
#pragma once

#include <vector>

#include "paoding/tensor.h"

namespace paoding {

enum class RecurrentKind { lstm, gru, rnn };

/// The weights of one layer in one direction, as RecurrentParameters has them.
struct RecurrentWeights {
  Tensor w, u, b;
  Tensor projection = {};  // [0] when there is none
};

/// One layer and direction of torch.nn.LSTM, GRU or RNN: weight_ih [gates H, I], weight_hh [gates H, P], bias_ih and
/// bias_hh [gates H] (both empty, of shape [0], for a layer without), weight_hr [P, H] for an LSTM with projection. The
/// gates are in our order already; b is the sum of the biases, but a GRU's is [4H]: sums for r and z, bias_ih for n,
/// then bias_hh for n, which r scales. Error (shape) when something does not fit.
RecurrentWeights from_pytorch(RecurrentKind kind, const Tensor& weight_ih, const Tensor& weight_hh,
                              const Tensor& bias_ih = {}, const Tensor& bias_hh = {}, const Tensor& weight_hr = {});

/// ONNX's LSTM, GRU or RNN: W [D, gates H, I], R [D, gates H, H], B [D, 2 gates H] (W's then R's; may be empty). Gates
/// stand as i, o, f, c (LSTM) and z, r, h (GRU) there. One entry per direction. A GRU with linear_before_reset != 0 is
/// our reset_after (b [4H]), else b is [3H]. Error (shape) when something does not fit.
std::vector<RecurrentWeights> from_onnx(RecurrentKind kind, const Tensor& w, const Tensor& r, const Tensor& b = {},
                                        bool linear_before_reset = true);

}  // namespace paoding
