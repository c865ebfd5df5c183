// SPDX-License-Identifier: Apache-2.0
// Layers: parameters with names and initial values, and the ops that use them. A layer declares its parameters when it
// is made and may be applied any number of times; `paoding::Parameters` gives them their initial values.
//
//   nn::Linear hidden(g, "hidden", 784, 128), out(g, "out", 128, 10);
//   Value logits = out(relu(hidden(x)));
//
// Names are "<layer>/weight" and the like. Weights stand on the right: [inputs, outputs]. A layer that is applied opens
// the scope "<layer>" (a part that both ends the scope around it and begins the name is written once), so that reports,
// plans and errors tell layers apart.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "paoding/graph.h"
#include "paoding/ops.h"
#include "paoding/optimizer.h"
#include "paoding/range.h"
#include "paoding/recurrent_weights.h"

namespace paoding::nn {

// ---- initial values ----
// Made on the host in f64 and rounded; equal seeds give equal bits on every machine. The fan of a matrix [.., I, O] is
// I inputs and O outputs; of a convolution [O, I, H, W] it is I H W and O H W. Error (argument) when a bound is not
// finite, or a deviation or a gain is negative.

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

// ---- layers ---- (of a Graph, and so for the thread that builds it)
// Making one: error (argument) when a number of its options is out of range, (dtype) when its dtype is no float.

struct LinearOptions {
  bool bias = true;
  DType dtype = DType::f32;
  Initializer initial = {};       // of the weight; uniform in +-1 / sqrt(inputs), as PyTorch has it, when absent
  Initializer bias_initial = {};  // of the bias; the same when absent
};

/// x weight + bias over the last axis: [.., inputs] to [.., outputs].
class Linear {
 public:
  Linear(Graph& graph, std::string_view name, std::int64_t inputs, std::int64_t outputs,
         const LinearOptions& options = {});
  Value operator()(const Value& x) const;
  Value weight, bias;  // [inputs, outputs], [outputs] or absent

 private:
  std::string name_;
};

struct Conv2dLayerOptions {
  Conv2dOptions conv = {};  // stride, padding, dilation, groups, and the activation after the bias
  bool bias = true;
  DType dtype = DType::f32;
  Initializer initial = {};  // of the weight; uniform in +-1 / sqrt(inputs / groups * KH * KW), as PyTorch has it
};

/// conv2d over images [N, inputs, H, W] with windows of `kernel` (KH, KW): [N, outputs, OH, OW]. Error (argument)
/// unless the groups divide inputs and outputs; errors of applying it: as conv2d.
class Conv2d {
 public:
  Conv2d(Graph& graph, std::string_view name, std::int64_t inputs, std::int64_t outputs,
         std::array<std::int64_t, 2> kernel, const Conv2dLayerOptions& options = {});
  Value operator()(const Value& x) const;
  Value weight, bias;  // [outputs, inputs / groups, KH, KW], [outputs] or absent

 private:
  std::string name_;
  Conv2dOptions conv_;
};

struct EmbeddingOptions {
  std::int64_t padding = -1;  // a row that starts 0 and gets no gradient; none when -1
  DType dtype = DType::f32;
  Initializer initial = {};  // normal of deviation 1, as PyTorch has it, when absent
};

/// Rows of a table by number: integers [..] from 0 to rows - 1 to [.., width]. Error (argument) unless padding is -1 or
/// a row; errors of applying it: as embedding.
class Embedding {
 public:
  Embedding(Graph& graph, std::string_view name, std::int64_t rows, std::int64_t width,
            const EmbeddingOptions& options = {});
  Value operator()(const Value& indices) const;
  Value weight;  // [rows, width]

 private:
  std::string name_;
  std::int64_t padding_;
};

struct MultiHeadAttentionOptions {
  std::int64_t key_width = 0, value_width = 0;  // of keys and values; as that of queries when 0
  bool bias = true;
  double dropout = 0;  // of the attention weights, while training
  bool training = true;
  /// Queries and keys are turned by their positions, 0 .. as they stand (rotary_embedding with this base; 10000 in most
  /// models). 0: they are not.
  double rotary_base = 0;
  DType dtype = DType::f32;
  Initializer initial = {};  // of the projections of queries, keys and values; xavier_uniform when absent, as PyTorch
  Initializer output_initial = {};  // of the last projection; uniform in +-1 / sqrt(width), as PyTorch, when absent
};

/// Keys and values as their projections give them: [B, heads, S, width / heads].
struct KeysAndValues {
  Value keys, values;
};

/// Attention of several heads (Vaswani et al. 2017): queries [B, T, width], keys [B, S, key_width] and values
/// [B, S, value_width] are projected to `width`, split into `heads` parts of width / heads that attend each by itself,
/// joined and projected: [B, T, width].
/// Where all three have one width, their projections lie beside each other in one matrix "<name>/in/weight" [width, 3
/// width] (queries, keys, values) with the bias "<name>/in/bias" [3 width], and inputs that are one Value are projected
/// by one product: all three in self-attention, keys and values in attention to a memory. Otherwise they are
/// "<name>/query/weight", "<name>/key/weight" and "<name>/value/weight", with "<name>/in/bias" as before. The last
/// projection is "<name>/out/weight" [width, width], "<name>/out/bias" [width]. Biases start 0.
/// Error (argument) unless heads divide width, (shape) when something given does not fit.
class MultiHeadAttention {
 public:
  MultiHeadAttention(Graph& graph, std::string_view name, std::int64_t width, std::int64_t heads,
                     const MultiHeadAttentionOptions& options = {});
  /// `options` as in scaled_dot_product_attention for [B, heads, T, S], with the layer's dropout; a mask or bias of
  /// three axes is [B, T, S], for every head.
  Value operator()(const Value& queries, const Value& keys, const Value& values,
                   const AttentionOptions& options = {}) const;
  /// Self-attention.
  Value operator()(const Value& x, const AttentionOptions& options = {}) const { return (*this)(x, x, x, options); }

