// SPDX-License-Identifier: Apache-2.0
// A recurrent layer over time as the C interface has it: two graphs, whose parameters and fetches are the
// caller's memory.
#pragma once

#include "paoding/graph.h"
#include "paoding/recurrent.h"

namespace paoding {

/// Error (argument, dtype) where a field is out of range.
void check_layer(const pd_recurrent_layer& layer);
DType dtype_of(pd_number number);
/// "cpu", "cuda" or "cuda:N". Error (argument) for anything else.
Device device_of(const char* name);

/// The values that a forward pass saves beside its states, by name, in the order in which they lie in memory.
struct SavedPart {
  const char* name;
  Type type;
};
std::vector<SavedPart> saved_parts(const pd_recurrent_layer& layer);

/// x, w, u, b, h0, c0, lengths, b_hh to states, last_h, last_c and the saved values; those that the layer does not have
/// are no parameters.
void build_forward(const pd_recurrent_layer& layer, Graph* graph);
/// x, w, u, h0, lengths, states, the saved values, d_states, d_last_h, d_last_c to d_x, d_w, d_u, d_b, d_h0, d_c0,
/// d_b_hh.
void build_backward(const pd_recurrent_layer& layer, Graph* graph);

}  // namespace paoding
