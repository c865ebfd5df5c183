// SPDX-License-Identifier: Apache-2.0
// gather, scatter_add and embedding_grad on the GPU, by the texts of gpu/kernels/index_text.h. A launch cannot throw,
// so an index out of range is noted by the kernel, and the run that met it fails when it is waited for.
#include "base/check.h"
#include "gpu/codegen/text_kernel.h"
#include "gpu/kernels/index_text.h"
#include "ops/all_kernels.h"
#include "ops/index/index_call.h"
#include "ops/rows.h"

namespace paoding {
namespace {

// Which inputs are the values (a or updates) and the indices, and how many axes the indices take in the values and in
// the result.
struct IndexOp {
  const char* name;
  std::size_t values, indices;
  bool is_gather, is_rows, is_sorted = false;

  int axis(const KernelCall& call) const {
    return index_axis(call, (is_gather ? call.inputs[0] : call.outputs[0]).type.shape.rank());
  }
  int from_axes(const KernelCall& call) const { return is_rows && !is_gather ? rank(call) : 1; }
  int to_axes(const KernelCall& call) const { return is_rows && is_gather ? rank(call) : 1; }
  int rank(const KernelCall& call) const { return call.inputs[indices].type.shape.rank(); }
};
constexpr IndexOp kOps[] = {{"gather", 0, 1, true, true},          {"gather_elements", 0, 1, true, false},
                            {"scatter_add", 1, 0, false, true},    {"scatter_add_elements", 1, 0, false, false},
                            {"embedding_grad", 1, 0, false, true}, {"scatter_add_sorted", 3, 0, false, true, true}};

constexpr const char* kManyIndices =
    "2^32 - 1 indices or more: the place of one that is out of range is noted in 32 bits";

// The place of the first index that is out of range, in a kernel's fault.
std::int64_t place_of(const std::uint64_t* fault) { return static_cast<std::int64_t>(fault[0] >> 32); }
std::int64_t number_of(const std::uint64_t* fault, bool is_wide) {
  const std::uint64_t id = (fault[0] & 0xffffffffu) | fault[1] << 32;
  return is_wide ? static_cast<std::int64_t>(id) : static_cast<std::int32_t>(id);
}

std::string refusal(const KernelCall& call, const IndexOp& op) {
  if (!call.inputs[op.indices].is_dense()) return "indices are not dense";
  if (op.is_sorted && !(call.inputs[1].is_dense() && call.inputs[2].is_dense())) return "their order is not dense";
  if (op.is_sorted && call.outputs[0].type.shape.elements() == 0) return "the result is empty";
  if (call.inputs[op.indices].type.shape.elements() >= (std::int64_t{1} << 32) - 1) {
    return kManyIndices;
  }
  const int axis = op.axis(call);
  if (std::string why = rows_refusal(call.inputs[op.values], axis, op.from_axes(call), "what is read"); !why.empty()) {
    return why;
  }
  return rows_refusal(call.outputs[0], axis, op.to_axes(call), "the result");
}

// An axis of one place has any stride: none, which hinders no vectors.
std::int64_t stride_of(const JointAxis& axis) { return axis.extent == 1 ? 0 : axis.stride; }

gpu::TextPlan plan(const KernelCall& call, const IndexOp& op) {
  const int axis = op.axis(call);
  const Rows from = *rows_of(call.inputs[op.values], axis, op.from_axes(call)),
             to = *rows_of(call.outputs[0], axis, op.to_axes(call));
  gpu::IndexShape shape;
  shape.dtype = call.outputs[0].type.dtype;
  shape.index_dtype = call.inputs[op.indices].type.dtype;
  shape.outer = to.outer.extent, shape.inner = to.inner.extent;
  shape.range = (op.is_gather ? from : to).middle.extent;
  shape.count = (op.is_gather ? to : from).middle.extent;
  shape.padding = padding_row(call);
  shape.from_outer = stride_of(from.outer), shape.from_middle = stride_of(from.middle);
  shape.to_outer = stride_of(to.outer), shape.to_middle = stride_of(to.middle);
  shape.from_alignment = call.alignments[op.values];
  shape.to_alignment = call.alignments[call.inputs.size()];
  shape.sm_count = call.target->sm_count;
  gpu::TextPlan made;
  if (op.is_sorted) {
    made.launches = plan_scatter_sorted(shape);
  } else {
    made.launches.push_back(op.is_gather ? (op.is_rows ? plan_gather_rows(shape) : plan_gather_elements(shape))
                                         : (op.is_rows ? plan_scatter_rows(shape) : plan_scatter_elements(shape)));
  }
  made.workspace_bytes = made.launches.back().workspace_bytes;
  made.ticket_count = made.launches.back().ticket_count;
  made.raise = [indices = Indices(call, op.indices, axis, shape.range)](const std::uint64_t* fault) {
    indices.fail(place_of(fault), number_of(fault, indices.is_wide()));
  };
  return made;
}

}  // namespace

void register_index_gpu() {
  gpu::register_text_kernel(
      "check_indices", "elements",
      [](const KernelCall& call) {
        const bool is_short = call.inputs[0].type.shape.elements() < (std::int64_t{1} << 32) - 1;
        return is_short ? checked_refusal(call) : kManyIndices;
      },
      [](const KernelCall& call) {
        const CheckedIndices indices(call);
        const DType dtype = call.inputs[0].type.dtype;
        gpu::TextPlan made;
        made.launches.push_back(gpu::plan_check_bounds(dtype, indices.count(), indices.least(), indices.most()));
        made.raise = [indices, is_wide = dtype == DType::i64](const std::uint64_t* fault) {
          indices.fail(place_of(fault), number_of(fault, is_wide));
        };
        return made;
      },
      Faults::possible, 0, 0, {{0, 0}});
  for (const IndexOp& op : kOps) {
    gpu::register_text_kernel(
        op.name, op.is_rows ? "rows" : "elements", [&op](const KernelCall& call) { return refusal(call, op); },
        [&op](const KernelCall& call) { return plan(call, op); }, Faults::possible);
  }
}

}  // namespace paoding
