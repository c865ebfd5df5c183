// SPDX-License-Identifier: Apache-2.0
// Layers of transformers: positions that are learned, encoders, decoders that remember the keys and values of the steps
// before. Values are [B, T, width]. Layers are of a Graph, and so for the thread that builds it.
#pragma once

#include <string>
#include <string_view>

#include "paoding/nn.h"

namespace paoding::nn {

/// A row for each of `positions` places, learned (Gehring et al. 2017): "<name>/weight" [positions, width], normal of
/// deviation 0.02 at first.
class LearnedPositions {
 public:
  LearnedPositions(Graph& graph, std::string_view name, std::int64_t positions, std::int64_t width,
                   DType dtype = DType::f32);
  /// x [.., T, width] plus the rows of the places 0 .. T - 1, or of those from `first` on, i64 [] (see dynamic_slice).
  /// Error (shape) when there are fewer places than T, or x has another width.
  Value operator()(const Value& x, const Value& first = {}) const;
  Value weight;

 private:
  std::string name_;
};

enum class FeedForwardKind : std::uint8_t { relu, gelu, gelu_tanh };  // gelu_tanh: the approximation of gelu with tanh

struct TransformerOptions {
  std::int64_t feed_forward = 0;  // width between the two products of the feed-forward part; 4 times the width when 0
  FeedForwardKind activation = FeedForwardKind::relu;
  double dropout = 0;       // of attention weights, of both parts' results, and within the feed-forward part
  bool norm_first = false;  // norms stand in front of the parts instead of after the sums
  double epsilon = 1e-5;    // of the norms
  double rotary_base = 0;   // of self-attention: MultiHeadAttentionOptions::rotary_base
  bool memory = true;       // of a decoder: it attends to a memory; without, it is a language model's layer
  bool training = true;
  DType dtype = DType::f32;
  Initializer initial = {};       // of matrices, and then biases start 0; as MultiHeadAttention and Linear when absent
  Initializer last_initial = {};  // of the matrices whose result is added to x; `initial` when absent
};

/// norm(x + f(x)), or x + f(norm(x)): self-attention, then a feed-forward part, as PyTorch's TransformerEncoderLayer
/// with batch_first (Vaswani et al. 2017; norm_first: Xiong et al. 2020). Parameters are those of "<name>/self", a
/// MultiHeadAttention, "<name>/norm1" and "<name>/norm2", "<name>/in" and "<name>/out", the feed-forward part.
class TransformerEncoderLayer {
 public:
  TransformerEncoderLayer(Graph& graph, std::string_view name, std::int64_t width, std::int64_t heads,
                          const TransformerOptions& options = {});
  Value operator()(const Value& x, const AttentionOptions& options = {}) const;

 private:
  std::string name_;
  MultiHeadAttention self_;
  LayerNorm norm1_, norm2_;
  Linear in_, out_;
  TransformerOptions options_;
};

/// The same with attention to a memory in between, "<name>/memory" and "<name>/norm3" besides, as PyTorch's
/// TransformerDecoderLayer. Self-attention never looks ahead.
class TransformerDecoderLayer {
 public:
  TransformerDecoderLayer(Graph& graph, std::string_view name, std::int64_t width, std::int64_t heads,
                          const TransformerOptions& options = {});
  /// All steps at once: x [B, T, width], memory [B, S, width] where the layer has one; the options say which of the
  /// memory's rows count. Error (argument) when there is a memory and the layer has none, or the other way round.
  Value operator()(const Value& x, const Value& memory = {}, const AttentionOptions& memory_options = {}) const;

  /// The state of a decoder that makes one step after another: the carries of a scan, or parameters.
  struct Cache {
    KeysAndValues self;    // of the steps before
    KeysAndValues memory;  // projected once; absent without one
  };
  Cache start(Graph& graph, std::int64_t batch, std::int64_t length, const Value& memory = {}) const;
  struct Step {
    Value result;
    Cache cache;
  };
  /// The next T steps x [B, T, width] at `position`, as in MultiHeadAttention::step: equal to the results of operator()
  /// when it sees all.
  Step step(const Value& x, const Cache& cache, const Value& position,
            const AttentionOptions& memory_options = {}) const;

 private:
  template <class Self, class Memory>
  Value applied(const Value& x, const Self& self, const Memory& memory) const;
  std::string name_;
  MultiHeadAttention self_;
  std::vector<MultiHeadAttention> memory_;  // one or none
  LayerNorm norm1_, norm2_;
  std::vector<LayerNorm> norm3_;  // one or none
  Linear in_, out_;
  TransformerOptions options_;
};

}  // namespace paoding::nn
