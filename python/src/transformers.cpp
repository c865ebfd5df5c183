// SPDX-License-Identifier: Apache-2.0
// paoding.nn: layers of transformers, as paoding/nn/transformer.h has them.
#include <nanobind/stl/pair.h>

#include "layer_classes.h"
#include "paoding/nn/transformer.h"

namespace paoding::python {
namespace {

nn::FeedForwardKind activation_of(const std::string& name) {
  if (name == "relu") return nn::FeedForwardKind::relu;
  if (name == "gelu") return nn::FeedForwardKind::gelu;
  if (name == "gelu_tanh") return nn::FeedForwardKind::gelu_tanh;
  throw Error(ErrorKind::argument, "activation is '" + name + "'; it is 'relu', 'gelu' or 'gelu_tanh'");
}

template <class Layer>
void construct_layer(Kept<Layer>* self, const char* kind, const std::string& name, std::int64_t width,
                     std::int64_t heads, std::int64_t feed_forward, const std::string& activation, double dropout,
                     bool norm_first, double epsilon, double rotary_base, bool memory, bool training,
                     const nb::object& dtype, const MaybeInitial& initial, const MaybeInitial& last_initial,
                     const MaybeGraph& graph) {
  construct(self, layer_graph_of(graph, kind), name, width, heads,
            nn::TransformerOptions{.feed_forward = feed_forward,
                                   .activation = activation_of(activation),
                                   .dropout = dropout,
                                   .norm_first = norm_first,
                                   .epsilon = epsilon,
                                   .rotary_base = rotary_base,
                                   .memory = memory,
                                   .training = training,
                                   .dtype = dtype_of(dtype),
                                   .initial = initial_of(initial),
                                   .last_initial = initial_of(last_initial)});
}

using CacheHandle = std::pair<Pair, std::optional<Pair>>;

CacheHandle cache_of(const nn::TransformerDecoderLayer::Cache& cache) {
  if (!cache.memory.keys.valid()) return {pair_of(cache.self), std::nullopt};
  return {pair_of(cache.self), pair_of(cache.memory)};
}

void bind_encoder_layer(nb::module_& module) {
  using Layer = nn::TransformerEncoderLayer;
  layer_class<Layer>(
      module, "TransformerEncoderLayer",
      "Self-attention, then a feed-forward part, each added to its input (Vaswani et al. 2017): x [B, T, "
      "width] to [B, T, width].\n\n"
      "`feed_forward`: its width, 4 times the width when 0; `activation` in it: 'relu', 'gelu' or "
      "'gelu_tanh'. `dropout`: of attention weights, of both parts' results and within the feed-forward "
      "part, with `training`. `norm_first`: norms stand in front of the parts. `epsilon`: of the norms. "
      "`rotary_base`: of self-attention, see MultiHeadAttention. `initial`: of all matrices, and then biases "
      "start 0; `last_initial`: of those whose result is added. Parameters are those of <name>/self, "
      "<name>/norm1, <name>/norm2, <name>/in and <name>/out.")
      .def(
          "__init__",
          [](Kept<Layer>* self, const std::string& name, std::int64_t width, std::int64_t heads,
             std::int64_t feed_forward, const std::string& activation, double dropout, bool norm_first, double epsilon,
             double rotary_base, bool training, nb::object dtype, const MaybeInitial& initial,
             const MaybeInitial& last_initial, const MaybeGraph& graph) {
            construct_layer(self, "TransformerEncoderLayer", name, width, heads, feed_forward, activation, dropout,
                            norm_first, epsilon, rotary_base, true, training, dtype, initial, last_initial, graph);
          },
          "name"_a, "width"_a, "heads"_a, nb::kw_only(), "feed_forward"_a = 0, "activation"_a = "relu",
          "dropout"_a = 0.0, "norm_first"_a = false, "epsilon"_a = 1e-5, "rotary_base"_a = 0.0, "training"_a = true,
          "dtype"_a = DType::f32, "initial"_a = nb::none(), "last_initial"_a = nb::none(), "graph"_a = nb::none(),
          nb::sig("def __init__(self, name: str, width: int, heads: int, *, feed_forward: int = 0, activation: str = "
                  "'relu', dropout: float = 0, norm_first: bool = False, epsilon: float = 1e-5, rotary_base: float = "
                  "0, training: bool = True, dtype: DType | str = 'f32', initial: Initializer | None = None, "
                  "last_initial: Initializer | None = None, graph: Graph | None = None) -> None"))
      .def(
          "__call__",
          [](const Kept<Layer>& self, const ValueHandle& x, const MaybeValue& mask, const MaybeValue& lengths,
             bool causal) {
            self.owner->get();
            return wrap(self.layer(x, attention_of(mask, lengths, causal, 0, 0)));
          },
          "x"_a, "mask"_a = nb::none(), "lengths"_a = nb::none(), "causal"_a = false,
          "x [B, T, width]; `mask`: bools, true where an element is seen, [B, T, T] or what broadcasts to [B, heads, "
          "T, "
          "T]; `lengths` [B]; `causal`: none looks ahead.");
}

void bind_decoder_layer(nb::module_& module) {
  using Layer = nn::TransformerDecoderLayer;
  layer_class<Layer>(
      module, "TransformerDecoderLayer",
      "TransformerEncoderLayer, whose self-attention never looks ahead, with attention to a memory in "
      "between, and its options; without `memory` a layer of a language model.\n\n"
      "Parameters are those of the encoder's layer, <name>/memory and <name>/norm3. start() and step() make "
      "one step after another with a cache.")
      .def(
          "__init__",
          [](Kept<Layer>* self, const std::string& name, std::int64_t width, std::int64_t heads,
             std::int64_t feed_forward, const std::string& activation, double dropout, bool norm_first, double epsilon,
             double rotary_base, bool memory, bool training, nb::object dtype, const MaybeInitial& initial,
             const MaybeInitial& last_initial, const MaybeGraph& graph) {
            construct_layer(self, "TransformerDecoderLayer", name, width, heads, feed_forward, activation, dropout,
                            norm_first, epsilon, rotary_base, memory, training, dtype, initial, last_initial, graph);
          },
          "name"_a, "width"_a, "heads"_a, nb::kw_only(), "feed_forward"_a = 0, "activation"_a = "relu",
          "dropout"_a = 0.0, "norm_first"_a = false, "epsilon"_a = 1e-5, "rotary_base"_a = 0.0, "memory"_a = true,
          "training"_a = true, "dtype"_a = DType::f32, "initial"_a = nb::none(), "last_initial"_a = nb::none(),
          "graph"_a = nb::none(),
          nb::sig("def __init__(self, name: str, width: int, heads: int, *, feed_forward: int = 0, activation: str = "
                  "'relu', dropout: float = 0, norm_first: bool = False, epsilon: float = 1e-5, rotary_base: float = "
                  "0, memory: bool = True, training: bool = True, dtype: DType | str = 'f32', initial: Initializer | "
                  "None = None, last_initial: Initializer | None = None, graph: Graph | None = None) -> None"))
      .def(
          "__call__",
          [](const Kept<Layer>& self, const ValueHandle& x, const MaybeValue& memory, const MaybeValue& memory_mask,
             const MaybeValue& memory_lengths) {
            self.owner->get();
            return wrap(self.layer(x, value_of(memory), attention_of(memory_mask, memory_lengths, false, 0, 0)));
          },
          "x"_a, "memory"_a = nb::none(), "memory_mask"_a = nb::none(), "memory_lengths"_a = nb::none(),
          "All steps at once: x [B, T, width], memory [B, S, width] where the layer has one; the mask and lengths [B] "
          "say "
          "which of its rows count.")
      .def(
          "start",
          [](const Kept<Layer>& self, std::int64_t batch, std::int64_t length, const MaybeValue& memory,
             const MaybeGraph& graph) {
            return cache_of(self.layer.start(cache_graph_of(graph, self), batch, length, value_of(memory)));
          },
          "batch"_a, "length"_a, "memory"_a = nb::none(), "graph"_a = nb::none(),
          nb::sig(
              "def start(self, batch: int, length: int, memory: Value | None = None, graph: Graph | None = None) -> "
              "tuple[tuple[Value, Value], tuple[Value, Value] | None]"),
          "The cache for step(): of self-attention with room for `length` steps of `batch` rows, and the memory's keys "
          "and values, projected once. Nested tuples, so that a scan carries it.")
      .def(
          "step",
          [](const Kept<Layer>& self, const ValueHandle& x, const CacheHandle& cache, const ValueHandle& position,
             const MaybeValue& memory_mask, const MaybeValue& memory_lengths) {
            self.owner->get();
            Layer::Cache given{.self = keys_and_values_of(cache.first), .memory = {}};
            if (cache.second) given.memory = keys_and_values_of(*cache.second);
            const Layer::Step made =
                self.layer.step(x, given, position, attention_of(memory_mask, memory_lengths, false, 0, 0));
            return std::pair(wrap(made.result), cache_of(made.cache));
          },
          "x"_a, "cache"_a, "position"_a, "memory_mask"_a = nb::none(), "memory_lengths"_a = nb::none(),
          nb::sig("def step(self, x: Value, cache: tuple[tuple[Value, Value], tuple[Value, Value] | None], position: "
                  "Value, memory_mask: Value | None = None, memory_lengths: Value | None = None) -> tuple[Value, "
                  "tuple[tuple[Value, Value], tuple[Value, Value] | None]]"),
          "The next T steps x [B, T, width] at `position` .. position + T - 1, i64 []: what the layer gives for them "
          "when "
          "it sees all, and the cache with them.");
}

}  // namespace

void bind_transformer_layers(nb::module_& module) {
  auto positions =
      layer_class<nn::LearnedPositions>(module, "LearnedPositions",
                                        "x [.., T, width] plus a learned row for each place, from `first` on "
                                        "(0 without; i64 []). The parameter is <name>/weight [positions, "
                                        "width], normal of deviation 0.02 at first.");
  positions
      .def(
          "__init__",
          [](Kept<nn::LearnedPositions>* self, const std::string& name, std::int64_t places, std::int64_t width,
             nb::object dtype, const MaybeGraph& graph) {
            construct(self, layer_graph_of(graph, "LearnedPositions"), name, places, width, dtype_of(dtype));
          },
          "name"_a, "positions"_a, "width"_a, nb::kw_only(), "dtype"_a = DType::f32, "graph"_a = nb::none(),
          nb::sig("def __init__(self, name: str, positions: int, width: int, *, dtype: DType | str = 'f32', graph: "
                  "Graph | None = None) -> None"))
      .def(
          "__call__",
          [](const Kept<nn::LearnedPositions>& self, const ValueHandle& x, const MaybeValue& first) {
            self.owner->get();
            return wrap(self.layer(x, value_of(first)));
          },
          "x"_a, "first"_a = nb::none());
  bind_value_of(positions, "weight", &nn::LearnedPositions::weight);
  bind_encoder_layer(module);
  bind_decoder_layer(module);
}

}  // namespace paoding::python