  // ---- in parts, for decoders that make one step after another ----

  /// A memory that many queries attend to, projected once.
  KeysAndValues project(const Value& keys, const Value& values) const;
  /// Attention of queries [B, T, width] to it; with rotary positions the first query stands at `position`, i64 [].
  Value attend(const Value& queries, const KeysAndValues& memory, const AttentionOptions& options = {},
               const Value& position = {}) const;
  /// The cache for step(): room for `length` keys and values of `batch` rows, filled with 0.
  KeysAndValues empty_cache(Graph& graph, std::int64_t batch, std::int64_t length) const;
  struct Step {
    Value result;         // [B, T, width]
    KeysAndValues cache;  // with those of x at its positions
  };
  /// Self-attention of the next T elements x [B, T, width], which stand at `position` .. position + T - 1, i64 [], or
  /// i64 [B] where T is 1 and every row has a position of its own: to the elements that the cache has before them and
  /// to themselves, never ahead. Error (shape) when something does not fit. A position that leaves the cache is handled
  /// as in dynamic_update_slice.
  Step step(const Value& x, const KeysAndValues& cache, const Value& position) const;

  Value weight;                                  // [width, 3 width], or absent
  Value query_weight, key_weight, value_weight;  // [.., width], or absent
  Value bias;                                    // [3 width], or absent
  Value output_weight, output_bias;              // [width, width], [width] or absent

 private:
  Value projected(const Value& x, std::int64_t first, std::int64_t count) const;
  Value heads_of(const Value& all, std::int64_t part) const;
  Value turned(const Value& heads, const Value& position) const;
  Value joined(const Value& query, const KeysAndValues& memory, const AttentionOptions& options) const;
  std::string name_;
  std::int64_t width_, heads_;
  double dropout_, rotary_base_;
};

/// layer_norm over the last axis of extent `width`, gamma from 1 and beta from 0.
class LayerNorm {
 public:
  LayerNorm(Graph& graph, std::string_view name, std::int64_t width, double epsilon = 1e-5, DType dtype = DType::f32);
  Value operator()(const Value& x) const;
  Value gamma, beta;

 private:
  std::string name_;
  double epsilon_;
};

/// rms_norm over the last axis of extent `width`, gamma from 1.
class RmsNorm {
 public:
  RmsNorm(Graph& graph, std::string_view name, std::int64_t width, double epsilon = 1e-6, DType dtype = DType::f32);
  Value operator()(const Value& x) const;
  Value gamma;

 private:
  std::string name_;
  double epsilon_;
};

/// group_norm of channels (axis 1) in `groups`, gamma from 1 and beta from 0.
class GroupNorm {
 public:
  GroupNorm(Graph& graph, std::string_view name, std::int64_t channels, std::int64_t groups, double epsilon = 1e-5,
            DType dtype = DType::f32);
  Value operator()(const Value& x) const;
  Value gamma, beta;

 private:
  std::string name_;
  std::int64_t groups_;
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
  std::string name_;
  BatchNormOptions options_;
};

/// dropout with a fixed probability; nothing unless `training`.
class Dropout {
 public:
  /// Error (argument) unless 0 <= probability < 1.
  explicit Dropout(double probability, bool training = true) : probability_(probability), training_(training) {
    check_range("dropout", "probability", probability, Range::from_up_to(0, 1));
  }
  Value operator()(const Value& x) const { return dropout(x, probability_, training_); }

 private:
  double probability_;
  bool training_;
};

struct RecurrentLayerOptions {
  int layers = 1;
  bool bidirectional = false;
  double dropout = 0;                                          // between layers
  double recurrent_dropout = 0, zoneout_h = 0, zoneout_c = 0;  // as RecurrentOptions has them
  bool training = true;
  std::int64_t recompute = 0;
  std::int64_t projection = 0;  // LSTM only; none when 0
  bool reset_after = true;      // GRU only
  bool relu = false;            // RNN only
  DType dtype = DType::f32;
  Initializer initial = {};  // of weights and biases; uniform in +-1 / sqrt(hidden), as PyTorch has it, when absent
  /// LSTM only: added to the part of the bias for the forget gate (Gers et al. 2000); PyTorch has 0.
  double forget_bias = 0;
};

/// A stack of recurrent layers with parameters "<name>/l0/w", "<name>/l0/u", "<name>/l0/b" and "<name>/l0/projection";
/// reverse directions are "<name>/l0_reverse/w" and so on. See ops/recurrent.h for its formulas and scopes.
class Recurrent {
 public:
  RecurrentResult operator()(const Value& xs, RecurrentOptions options = {}) const;
  const std::vector<RecurrentParameters>& parameters() const { return parameters_; }

 protected:
  Recurrent(RecurrentKind kind, Graph& graph, std::string_view name, std::int64_t inputs, std::int64_t hidden,
            const RecurrentLayerOptions& options);

 private:
  std::string name_;
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
