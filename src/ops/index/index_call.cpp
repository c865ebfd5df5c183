// SPDX-License-Identifier: Apache-2.0
#include "ops/index/index_call.h"

#include <limits>

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

std::string checked_refusal(const KernelCall& call) {
  return call.inputs[0].is_dense() && call.outputs[0].is_dense() ? "" : "indices are not dense";
}

CheckedIndices::CheckedIndices(const KernelCall& call)
    : type_(call.inputs[0].type),
      least_(call.attrs.get_bool("may_be_negative") ? std::numeric_limits<std::int64_t>::min() : 0),
      most_(call.attrs.get_int("most")),
      what_(one_line(std::get<std::string>(*call.attrs.find("what")))),
      scope_(call.scope) {}

void CheckedIndices::fail(std::int64_t position, std::int64_t id) const {
  paoding::fail(ErrorKind::argument, "{}{} = {}, but {}{}", what_, index_text(type_.shape, position), id,
                most_ < 0 ? std::string("none is legal here")
                : least_ < 0
                    ? fmt::format("from 0 to {} are legal, and negative numbers for what does not count", most_)
                    : fmt::format("from 0 to {} are legal", most_),
                in_scope(scope_));
}

}  // namespace paoding
