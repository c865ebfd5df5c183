// SPDX-License-Identifier: Apache-2.0
// The state that a training step starts from so that its result can be compared: the middle of a training, where an
// update is a smooth function of the gradient.
#pragma once

#include <cmath>
#include <string>
#include <string_view>

#include "cli/numbers.h"

namespace paoding::cli::bench {

/// The value of a parameter of a model or its optimizer; empty where the initial one stays. Adam's first update follows
/// the sign of a gradient however small it is, so the state is that of a hundred updates.
inline Tensor training_feed(const std::string& name, const Type& type) {
  if (name == "optimizer/step") return filled_tensor(type, 100);
  // The f32 master copy of a 16-bit parameter.
  if (name.starts_with("master/")) return training_feed(name.substr(std::string_view("master/").size()), type);
  if (!is_float(type.dtype)) return {};
  std::vector<double> values = random_tensor({f64, type.shape}, 1, name).to_doubles();
  if (name.starts_with("adam/v/")) {
    for (double& value : values) value = 1e-4 * (1 + value * value);
  } else if (name.starts_with("adam/m/")) {
    for (double& value : values) value *= 1e-3;
  } else {
    const Shape& shape = type.shape;
    const double inputs = shape.rank() < 2
                              ? 100
                              : static_cast<double>(shape.elements() / shape[shape.rank() == 4 ? 0 : shape.rank() - 1]);
    for (double& value : values) value /= std::sqrt(inputs);
  }
  return Tensor::from(type.dtype, type.shape, values);
}

}  // namespace paoding::cli::bench
