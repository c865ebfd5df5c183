// SPDX-License-Identifier: Apache-2.0
// matmul: the product of matrices in the last two axes; matmul_wide: the same of f16 or bf16 with the sums as they are,
// in f32. Kernels: matmul_cpu.cpp, matmul_gpu.cpp.
#include "base/check.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

std::vector<Type> infer_matmul(const OpCall& call) {
  const Type &a = call.inputs[0], &b = call.inputs[1];
  if (!is_float(a.dtype)) call.fail(ErrorKind::dtype, fmt::format("a is {}; it takes floats", to_string(a.dtype)));
  if (a.dtype != b.dtype) {
    call.fail(ErrorKind::dtype, fmt::format("a is {}, but b is {}", to_string(a.dtype), to_string(b.dtype)));
  }
  for (std::size_t i = 0; i < 2; ++i) {
    if (call.inputs[i].shape.rank() < 2) {
      call.fail(ErrorKind::shape, fmt::format("{} has shape {}; its rank must be at least 2 (reshape it)",
                                              call.input_name(i), to_string(call.inputs[i].shape)));
    }
  }
  const bool ta = call.attrs.get_bool("transpose_a"), tb = call.attrs.get_bool("transpose_b");
  const int ra = a.shape.rank(), rb = b.shape.rank();
  const std::int64_t m = a.shape[ra - (ta ? 1 : 2)], k = a.shape[ra - (ta ? 2 : 1)];
  const std::int64_t kb = b.shape[rb - (tb ? 1 : 2)], n = b.shape[rb - (tb ? 2 : 1)];
  if (k != kb) {
    call.fail(ErrorKind::shape,
              fmt::format("a has shape {}{} (K = {}), b has shape {}{} (K = {})", to_string(a.shape),
                          ta ? " transposed" : "", k, to_string(b.shape), tb ? " transposed" : "", kb));
  }
  Shape batch;
  if (!broadcast(Shape{a.shape.dims().first(static_cast<std::size_t>(ra - 2))},
                 Shape{b.shape.dims().first(static_cast<std::size_t>(rb - 2))}, &batch)) {
    call.fail(ErrorKind::shape, fmt::format("the leading axes of a {} and b {} do not broadcast", to_string(a.shape),
                                            to_string(b.shape)));
  }
  return {Type{a.dtype, batch.with_inserted(batch.rank(), m).with_inserted(batch.rank() + 1, n)}};
}

std::vector<Type> infer_matmul_wide(const OpCall& call) {
  Type type = infer_matmul(call)[0];
  if (type.dtype != f16 && type.dtype != bf16) {
    call.fail(ErrorKind::dtype, fmt::format("a is {}; it takes f16 and bf16", to_string(type.dtype)));
  }
  return {Type{f32, type.shape}};
}

// Where the leading axes of a have one matrix b, it is one large product.
Value product(std::string_view op, const Value& left, const Value& right, bool transpose_a, bool transpose_b) {
  const Attrs attrs{{"transpose_a", transpose_a}, {"transpose_b", transpose_b}};
  if (left.shape().rank() > 2 && right.shape().rank() == 2 && !transpose_a) {
    // One matrix for all leading axes: one large product, and a gradient of b that is one too.
    const Shape& shape = left.shape();
    const int last = shape.rank() - 1;
    const std::int64_t rows = shape.with_dim(last, 1).elements();  // not -1: K may be 0
    const Value made = call(op, {reshape(left, Ints{rows, shape[last]}), right}, attrs);
    return reshape(made, shape.with_dim(last, made.shape()[1]));
  }
  return call(op, {left, right}, attrs);
}

Values matmul_gradient(const GradCall& call) {
  const bool ta = call.node.attrs.get_bool("transpose_a"), tb = call.node.attrs.get_bool("transpose_b");
  const Value &a = call.inputs[0], &b = call.inputs[1], g = cast(call.grads[0], a.dtype());
  Value da, db;
  if (call.wanted[0]) da = ta ? matmul(b, g, tb, true) : matmul(g, b, false, !tb);
  if (call.wanted[1]) db = tb ? matmul(g, a, true, ta) : matmul(a, g, !ta, false);
  return {da, db};
}

