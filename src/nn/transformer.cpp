// SPDX-License-Identifier: Apache-2.0
// Transformer layers: residual sums of attention and feed-forward parts.
#include "paoding/nn/transformer.h"

#include "base/check.h"
#include "base/one_line.h"
#include "graph/value_scope.h"
#include "nn/layer_check.h"
#include "paoding/ops/dynamic.h"

namespace paoding::nn {
namespace {

std::string part(std::string_view layer, const char* what) { return fmt::format("{}/{}", layer, what); }

Initializer last_initial(const TransformerOptions& options) {
  return options.last_initial ? options.last_initial : options.initial;
}

MultiHeadAttention attention(Graph& graph, const std::string& name, std::int64_t width, std::int64_t heads,
                             const TransformerOptions& options, double rotary_base) {
  return {graph, name, width, heads,
          MultiHeadAttentionOptions{.dropout = options.dropout,
                                    .training = options.training,
                                    .rotary_base = rotary_base,
                                    .dtype = options.dtype,
                                    .initial = options.initial,
                                    .output_initial = last_initial(options)}};
}

LayerNorm norm(Graph& graph, const std::string& name, std::int64_t width, const TransformerOptions& options) {
  return {graph, name, width, options.epsilon, options.dtype};
}

Linear linear(Graph& graph, const std::string& name, std::int64_t inputs, std::int64_t outputs,
              const TransformerOptions& options, const Initializer& initial) {
  const Initializer bias = options.initial ? constant(0) : Initializer{};
  return {graph, name, inputs, outputs,
          LinearOptions{.dtype = options.dtype, .initial = initial, .bias_initial = bias}};
}

std::int64_t inner_width(std::string_view name, std::int64_t width, const TransformerOptions& options) {
  LayerCheck("transformer layer", name)
      .number("feed_forward", static_cast<double>(options.feed_forward), Range::at_least(0));
  return options.feed_forward == 0 ? 4 * width : options.feed_forward;
}

// norm(x + f(x)), or x + f(norm(x)).
template <class F>
Value residual(const Value& x, const LayerNorm& norm, const TransformerOptions& options, const F& f) {
  const auto dropped = [&](const Value& y) { return dropout(y, options.dropout, options.training); };
  if (options.norm_first) return x + dropped(f(norm(x)));
  return norm(x + dropped(f(x)));
}

Value feed_forward(const Value& x, const Linear& in, const Linear& out, const TransformerOptions& options) {
  const Value inner = in(x);
  const Value active = options.activation == FeedForwardKind::relu   ? relu(inner)
                       : options.activation == FeedForwardKind::gelu ? gelu(inner)
                                                                     : gelu(inner, "tanh");
  return out(dropout(active, options.dropout, options.training));
}

}  // namespace

LearnedPositions::LearnedPositions(Graph& graph, std::string_view name, std::int64_t positions, std::int64_t width,
                                   DType dtype)
    : name_(name) {
  const LayerCheck check("learned positions", name);
  check.widths({{"positions", positions}, {"width", width}});
  check.is_float(dtype);
  weight = graph.parameter(part(name, "weight"), dtype, {positions, width}, normal(0, 0.02));
}

Value LearnedPositions::operator()(const Value& x, const Value& first) const {
  const ValueScope scope(name_, x);
  const Shape& shape = x.shape();
  const int rank = shape.rank();
  if (rank < 2 || shape[rank - 1] != weight.shape()[1] || shape[rank - 2] > weight.shape()[0]) {
    fail(ErrorKind::shape, "learned positions: x has shape {}, needed is [.., at most {}, {}]{}", to_string(shape),
         weight.shape()[0], weight.shape()[1], in_scope(x.graph().scope.str()));
  }
  const std::int64_t steps = shape[rank - 2];
  return x + (first.valid() ? dynamic_slice(weight, 0, first, steps) : slice(weight, 0, 0, steps));
}

TransformerEncoderLayer::TransformerEncoderLayer(Graph& graph, std::string_view name, std::int64_t width,
                                                 std::int64_t heads, const TransformerOptions& options)
    : name_(name),
      self_(attention(graph, part(name, "self"), width, heads, options, options.rotary_base)),
      norm1_(norm(graph, part(name, "norm1"), width, options)),
      norm2_(norm(graph, part(name, "norm2"), width, options)),
      in_(linear(graph, part(name, "in"), width, inner_width(name, width, options), options, options.initial)),
      out_(linear(graph, part(name, "out"), inner_width(name, width, options), width, options, last_initial(options))),
      options_(options) {}

Value TransformerEncoderLayer::operator()(const Value& x, const AttentionOptions& options) const {
  const ValueScope scope(name_, x);
  const Value y = residual(x, norm1_, options_, [&](const Value& in) { return self_(in, options); });
  return residual(y, norm2_, options_, [&](const Value& in) { return feed_forward(in, in_, out_, options_); });
}

TransformerDecoderLayer::TransformerDecoderLayer(Graph& graph, std::string_view name, std::int64_t width,
                                                 std::int64_t heads, const TransformerOptions& options)
    : name_(name),
      self_(attention(graph, part(name, "self"), width, heads, options, options.rotary_base)),
      norm1_(norm(graph, part(name, "norm1"), width, options)),
      norm2_(norm(graph, part(name, "norm2"), width, options)),
      in_(linear(graph, part(name, "in"), width, inner_width(name, width, options), options, options.initial)),
      out_(linear(graph, part(name, "out"), inner_width(name, width, options), width, options, last_initial(options))),
      options_(options) {
  if (!options.memory) return;
  memory_.push_back(attention(graph, part(name, "memory"), width, heads, options, 0));
  norm3_.push_back(norm(graph, part(name, "norm3"), width, options));
}

// Self-attention, attention to the memory, feed-forward, each with its norm.
template <class Self, class Memory>
Value TransformerDecoderLayer::applied(const Value& x, const Self& self, const Memory& memory) const {
  Value y = residual(x, norm1_, options_, self);
  if (!memory_.empty()) y = residual(y, norm2_, options_, memory);
  const LayerNorm& last = memory_.empty() ? norm2_ : norm3_[0];
  return residual(y, last, options_, [&](const Value& in) { return feed_forward(in, in_, out_, options_); });
}

Value TransformerDecoderLayer::operator()(const Value& x, const Value& memory,
                                          const AttentionOptions& memory_options) const {
  const ValueScope scope(name_, x);
  if (memory.valid() == memory_.empty()) {
    fail(ErrorKind::argument, "transformer decoder layer '{}': {}", one_line(name_),
         memory.valid() ? "has a memory to attend to, but was made without" : "needs the memory that it attends to");
  }
  return applied(
      x, [&](const Value& in) { return self_(in, {.causal = true}); },
      [&](const Value& in) { return memory_[0](in, memory, memory, memory_options); });
}

TransformerDecoderLayer::Cache TransformerDecoderLayer::start(Graph& graph, std::int64_t batch, std::int64_t length,
                                                              const Value& memory) const {
  if (memory.valid() == memory_.empty()) {
    fail(ErrorKind::argument, "transformer decoder layer '{}': {}", one_line(name_),
         memory.valid() ? "has a memory to attend to, but was made without" : "needs the memory that it attends to");
  }
  Cache cache{self_.empty_cache(graph, batch, length), {}};
  if (memory.valid()) {
    const ValueScope scope(name_, memory);
    cache.memory = memory_[0].project(memory, memory);
  }
  return cache;
}

TransformerDecoderLayer::Step TransformerDecoderLayer::step(const Value& x, const Cache& cache, const Value& position,
                                                            const AttentionOptions& memory_options) const {
  const ValueScope scope(name_, x);
  Cache next = cache;
  const auto self = [&](const Value& in) {
    const MultiHeadAttention::Step made = self_.step(in, cache.self, position);
    next.self = made.cache;
    return made.result;
  };
  const Value y =
      applied(x, self, [&](const Value& in) { return memory_[0].attend(in, cache.memory, memory_options); });
  return {y, next};
}

}  // namespace paoding::nn
