// SPDX-License-Identifier: Apache-2.0
// A convolution as oneDNN is asked for it: descriptions of its operands, and the primitive.
#pragma once

#include <string>

#include "cpu/onednn.h"
#include "ops/conv/conv_shape.h"

namespace paoding {

/// An image as it lies. Axes of extent 1 get the stride that channels-last would give them: oneDNN goes by strides
/// alone.
dnnl::memory::desc given_image(const Layout& layout);
/// The weights and the bias as they lie.
dnnl::memory::desc given_weights(const ConvShape& shape);
dnnl::memory::desc given_bias(const ConvShape& shape);

/// The descriptions that a primitive settled on.
struct ConvDescs {
  dnnl::memory::desc x, w, y, bias, scratchpad;
  std::string name;
  dnnl::primitive primitive;  // unless only the descriptions were asked for
};

/// The weights lie as the primitive likes them best, or as `weights` says. Throws dnnl::error where there is none.
ConvDescs make_convolution(const ConvShape& shape, bool with_primitive, const dnnl::memory::desc* weights = nullptr);

/// Why oneDNN has no fast kernel for the convolution; empty when it has.
std::string onednn_refusal(const ConvShape& shape);

/// The kernel of cpu/conv_images.cpp; `images` as KernelImplementation::channels_last.
void register_convolution_by_images(const char* op, std::uint32_t images);

}  // namespace paoding
