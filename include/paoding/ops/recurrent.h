// SPDX-License-Identifier: Apache-2.0
// Recurrent cells.
#pragma once

#include <utility>

#include "paoding/graph.h"

namespace paoding {

/// One LSTM step. x [B, I], h and c [B, H], w [I, 4H] for x, u [H, 4H] for h, b [4H]; gates in the order i, f, g, o:
/// i, f, o = sigmoid, g = tanh of their quarter of x w + h u + b; c' = f c + i g; h' = o tanh(c'). Returns {h', c'}.
/// (Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000; PyTorch's gate order.)
std::pair<Value, Value> lstm_cell(const Value& x, const Value& h, const Value& c, const Value& w, const Value& u,
                                  const Value& b);

}  // namespace paoding
