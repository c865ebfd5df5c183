// SPDX-License-Identifier: Apache-2.0
// A small convolutional network for images: blocks of 3x3 convolution, bias, ReLU and 2x2 max pool, then a dense layer.
#pragma once

#include <vector>

#include "paoding/nn.h"

namespace paoding::models {

struct ConvNetOptions {
  std::int64_t image_channels = 1, height = 28, width = 28, classes = 10;
  std::vector<std::int64_t> channels = {16, 32, 32};  // one block each
  double dropout = 0;                                 // of the dense layer's input; 0 when not training
  DType dtype = DType::f32;
};

class ConvNet {
 public:
  ConvNet(Graph& graph, const ConvNetOptions& options);
  /// Scores of every class [N, classes] of images [N, image_channels, height, width].
  Value operator()(const Value& images) const;

 private:
  Graph& graph_;
  double dropout_;
  std::vector<nn::Conv2d> convs_;
  std::vector<nn::Linear> dense_;  // one
};

}  // namespace paoding::models
