// SPDX-License-Identifier: Apache-2.0
// Layers: declarations of parameters, and the ops that use them.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/one_line.h"
#include "graph/value_scope.h"
#include "nn/layer_check.h"
#include "nn/within_root.h"
#include "paoding/nn.h"
#include "paoding/ops/group_norm.h"

namespace paoding::nn {
namespace {

std::string joined(std::string_view layer, std::string_view name) { return fmt::format("{}/{}", layer, name); }

// The values of `initial` with `bias` added to the second quarter, the forget gates.
Initializer with_forget_bias(Initializer initial, double bias) {
  if (bias == 0) return initial;
  return [=](const Type& type, std::uint64_t seed) {
    std::vector<double> values = initial(type, seed).to_doubles();
    const std::size_t hidden = values.size() / 4;
    for (std::size_t i = hidden; i < 2 * hidden; ++i) values[i] += bias;
    return Tensor::from(type.dtype, type.shape, values);
  };
}

Initializer with_zero_row(const Initializer& initial, std::int64_t row) {
  return [=](const Type& type, std::uint64_t seed) {
    std::vector<double> values = initial(type, seed).to_doubles();
    const auto width = static_cast<std::size_t>(type.shape[1]), first = static_cast<std::size_t>(row) * width;
    for (std::size_t i = first; i < first + width; ++i) values[i] = 0;
    return Tensor::from(type.dtype, type.shape, values);
  };
}

}  // namespace

Linear::Linear(Graph& graph, std::string_view name, std::int64_t inputs, std::int64_t outputs,
               const LinearOptions& options)
    : name_(name) {
  const LayerCheck check("linear", name);
  check.widths({{"inputs", inputs}, {"outputs", outputs}});
  check.is_float(options.dtype);
  const Initializer plain = within_root(inputs);
  weight = graph.parameter(joined(name, "weight"), options.dtype, {inputs, outputs},
                           options.initial ? options.initial : plain);
  if (!options.bias) return;
  bias = graph.parameter(joined(name, "bias"), options.dtype, {outputs},
                         options.bias_initial ? options.bias_initial : plain);
}

Value Linear::operator()(const Value& x) const {
  const ValueScope scope(name_, x);
  const Shape& shape = x.shape();
  if (shape.rank() == 0 || shape[shape.rank() - 1] != weight.shape()[0]) {
    fail(ErrorKind::shape, "linear: x has shape {}, its last extent must be {}{}", to_string(shape), weight.shape()[0],
         in_scope(x.graph().scope.str()));
  }
  // One product of matrices, whatever stands before the last axis.
  const std::int64_t rows = shape.with_removed(shape.rank() - 1).elements();
  Value y = matmul(reshape(x, Shape{rows, weight.shape()[0]}), weight);
  if (bias.valid()) y = y + bias;
  return reshape(y, shape.with_dim(shape.rank() - 1, weight.shape()[1]));
}

Conv2d::Conv2d(Graph& graph, std::string_view name, std::int64_t inputs, std::int64_t outputs,
               std::array<std::int64_t, 2> kernel, const Conv2dLayerOptions& options)
    : name_(name), conv_(options.conv) {
  const LayerCheck check("conv2d", name);
  const std::int64_t groups = conv_.groups;
  check.widths({{"inputs", inputs},
                {"outputs", outputs},
                {"kernel[0]", kernel[0]},
                {"kernel[1]", kernel[1]},
                {"groups", groups}});
  check.is_float(options.dtype);
  if (inputs % groups != 0 || outputs % groups != 0) {
    fail(ErrorKind::argument, "conv2d '{}': {} groups do not divide {} inputs and {} outputs", one_line(name), groups,
         inputs, outputs);
  }
  const Shape shape{outputs, inputs / groups, kernel[0], kernel[1]};
  const Initializer plain = within_root(shape[1] * shape[2] * shape[3]);
  weight = graph.parameter(joined(name, "weight"), options.dtype, shape, options.initial ? options.initial : plain);
  if (options.bias) bias = graph.parameter(joined(name, "bias"), options.dtype, {outputs}, plain);
}

Value Conv2d::operator()(const Value& x) const {
  const ValueScope scope(name_, x);
  return bias.valid() ? conv2d(x, weight, bias, conv_) : conv2d(x, weight, conv_);
}

Embedding::Embedding(Graph& graph, std::string_view name, std::int64_t rows, std::int64_t width,
                     const EmbeddingOptions& options)
    : name_(name), padding_(options.padding) {
  const LayerCheck check("embedding", name);
  check.widths({{"rows", rows}, {"width", width}});
  check.is_float(options.dtype);
  if (padding_ < -1 || padding_ >= rows) {
    fail(ErrorKind::argument, "embedding '{}': padding = {}, but there are {} rows", one_line(name), padding_, rows);
  }
  const Initializer initial = options.initial ? options.initial : normal(0, 1);
  weight = graph.parameter(joined(name, "weight"), options.dtype, {rows, width},
                           padding_ < 0 ? initial : with_zero_row(initial, padding_));
}

Value Embedding::operator()(const Value& indices) const {
  const ValueScope scope(name_, indices);
  return embedding(weight, indices.dtype() == u8 ? cast(indices, i32) : indices, padding_);
}

LayerNorm::LayerNorm(Graph& graph, std::string_view name, std::int64_t width, double epsilon, DType dtype)
    : name_(name), epsilon_(epsilon) {
  const LayerCheck check("layer_norm", name);
  check.widths({{"width", width}});
  check.number("epsilon", epsilon, Range::at_least(0));
  check.is_float(dtype);
  gamma = graph.parameter(joined(name, "gamma"), dtype, {width}, constant(1));
  beta = graph.parameter(joined(name, "beta"), dtype, {width});
}

Value LayerNorm::operator()(const Value& x) const {
  const ValueScope scope(name_, x);
  return layer_norm(x, gamma, beta, {}, epsilon_);
}

RmsNorm::RmsNorm(Graph& graph, std::string_view name, std::int64_t width, double epsilon, DType dtype)
    : name_(name), epsilon_(epsilon) {
  const LayerCheck check("rms_norm", name);
  check.widths({{"width", width}});
  check.number("epsilon", epsilon, Range::at_least(0));
  check.is_float(dtype);
  gamma = graph.parameter(joined(name, "gamma"), dtype, {width}, constant(1));
}

Value RmsNorm::operator()(const Value& x) const {
  const ValueScope scope(name_, x);
  return rms_norm(x, gamma, epsilon_);
}

GroupNorm::GroupNorm(Graph& graph, std::string_view name, std::int64_t channels, std::int64_t groups, double epsilon,
                     DType dtype)
    : name_(name), groups_(groups), epsilon_(epsilon) {
  const LayerCheck check("group_norm", name);
  check.widths({{"channels", channels}, {"groups", groups}});
  check.number("epsilon", epsilon, Range::at_least(0));
  check.is_float(dtype);
  if (channels % groups != 0) {
    fail(ErrorKind::argument, "group_norm '{}': {} groups do not divide {} channels", one_line(name), groups, channels);
  }
  gamma = graph.parameter(joined(name, "gamma"), dtype, {channels}, constant(1));
  beta = graph.parameter(joined(name, "beta"), dtype, {channels});
}

Value GroupNorm::operator()(const Value& x) const {
  const ValueScope scope(name_, x);
  return group_norm(x, groups_, gamma, beta, epsilon_);
}

BatchNorm::BatchNorm(Graph& graph, std::string_view name, std::int64_t channels, const BatchNormOptions& options,
                     DType dtype)
    : name_(name), options_(options) {
  const LayerCheck check("batch_norm", name);
  check.widths({{"channels", channels}});
  check.number("momentum", options.momentum, Range::between(0, 1));
  check.number("epsilon", options.epsilon, Range::at_least(0));
  check.is_float(dtype);
  gamma = graph.parameter(joined(name, "gamma"), dtype, {channels}, constant(1));
  beta = graph.parameter(joined(name, "beta"), dtype, {channels});
  running_mean = graph.parameter(joined(name, "running_mean"), compute_dtype(dtype), {channels});
  running_variance = graph.parameter(joined(name, "running_variance"), compute_dtype(dtype), {channels}, constant(1));
}

Value BatchNorm::operator()(const Value& x) const {
  const ValueScope scope(name_, x);
  return batch_norm(x, gamma, beta, running_mean, running_variance, options_);
}

Recurrent::Recurrent(RecurrentKind kind, Graph& graph, std::string_view name, std::int64_t inputs, std::int64_t hidden,
                     const RecurrentLayerOptions& options)
    : name_(name), kind_(kind), options_(options) {
  const char* kinds[] = {"lstm", "gru", "rnn"};
  const LayerCheck check(kinds[static_cast<int>(kind)], name);
  check.widths({{"inputs", inputs}, {"hidden", hidden}, {"layers", options.layers}});
  check.number("dropout", options.dropout, Range::from_up_to(0, 1));
  check.number("recurrent_dropout", options.recurrent_dropout, Range::from_up_to(0, 1));
  check.number("zoneout_h", options.zoneout_h, Range::from_up_to(0, 1));
  check.number("zoneout_c", options.zoneout_c, Range::from_up_to(0, 1));
  check.only(kind == RecurrentKind::lstm || options.zoneout_c == 0, "zoneout_c", "an LSTM");
  check.number("recompute", static_cast<double>(options.recompute), Range::at_least(0));
  check.number("projection", static_cast<double>(options.projection), Range::at_least(0));
  check.number("forget_bias", options.forget_bias, {});
  check.is_float(options.dtype);
  check.only(kind == RecurrentKind::lstm || options.projection == 0, "projection", "an LSTM");
  check.only(kind == RecurrentKind::lstm || options.forget_bias == 0, "forget_bias", "an LSTM");
  check.only(kind == RecurrentKind::gru || options.reset_after, "reset_after", "a GRU");
  check.only(kind == RecurrentKind::rnn || !options.relu, "relu", "an RNN");
  const std::int64_t gates = kind == RecurrentKind::lstm ? 4 : kind == RecurrentKind::gru ? 3 : 1;
  const std::int64_t biases = kind == RecurrentKind::gru && options.reset_after ? 4 : gates;
  const std::int64_t width = options.projection > 0 ? options.projection : hidden;
  const Initializer initial = options.initial ? options.initial : within_root(hidden);
  const int directions = options.bidirectional ? 2 : 1;
  for (int layer = 0; layer < options.layers; ++layer) {
    const std::int64_t features = layer == 0 ? inputs : directions * width;
    for (int direction = 0; direction < directions; ++direction) {
      const std::string of = fmt::format("{}/l{}{}", name, layer, direction == 1 ? "_reverse" : "");
      const auto parameter = [&](const char* what, const Shape& shape, const Initializer& start) {
        return graph.parameter(joined(of, what), options.dtype, shape, start);
      };
      RecurrentParameters made;
      made.w = parameter("w", {features, gates * hidden}, initial);
      made.u = parameter("u", {width, gates * hidden}, initial);
      made.b = parameter("b", {biases * hidden},
                         kind == RecurrentKind::lstm ? with_forget_bias(initial, options.forget_bias) : initial);
      if (options.projection > 0) made.projection = parameter("projection", {hidden, width}, initial);
      parameters_.push_back(made);
    }
  }
}

RecurrentResult Recurrent::operator()(const Value& xs, RecurrentOptions options) const {
  const ValueScope scope(name_, xs);
  options.bidirectional = options_.bidirectional;
  options.dropout = options_.dropout;
  options.recurrent_dropout = options_.recurrent_dropout;
  options.zoneout_h = options_.zoneout_h, options.zoneout_c = options_.zoneout_c;
  options.training = options.training && options_.training;
  options.recompute = options_.recompute;
  options.reset_after = options_.reset_after;
  options.relu = options_.relu;
  if (kind_ == RecurrentKind::lstm) return lstm(xs, parameters_, options);
  if (kind_ == RecurrentKind::gru) return gru(xs, parameters_, options);
  return rnn(xs, parameters_, options);
}

}  // namespace paoding::nn
