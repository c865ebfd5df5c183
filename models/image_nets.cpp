// SPDX-License-Identifier: Apache-2.0
#include "models/image_nets.h"

#include <string>

namespace paoding::models {
namespace {

// Convolutions, each with a batch norm after it, and the dense layer at the end of a network.
class Layers {
 public:
  Layers(Graph& graph, const ImageNetOptions& options) : graph_(graph), options_(options) {}

  struct Window {
    std::int64_t kernel = 1, stride = 1, groups = 1;
  };
  // "name/weight" and "name/norm/..".
  Value conv(const Value& x, const std::string& name, std::int64_t outputs, const Window& window) const {
    const std::int64_t around = (window.kernel - 1) / 2;
    const nn::Conv2d conv(graph_, name, x.shape()[1], outputs, {window.kernel, window.kernel},
                          {.conv = {.stride = {window.stride, window.stride},
                                    .padding = {around, around, around, around},
                                    .groups = window.groups},
                           .bias = false,
                           .dtype = options_.dtype});
    const nn::BatchNorm norm(graph_, name + "/norm", outputs, {.training = options_.training}, options_.dtype);
    return norm(conv(x));
  }

  // The mean over all pixels, then the scores.
  Value scores(const Value& x) const {
    const nn::Linear dense(graph_, "dense", x.shape()[1], options_.classes, {.dtype = options_.dtype});
    return dense(global_avg_pool(x));
  }

 private:
  Graph& graph_;
  const ImageNetOptions& options_;
};

// Three convolutions, the inner one of 3x3, added to their input.
Value bottleneck(const Layers& layers, const Value& x, const std::string& name, std::int64_t width,
                 std::int64_t stride) {
  const std::int64_t outputs = 4 * width;
  Value y = relu(layers.conv(x, name + "/conv1", width, {}));
  y = relu(layers.conv(y, name + "/conv2", width, {.kernel = 3, .stride = stride}));
  y = layers.conv(y, name + "/conv3", outputs, {});
  const bool is_same = stride == 1 && x.shape()[1] == outputs;
  return relu(y + (is_same ? x : layers.conv(x, name + "/shortcut", outputs, {.stride = stride})));
}

Value relu6(const Value& x) { return hardtanh(x, 0, 6); }

Value inverted_bottleneck(const Layers& layers, const Value& x, const std::string& name,
                          const MobileNetOptions::Stage& stage, std::int64_t stride) {
  const std::int64_t inputs = x.shape()[1], inner = inputs * stage.expansion;
  Value y = x;
  if (stage.expansion > 1) y = relu6(layers.conv(y, name + "/expand", inner, {}));
  y = relu6(layers.conv(y, name + "/depthwise", inner, {.kernel = 3, .stride = stride, .groups = inner}));
  y = layers.conv(y, name + "/project", stage.channels, {});
  return stride == 1 && inputs == stage.channels ? y + x : y;
}

std::string block_name(std::size_t stage, std::int64_t block) {
  return "stage" + std::to_string(stage + 1) + "/block" + std::to_string(block + 1);
}

}  // namespace

Value resnet(const Value& images, const ResNetOptions& options) {
  const Layers layers(images.graph(), options);
  Value x = relu(layers.conv(images, "stem", options.width, {.kernel = 7, .stride = 2}));
  x = max_pool2d(x, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1, 1, 1}});
  std::int64_t width = options.width;
  for (std::size_t stage = 0; stage < options.blocks.size(); ++stage, width *= 2) {
    for (std::int64_t block = 0; block < options.blocks[stage]; ++block) {
      x = bottleneck(layers, x, block_name(stage, block), width, stage > 0 && block == 0 ? 2 : 1);
    }
  }
  return layers.scores(x);
}

Value mobile_net(const Value& images, const MobileNetOptions& options) {
  const Layers layers(images.graph(), options);
  Value x = relu6(layers.conv(images, "stem", options.first, {.kernel = 3, .stride = 2}));
  for (std::size_t i = 0; i < options.stages.size(); ++i) {
    const MobileNetOptions::Stage& stage = options.stages[i];
    for (std::int64_t block = 0; block < stage.blocks; ++block) {
      x = inverted_bottleneck(layers, x, block_name(i, block), stage, block == 0 ? stage.stride : 1);
    }
  }
  return layers.scores(relu6(layers.conv(x, "head", options.last, {})));
}

}  // namespace paoding::models
