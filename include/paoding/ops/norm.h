// SPDX-License-Identifier: Apache-2.0
// Normalisation. Statistics are computed in f32 for f16 and bf16.
#pragma once

#include <span>

#include "paoding/graph.h"

namespace paoding {

/// (x - mean) / sqrt(variance + epsilon) * gamma + beta, mean and (biased) variance over `axes` of each element's own
/// row (Ba, Kiros, Hinton 2016). gamma and beta broadcast to x; absent ones are 1 and 0. One kernel forward; one
/// backward with both statistics' terms in closed form. Floats. Error (shape) when gamma or beta would stretch x.
Value layer_norm(const Value& x, const Value& gamma = {}, const Value& beta = {},
                 std::span<const std::int64_t> axes = {}, double epsilon = 1e-5);  // no axes: the last one

struct BatchNormOptions {
  bool training = true;
  double momentum = 0.1;  // the new running value is (1 - momentum) old + momentum batch
  double epsilon = 1e-5;
};

/// The same with statistics over all axes but axis 1 (the channels; axis 1 of [N, C], [N, C, H, W] ..), gamma and beta
/// [C] (Ioffe, Szegedy 2015). In training they are the batch's, and the parameters running_mean and running_variance
/// [C], where given, are assigned their running means at the end of the run (the variance unbiased, as PyTorch has it).
/// Otherwise the running ones are used. Error (shape) when something is not [C], (argument) when running values are
/// needed and absent.
Value batch_norm(const Value& x, const Value& gamma, const Value& beta, const Value& running_mean,
                 const Value& running_variance, const BatchNormOptions& options = {});

/// x / sqrt(mean(x^2) + epsilon) * gamma over the last axis (Zhang, Sennrich 2019); no gamma is 1. Floats.
Value rms_norm(const Value& x, const Value& gamma = {}, double epsilon = 1e-6);

}  // namespace paoding
