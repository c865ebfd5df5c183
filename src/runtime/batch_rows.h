// SPDX-License-Identifier: Apache-2.0
// Rows along one axis of dense tensors: taken, filled up, and put together.
#pragma once

#include <cstdint>
#include <span>

#include "paoding/tensor.h"

namespace paoding {

/// Copies `count` rows of `axis` from row `from` of `source` on to row `to` of `target`, whose other extents are the
/// same.
void copy_rows(const Tensor& source, std::int64_t from, int axis, std::int64_t count, Tensor* target, std::int64_t to);

/// `count` rows of `axis` from row `from` on, then the last of them again until there are `size`; zeros if there are
/// none.
Tensor rows_of(const Tensor& source, int axis, std::int64_t from, std::int64_t count, std::int64_t size);

/// The parts one after the other along `axis`; there is at least one.
Tensor joined_rows(std::span<const Tensor> parts, int axis);

}  // namespace paoding
