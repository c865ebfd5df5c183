// SPDX-License-Identifier: Apache-2.0
// paoding.nn: layers and initial values, as paoding/nn.h has them.
#include <nanobind/stl/array.h>
#include <nanobind/stl/vector.h>

#include "layer_classes.h"

namespace paoding::python {
namespace {

struct ResultHandle {  // RecurrentResult
  ValueHandle outputs;
  std::vector<ValueHandle> last_h, last_c;
};

void bind_linear(nb::module_& module) {
  auto linear =
      layer_class<nn::Linear>(module, "Linear",
                              "x weight + bias over the last axis: [.., inputs] to [.., outputs].\n\n"
                              "Parameters are <name>/weight [inputs, outputs] and, with `bias`, <name>/bias "
                              "[outputs], uniform in +-1 / sqrt(inputs) unless `initial` says otherwise for the "
                              "weight.");
  linear
      .def(
          "__init__",
          [](Kept<nn::Linear>* self, const std::string& name, std::int64_t inputs, std::int64_t outputs, bool bias,
             nb::object dtype, const MaybeInitial& initial, const MaybeGraph& graph) {
            construct(self, layer_graph_of(graph, "Linear"), name, inputs, outputs,
                      nn::LinearOptions{.bias = bias, .dtype = dtype_of(dtype), .initial = initial_of(initial)});
          },
          "name"_a, "inputs"_a, "outputs"_a, nb::kw_only(), "bias"_a = true, "dtype"_a = DType::f32,
          "initial"_a = nb::none(), "graph"_a = nb::none(),
          nb::sig("def __init__(self, name: str, inputs: int, outputs: int, *, bias: bool = True, dtype: DType | str = "
                  "'f32', initial: Initializer | None = None, graph: Graph | None = None) -> None"))
      .def("__call__", &applied<nn::Linear>, "x"_a);
  bind_value_of(linear, "weight", &nn::Linear::weight);
  bind_value_of(linear, "bias", &nn::Linear::bias);

  auto embedding =
      layer_class<nn::Embedding>(module, "Embedding",
                                 "Rows of a table by number: integers [..] from 0 to rows - 1 to [.., width].\n\n"
                                 "The parameter is <name>/weight [rows, width], normal of deviation 1 unless "
                                 "`initial` says otherwise. `padding`: a row that starts 0 and gets no gradient, "
                                 "-1 for none.");
  embedding
      .def(
          "__init__",
          [](Kept<nn::Embedding>* self, const std::string& name, std::int64_t rows, std::int64_t width,
             std::int64_t padding, nb::object dtype, const MaybeInitial& initial, const MaybeGraph& graph) {
            construct(
                self, layer_graph_of(graph, "Embedding"), name, rows, width,
                nn::EmbeddingOptions{.padding = padding, .dtype = dtype_of(dtype), .initial = initial_of(initial)});
          },
          "name"_a, "rows"_a, "width"_a, nb::kw_only(), "padding"_a = -1, "dtype"_a = DType::f32,
          "initial"_a = nb::none(), "graph"_a = nb::none(),
          nb::sig("def __init__(self, name: str, rows: int, width: int, *, padding: int = -1, dtype: DType | str = "
                  "'f32', initial: Initializer | None = None, graph: Graph | None = None) -> None"))
      .def("__call__", &applied<nn::Embedding>, "indices"_a);
  bind_value_of(embedding, "weight", &nn::Embedding::weight);

  auto conv =
      layer_class<nn::Conv2d>(module, "Conv2d",
                              "conv2d over images [N, inputs, H, W] with windows of `kernel`, one number or two: [N, "
                              "outputs, H', W'].\n\n"
                              "Parameters are <name>/weight [outputs, inputs / groups, KH, KW] and, with `bias`, "
                              "<name>/bias [outputs], uniform in +-1 / sqrt(inputs / groups KH KW). `stride`, "
                              "`dilation`: one number or two; `padding`: also four, (top, bottom, left, right). "
                              "`activation` after the bias: 'none', 'relu', 'sigmoid' or 'tanh'.");
  conv.def(
          "__init__",
          [](Kept<nn::Conv2d>* self, const std::string& name, std::int64_t inputs, std::int64_t outputs,
             nb::object kernel, nb::object stride, nb::object padding, nb::object dilation, std::int64_t groups,
             const std::string& activation, bool bias, nb::object dtype, const MaybeInitial& initial,
             const MaybeGraph& graph) {
            construct(self, layer_graph_of(graph, "Conv2d"), name, inputs, outputs, extents<2>(kernel, "kernel"),
                      nn::Conv2dLayerOptions{.conv = conv2d_options(stride, padding, dilation, groups, activation),
                                             .bias = bias,
                                             .dtype = dtype_of(dtype),
                                             .initial = initial_of(initial)});
          },
          "name"_a, "inputs"_a, "outputs"_a, "kernel"_a, nb::kw_only(), "stride"_a = 1, "padding"_a = 0,
          "dilation"_a = 1, "groups"_a = 1, "activation"_a = "none", "bias"_a = true, "dtype"_a = DType::f32,
          "initial"_a = nb::none(), "graph"_a = nb::none(),
          nb::sig(
              "def __init__(self, name: str, inputs: int, outputs: int, kernel: Ints, *, stride: Ints = 1, padding: "
              "Ints = 0, dilation: Ints = 1, groups: int = 1, activation: str = 'none', bias: bool = True, dtype: "
              "DType | str = 'f32', initial: Initializer | None = None, graph: Graph | None = None) -> None"))
      .def("__call__", &applied<nn::Conv2d>, "x"_a);
  bind_value_of(conv, "weight", &nn::Conv2d::weight);
  bind_value_of(conv, "bias", &nn::Conv2d::bias);
}

void bind_norm_layers(nb::module_& module) {
  auto layer_norm = layer_class<nn::LayerNorm>(
      module, "LayerNorm",
      "(x - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis, of `width` elements.\n\n"
      "Parameters are <name>/gamma and <name>/beta, [width], from 1 and 0.");
  layer_norm
      .def(
          "__init__",
          [](Kept<nn::LayerNorm>* self, const std::string& name, std::int64_t width, double epsilon, nb::object dtype,
             const MaybeGraph& graph) {
            construct(self, layer_graph_of(graph, "LayerNorm"), name, width, epsilon, dtype_of(dtype));
          },
          "name"_a, "width"_a, nb::kw_only(), "epsilon"_a = 1e-5, "dtype"_a = DType::f32, "graph"_a = nb::none(),
          nb::sig("def __init__(self, name: str, width: int, *, epsilon: float = 1e-5, dtype: DType | str = 'f32', "
                  "graph: Graph | None = None) -> None"))
      .def("__call__", &applied<nn::LayerNorm>, "x"_a);
  bind_value_of(layer_norm, "gamma", &nn::LayerNorm::gamma);
  bind_value_of(layer_norm, "beta", &nn::LayerNorm::beta);

  auto batch_norm = layer_class<nn::BatchNorm>(
      module, "BatchNorm",
      "Normalizes each channel (axis 1) over all other axes: x [N, channels, ..].\n\n"
      "With `training` by the statistics of the batch, and running ones move towards them by "
      "`momentum`; without by the running ones. Parameters are <name>/gamma and <name>/beta, "
      "[channels], from 1 and 0, and <name>/running_mean and <name>/running_variance.");
  batch_norm
      .def(
          "__init__",
          [](Kept<nn::BatchNorm>* self, const std::string& name, std::int64_t channels, bool training, double momentum,
             double epsilon, nb::object dtype, const MaybeGraph& graph) {
            construct(self, layer_graph_of(graph, "BatchNorm"), name, channels,
                      BatchNormOptions{.training = training, .momentum = momentum, .epsilon = epsilon},
                      dtype_of(dtype));
          },
          "name"_a, "channels"_a, nb::kw_only(), "training"_a = true, "momentum"_a = 0.1, "epsilon"_a = 1e-5,
          "dtype"_a = DType::f32, "graph"_a = nb::none(),
          nb::sig("def __init__(self, name: str, channels: int, *, training: bool = True, momentum: float = 0.1, "
                  "epsilon: float = 1e-5, dtype: DType | str = 'f32', graph: Graph | None = None) -> None"))
      .def("__call__", &applied<nn::BatchNorm>, "x"_a);
  bind_value_of(batch_norm, "gamma", &nn::BatchNorm::gamma);
  bind_value_of(batch_norm, "beta", &nn::BatchNorm::beta);
  bind_value_of(batch_norm, "running_mean", &nn::BatchNorm::running_mean);
  bind_value_of(batch_norm, "running_variance", &nn::BatchNorm::running_variance);
}

template <class Layer>
void bind_recurrent_layer(nb::module_& module, const char* name) {
  const char* sig =
      "def __init__(self, name: str, inputs: int, hidden: int, *, layers: int = 1, bidirectional: bool = False, "
      "dropout: float = 0, recurrent_dropout: float = 0, zoneout_h: float = 0, zoneout_c: float = 0, training: bool = "
      "True, recompute: int = 0, "
      "projection: int = 0, reset_after: bool = True, relu: bool = False, dtype: DType | str = 'f32', initial: "
      "Initializer | None = None, forget_bias: float = 0, graph: Graph | None = None) -> None";
  layer_class<Layer>(
      module, name,
      "A stack of recurrent layers over [T, B, inputs]: outputs [T, B, hidden], twice as wide where "
      "`bidirectional`.\n\n"
      "`dropout` is between layers, `recurrent_dropout` of the elements of u, the same ones in all steps (Merity et "
      "al. "
      "2017); `zoneout_h` and `zoneout_c` are the chances of a unit to stay as it was in a step (Krueger et al. 2016). "
      "Without `training` nothing is dropped. `recompute`: the gradient keeps the states of every so many steps and "
      "computes the rest again, 0 keeps all. `projection` (LSTM): the width of h, 0 for hidden. `reset_after` is of "
      "the "
      "GRU, `relu` of the RNN. `initial`: of weights and biases; uniform in +-1 / sqrt(hidden) without. Parameters are "
      "<name>/l0/w [inputs, gates hidden], <name>/l0/u [hidden, gates hidden], <name>/l0/b, and <name>/l0_reverse/w ..")
      .def(
          "__init__",
          [name](Kept<Layer>* self, const std::string& layer, std::int64_t inputs, std::int64_t hidden, int layers,
                 bool bidirectional, double dropout, double recurrent_dropout, double zoneout_h, double zoneout_c,
                 bool training, std::int64_t recompute, std::int64_t projection, bool reset_after, bool relu,
                 nb::object dtype, const MaybeInitial& initial, double forget_bias, const MaybeGraph& graph) {
            construct(self, layer_graph_of(graph, name), layer, inputs, hidden,
                      nn::RecurrentLayerOptions{.layers = layers,
                                                .bidirectional = bidirectional,
                                                .dropout = dropout,
                                                .recurrent_dropout = recurrent_dropout,
                                                .zoneout_h = zoneout_h,
                                                .zoneout_c = zoneout_c,
                                                .training = training,
                                                .recompute = recompute,
                                                .projection = projection,
                                                .reset_after = reset_after,
                                                .relu = relu,
                                                .dtype = dtype_of(dtype),
                                                .initial = initial_of(initial),
                                                .forget_bias = forget_bias});
          },
          "name"_a, "inputs"_a, "hidden"_a, nb::kw_only(), "layers"_a = 1, "bidirectional"_a = false, "dropout"_a = 0.0,
          "recurrent_dropout"_a = 0.0, "zoneout_h"_a = 0.0, "zoneout_c"_a = 0.0, "training"_a = true, "recompute"_a = 0,
          "projection"_a = 0, "reset_after"_a = true, "relu"_a = false, "dtype"_a = DType::f32,
          "initial"_a = nb::none(), "forget_bias"_a = 0.0, "graph"_a = nb::none(), nb::sig(sig))
      .def(
          "__call__",
          [](const Kept<Layer>& self, const ValueHandle& xs, const MaybeValue& lengths,
             const std::vector<ValueHandle>& initial_h, const std::vector<ValueHandle>& initial_c) {
            self.owner->get();
            RecurrentOptions options;
            options.lengths = value_of(lengths);
            options.initial_h = values_of(initial_h);
            options.initial_c = values_of(initial_c);
            const RecurrentResult result = self.layer(xs, options);
            return ResultHandle{wrap(result.outputs), wrap(result.last_h), wrap(result.last_c)};
          },
          "xs"_a, "lengths"_a = nb::none(), "initial_h"_a = nb::list(), "initial_c"_a = nb::list(),
          nb::sig("def __call__(self, xs: Value, lengths: Value | None = None, initial_h: "
                  "collections.abc.Sequence[Value] = (), initial_c: collections.abc.Sequence[Value] = ()) -> "
                  "RecurrentResult"),
          "xs [T, B, inputs]; `lengths` [B], integers: how many steps of each row count, all without. States before "
          "the "
          "first step per layer and direction, zeros without: initial_h [B, projection or hidden], initial_c (LSTM) "
          "[B, "
          "hidden].");
}

void bind_initializers(nb::module_& module) {
  module.def("constant_initial", &nn::constant, "value"_a, "Every element is `value`.");
  module.def("uniform", &nn::uniform, "low"_a, "high"_a, "Uniform in [low, high).");
  module.def("normal", &nn::normal, "mean"_a, "deviation"_a, "Normal.");
  module.def("xavier_uniform", &nn::xavier_uniform, "gain"_a = 1.0,
             "Uniform in +-gain sqrt(6 / (inputs + outputs)) (Glorot, Bengio 2010).");
  module.def("xavier_normal", &nn::xavier_normal, "gain"_a = 1.0,
             "Normal of deviation gain sqrt(2 / (inputs + outputs)).");
  module.def("kaiming_uniform", &nn::kaiming_uniform, "gain"_a = 1.4142135623730951,
             "Uniform in +-gain sqrt(3 / inputs); gain sqrt(2) is for relu (He et al. 2015).");
  module.def("kaiming_normal", &nn::kaiming_normal, "gain"_a = 1.4142135623730951,
             "Normal of deviation gain / sqrt(inputs).");
  module.def(
      "orthogonal", &nn::orthogonal, "gain"_a = 1.0, "blocks"_a = 1,
      "Orthonormal rows or columns, whichever are fewer, times gain (Saxe et al. 2014); a matrix [I, k H] of gates is "
      "k `blocks`.");
}

}  // namespace

void bind_layers(nb::module_& module) {
  bind_initializers(module);
  bind_linear(module);
  bind_norm_layers(module);
  bind_attention_layer(module);
  bind_transformer_layers(module);
  nb::class_<ResultHandle>(module, "RecurrentResult", "What a stack of recurrent layers gives.")
      .def_ro("outputs", &ResultHandle::outputs, "[T, B, H], [T, B, 2H] when bidirectional")
      .def_ro("last_h", &ResultHandle::last_h, "Per layer and direction.")
      .def_ro("last_c", &ResultHandle::last_c, "Of an LSTM, the same way.");
  bind_recurrent_layer<nn::Lstm>(module, "LSTM");
  bind_recurrent_layer<nn::Gru>(module, "GRU");
  bind_recurrent_layer<nn::Rnn>(module, "RNN");
}

}  // namespace paoding::python
