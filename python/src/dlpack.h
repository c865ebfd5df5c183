// SPDX-License-Identifier: Apache-2.0
// Arrays taken over by DLPack: the content of a capsule is ours from then on, and is let go of when nobody reads it.
#pragma once

#include <nanobind/ndarray.h>

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "arrays.h"

namespace paoding::python {

/// An array of another library's, which stays as it is until the last copy of `memory` goes, in whatever thread.
struct DlpackArray {
  Type type;
  std::array<std::int64_t, Shape::kMaxRank> strides{};  // in elements
  nb::dlpack::device device;
  bool is_read_only = false;  // its library says so
  std::shared_ptr<void> memory;
};

/// The result of object.__dlpack__(), for work in `stream` where one is. Its exceptions are raised. Error (argument)
/// for memory that was freed, or a capsule that is none, is used or contradicts itself; (dtype) for elements that no
/// dtype is; (shape) for more axes than 8.
DlpackArray take_dlpack(nb::handle object, std::optional<void*> stream, const ArrayName& name);

/// Error (argument) for elements that do not lie one after the other. Strides of null: they do.
void check_dense(const Shape& shape, const std::int64_t* strides, std::int64_t unit, const ArrayName& name);

}  // namespace paoding::python
