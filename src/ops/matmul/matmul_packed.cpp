// SPDX-License-Identifier: Apache-2.0
// pack_weights and matmul_packed: a product whose right operand was put into the kernel's own order before. The pass
// pack_weights makes both; they are not for users: packed weights are read by matmul_packed alone, and their size and
// order are this machine's. Kernels: matmul_packed_cpu.cpp.
#include "base/check.h"
#include "ops/families.h"
#include "paoding/op.h"

namespace paoding {
namespace {

void check_matrix(const OpCall& call) {
  const Type& type = call.inputs[0];
  if (!is_float(type.dtype)) {
    call.fail(ErrorKind::dtype, fmt::format("{} is {}; it takes floats", call.input_name(0), to_string(type.dtype)));
  }
  if (type.shape.rank() != 2) {
    call.fail(ErrorKind::shape,
              fmt::format("{} has shape {}; its rank must be 2", call.input_name(0), to_string(type.shape)));
  }
  if (const std::int64_t rows = call.attrs.get_int("rows"); rows < 1) {
    call.fail(ErrorKind::argument, fmt::format("rows is {}; it must be at least 1", rows));
  }
}

std::vector<Type> infer_pack(const OpCall& call) {
  check_matrix(call);
  const std::int64_t elements = call.attrs.get_int("elements");
  if (elements < call.inputs[0].shape.elements()) {
    call.fail(ErrorKind::argument, fmt::format("elements is {}; b has {}", elements, call.inputs[0].shape.elements()));
  }
  return {Type{call.inputs[0].dtype, Shape{elements}}};
}

std::vector<Type> infer_packed(const OpCall& call) {
  check_matrix(call);
  const Type &a = call.inputs[0], &packed = call.inputs[1];
  if (a.dtype != packed.dtype) {
    call.fail(ErrorKind::dtype, fmt::format("a is {}, but packed is {}", to_string(a.dtype), to_string(packed.dtype)));
  }
  const std::int64_t columns = call.attrs.get_int("columns"), inner = a.shape[1];
  if (columns < 0) call.fail(ErrorKind::argument, fmt::format("columns is {}; it must not be negative", columns));
  if (packed.shape.rank() != 1 || (inner > 0 && packed.shape[0] / inner < columns)) {
    call.fail(ErrorKind::shape, fmt::format("packed is {}; it must hold a matrix of {} x {} (what pack_weights gives)",
                                            to_string(packed), inner, columns));
  }
  return {Type{a.dtype, Shape{a.shape[0], columns}}};
}

OpCost packed_cost(const CostCall& call) {
  const Shape &a = call.inputs[0].shape, &y = call.outputs[0].shape;
  return {.flops = 2 * static_cast<double>(y.elements()) * static_cast<double>(a[1]), .is_product = true};
}

}  // namespace

void register_matmul_packed() {
  // ---- pack_weights ----
  register_op({
      .name = "pack_weights",
      .summary = "b in the order in which products read it fastest, for matmul_packed; the pass pack_weights makes it",
      .kind = OpKind::kernel,
      .inputs = {"b"},
      .attrs =
          {{.name = "rows",
            .example = std::int64_t{1},
            .required = true,
            .doc = "M of the products: the order depends on it"},
           {.name = "elements", .example = std::int64_t{1}, .required = true, .doc = "of the result, with padding"},
           {.name = "transpose", .example = false, .doc = "b is [N, K]"}},
      .cost = [](const CostCall&) { return OpCost{}; },
      .has_unused_room = true,
      .infer = infer_pack,
  });

  // ---- matmul_packed ----
  register_op({
      .name = "matmul_packed",
      .summary = "matmul of a and the b that pack_weights packed; the pass pack_weights makes it",
      .kind = OpKind::kernel,
      .inputs = {"a", "packed"},
      .attrs = {{.name = "rows", .example = std::int64_t{1}, .required = true, .doc = "as pack_weights was told"},
                {.name = "columns", .example = std::int64_t{1}, .required = true, .doc = "N"}},
      .cost = packed_cost,
      .infer = infer_packed,
  });
}

}  // namespace paoding
