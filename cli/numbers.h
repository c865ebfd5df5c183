// SPDX-License-Identifier: Apache-2.0
// Elements of tensors: random values, made fast and the same on every machine, and summaries.
#pragma once

#include <cstdint>
#include <string_view>

#include "paoding/tensor.h"

namespace paoding::cli {

/// Normal numbers of mean 0 and deviation 1 for floats, 0..9 for integers, false or true for bools. Element i depends
/// on the seed, the name and i only, not on threads. Gigabytes take seconds: all threads work on it.
Tensor random_tensor(const Type& type, std::uint64_t seed, std::string_view name);

/// `number` in every element.
Tensor filled_tensor(const Type& type, double number);

/// Element `i` of a tensor, in order.
double element(const Tensor& tensor, std::int64_t i);

/// Summary of a tensor's elements. Without any finite element min, max, mean and norm are NaN.
struct Summary {
  double min = 0, max = 0, mean = 0, norm = 0;  // of the finite elements
  std::int64_t nans = 0, infinities = 0;
  bool is_finite() const { return nans + infinities == 0; }
};
Summary summarize(const Tensor& tensor);

}  // namespace paoding::cli
