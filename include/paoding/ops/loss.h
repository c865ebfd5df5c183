// SPDX-License-Identifier: Apache-2.0
// Losses.
#pragma once

#include "paoding/graph.h"

namespace paoding {

/// How the losses of single elements become the result.
enum class LossReduction : std::uint8_t {
  mean,  // their (weighted) mean
  sum,
  none,  // they are the result
};

struct CrossEntropyOptions {
  /// Factors of the losses, with labels' shape, floats or a bool mask; all 1 when absent.
  Value weights = {};
  double label_smoothing = 0;  // the target is (1 - s) at the label plus s / V everywhere
  LossReduction reduction = LossReduction::mean;
};

/// log(sum(e^logits)) - logits[label], the cross entropy of softmax(logits) with the label. logits [.., V] floats,
/// labels [..] integers from 0 to V - 1. A negative label does not count: its loss, gradient and weight are 0
/// (PyTorch's ignore_index = -100). One above V - 1 is an Error (argument) of a run on the CPU, as an index out of
/// range is (ops/index.h); on a GPU, where a check would be a launch more, its loss is NaN, which
/// MinimizeOptions::skip_nonfinite keeps out of parameters and find_nonfinite() traces back to here. The mean is over
/// weights: sum(weight loss) / sum(weight), and 0 where nothing counts. Losses are f32 for f16 and bf16. One kernel
/// forward, one backward: (softmax - target) g. Error (shape) when labels or weights do not fit, (dtype) when labels
/// are no integers, (argument) unless 0 <= label_smoothing < 1.
Value cross_entropy(const Value& logits, const Value& labels, const CrossEntropyOptions& options = {});

/// (prediction - target)^2. Both broadcast together. Floats.
Value mse_loss(const Value& prediction, const Value& target, LossReduction reduction = LossReduction::mean);
/// |prediction - target|. The same.
Value l1_loss(const Value& prediction, const Value& target, LossReduction reduction = LossReduction::mean);
/// d^2 / 2 for |d| < delta, delta (|d| - delta / 2) beyond, of d = prediction - target (Huber 1964).
/// Error (argument) unless delta > 0.
Value huber_loss(const Value& prediction, const Value& target, double delta = 1,
                 LossReduction reduction = LossReduction::mean);
/// -target log(s) - (1 - target) log(1 - s) of s = sigmoid(logits), as (logits > 0 ? 1 - target : -target) logits +
/// log(1 + e^-|logits|), which neither overflows nor takes the logarithm of 0, keeps the digits of a small loss, and is
/// 0 where an infinite logit agrees with its target. Gradient sigmoid(logits) - target, with its digits too. Floats.
Value binary_cross_entropy_with_logits(const Value& logits, const Value& target,
                                       LossReduction reduction = LossReduction::mean);

}  // namespace paoding
