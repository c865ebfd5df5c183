// SPDX-License-Identifier: Apache-2.0
// Section T, networks for images: ResNet-50 and a depthwise network, forward and training step by SGD with momentum, in
// mixed precision as they are trained today.
#include "models/image_nets.h"

#include <cmath>

#include "base/check.h"
#include "cli/bench/case.h"
#include "cli/bench/training_feed.h"
#include "io/json_text.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "paoding/optimizer.h"

namespace paoding::cli::bench {
namespace {

struct ImageNetSize {
  bool is_mobile = false, is_training = false;
  std::int64_t batch = 256, size = 224;
  models::ResNetOptions residual;
  models::MobileNetOptions mobile;

  std::int64_t classes() const { return is_mobile ? mobile.classes : residual.classes; }
};

// The model that is compared with float64: the same kinds of layers, but fewer and narrower.
ImageNetSize smaller(ImageNetSize s) {
  s.batch = 8, s.size = 64;
  s.residual.blocks = {1, 2}, s.residual.width = 8, s.residual.classes = 10;
  s.mobile.stages = {{1, 8, 1, 1}, {6, 16, 2, 2}}, s.mobile.first = 8, s.mobile.last = 32, s.mobile.classes = 10;
  return s;
}

void build(Graph& graph, const ImageNetSize& s, DType dtype) {
  const Value images = graph.input("x", dtype, {s.batch, 3, s.size, s.size});
  models::ResNetOptions residual = s.residual;
  models::MobileNetOptions mobile = s.mobile;
  residual.training = mobile.training = s.is_training, residual.dtype = mobile.dtype = dtype;
  const Value scores = s.is_mobile ? models::mobile_net(images, mobile) : models::resnet(images, residual);
  if (!s.is_training) return graph.fetch("scores", scores);
  const Value loss = cross_entropy(scores, graph.input("labels", i32, {s.batch}));
  graph.fetch("loss", loss);
  const Scope scope(graph, "sgd");
  minimize(loss, Sgd{.learning_rate = 0.1, .momentum = 0.9});
}

Tensor feed(std::int64_t classes, const std::string& name, const Type& type) {
  if (name == "x") return random_tensor(type, 1, name);
  std::vector<double> values(static_cast<std::size_t>(type.shape.elements()));
  if (name == "labels") {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(static_cast<std::int64_t>(i) * 7 % classes);
    return Tensor::from(type.dtype, type.shape, values);
  }
  // Factors and variances are near 1.
  if (name.ends_with("/gamma") || name.ends_with("/running_variance")) {
    values = random_tensor({f64, type.shape}, 1, name).to_doubles();
    for (double& value : values) value = 1 + 0.1 * std::abs(value);
    return Tensor::from(type.dtype, type.shape, values);
  }
  return training_feed(name, type);
}

// Every convolution's result is written once and read once, forward; a training step reads it again and writes and
// reads its gradient.
Need need_of(const ImageNetSize& s, std::int64_t bytes_each) {
  Graph graph;
  ImageNetSize forward = s;
  forward.is_training = false;
  build(graph, forward, f32);
  double activations = 0, weights = 0, flops = 0;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    const double elements = static_cast<double>(node.types[0].shape.elements());
    if (node.op->name == "parameter") weights += elements;
    if (node.op->name != "conv2d" && node.op->name != "matmul") continue;
    const Shape& w = graph.type(node.inputs[1]).shape;
    const bool is_conv = node.op->name == "conv2d";
    flops += 2 * elements * static_cast<double>(is_conv ? w[1] * w[2] * w[3] : w[0]);
    activations += is_conv ? elements : 0;
  }
  const double bytes = static_cast<double>(bytes_each);
  const double images = static_cast<double>(s.batch * 3 * s.size * s.size);
  if (!s.is_training) {
    return {.read = bytes * (images + activations + weights), .written = bytes * activations, .flops = flops};
  }
  return {.read = bytes * (2 * images + 4 * activations + 2 * weights) + 8 * weights,
          .written = bytes * 3 * activations + 8 * weights,
          .updated = 8 * weights,
          .flops = 3 * flops};
}

std::string sizes_of(const ImageNetSize& s) {
  JsonObject sizes;
  sizes.add("batch", s.batch).add("size", s.size).add("classes", s.classes());
  std::vector<std::string> parts;
  if (s.is_mobile) {
    for (const auto& stage : s.mobile.stages) {
      parts.push_back(fmt::format("[{}, {}, {}, {}]", stage.expansion, stage.channels, stage.blocks, stage.stride));
    }
    sizes.add("first", s.mobile.first).add("last", s.mobile.last).add_json("stages", json_array(parts));
  } else {
    for (const std::int64_t blocks : s.residual.blocks) parts.push_back(std::to_string(blocks));
    sizes.add("width", s.residual.width).add_json("blocks", json_array(parts));
  }
  return sizes.text();
}

// `precision` f32: no mixed precision, for CPUs.
Case image_net_case(const ImageNetSize& s, DType precision) {
  Case c;
  c.section = 'T';
  c.kind = fmt::format("{}_{}", s.is_mobile ? "mobile_net" : "resnet", s.is_training ? "training" : "forward");
  c.name = fmt::format("{}/{}/b{}_f32", s.is_mobile ? "mobile_net" : "resnet50", s.is_training ? "training" : "forward",
                       s.batch);
  c.what = fmt::format("{}, batch {}, {}x{}", s.is_mobile ? "MobileNetV2" : "ResNet-50", s.batch, s.size, s.size);
  c.sizes = sizes_of(s);
  c.need = need_of(s, precision == f32 ? 4 : 2);
  c.rotates = false;
  c.has_choices = true;
  c.tolerance = 1e-3;
  c.on_cpu = precision == f32, c.on_gpu = precision != f32;
  c.build = [s](Graph& graph, DType type, const std::string&) { build(graph, s, type); };
  const ImageNetSize small = smaller(s);
  c.build_small = [small](Graph& graph, DType type, const std::string&) { build(graph, small, type); };
  c.checked_as = fmt::format("batch {}, {}x{}, few and narrow layers", small.batch, small.size, small.size);
  c.feed = [s, small](const std::string& name, const Type& type) {
    const bool is_small = name == "labels" && type.shape[0] == small.batch;
    return feed((is_small ? small : s).classes(), name, type);
  };
  return precision == f32 ? c : in_mixed_precision(std::move(c), precision);
}

}  // namespace

Cases image_net_cases() {
  Cases cases;
  for (const bool is_mobile : {false, true}) {
    for (const bool is_training : {false, true}) {
      ImageNetSize size;
      size.is_mobile = is_mobile, size.is_training = is_training;
      cases.push_back(image_net_case(size, bf16));
      size.batch = 4;
      cases.push_back(image_net_case(size, f32));
    }
  }
  return cases;
}

}  // namespace paoding::cli::bench
