// SPDX-License-Identifier: Apache-2.0
// paoding.nn.MultiHeadAttention, whole and in parts. Keys and values are tuples of two, so that caches may be carries
// of a scan.
#include <nanobind/stl/pair.h>

#include "layer_classes.h"

namespace paoding::python {
namespace {

using Attention = nn::MultiHeadAttention;

void construct_attention(Kept<Attention>* self, const std::string& name, std::int64_t width, std::int64_t heads,
                         std::int64_t key_width, std::int64_t value_width, bool bias, double dropout, bool training,
                         double rotary_base, nb::object dtype, const MaybeInitial& initial,
                         const MaybeInitial& output_initial, const MaybeGraph& graph) {
  construct(self, layer_graph_of(graph, "MultiHeadAttention"), name, width, heads,
            nn::MultiHeadAttentionOptions{.key_width = key_width,
                                          .value_width = value_width,
                                          .bias = bias,
                                          .dropout = dropout,
                                          .training = training,
                                          .rotary_base = rotary_base,
                                          .dtype = dtype_of(dtype),
                                          .initial = initial_of(initial),
                                          .output_initial = initial_of(output_initial)});
}

}  // namespace

void bind_attention_layer(nb::module_& module) {
  auto type = layer_class<Attention>(
      module, "MultiHeadAttention",
      "Attention of several heads (Vaswani et al. 2017): queries [B, T, width], keys [B, S, key_width] and values [B, "
      "S, "
      "value_width] to [B, T, width].\n\n"
      "`key_width`, `value_width`: those of queries when 0. `dropout`: of the attention weights, with `training`. "
      "`rotary_base`: queries and keys are turned by their positions with this base, 0: they are not. `initial`: of "
      "the "
      "projections of queries, keys and values, xavier_uniform without; `output_initial`: of the last one, uniform in "
      "+-1 / sqrt(width) without. Where all have one width, parameters are <name>/in/weight [width, 3 width] (queries, "
      "keys, values), <name>/in/bias, <name>/out/weight and <name>/out/bias.\n\n"
      "A decoder makes one step after another with a cache: empty_cache() and step() for self-attention, project() and "
      "attend() for a memory.");
  type.def("__init__", &construct_attention, "name"_a, "width"_a, "heads"_a, nb::kw_only(), "key_width"_a = 0,
           "value_width"_a = 0, "bias"_a = true, "dropout"_a = 0.0, "training"_a = true, "rotary_base"_a = 0.0,
           "dtype"_a = DType::f32, "initial"_a = nb::none(), "output_initial"_a = nb::none(), "graph"_a = nb::none(),
           nb::sig("def __init__(self, name: str, width: int, heads: int, *, key_width: int = 0, value_width: int = 0, "
                   "bias: bool = True, dropout: float = 0, training: bool = True, rotary_base: float = 0, dtype: DType "
                   "| str = 'f32', initial: Initializer | None = None, output_initial: Initializer | None = None, "
                   "graph: Graph | None = None) -> None"))
      .def(
          "__call__",
          [](const Kept<Attention>& self, const ValueHandle& queries, const MaybeValue& keys, const MaybeValue& values,
             const MaybeValue& mask, const MaybeValue& lengths, bool causal) {
            self.owner->get();
            const Value query = queries, key = keys ? Value(*keys) : query, value = values ? Value(*values) : key;
            return wrap(self.layer(query, key, value, attention_of(mask, lengths, causal, 0, 0)));
          },
          "queries"_a, "keys"_a = nb::none(), "values"_a = nb::none(), "mask"_a = nb::none(), "lengths"_a = nb::none(),
          "causal"_a = false,
          "Keys are the queries without, values the keys. `mask`: bools, true where a key is seen, [B, T, S] or what "
          "broadcasts to [B, heads, T, S]; `lengths` [B]: of the keys.")
      .def(
          "project",
          [](const Kept<Attention>& self, const ValueHandle& keys, const MaybeValue& values) {
            self.owner->get();
            const Value key = keys;
            return pair_of(self.layer.project(key, values ? Value(*values) : key));
          },
          "keys"_a, "values"_a = nb::none(),
          nb::sig("def project(self, keys: Value, values: Value | None = None) -> tuple[Value, Value]"),
          "A memory that many queries attend to, projected once: keys and values [B, heads, S, width / heads].")
      .def(
          "attend",
          [](const Kept<Attention>& self, const ValueHandle& queries, const Pair& memory, const MaybeValue& mask,
             const MaybeValue& lengths, bool causal, const MaybeValue& position) {
            self.owner->get();
            return wrap(self.layer.attend(queries, keys_and_values_of(memory),
                                          attention_of(mask, lengths, causal, 0, 0), value_of(position)));
          },
          "queries"_a, "memory"_a, "mask"_a = nb::none(), "lengths"_a = nb::none(), "causal"_a = false,
          "position"_a = nb::none(),
          nb::sig("def attend(self, queries: Value, memory: tuple[Value, Value], mask: Value | None = None, lengths: "
                  "Value | None = None, causal: bool = False, position: Value | None = None) -> Value"),
          "Attention of queries [B, T, width] to what project() gave; with rotary positions the first query stands at "
          "`position`, i64 [].")
      .def(
          "empty_cache",
          [](const Kept<Attention>& self, std::int64_t batch, std::int64_t length, const MaybeGraph& graph) {
            return pair_of(self.layer.empty_cache(cache_graph_of(graph, self), batch, length));
          },
          "batch"_a, "length"_a, "graph"_a = nb::none(),
          nb::sig("def empty_cache(self, batch: int, length: int, graph: Graph | None = None) -> tuple[Value, Value]"),
          "The cache for step(): room for `length` keys and values of `batch` rows, zeros.")
      .def(
          "step",
          [](const Kept<Attention>& self, const ValueHandle& x, const Pair& cache, const ValueHandle& position) {
            self.owner->get();
            const Attention::Step made = self.layer.step(x, keys_and_values_of(cache), position);
            return std::pair(wrap(made.result), pair_of(made.cache));
          },
          "x"_a, "cache"_a, "position"_a,
          nb::sig("def step(self, x: Value, cache: tuple[Value, Value], position: Value) -> tuple[Value, tuple[Value, "
                  "Value]]"),
          "Self-attention of the next T elements x [B, T, width], which stand at `position` .. position + T - 1, i64 "
          "[], "
          "to themselves and those before: the result, and the cache with them.");
  bind_value_of(type, "weight", &Attention::weight);
  bind_value_of(type, "query_weight", &Attention::query_weight);
  bind_value_of(type, "key_weight", &Attention::key_weight);
  bind_value_of(type, "value_weight", &Attention::value_weight);
  bind_value_of(type, "bias", &Attention::bias);
  bind_value_of(type, "output_weight", &Attention::output_weight);
  bind_value_of(type, "output_bias", &Attention::output_bias);
}

}  // namespace paoding::python
