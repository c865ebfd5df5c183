// SPDX-License-Identifier: Apache-2.0
// Section B, second part: a training step of a small convolutional network, and its forward pass.
#include "cli/bench/conv_net.h"

#include "cli/bench/training_feed.h"
#include "io/json_text.h"
#include "models/conv_net.h"
#include "paoding/nn.h"
#include "paoding/optimizer.h"

namespace paoding::cli::bench {
namespace {

// Blocks of 3x3 convolution, bias, ReLU and 2x2 max pool; a dense layer; the mean cross entropy with the labels.
// Training: the gradients of all weights and an update by Adam.
void build(Graph& graph, const ConvNetSize& s, bool is_training, DType dtype) {
  const models::ConvNet model(graph, {.image_channels = s.image_channels,
                                      .height = s.size,
                                      .width = s.size,
                                      .classes = s.classes,
                                      .channels = s.channels,
                                      .dtype = dtype});
  const Value logits = model(graph.input("x", dtype, {s.batch, s.image_channels, s.size, s.size}));
  if (!is_training) return graph.fetch("logits", logits);
  const Value loss = cross_entropy(logits, graph.input("labels", i32, {s.batch}));
  graph.fetch("loss", loss);
  const Scope scope(graph, "adam");
  minimize(loss, Adam{});
}

Tensor feed(const ConvNetSize& s, const std::string& name, const Type& type) {
  if (name == "x") return random_tensor(type, 1, name);
  if (name != "labels") return training_feed(name, type);
  std::vector<double> labels(static_cast<std::size_t>(s.batch));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<double>(static_cast<std::int64_t>(i) * 7 % s.classes);
  }
  return Tensor::from(type.dtype, type.shape, labels);
}

// Every activation is written once and read once, forward; a training step reads them again and writes and reads the
// gradient of each.
Need need_of(const ConvNetSize& s, bool is_training, DType dtype) {
  const double bytes = static_cast<double>(size_bytes(dtype));
  double inputs = static_cast<double>(s.image_channels), side = static_cast<double>(s.size);
  const double batch = static_cast<double>(s.batch);
  double activations = 0, flops = 0, weights = 0;
  for (const std::int64_t channels : s.channels) {
    const double outputs = static_cast<double>(channels);
    flops += 2 * batch * side * side * 9 * inputs * outputs;
    weights += 9 * inputs * outputs + outputs;
    side = std::floor(side / 2);
    activations += batch * side * side * outputs;  // after pooling: the larger image before it need not be stored
    inputs = outputs;
  }
  const double classes = static_cast<double>(s.classes);
  flops += 2 * batch * side * side * inputs * classes;
  weights += side * side * inputs * classes + classes;
  const double images = batch * static_cast<double>(s.image_channels * s.size * s.size);
  if (!is_training) {
    return {.read = bytes * (images + activations + weights),
            .written = bytes * (activations + batch * classes),
            .flops = flops};
  }
  return {.read = bytes * (2 * images + 4 * activations + 4 * weights),
          .written = bytes * (3 * activations + 3 * weights),
          .updated = bytes * 3 * weights,
          .flops = 3 * flops};
}

}  // namespace

Case conv_net_case(const ConvNetSize& s, bool is_training, DType dtype, bool tf32) {
  Case c;
  c.section = 'B';
  c.kind = is_training ? "conv_net_training" : "conv_net_forward";
  c.dtype = dtype;
  c.tf32 = tf32;
  c.name = fmt::format("conv_net/{}/b{}_{}", is_training ? "training" : "forward", s.batch, type_text(c));
  c.what = fmt::format("batch {}, {}x{}, channels {}", s.batch, s.size, s.size, fmt::join(s.channels, "-"));
  std::vector<std::string> channels;
  for (const std::int64_t count : s.channels) channels.push_back(std::to_string(count));
  c.sizes = JsonObject()
                .add("batch", s.batch)
                .add("image_channels", s.image_channels)
                .add("size", s.size)
                .add("classes", s.classes)
                .add_json("channels", json_array(channels))
                .text();
  c.need = need_of(s, is_training, dtype);
  c.rotates = false;
  c.on_cpu = false;
  c.tolerance = dtype == f64 ? 1e-10 : dtype == bf16 ? 2e-2 : dtype == f16 || tf32 ? 5e-3 : 1e-4;
  c.has_choices = true;
  c.build = [s, is_training](Graph& graph, DType type, const std::string&) { build(graph, s, is_training, type); };
  c.feed = [s](const std::string& name, const Type& type) { return feed(s, name, type); };
  if (c.need.flops > 2e10) {
    ConvNetSize small = s;
    small.batch = 16;
    c.checked_as = "batch 16";
    c.build_small = [small, is_training](Graph& graph, DType type, const std::string&) {
      build(graph, small, is_training, type);
    };
    c.feed = [s, small](const std::string& name, const Type& type) {
      const bool is_small = name == "labels" && type.shape[0] == small.batch;
      return feed(is_small ? small : s, name, type);
    };
  }
  return c;
}

Cases conv_net_cases() {
  struct Asked {
    std::int64_t batch;
    bool is_training;
    double goal, floor;
  };
  Cases cases;
  for (const Asked& row : {Asked{100, false, 30, 15}, Asked{1000, false, 120, 60}, Asked{100, true, 110, 40},
                           Asked{1000, true, 450, 200}}) {
    ConvNetSize size;
    size.batch = row.batch;
    Case c = conv_net_case(size, row.is_training, f32, true);
    c.goal.hot = row.goal;
    c.need.floor_us = row.floor;
    cases.push_back(std::move(c));
  }
  Case on_cpu = conv_net_case({}, true, f32, false);
  on_cpu.cpu_goal = {.faster_2 = 3, .faster_16 = 4};
  on_cpu.on_cpu = true;
  on_cpu.on_gpu = false;
  cases.push_back(std::move(on_cpu));
  return cases;
}

}  // namespace paoding::cli::bench
