// SPDX-License-Identifier: Apache-2.0
// Recurrent cells, and layers that scan them over time.
//
// Everything is laid out [T, B, I]: time, batch, features. Weights stand on the right of a product: w [I, gates * H]
// for the input, u [P, gates * H] for the state. Gates are in PyTorch's order: i, f, g, o (LSTM) and r, z, n (GRU).
// paoding/recurrent_weights.h converts PyTorch's and ONNX's tensors.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "paoding/graph.h"

namespace paoding {

/// One LSTM step. x [B, I], h [B, P], c [B, H], w [I, 4H] for x, u [P, 4H] for h, b [4H]; gates in the order i, f, g,
/// o: i, f, o = sigmoid, g = tanh of their quarter of x w + h u + b; c' = f c + i g; h' = o tanh(c'). Returns {h', c'},
/// both [B, H]: P is H unless h is a projection of the last h'.
/// (Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000; PyTorch's gate order.)
std::pair<Value, Value> lstm_cell(const Value& x, const Value& h, const Value& c, const Value& w, const Value& u,
                                  const Value& b);

/// One GRU step. x [B, I], h [B, H], w [I, 3H], u [H, 3H]; gates in the order r, z, n; r, z = sigmoid of their third of
/// x w + h u + b; h' = (1 - z) n + z h. With `reset_after` (cuDNN, PyTorch) n = tanh(x w_n + b_n + r (h u_n + b_m)) and
/// b is [4H] in the order r, z, n, m. Without (Cho et al. 2014) n = tanh(x w_n + b_n + (r h) u_n) and b is [3H]; the
/// step then has two products, one after the other. Returns h'.
Value gru_cell(const Value& x, const Value& h, const Value& w, const Value& u, const Value& b, bool reset_after = true);

/// One step of the plain recurrence (Elman 1990): h' = tanh(x w + h u + b), or the larger of that sum and 0 with
/// `relu`. x [B, I], h [B, H], w [I, H], u [H, H], b [H].
Value rnn_cell(const Value& x, const Value& h, const Value& w, const Value& u, const Value& b, bool relu = false);

/// The results of lstm_recurrence(). `states` and `cells` [T + 1, B, H] have the start first (last in reverse), after
/// it each step's result; beyond the end of a row states are 0, and cells keep their last values.
struct LstmRecurrence {
  Value states, cells;
  Value gates;           // [T, B, 4H]: i, f, g, o of every step; 0 beyond the end of a row
  Value last_h, last_c;  // [B, H]: at the end of each row
};

/// The part of an LSTM layer that depends on its state, over all steps: gates of xw_t + h u, then as lstm_cell(). xw
/// [T, B, 4H] is x w + b of all steps, u [H, 4H], h0 and c0 [B, H]; lengths, if not absent, [B] i32 as in
/// RecurrentOptions. Floats of one dtype; c0 may be f32 where the others have 16 bits, and the cell state is carried
/// so. Results that nobody reads cost nothing. Error (shape, dtype) when something does not fit.
LstmRecurrence lstm_recurrence(const Value& xw, const Value& u, const Value& h0, const Value& c0,
                               const Value& lengths = {}, bool reverse = false);

/// The results of gru_recurrence(); `states` and `last_h` as in LstmRecurrence.
struct GruRecurrence {
  Value states;
  Value saved;  // [T, B, 4H]: r, z, n and m of every step; 0 beyond the end of a row
  Value last_h;
};

/// The part of a GRU layer that depends on its state, over all steps: r, z = sigmoid of their third of xw_t + h u, m =
/// h u_n + bm, n = tanh(xw_n + r m), h' = (1 - z) n + z h, which is gru_cell() with `reset_after`. xw [T, B, 3H] is x w
/// plus b_r, b_z and b_n of all steps, u [H, 3H], bm [H], h0 [B, H]; lengths as of lstm_recurrence(). Floats of one
/// dtype. Results that nobody reads cost nothing. Error (shape, dtype) when something does not fit.
GruRecurrence gru_recurrence(const Value& xw, const Value& u, const Value& bm, const Value& h0,
                             const Value& lengths = {}, bool reverse = false);

/// The results of rnn_recurrence(), as in LstmRecurrence.
struct RnnRecurrence {
  Value states, last_h;
};

/// The part of a plain recurrent layer that depends on its state, over all steps: h' = tanh(xw_t + h u), or the larger
/// of that sum and 0 with `relu`. xw [T, B, H] is x w + b of all steps, u [H, H], h0 [B, H]; the rest as of
/// gru_recurrence().
RnnRecurrence rnn_recurrence(const Value& xw, const Value& u, const Value& h0, const Value& lengths = {},
                             bool reverse = false, bool relu = false);

/// The weights of one layer in one direction; shapes as the cells say.
struct RecurrentParameters {
  Value w, u, b;
  Value projection = {};  // LSTM only, may be absent: [H, P]; h' projection leaves a step and enters the next
};

/// The options of a stack of recurrent layers, besides its input and weights.
struct RecurrentOptions {
  bool bidirectional = false;  // a second set of weights per layer runs from the end to the start
  /// [B] integers: how many steps of each row count; all when absent. Steps beyond change no state and give zeros. The
  /// last state is the one at the length; the reverse direction starts there. 0 leaves the initial state. On the CPU a
  /// run with one below 0 or above T is an Error (argument), as with an index out of range (ops/index.h); on a GPU, and
  /// in the *_recurrence ops, one below 0 counts as 0 and one above T as T.
  Value lengths = {};
  /// States before the first step, in the order of the parameters: [B, P] each (c: [B, H]). Zeros when empty.
  Values initial_h = {}, initial_c = {};
  double dropout = 0;  // between layers, not after the last
  /// This share of the elements of u is 0 in a run, the same ones in all steps and rows (Merity et al. 2017): kernels
  /// that run all steps at once still do.
  double recurrent_dropout = 0;
  /// The chance of each unit of h, and of c, to stay as it was in a step (Krueger et al. 2016). Layers are a scan then.
  double zoneout_h = 0, zoneout_c = 0;
  bool training = true;  // without, nothing is dropped, and zoneout mixes old and new by their chances
  /// The gradient keeps the states of every so many steps, and computes the rest again: it saves memory on long
  /// sequences, for one more forward pass. All steps are kept when 0.
  std::int64_t recompute = 0;
  bool reset_after = true;  // gru only
  bool relu = false;        // rnn only
};

struct RecurrentResult {
  Value outputs;  // [T, B, P], or [T, B, 2P] when bidirectional: forward, then reverse
  Values last_h;  // per layer and direction, as the parameters: [B, P]
  Values last_c;  // lstm only: [B, H]
};

/// A stack of LSTM layers over xs [T, B, I]. `parameters` has one entry per layer, or two (forward, reverse) when
/// bidirectional; layers above the first take [T, B, P or 2P]. The product of the input is one for all steps; a step is
/// one product (two with a projection) and one kernel. Several layers are in scopes: "l0", "l0_reverse", "l1" ..
/// Error (shape) when something does not fit, (argument) when counts do not, (dtype) on float lengths.
RecurrentResult lstm(const Value& xs, std::span<const RecurrentParameters> parameters,
                     const RecurrentOptions& options = {});
/// The same for the GRU.
RecurrentResult gru(const Value& xs, std::span<const RecurrentParameters> parameters,
                    const RecurrentOptions& options = {});
/// The same for the plain recurrence.
RecurrentResult rnn(const Value& xs, std::span<const RecurrentParameters> parameters,
                    const RecurrentOptions& options = {});

}  // namespace paoding
