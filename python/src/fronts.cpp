// SPDX-License-Identifier: Apache-2.0
// Functions of paoding/ops.h that are more than a call of an op: those that take no value, have options, or several ops
// in them. All others are generated from the op table (ops.py).
#include "fronts.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "calls.h"
#include "paoding/error.h"
#include "paoding/ops.h"
#include "paoding/ops/convolution_nd.h"
#include "paoding/ops/group_norm.h"
#include "paoding/ops/sampling.h"

namespace paoding::python {
namespace {

using namespace nb::literals;
using MaybeGraph = std::optional<GraphHandle>;

Graph& graph_of(const MaybeGraph& given, const char* op) { return graph_for(given ? &*given : nullptr, op); }

std::pair<ValueHandle, ValueHandle> wrap_pair(const std::pair<Value, Value>& values) {
  return {wrap(values.first), wrap(values.second)};
}

#define PD_SHAPE "shape: int | collections.abc.Sequence[int]"
#define PD_OF_GRAPH "dtype: DType | str = 'f32', graph: Graph | None = None) -> Value"

void bind_constants(nb::module_& module) {
  module.def(
      "full",
      [](nb::object shape, nb::object value, nb::object dtype, const MaybeGraph& graph) {
        return wrap(full(graph_of(graph, "full"), shape_of(shape), number_of(value), dtype_of(dtype)));
      },
      "shape"_a, "value"_a, "dtype"_a = DType::f32, "graph"_a = nb::none(),
      nb::sig("def full(" PD_SHAPE ", value: float, " PD_OF_GRAPH), "`shape` filled with `value`.");
  module.def(
      "zeros",
      [](nb::object shape, nb::object dtype, const MaybeGraph& graph) {
        return wrap(zeros(graph_of(graph, "zeros"), shape_of(shape), dtype_of(dtype)));
      },
      "shape"_a, "dtype"_a = DType::f32, "graph"_a = nb::none(), nb::sig("def zeros(" PD_SHAPE ", " PD_OF_GRAPH),
      "`shape` filled with 0.");
  module.def(
      "ones",
      [](nb::object shape, nb::object dtype, const MaybeGraph& graph) {
        return wrap(ones(graph_of(graph, "ones"), shape_of(shape), dtype_of(dtype)));
      },
      "shape"_a, "dtype"_a = DType::f32, "graph"_a = nb::none(), nb::sig("def ones(" PD_SHAPE ", " PD_OF_GRAPH),
      "`shape` filled with 1.");
  module.def(
      "iota",
      [](nb::object shape, int axis, nb::object dtype, const MaybeGraph& graph) {
        return wrap(iota(graph_of(graph, "iota"), shape_of(shape), axis, dtype_of(dtype)));
      },
      "shape"_a, "axis"_a, "dtype"_a = DType::i64, "graph"_a = nb::none(),
      nb::sig("def iota(" PD_SHAPE ", axis: int, dtype: DType | str = 'i64', graph: Graph | None = None) -> Value"),
      "The index along `axis` at every element.");
  module.def(
      "arange",
      [](std::int64_t start, std::optional<std::int64_t> end, std::int64_t step, nb::object dtype,
         const MaybeGraph& graph) {
        const bool from_zero = !end;
        return wrap(
            arange(graph_of(graph, "arange"), from_zero ? 0 : start, from_zero ? start : *end, step, dtype_of(dtype)));
      },
      "start"_a, "end"_a = nb::none(), "step"_a = 1, "dtype"_a = DType::i64, "graph"_a = nb::none(),
      nb::sig("def arange(start: int, end: int | None = None, step: int = 1, dtype: DType | str = 'i64', "
              "graph: Graph | None = None) -> Value"),
      "start, start + step, .. below end; from 0 when there is one number.");
  module.def(
      "constant",
      [](nb::object values, nb::object dtype, const MaybeGraph& graph) {
        const std::optional<DType> wanted = dtype.is_none() ? std::nullopt : std::optional(dtype_of(dtype));
        const Tensor tensor = dense_tensor_of(values, wanted, {"constant"});
        return wrap(constant_of(graph_of(graph, "constant"), tensor, wanted.value_or(tensor.dtype())));
      },
      "values"_a, "dtype"_a = nb::none(), "graph"_a = nb::none(),
      nb::sig("def constant(values: object, dtype: DType | str | None = None, graph: Graph | None = None) -> Value"),
      "A small tensor that is part of the graph.");
  module.def(
      "causal_mask",
      [](std::int64_t queries, std::int64_t keys, std::int64_t offset, const MaybeGraph& graph) {
        return wrap(causal_mask(graph_of(graph, "causal_mask"), queries, keys, offset));
      },
      "queries"_a, "keys"_a, "offset"_a = 0, "graph"_a = nb::none(),
      "A bool [queries, keys], true where key <= query + offset.");
}

void bind_random(nb::module_& module) {
  module.def(
      "random_uniform",
      [](nb::object shape, double low, double high, nb::object dtype, const MaybeGraph& graph) {
        return wrap(random_uniform(graph_of(graph, "random_uniform"), shape_of(shape), low, high, dtype_of(dtype)));
      },
      "shape"_a, "low"_a = 0.0, "high"_a = 1.0, "dtype"_a = DType::f32, "graph"_a = nb::none(),
      nb::sig("def random_uniform(" PD_SHAPE ", low: float = 0, high: float = 1, " PD_OF_GRAPH),
      "Uniform in [low, high).");
  module.def(
      "random_normal",
      [](nb::object shape, double mean, double deviation, nb::object dtype, const MaybeGraph& graph) {
        return wrap(random_normal(graph_of(graph, "random_normal"), shape_of(shape), mean, deviation, dtype_of(dtype)));
      },
      "shape"_a, "mean"_a = 0.0, "deviation"_a = 1.0, "dtype"_a = DType::f32, "graph"_a = nb::none(),
      nb::sig("def random_normal(" PD_SHAPE ", mean: float = 0, deviation: float = 1, " PD_OF_GRAPH),
      "Normal, drawn anew in every run.");
  module.def(
      "random_bernoulli",
      [](nb::object shape, double probability, const MaybeGraph& graph) {
        return wrap(random_bernoulli(graph_of(graph, "random_bernoulli"), shape_of(shape), probability));
      },
      "shape"_a, "probability"_a, "graph"_a = nb::none(),
      nb::sig("def random_bernoulli(" PD_SHAPE ", probability: float, graph: Graph | None = None) -> Value"),
      "A bool that is true with `probability`.");
  module.def(
      "dropout",
      [](const ValueHandle& x, double probability, bool training) { return wrap(dropout(x, probability, training)); },
      "x"_a, "probability"_a, "training"_a = true, "0 with `probability`, else x / (1 - probability).");
}

void bind_sampling(nb::module_& module) {
  module.def(
      "categorical",
      [](const ValueHandle& logits, double temperature, std::int64_t top_k, double top_p) {
        return wrap(categorical(logits, {.temperature = temperature, .top_k = top_k, .top_p = top_p}));
      },
      "logits"_a, "temperature"_a = 1.0, "top_k"_a = 0, "top_p"_a = 1.0,
      "One category per row, drawn with the probabilities softmax(logits / temperature) of those that top_k and top_p "
      "leave.");
}

void bind_norms(nb::module_& module) {
  module.def(
      "group_norm",
      [](const ValueHandle& x, std::int64_t groups, const MaybeValue& gamma, const MaybeValue& beta, double epsilon) {
        return wrap(group_norm(x, groups, value_of(gamma), value_of(beta), epsilon));
      },
      "x"_a, "groups"_a, "gamma"_a = nb::none(), "beta"_a = nb::none(), "epsilon"_a = 1e-5,
      "layer_norm of each group of channels of each image.");
  module.def(
      "layer_norm",
      [](const ValueHandle& x, const MaybeValue& gamma, const MaybeValue& beta, nb::object axis, double epsilon) {
        const auto list = axis.is_none() ? std::vector<std::int64_t>() : integers_of(axis, "axis");
        return wrap(layer_norm(x, value_of(gamma), value_of(beta), list, epsilon));
      },
      "x"_a, "gamma"_a = nb::none(), "beta"_a = nb::none(), "axis"_a = nb::none(), "epsilon"_a = 1e-5,
      nb::sig("def layer_norm(x: Value, gamma: Value | None = None, beta: Value | None = None, axis: int | "
              "collections.abc.Sequence[int] | None = None, epsilon: float = 1e-5) -> Value"),
      "(x - mean) / sqrt(variance + epsilon) * gamma + beta over `axis`, the last one unless said otherwise.");
  module.def(
      "rms_norm",
      [](const ValueHandle& x, const MaybeValue& gamma, double epsilon) {
        return wrap(rms_norm(x, value_of(gamma), epsilon));
      },
      "x"_a, "gamma"_a = nb::none(), "epsilon"_a = 1e-6, "x / sqrt(mean(x^2) + epsilon) * gamma over the last axis.");
  module.def(
      "batch_norm",
      [](const ValueHandle& x, const ValueHandle& gamma, const ValueHandle& beta, const MaybeValue& mean,
         const MaybeValue& variance, bool training, double momentum, double epsilon) {
        return wrap(batch_norm(x, gamma, beta, value_of(mean), value_of(variance),
                               {.training = training, .momentum = momentum, .epsilon = epsilon}));
      },
      "x"_a, "gamma"_a, "beta"_a, "running_mean"_a = nb::none(), "running_variance"_a = nb::none(), "training"_a = true,
      "momentum"_a = 0.1, "epsilon"_a = 1e-5, "Statistics over all axes but axis 1.");
}

LossReduction reduction_of(const std::string& text) {
  if (text == "mean") return LossReduction::mean;
  if (text == "sum") return LossReduction::sum;
  if (text == "none") return LossReduction::none;
  throw Error(ErrorKind::argument, "reduction is '" + text + "', needed is mean, sum or none");
}

void bind_attention(nb::module_& module) {
  module.def(
      "cross_entropy",
      [](const ValueHandle& logits, const ValueHandle& labels, const MaybeValue& weights, double label_smoothing,
         const std::string& reduction) {
        return wrap(cross_entropy(
            logits, labels,
            {.weights = value_of(weights), .label_smoothing = label_smoothing, .reduction = reduction_of(reduction)}));
      },
      "logits"_a, "labels"_a, "weights"_a = nb::none(), "label_smoothing"_a = 0.0, "reduction"_a = "mean",
      "log(sum(e^logits)) - logits[label]; labels below 0 do not count.");
  module.def(
      "scaled_dot_product_attention",
      [](const ValueHandle& queries, const ValueHandle& keys, const ValueHandle& values, const MaybeValue& mask,
         const MaybeValue& lengths, bool causal, double scale, double dropout, const MaybeValue& bias,
         const MaybeValue& slopes, bool bottom_right, std::int64_t left, std::int64_t right) {
        AttentionOptions options = attention_of(mask, lengths, causal, scale, dropout);
        options.bias = value_of(bias), options.slopes = value_of(slopes);
        options.bottom_right = bottom_right, options.left = left, options.right = right;
        return wrap(scaled_dot_product_attention(queries, keys, values, options));
      },
      "queries"_a, "keys"_a, "values"_a, "mask"_a = nb::none(), "lengths"_a = nb::none(), "causal"_a = false,
      "scale"_a = 0.0, "dropout"_a = 0.0, "bias"_a = nb::none(), "slopes"_a = nb::none(), "bottom_right"_a = false,
      "left"_a = -1, "right"_a = -1,
      "softmax(scale queries keys^T + bias) values over the keys that are seen; scale 0 is 1 / sqrt(width).");
  module.def(
      "multiplicative_attention",
      [](const ValueHandle& query, const ValueHandle& memory, const MaybeValue& counts, const MaybeValue& keys) {
        return wrap_pair(multiplicative_attention(query, memory, value_of(counts), value_of(keys)));
      },
      "query"_a, "memory"_a, "counts"_a = nb::none(), "keys"_a = nb::none(),
      "One step of multiplicative attention (Luong, Pham, Manning 2015): context and weights.");
  module.def(
      "scatter_add",
      [](const ValueHandle& into, const ValueHandle& indices, const ValueHandle& updates, int axis) {
        return wrap(scatter_add(Value(into), Value(indices), Value(updates), axis));
      },
      "into"_a, "indices"_a, "updates"_a, "axis"_a = 0, "`into` with updates added at indices along `axis`.");
}

void bind_convolutions(nb::module_& module) {
  module.def(
      "conv2d",
      [](const ValueHandle& x, const ValueHandle& w, const MaybeValue& bias, nb::object stride, nb::object padding,
         nb::object dilation, std::int64_t groups, const std::string& activation) {
        const Conv2dOptions options = conv2d_options(stride, padding, dilation, groups, activation);
        return wrap(bias ? conv2d(x, w, *bias, options) : conv2d(x, w, options));
      },
      "x"_a, "w"_a, "bias"_a = nb::none(), "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1, "groups"_a = 1,
      "activation"_a = "none",
      nb::sig(
          "def conv2d(x: Value, w: Value, bias: Value | None = None, stride: Ints = 1, padding: Ints = 0, dilation: "
          "Ints = 1, groups: int = 1, activation: str = 'none') -> Value"),
      "Cross-correlation of images [N, C, H, W] with kernels [O, C / groups, KH, KW]. Padding: one number, (vertical, "
      "horizontal), or (top, bottom, left, right).");
  module.def(
      "conv1d",
      [](const ValueHandle& x, const ValueHandle& w, const MaybeValue& bias, std::int64_t stride, nb::object padding,
         std::int64_t dilation, std::int64_t groups) {
        return wrap(conv1d(
            x, w, value_of(bias),
            {.stride = stride, .padding = extents<2>(padding, "padding"), .dilation = dilation, .groups = groups}));
      },
      "x"_a, "w"_a, "bias"_a = nb::none(), "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1, "groups"_a = 1,
      nb::sig("def conv1d(x: Value, w: Value, bias: Value | None = None, stride: int = 1, padding: Ints = 0, dilation: "
              "int = 1, groups: int = 1) -> Value"),
      "Cross-correlation of sequences [N, C, L] with kernels [O, C / groups, K]. Padding: one number, or (before, "
      "after).");
  module.def(
      "conv3d",
      [](const ValueHandle& x, const ValueHandle& w, const MaybeValue& bias, nb::object stride, nb::object padding,
         nb::object dilation, std::int64_t groups) {
        const Conv3dOptions options{.stride = extents<3>(stride, "stride"),
                                    .padding = padding_of<3>(padding),
                                    .dilation = extents<3>(dilation, "dilation"),
                                    .groups = groups};
        return wrap(conv3d(x, w, value_of(bias), options));
      },
      "x"_a, "w"_a, "bias"_a = nb::none(), "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1, "groups"_a = 1,
      nb::sig(
          "def conv3d(x: Value, w: Value, bias: Value | None = None, stride: Ints = 1, padding: Ints = 0, dilation: "
          "Ints = 1, groups: int = 1) -> Value"),
      "Cross-correlation of volumes [N, C, D, H, W] with kernels [O, C / groups, KD, KH, KW]. Stride, padding and "
      "dilation: "
      "one number, or one for each axis.");
  module.def(
      "conv_transpose2d",
      [](const ValueHandle& x, const ValueHandle& w, const MaybeValue& bias, nb::object stride, nb::object padding,
         nb::object output_padding, nb::object dilation, std::int64_t groups) {
        const ConvTranspose2dOptions options{.stride = extents<2>(stride, "stride"),
                                             .padding = padding_of<2>(padding),
                                             .output_padding = extents<2>(output_padding, "output_padding"),
                                             .dilation = extents<2>(dilation, "dilation"),
                                             .groups = groups};
        return wrap(conv_transpose2d(x, w, value_of(bias), options));
      },
      "x"_a, "w"_a, "bias"_a = nb::none(), "stride"_a = 1, "padding"_a = 0, "output_padding"_a = 0, "dilation"_a = 1,
      "groups"_a = 1,
      nb::sig(
          "def conv_transpose2d(x: Value, w: Value, bias: Value | None = None, stride: Ints = 1, padding: Ints = 0, "
          "output_padding: Ints = 0, dilation: Ints = 1, groups: int = 1) -> Value"),
      "The gradient of conv2d for its image, as a layer.");
  const auto pool_options = [](nb::object kernel, nb::object stride, nb::object padding, nb::object dilation) {
    return Pool2dOptions{.kernel = extents<2>(kernel, "kernel"),
                         .stride = stride.is_none() ? std::array<std::int64_t, 2>{0, 0} : extents<2>(stride, "stride"),
                         .padding = padding_of<2>(padding),
                         .dilation = extents<2>(dilation, "dilation")};
  };
  module.def(
      "max_pool2d",
      [pool_options](const ValueHandle& x, nb::object kernel, nb::object stride, nb::object padding,
                     nb::object dilation) {
        return wrap(max_pool2d(x, pool_options(kernel, stride, padding, dilation)));
      },
      "x"_a, "kernel"_a, "stride"_a = nb::none(), "padding"_a = 0, "dilation"_a = 1,
      nb::sig("def max_pool2d(x: Value, kernel: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = "
              "1) -> Value"),
      "The largest element of every window; a stride of None is the kernel's extents.");
  module.def(
      "avg_pool2d",
      [pool_options](const ValueHandle& x, nb::object kernel, nb::object stride, nb::object padding,
                     nb::object dilation, bool count_padding) {
        return wrap(avg_pool2d(x, pool_options(kernel, stride, padding, dilation), count_padding));
      },
      "x"_a, "kernel"_a, "stride"_a = nb::none(), "padding"_a = 0, "dilation"_a = 1, "count_padding"_a = true,
      nb::sig(
          "def avg_pool2d(x: Value, kernel: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1, "
          "count_padding: bool = True) -> Value"),
      "The mean of every window of images [N, C, H, W]; a stride of None is the kernel's extents.");
  module.def(
      "global_avg_pool", [](const ValueHandle& x) { return wrap(global_avg_pool(x)); }, "x"_a,
      "[N, C, H, W] to [N, C].");
}

}  // namespace

AttentionOptions attention_of(const MaybeValue& mask, const MaybeValue& lengths, bool causal, double scale,
                              double dropout) {
  return {.mask = value_of(mask), .lengths = value_of(lengths), .causal = causal, .scale = scale, .dropout = dropout};
}

Conv2dOptions conv2d_options(nb::handle stride, nb::handle padding, nb::handle dilation, std::int64_t groups,
                             const std::string& activation) {
  constexpr std::pair<const char*, Activation> known[] = {{"none", Activation::none},
                                                          {"relu", Activation::relu},
                                                          {"sigmoid", Activation::sigmoid},
                                                          {"tanh", Activation::tanh}};
  for (const auto& [name, value] : known) {
    if (activation != name) continue;
    return {.stride = extents<2>(stride, "stride"),
            .padding = padding_of<2>(padding),
            .dilation = extents<2>(dilation, "dilation"),
            .groups = groups,
            .activation = value};
  }
  throw Error(ErrorKind::argument, "activation is '" + activation + "', needed is none, relu, sigmoid or tanh");
}

void bind_fronts(nb::module_& module) {
  bind_constants(module);
  bind_random(module);
  bind_sampling(module);
  bind_norms(module);
  bind_attention(module);
  bind_convolutions(module);
}

}  // namespace paoding::python
