// SPDX-License-Identifier: Apache-2.0
// Products with packed weights on the CPU: oneDNN says which order it wants (format_tag::any), a reorder makes it once,
// and products read it as it is. With plain weights oneDNN makes the same order anew in every execution. (Measured with
// oneDNN 2.6.3, one core with AVX-512 and AMX, M = 64, K = 512, N = 1024: f32 473 us plain, 397 packed, 151 to pack;
// bf16 75, 34 and 100.)
#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/product.h"
#include "cpu/onednn.h"
#include "cpu/parallel.h"
#include "ops/all_kernels.h"
#include "ops/matmul/matmul_cpu.h"
#include "ops/matmul/matmul_packed.h"
#include "ops/matmul/matmul_shape.h"

namespace paoding {
namespace {

using Dims = std::vector<std::int64_t>;

struct PackedShape {
  DType dtype;
  std::int64_t rows, inner, columns;
  friend auto operator<=>(const PackedShape&, const PackedShape&) = default;
};

bool has_onednn(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; }

// oneDNN's answer; throws dnnl::error where it has no such product at all.
dnnl::memory::desc asked_packed_desc(const PackedShape& shape) {
  const SerialScope serial(
      is_serial_product(capped_product({shape.rows, shape.inner, shape.columns})));  // as the product will run
  const auto plain = [&](std::int64_t rows, std::int64_t columns) {
    return onednn_desc(shape.dtype, {rows, columns}, {columns, 1});
  };
  const dnnl::memory::desc any({shape.inner, shape.columns}, onednn_type(shape.dtype), dnnl::memory::format_tag::any);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return dnnl::matmul::primitive_desc({plain(shape.rows, shape.inner), any, plain(shape.rows, shape.columns)}, attr,
                                      onednn_engine())
      .weights_desc();
}

// The layout that oneDNN wants. It is asked once: passes, planner and kernels need it for every product of a layer, and
// again for every size that a program is bound to.
dnnl::memory::desc packed_desc(const PackedShape& shape) {
  constexpr std::size_t kMostKept = 1024;
  static std::mutex mutex;
  static std::map<std::pair<PackedShape, int>, dnnl::memory::desc> known;
  const std::pair key(shape, max_threads());
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(key); found != known.end()) return found->second;
  }
  const dnnl::memory::desc asked = asked_packed_desc(shape);
  const std::lock_guard lock(mutex);
  if (known.size() >= kMostKept) known.clear();
  known.emplace(key, asked);
  return asked;
}

// The product's operands, densely; packed ones are read in blocks.
std::string size_refusal(const PackedShape& shape) {
  const auto check = [&](std::int64_t rows, std::int64_t columns, std::string_view name) {
    return onednn_size_refusal(shape.dtype, {{}, columns, 1}, rows, columns, name);
  };
  if (std::string why = check(shape.rows, shape.inner, "a"); !why.empty()) return why;
  if (std::string why = check(shape.inner, shape.columns, "b"); !why.empty()) return why;
  return check(shape.rows, shape.columns, "the result");
}

std::string refusal_of_size(const PackedShape& shape, std::int64_t elements) {
  if (std::string why = size_refusal(shape); !why.empty()) return why;
  const PackedOrder order = packed_order(shape.dtype, shape.rows, shape.inner, shape.columns);
  if (order.order.empty()) return "products here have no order of their own for such weights";
  if (order.elements <= elements) return "";
  return fmt::format("the packed weights have {} elements, {} are needed here", elements, order.elements);
}

// ---- pack_weights ----

PackedShape shape_of_pack(const KernelCall& call) {
  const Layout& b = call.inputs[0];
  const bool is_transposed = call.attrs.get_bool("transpose");
  return {b.type.dtype, call.attrs.get_int("rows"), b.type.shape[is_transposed ? 1 : 0],
          b.type.shape[is_transposed ? 0 : 1]};
}

class OneDnnPack : public PreparedKernel {
 public:
  explicit OneDnnPack(const KernelCall& call)
      : is_serial_(threads_for(size_bytes(call.inputs[0].type) + size_bytes(call.outputs[0].type)) == 1) {
    const PackedShape shape = shape_of_pack(call);
    Dims strides(call.inputs[0].strides.begin(), call.inputs[0].strides.end());
    if (call.attrs.get_bool("transpose")) std::swap(strides[0], strides[1]);
    const Dims dims = {shape.inner, shape.columns};
    const dnnl::memory::desc packed = packed_desc(shape);
    const SerialScope serial(is_serial_);
    const std::size_t from = sequence_.memory(onednn_desc(shape.dtype, dims, strides), OneDnnSequence::operand(0));
    sequence_.add_reorder(from, sequence_.memory(packed, OneDnnSequence::operand(1)));
  }

