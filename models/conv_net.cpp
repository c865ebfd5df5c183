// SPDX-License-Identifier: Apache-2.0
#include "models/conv_net.h"

#include <string>

namespace paoding::models {
namespace {

std::string block_name(std::size_t i) { return "conv" + std::to_string(i + 1); }

}  // namespace

ConvNet::ConvNet(Graph& graph, const ConvNetOptions& options) : graph_(graph), dropout_(options.dropout) {
  std::int64_t inputs = options.image_channels, height = options.height, width = options.width;
  for (std::size_t i = 0; i < options.channels.size(); ++i) {
    convs_.emplace_back(graph, block_name(i), inputs, options.channels[i], std::array<std::int64_t, 2>{3, 3},
                        nn::Conv2dLayerOptions{.conv = {.padding = {1, 1, 1, 1}, .activation = Activation::relu},
                                               .dtype = options.dtype});
    inputs = options.channels[i];
    height /= 2;
    width /= 2;
  }
  dense_.emplace_back(graph, "dense", inputs * height * width, options.classes,
                      nn::LinearOptions{.dtype = options.dtype});
}

Value ConvNet::operator()(const Value& images) const {
  Value x = images;
  for (std::size_t i = 0; i < convs_.size(); ++i) {
    const Scope scope(graph_, block_name(i));
    x = max_pool2d(convs_[i](x));
  }
  const Scope scope(graph_, "dense");
  const std::int64_t count = x.shape()[0];
  return dense_[0](dropout(reshape(x, Shape{count, x.shape().elements() / count}), dropout_));
}

}  // namespace paoding::models
