// SPDX-License-Identifier: Apache-2.0
// What the CPU's kernel of lstm_recurrence and of its gradient works on: plain pointers and extents.
#pragma once

#include <cstdint>

namespace paoding {

class TeamBarrier;

/// Units of the hidden state are dealt out in blocks of so many: a vector of f32 on any CPU is a part of one.
inline constexpr std::int64_t kUnitBlock = 16;
/// With so few rows u is read where it lies: packing would take as long as some steps.
inline constexpr std::int64_t kFewRows = 4;

/// A run of either. f32, or with `is_half` bf16 for all but cell states. Results that nobody reads are null.
struct LstmWork {
  std::int64_t steps, rows, hidden;
  bool is_reverse, is_half;
  const std::int32_t* lengths;  // null: all steps count
  const void *u, *xw, *h0;
  const float* c0;
  void *states, *gates, *last_h;
  float *cells, *last_c;

  // ---- of the gradient ----
  const void *saved_gates, *dstates, *dlast_h;  // the last two null where absent
  const float *saved_cells, *dlast_c;
  void *dxw, *dh0;
  float* dc0;

  // ---- memory of the kernel ----
  void* packed;    // u, as each thread reads its part; of few rows null
  float* sums;     // of few rows: [B, 4H]
  float* h[2];     // [B, H] in front of and behind a step; of the gradient [B, 4H], gates' gradients
  float *c, *d_h;  // [B, H]
  TeamBarrier* barrier;

  bool has_few_rows() const { return rows <= kFewRows; }
  std::int64_t blocks() const { return (hidden + kUnitBlock - 1) / kUnitBlock; }
  std::int64_t step_of(std::int64_t turn, bool is_backwards) const { return is_backwards ? steps - 1 - turn : turn; }
  bool counts(std::int64_t step, std::int64_t row) const { return lengths == nullptr || step < lengths[row]; }
};

/// The part of a thread: see lstm_forward_cpu.cpp and lstm_backward_cpu.cpp.
void run_lstm_forward(const LstmWork& work, int thread, int team);
void run_lstm_backward(const LstmWork& work, int thread, int team);

}  // namespace paoding
