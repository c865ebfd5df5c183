// SPDX-License-Identifier: Apache-2.0
// Networks for images of any depth: residual ones of bottlenecks (He and others 2015; the stride is at the 3x3
// convolution, as torchvision has it) and mobile ones of inverted bottlenecks with a depthwise convolution in the
// middle (Sandler and others 2018). Convolutions have no bias: a batch norm follows each.
#pragma once

#include <vector>

#include "paoding/nn.h"

namespace paoding::models {

struct ImageNetOptions {
  std::int64_t image_channels = 3, classes = 1000;
  bool training = true;
  DType dtype = DType::f32;
};

struct ResNetOptions : ImageNetOptions {
  std::vector<std::int64_t> blocks = {3, 4, 6, 3};  // of every stage: these are ResNet-50's
  std::int64_t width = 64;  // of the first stage's inner convolutions; it doubles from one to the next
};

struct MobileNetOptions : ImageNetOptions {
  struct Stage {
    std::int64_t expansion, channels, blocks, stride;
  };
  std::int64_t first = 32, last = 1280;  // channels of the convolutions before and after the stages
  std::vector<Stage> stages = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                               {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
};

/// Scores of every class [N, classes] of images [N, image_channels, H, W]. Parameters are named by their place: "stem",
/// "stage1/block2/conv1", .. , "dense".
Value resnet(const Value& images, const ResNetOptions& options);
Value mobile_net(const Value& images, const MobileNetOptions& options);

}  // namespace paoding::models
