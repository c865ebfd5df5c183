// SPDX-License-Identifier: Apache-2.0
#include "ops/index/index_call.h"

#include "base/check.h"
#include "base/one_line.h"
#include "ops/rows.h"

namespace paoding {

int index_axis(const KernelCall& call, int rank) {
  if (call.attrs.find("axis") == nullptr) return 0;  // embedding_grad
  const auto axis = static_cast<int>(call.attrs.get_int("axis"));
  return axis < 0 ? axis + rank : axis;
}

std::int64_t padding_row(const KernelCall& call) {
  return call.attrs.find("padding") == nullptr ? -1 : call.attrs.get_int("padding");
}

std::string Indices::op_name(const KernelCall& call) {
  if (call.op->name != "scatter_add_sorted") return call.op->name;
  return padding_row(call) < 0 ? "scatter_add" : "embedding_grad";
}

void Indices::fail(std::int64_t position, std::int64_t id) const {
  paoding::fail(ErrorKind::argument, "{}: indices{} = {}, but axis {} has extent {}{}", op_,
                index_text(type_.shape, position), id, axis_, range_, in_scope(scope_));
}

void Indices::fail_at(const void* data, std::int64_t position) const {
  fail(position,
       is_wide() ? static_cast<const std::int64_t*>(data)[position] : static_cast<const std::int32_t*>(data)[position]);
}

}  // namespace paoding
