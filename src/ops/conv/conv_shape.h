// SPDX-License-Identifier: Apache-2.0
// A convolution as kernels want it: extents, windows and where each of its three tensors lies. Which of them is the
// result depends on the op.
#pragma once

#include <string>
#include <string_view>

#include "ops/conv/window.h"
#include "ops/kernel.h"

namespace paoding {

enum class ConvKind : std::uint8_t { forward, grad_input, grad_weight };

struct ConvShape {
  ConvKind kind = ConvKind::forward;
  DType dtype = DType::f32;
  std::int64_t batch = 0, channels = 0, outputs = 0, groups = 1;
  std::array<WindowAxis, 2> axes;
  Layout x, w, y;  // [N, C, H, W], [O, C / groups, KH, KW], [N, O, OH, OW]
  Layout bias;     // [O], with has_bias
  Layout added;    // as y, with has_added
  bool has_bias = false, has_added = false;
  bool has_relu = false, has_limit = false;  // has_limit: of 6, relu6
  /// For conv2d_pool and its gradients: windows that are pooled. y is the pools' result then, [N, O, PH, PW], and so is
  /// the index, where it is read; has_bias says whether the gradient of the bias is.
  std::array<std::int64_t, 2> pool = {1, 1};
  Layout index;
  bool is_pooled = false, has_index = false;
  /// Whether the first result is read, and not the second alone; the layout of one that is not is as if it were.
  bool has_result = true;

  explicit ConvShape(const KernelCall& call);
  bool is_empty() const;  // some extent is 0
  std::int64_t products() const;
  /// Why a kernel that reads the added image from the place of its result cannot; empty when it can, or nothing is
  /// added.
  std::string added_refusal() const;
};

/// The work of the convolution op of this name, whose Convolution its block declares.
OpCost convolution_cost(std::string_view op, const CostCall& call);

}  // namespace paoding
