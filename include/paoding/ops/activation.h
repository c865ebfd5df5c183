// SPDX-License-Identifier: Apache-2.0
// Activations. Floats, but for relu; at kinks the gradient is PyTorch's.
#pragma once

#include <string>

#include "paoding/graph.h"

namespace paoding {

/// max(0, a), NaN of NaN; the gradient at 0 is 0. Numbers.
Value relu(const Value& a);
/// a where it is above 0, else slope * a; the gradient at 0 is slope.
Value leaky_relu(const Value& a, double slope = 0.01);
/// a where it is above 0, else alpha * (e^a - 1); the gradient at 0 is alpha (Clevert et al. 2015).
Value elu(const Value& a, double alpha = 1);
/// min(max(a, min), max); the gradient at min and max is 0, unlike clamp's.
Value hardtanh(const Value& a, double min = -1, double max = 1);
/// a / 6 + 1/2, kept in [0, 1]; the gradient at -3 and 3 is 0.
Value hard_sigmoid(const Value& a);
/// a * hard_sigmoid(a) (Howard et al. 2019); the gradient is 0 at -3 and 1 at 3.
Value hardswish(const Value& a);
/// a * P(N(0, 1) <= a) = a/2 * (1 + erf(a / sqrt(2))) (Hendrycks, Gimpel 2016); with approximate = "tanh"
/// a/2 * (1 + tanh(sqrt(2/pi) * (a + 0.044715 a^3))). Error (argument) for another word than "none" or "tanh".
Value gelu(const Value& a, const std::string& approximate = "none");
/// a * sigmoid(a), also called swish.
Value silu(const Value& a);
/// a * tanh(softplus(a)) (Misra 2019).
Value mish(const Value& a);
/// log(1 + e^a), without overflow for large a; its gradient is sigmoid(a).
Value softplus(const Value& a);
/// log(sigmoid(a)), without overflow for small a; its gradient is sigmoid(-a).
Value log_sigmoid(const Value& a);
/// a / (1 + |a|); its gradient is 1 / (1 + |a|)^2.
Value softsign(const Value& a);

}  // namespace paoding
