// SPDX-License-Identifier: Apache-2.0
#include "runtime/batch_rows.h"

#include <cstring>

namespace paoding {
namespace {

// Bytes of one row of an axis, and how many such rows stand in each place of the axes before it.
struct RowPlaces {
  std::int64_t outer = 1, row_bytes = 0;
};
RowPlaces row_places(const Tensor& tensor, int axis) {
  RowPlaces layout{1, size_bytes(tensor.dtype())};
  for (int i = 0; i < axis; ++i) layout.outer *= tensor.shape()[i];
  for (int i = axis + 1; i < tensor.shape().rank(); ++i) layout.row_bytes *= tensor.shape()[i];
  return layout;
}

}  // namespace

void copy_rows(const Tensor& source, std::int64_t from, int axis, std::int64_t count, Tensor* target, std::int64_t to) {
  const auto [outer, row_bytes] = row_places(source, axis);
  if (count == 0 || row_bytes == 0) return;
  const std::int64_t source_bytes = source.shape()[axis] * row_bytes, target_bytes = target->shape()[axis] * row_bytes;
  for (std::int64_t i = 0; i < outer; ++i) {
    std::memcpy(target->bytes() + i * target_bytes + to * row_bytes,
                source.bytes() + i * source_bytes + from * row_bytes, static_cast<std::size_t>(count * row_bytes));
  }
}

Tensor rows_of(const Tensor& source, int axis, std::int64_t from, std::int64_t count, std::int64_t size) {
  Tensor made(source.dtype(), source.shape().with_dim(axis, size));
  if (count == 0 && made.size_bytes() > 0) std::memset(made.bytes(), 0, static_cast<std::size_t>(made.size_bytes()));
  copy_rows(source, from, axis, count, &made, 0);
  for (std::int64_t row = count; count > 0 && row < size; ++row) {
    copy_rows(source, from + count - 1, axis, 1, &made, row);
  }
  return made;
}

Tensor joined_rows(std::span<const Tensor> parts, int axis) {
  std::int64_t rows = 0;
  for (const Tensor& part : parts) rows += part.shape()[axis];
  Tensor made(parts[0].dtype(), parts[0].shape().with_dim(axis, rows));
  std::int64_t row = 0;
  for (const Tensor& part : parts) {
    copy_rows(part, 0, axis, part.shape()[axis], &made, row);
    row += part.shape()[axis];
  }
  return made;
}

}  // namespace paoding
