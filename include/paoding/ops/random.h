// SPDX-License-Identifier: Apache-2.0
// Random numbers: pure functions of a seed, a counter of runs, the op and the element's position, so the same on every
// device, for any number of threads, fused or not, and the same forward and backward.
//
// Seed and counter are the parameter "random/state" (i64 [2]: seed, run), which the first random op of a graph makes.
// The counter grows by one with every run that assigns; ParametersOptions::seed is the seed. A store with the state put
// back continues with the same random numbers, and one without gets it from the first program that draws. Other
// purposes (RandomPurpose) have states of their own: drawing texts with categorical(), which draws from
// "random/sampling", leaves a training's random numbers as they are. The k-th random op of a graph for a purpose draws
// from stream k; in the step of a scan every step draws its own. Bits are those of Philox4x32-10 (random_bits() in
// paoding/scalar.h).
#pragma once

#include "paoding/graph.h"

namespace paoding {

/// Random ops that its thread builds while it lives draw for this purpose, from the state "random/<purpose>", whose
/// seed follows from the store's: draws for one purpose change nothing of another's, in a graph or a store. Ops draw
/// from "state" by default. Error (argument) when the purpose is empty.
class RandomPurpose {
 public:
  RandomPurpose(Graph& graph, std::string_view purpose);
  ~RandomPurpose() { root_.random_purpose = saved_; }
  RandomPurpose(const RandomPurpose&) = delete;
  RandomPurpose& operator=(const RandomPurpose&) = delete;

 private:
  Graph& root_;  // the purpose holds in bodies too
  Name saved_;
};

/// Uniform in [low, high): low + (high - low) u, u a multiple of 2^-24 (f64: 2^-53); f16 and bf16 may round to high.
/// `graph` may be the step of a scan (the graph of a carry). Error (dtype) unless dtype is a float.
Value random_uniform(Graph& graph, const Shape& shape, double low = 0, double high = 1, DType dtype = DType::f32);
/// Normal: mean + deviation sqrt(-2 log(1 - u)) cos(2 pi v) of two uniform u, v (Box, Muller 1958). As above.
Value random_normal(Graph& graph, const Shape& shape, double mean = 0, double deviation = 1, DType dtype = DType::f32);
/// A bool that is true with `probability`. Error (argument) unless it is between 0 and 1.
Value random_bernoulli(Graph& graph, const Shape& shape, double probability);

/// Each element is 0 with `probability`, else x / (1 - probability), so that the mean stays (Srivastava et al. 2014).
/// Without `training`, and for probability 0, x itself. The gradient has the same zeros; no mask is kept.
/// Error (argument) unless 0 <= probability < 1, (dtype) unless x is a float.
Value dropout(const Value& x, double probability, bool training = true);

}  // namespace paoding