  std::int64_t scratch_bytes() const override { return sequence_.scratch_bytes(); }
  void run(const KernelRun& run) const override {
    const SerialScope serial(is_serial_);
    sequence_.run(run.operands, run.scratch);
  }

 private:
  bool is_serial_;
  OneDnnSequence sequence_;
};

std::string pack_refusal(const KernelCall& call) {
  const Layout& b = call.inputs[0];
  for (std::size_t axis = 0; axis < 2; ++axis) {
    if (b.strides[axis] < 0) return "b is walked over backwards";
    if (b.strides[axis] == 0 && b.type.shape[static_cast<int>(axis)] > 1) return "b repeats one row or column";
  }
  if (!call.outputs[0].is_dense()) return "the packed weights lie in strides";
  return refusal_of_size(shape_of_pack(call), call.outputs[0].type.shape.elements());
}

// ---- matmul_packed ----

// The same product with b as a plain matrix.
KernelCall plain_call(const KernelCall& call) {
  KernelCall plain = call;
  plain.attrs = {{"transpose_a", false}, {"transpose_b", false}};
  plain.inputs[1] =
      Layout::dense({call.inputs[1].type.dtype, Shape{call.inputs[0].type.shape[1], call.attrs.get_int("columns")}});
  return plain;
}

PackedShape shape_of_product(const KernelCall& call) {
  return {call.inputs[0].type.dtype, call.attrs.get_int("rows"), call.inputs[0].type.shape[1],
          call.attrs.get_int("columns")};
}

std::string packed_refusal(const KernelCall& call) {
  if (!call.inputs[1].is_dense()) return "the packed weights lie in strides";
  const PackedShape packed = shape_of_product(call);
  const std::int64_t rows = call.inputs[0].type.shape[0];
  if (rows == 0) return "an extent is 0";
  if (packed_order(packed.dtype, rows, packed.inner, packed.columns) !=
      packed_order(packed.dtype, packed.rows, packed.inner, packed.columns)) {
    return fmt::format("products of {} rows read weights in another order than products of {}", rows, packed.rows);
  }
  if (std::string wrong = refusal_of_size(packed, call.inputs[1].type.shape.elements()); !wrong.empty()) return wrong;
  return onednn_packed_refusal(plain_call(call), packed_desc(packed));
}

}  // namespace

PackedOrder packed_order(DType dtype, std::int64_t rows, std::int64_t inner, std::int64_t columns) {
  if (!has_onednn(dtype) || rows < 1 || inner < 1 || columns < 1) return {};
  if (!size_refusal({dtype, rows, inner, columns}).empty()) return {};
  try {
    const dnnl::memory::desc desc = packed_desc({dtype, rows, inner, columns});
    if (desc.data.format_kind != dnnl_blocked) return {};
    const dnnl_blocking_desc_t& blocking = desc.data.format_desc.blocking;
    if (blocking.inner_nblks == 0) return {};  // plain rows or columns
    PackedOrder order;
    for (int i = 0; i < blocking.inner_nblks; ++i) {
      order.order += fmt::format("{}{}", static_cast<char>('A' + blocking.inner_idxs[i]), blocking.inner_blks[i]);
    }
    order.order += fmt::format(" {} {}", blocking.strides[0], blocking.strides[1]);
    order.elements = static_cast<std::int64_t>(desc.get_size()) / size_bytes(dtype);
    return order;
  } catch (const dnnl::error&) {
    return {};
  }
}

void register_matmul_packed_cpu() {
  register_kernel("pack_weights", {.name = "onednn",
                                   .device = DeviceKind::cpu,
                                   .refusal = pack_refusal,
                                   .prepare =
                                       [](const KernelCall& call, const Device&) {
                                         return std::unique_ptr<PreparedKernel>(made_by_onednn(
                                             "pack_weights", [&] { return std::make_unique<OneDnnPack>(call); }));
                                       },
                                   .faults = Faults::possible});
  register_kernel("matmul_packed", {.name = "onednn",
                                    .device = DeviceKind::cpu,
                                    .refusal = packed_refusal,
                                    .prepare =
                                        [](const KernelCall& call, const Device&) {
                                          return prepare_onednn_matmul(MatmulShape(plain_call(call)),
                                                                       packed_desc(shape_of_product(call)));
                                        },
                                    .faults = Faults::possible});
}

}  // namespace paoding
