// SPDX-License-Identifier: Apache-2.0
// Options of functions and layers as Python gives them.
#pragma once

#include <nanobind/stl/vector.h>

#include <array>
#include <string>

#include "arrays.h"
#include "handles.h"
#include "paoding/error.h"
#include "paoding/ops.h"

namespace paoding::python {

/// `count` extents: a number stands for all of them.
template <std::size_t count>
std::array<std::int64_t, count> extents(nb::handle given, const char* name) {
  std::array<std::int64_t, count> all{};
  const auto list = integers_of(given, name);
  if (PyLong_Check(given.ptr()) != 0) {
    all.fill(list[0]);
    return all;
  }
  if (list.size() != count) {
    throw Error(ErrorKind::argument, std::string(name) + " has " + std::to_string(list.size()) +
                                         " numbers, needed is one or " + std::to_string(count));
  }
  std::copy(list.begin(), list.end(), all.begin());
  return all;
}

/// Before and after each axis: of a number, one for each axis, or all.
template <std::size_t axes>
std::array<std::int64_t, 2 * axes> padding_of(nb::handle given) {
  if (PyLong_Check(given.ptr()) == 0 && integers_of(given, "padding").size() == 2 * axes)
    return extents<2 * axes>(given, "padding");
  const auto same = extents<axes>(given, "padding");
  std::array<std::int64_t, 2 * axes> all{};
  for (std::size_t i = 0; i < 2 * axes; ++i) all[i] = same[i / 2];
  return all;
}
Conv2dOptions conv2d_options(nb::handle stride, nb::handle padding, nb::handle dilation, std::int64_t groups,
                             const std::string& activation);
AttentionOptions attention_of(const MaybeValue& mask, const MaybeValue& lengths, bool causal, double scale,
                              double dropout);

void bind_fronts(nb::module_& module);

}  // namespace paoding::python
