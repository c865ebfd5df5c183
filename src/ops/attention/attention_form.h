// SPDX-License-Identifier: Apache-2.0
// The extents and attributes of a call of attention or attention_grad, and where its optional inputs stand. The
// composition, the gradient and the kernels of both devices read a call through it.
#pragma once

#include "paoding/op.h"

namespace paoding {

struct KernelCall;  // ops/kernel.h

/// Inputs that are always there, of attention; a gradient has kResult, kDResult and kLse after them.
enum AttentionInput : std::size_t { kQ, kK, kV, kResult, kDResult, kLse };

struct AttentionForm {
  std::int64_t batch;               // product of the leading axes in front of the heads' axis
  std::int64_t heads;               // of q; 1 where there is no such axis
  std::int64_t key_heads;           // of k and v; query head h reads key head h / group()
  std::int64_t queries, keys;       // T and S
  std::int64_t width, value_width;  // E and F
  DType dtype;                      // of q, k, v and the result
  DType wide;                       // of log-sum-exp, and computed in
  double scale;
  std::int64_t left, right;  // keys before and after its position that a query sees; -1: all
  std::int64_t offset;       // query t stands at position t + offset
  double dropout;
  std::int64_t stream;

  // Places of optional inputs; -1: absent.
  int dlse = -1, bias = -1, mask = -1, lengths = -1, slopes = -1;
  int random = -1;  // the first of three: first, run, seed

  std::int64_t group() const { return key_heads > 0 ? heads / key_heads : 1; }
  /// Keys first_key(t) .. end_key(t) - 1 are those that causality and window let query t see; there may be none.
  std::int64_t first_key(std::int64_t t) const;
  std::int64_t end_key(std::int64_t t) const;
  /// Whether position alone hides a key from a query.
  bool is_banded() const { return hides_later() || hides_earlier(); }
  bool hides_later() const { return right >= 0 && offset + right < keys - 1; }
  bool hides_earlier() const { return left >= 0 && queries - 1 + offset - left > 0; }
  /// Whether some query may see no key.
  bool may_be_blind() const;
};

/// Error (shape, dtype, argument) where something does not fit.
AttentionForm attention_form(const OpCall& call, bool is_gradient);
/// The same of a call that was checked.
AttentionForm attention_form(const KernelCall& call, bool is_gradient);

}  // namespace paoding
