// SPDX-License-Identifier: Apache-2.0
// Layers: parameters with names and initial values, and the ops that use them. A layer declares its parameters when it
// is made and may be applied any number of times; `paoding::Parameters` gives them their initial values.
//
//   nn::Linear hidden(g, "hidden", 784, 128), out(g, "out", 128, 10);
//   Value logits = out(relu(hidden(x)));
//
// Names are "<layer>/weight" and the like. Weights stand on the right: [inputs, outputs].
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "paoding/graph.h"
#include "paoding/ops.h"
#include "paoding/optimizer.h"
#include "paoding/recurrent_weights.h"

namespace paoding::nn {

// ---- initial values ----
// Made on the host in f64 and rounded; equal seeds give equal bits on every machine. The fan of a matrix [.., I, O] is
// I inputs and O outputs; of a convolution [O, I, H, W] it is I H W and O H W.

Initializer constant(double value);
/// Uniform in [low, high).
Initializer uniform(double low, double high);
Initializer normal(double mean, double deviation);
/// Uniform in +-gain sqrt(6 / (inputs + outputs)) (Glorot, Bengio 2010).
Initializer xavier_uniform(double gain = 1);
/// Normal of deviation gain sqrt(2 / (inputs + outputs)).
Initializer xavier_normal(double gain = 1);
/// Uniform in +-gain sqrt(3 / inputs); gain sqrt(2) is for relu (He et al. 2015).
Initializer kaiming_uniform(double gain = 1.4142135623730951);
/// Normal of deviation gain / sqrt(inputs).
Initializer kaiming_normal(double gain = 1.4142135623730951);
/// Orthonormal rows or columns, whichever are fewer, times gain (Saxe et al. 2014); a matrix [I, k H] of gates is k
/// blocks [I, H], each of its own.
Initializer orthogonal(double gain = 1, int blocks = 1);
/// These very values. Error (shape, dtype) when the parameter is of another type.
Initializer value(const Tensor& tensor);

// ---- layers ----

struct LinearOptions {
  bool bias = true;
  DType dtype = DType::f32;
  Initializer initial = {};  // of the weight; uniform in +-1 / sqrt(inputs), as PyTorch has it, when absent
};

/// x weight + bias over the last axis: [.., inputs] to [.., outputs].
class Linear {
 public:
  Linear(Graph& graph, std::string_view name, std::int64_t inputs, std::int64_t outputs,
         const LinearOptions& options = {});
  Value operator()(const Value& x) const;
  Value weight, bias;  // [inputs, outputs], [outputs] or absent
};

/// Rows of a table: integers [..] to [.., width]. The table starts normal of deviation 1.
class Embedding {
 public:
  Embedding(Graph& graph, std::string_view name, std::int64_t rows, std::int64_t width, DType dtype = DType::f32,
            Initializer initial = {});
  Value operator()(const Value& indices) const;
  Value weight;  // [rows, width]
};

/// layer_norm over the last axis of extent `width`, gamma from 1 and beta from 0.
class LayerNorm {
 public:
  LayerNorm(Graph& graph, std::string_view name, std::int64_t width, double epsilon = 1e-5, DType dtype = DType::f32);
  Value operator()(const Value& x) const;
  Value gamma, beta;

 private:
  double epsilon_;
};

/// batch_norm over channels (axis 1) with running statistics in the store.
class BatchNorm {
 public:
  BatchNorm(Graph& graph, std::string_view name, std::int64_t channels, const BatchNormOptions& options = {},
            DType dtype = DType::f32);
  Value operator()(const Value& x) const;
  Value gamma, beta, running_mean, running_variance;

 private:
  BatchNormOptions options_;
};

/// dropout with a fixed probability; nothing unless `training`.
class Dropout {
 public:
  explicit Dropout(double probability, bool training = true) : probability_(probability), training_(training) {}
  Value operator()(const Value& x) const { return dropout(x, probability_, training_); }

 private:
  double probability_;
  bool training_;
};

struct RecurrentLayerOptions {
  int layers = 1;
  bool bidirectional = false;
  double dropout = 0;           // between layers
  std::int64_t projection = 0;  // LSTM only; none when 0
  bool reset_after = true;      // GRU only
  bool relu = false;            // RNN only
  DType dtype = DType::f32;
  Initializer initial = {};  // of weights and biases; uniform in +-1 / sqrt(hidden), as PyTorch has it, when absent
  /// Of LSTM biases: added to what stands for the forget gate (Gers et al. 2000); PyTorch has 0.
  double forget_bias = 0;
};

/// A stack of recurrent layers with parameters "<name>/l0/w", "<name>/l0/u", "<name>/l0/b" and "<name>/l0/projection";
/// reverse directions are "<name>/l0_reverse/w" and so on. See ops/recurrent.h for what it computes.
class Recurrent {
 public:
  RecurrentResult operator()(const Value& xs, RecurrentOptions options = {}) const;
  const std::vector<RecurrentParameters>& parameters() const { return parameters_; }

 protected:
  Recurrent(RecurrentKind kind, Graph& graph, std::string_view name, std::int64_t inputs, std::int64_t hidden,
            const RecurrentLayerOptions& options);

 private:
  RecurrentKind kind_;
  RecurrentLayerOptions options_;
  std::vector<RecurrentParameters> parameters_;
};

class Lstm : public Recurrent {
 public:
  Lstm(Graph& graph, std::string_view name, std::int64_t inputs, std::int64_t hidden,
       const RecurrentLayerOptions& options = {})
      : Recurrent(RecurrentKind::lstm, graph, name, inputs, hidden, options) {}
};
class Gru : public Recurrent {
 public:
  Gru(Graph& graph, std::string_view name, std::int64_t inputs, std::int64_t hidden,
      const RecurrentLayerOptions& options = {})
      : Recurrent(RecurrentKind::gru, graph, name, inputs, hidden, options) {}
};
class Rnn : public Recurrent {
 public:
  Rnn(Graph& graph, std::string_view name, std::int64_t inputs, std::int64_t hidden,
      const RecurrentLayerOptions& options = {})
      : Recurrent(RecurrentKind::rnn, graph, name, inputs, hidden, options) {}
};

}  // namespace paoding::nn
