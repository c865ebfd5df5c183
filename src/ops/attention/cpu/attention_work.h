// SPDX-License-Identifier: Apache-2.0
// One call of attention or its gradient on the CPU: operands with their strides, extents, and each thread's scratch.
// Forward, an item of work is some rows of a head's queries; backward, some keys of a head, with all queries.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/attention/attention_form.h"

namespace paoding {

inline constexpr std::int64_t kKeysOfTile = 128;  // keys, or queries of a gradient, that are multiplied at a time
inline constexpr std::int64_t kTileRow = kKeysOfTile + 16;  // apart, so that rows of a tile share no lines of a cache
inline constexpr std::int64_t kMostLanes = 16;              // rows of packed matrices are padded to so many numbers
inline constexpr std::int64_t kMostQueryRows = 256;         // of an item

/// An operand [.., rows, columns] whose leading axes are flat: matrix i begins at `starts[i]`.
struct AttentionOperand {
  void* data = nullptr;
  const std::int64_t* starts = nullptr;
  std::int64_t row = 0, column = 1;  // strides, 0 where it broadcasts
  DType dtype = DType::f32;

  template <class T>
  const T* at(std::int64_t matrix) const {
    return static_cast<const T*>(data) + starts[matrix];
  }
  template <class T>
  T* mutable_at(std::int64_t matrix) const {
    return static_cast<T*>(data) + starts[matrix];
  }
};

/// The number of an operand that has one a matrix: f32, bf16 or f16.
float number_of(const AttentionOperand& operand, std::int64_t matrix);

struct AttentionWork {
  AttentionForm form;
  // Matrices of q, bias, mask and results are batch * heads, of k and v batch * key_heads.
  AttentionOperand q, k, v, result;
  float* logs = nullptr;             // [batch, heads, queries]; null where nobody reads them
  AttentionOperand bias, mask;       // no data: absent
  AttentionOperand lengths, slopes;  // one number a matrix
  std::int64_t random_first = 0, random_run = 0, random_seed = 0;

  std::int64_t tile = kKeysOfTile;  // so many keys, and queries of a gradient, at a time

  // ---- forward ----
  std::int64_t item_rows = kMostQueryRows;

  // ---- backward ----
  AttentionOperand dresult, dq, dk, dv;
  const float *given_logs = nullptr, *dlogs = nullptr;
  float* shared = nullptr;       // [batch, heads, parts, queries]: sum(dresult result) - dlogs
  float* parts_of_dq = nullptr;  // [batch, heads, parts, queries, padded width]
  std::int64_t parts = 1;        // of the keys; sums over them are in order

  float* scratch = nullptr;  // of one thread

  std::int64_t padded_width() const { return padded(form.width); }
  std::int64_t padded_values() const { return padded(form.value_width); }
  static std::int64_t padded(std::int64_t width) {
    return (std::max<std::int64_t>(width, 1) + kMostLanes - 1) / kMostLanes * kMostLanes;
  }
  std::int64_t items_of_head() const { return (form.queries + item_rows - 1) / item_rows; }
  std::int64_t key_matrix(std::int64_t matrix) const {
    return matrix / form.heads * form.key_heads + matrix % form.heads / form.group();
  }
  /// The end of the keys that a head's queries may see.
  std::int64_t length_of(std::int64_t matrix) const;
  std::int64_t forward_scratch() const {
    return kTileRow * (2 * padded_width() + padded_values() + kMostLanes) +
           kMostQueryRows * (form.width + padded_values() + 2);
  }
  std::int64_t backward_scratch() const {
    const std::int64_t widths = padded_width() + padded_values();
    return kTileRow * (4 * widths + 2 * kTileRow);
  }
};

/// Rows [item * item_rows, ..) of a head's queries: result and logs.
void run_attention_item(const AttentionWork& work, std::int64_t matrix, std::int64_t item);
/// Gradients of a part of a key head's keys and values, and that part's share of dq: dq itself where it is the only
/// one.
void run_attention_grad_item(const AttentionWork& work, std::int64_t key_matrix, std::int64_t part);
/// dq of rows first .. end - 1 of all: the sum of several parts.
void run_attention_dq(const AttentionWork& work, std::int64_t first, std::int64_t end);

}  // namespace paoding