// Lifted inputs keep their matrices last; an input that is not lifted broadcasts, once the other leading axes of the
// lifted one are aligned with it.
Values matmul_lift(const LiftCall& call) {
  Values in = call.inputs;
  const int rank = call.node.types[0].shape.rank() + 1;
  for (std::size_t i = 0; i < 2; ++i) {
    const int missing = rank - in[i].shape().rank();
    if (!call.lifted[i] || missing == 0) continue;
    Ints dims(in[i].shape().begin(), in[i].shape().end());
    dims.insert(dims.begin() + 1, static_cast<std::size_t>(missing), 1);
    in[i] = reshape(in[i], dims);
  }
  const bool ta = call.node.attrs.get_bool("transpose_a"), tb = call.node.attrs.get_bool("transpose_b");
  return {product(call.node.op->name, in[0], in[1], ta, tb)};
}

OpCost matmul_cost(const CostCall& call) {
  const Shape &a = call.inputs[0].shape, &y = call.outputs[0].shape;
  const std::int64_t k = a[a.rank() - (call.attrs.get_bool("transpose_a") ? 2 : 1)];
  return {
      .flops = 2 * static_cast<double>(y.elements()) * static_cast<double>(k), .is_product = true, .bounds_time = true};
}

// Both ops, which differ in their results and in their inputs.
OpDef matmul_block() {
  return {
      .name = "matmul",
      .summary = "product of matrices in the last two axes, leading axes broadcast",
      .kind = OpKind::kernel,
      .inputs = {"a", "b"},
      .attrs = {{.name = "transpose_a", .example = false, .doc = "a is [.., K, M]"},
                {.name = "transpose_b", .example = false, .doc = "b is [.., N, K]"}},
      .cost = matmul_cost,
      .contracts = true,
      .infer = infer_matmul,
      .gradient = matmul_gradient,
      .lift = matmul_lift,
      .cases = {{.shapes = {{4, 3}, {3, 5}}},
                {.shapes = {{3, 4}, {5, 3}}, .attrs = {{"transpose_a", true}, {"transpose_b", true}}},
                {.shapes = {{2, 1, 4, 3}, {6, 3, 5}}},
                {.shapes = {{4, 0}, {0, 5}}},
                {.shapes = {{2, 3, 0}, {0, 5}}},
                {.shapes = {{1, 64}, {64, 32}}},
                {.shapes = {{4, 3}, {4, 5}}, .error = "(K = 3)"},
                {.shapes = {{3}, {3, 5}}, .error = "its rank must be at least 2"}},
  };
}

}  // namespace

void register_matmul() {
  OpDef rounded = matmul_block();
  rounded.precision = PrecisionRule::product;
  rounded.wide_form = "matmul_wide";
  register_op(std::move(rounded));

  // ---- matmul_wide ----
  OpDef wide = matmul_block();
  wide.name = "matmul_wide";
  wide.summary = "matmul of f16 or bf16 whose result is f32, as the sums are; the pass mixed_precision makes it";
  wide.narrow_form = "matmul";
  wide.infer = infer_matmul_wide;
  for (OpCase& c : wide.cases) c.dtypes = {bf16, bf16};
  wide.cases.push_back({.shapes = {{4, 3}, {3, 5}}, .dtypes = {f16, f16}});
  wide.cases.push_back({.shapes = {{4, 3}, {3, 5}}, .dtypes = {f32, f32}, .error = "it takes f16 and bf16"});
  register_op(std::move(wide));
}

Value matmul(const Value& a, const Value& b, bool transpose_a, bool transpose_b) {
  const DType dtype = promote(a.dtype(), b.dtype());
  return product("matmul", cast(a, dtype), cast(b, dtype), transpose_a, transpose_b);
}

}  // namespace paoding
