// SPDX-License-Identifier: Apache-2.0
// gather and scatter_add on the GPU: what gpu/index_text.h writes. A number out of range reads 0 and adds nothing there,
// since a launched run cannot throw.
#include "base/check.h"
#include "gpu/group_kernel.h"
#include "gpu/index_text.h"
#include "ops/all_kernels.h"
#include "ops/rows.h"

namespace paoding {
namespace {

// The operand that is read by rows (a or updates) and the indices.
struct Roles {
  std::size_t values, indices;
};
constexpr Roles kGather{0, 1}, kScatter{1, 0};

int axis_of(const KernelCall& call) {
  const bool is_gather = call.op->name.starts_with("gather");
  const Layout& whole = is_gather ? call.inputs[0] : call.outputs[0];
  const auto axis = static_cast<int>(call.attrs.get_int("axis"));
  return axis < 0 ? axis + whole.type.shape.rank() : axis;
}

// How many axes the indices take in what is read and in the result.
struct IndexAxes {
  int from = 1, to = 1;
};
IndexAxes index_axes(const KernelCall& call, const Roles& roles) {
  const int rank = call.inputs[roles.indices].type.shape.rank();
  if (call.op->name == "gather") return {1, rank};
  if (call.op->name == "scatter_add") return {rank, 1};
  return {};
}

std::string refusal(const KernelCall& call, const Roles& roles) {
  if (!call.inputs[roles.indices].is_dense()) return "indices are not dense";
  const IndexAxes axes = index_axes(call, roles);
  const int axis = axis_of(call);
  if (std::string why = rows_refusal(call.inputs[roles.values], axis, axes.from, "what is read"); !why.empty()) {
    return why;
  }
  return rows_refusal(call.outputs[0], axis, axes.to, "the result");
}

gpu::IndexShape shape_of(const KernelCall& call, const Roles& roles) {
  const IndexAxes axes = index_axes(call, roles);
  const int axis = axis_of(call);
  const Rows from = *rows_of(call.inputs[roles.values], axis, axes.from), to = *rows_of(call.outputs[0], axis, axes.to);
  const bool is_gather = roles.values == kGather.values;
  gpu::IndexShape shape;
  shape.dtype = call.outputs[0].type.dtype;
  shape.index_dtype = call.inputs[roles.indices].type.dtype;
  shape.outer = to.outer.extent, shape.inner = to.inner.extent;
  shape.range = is_gather ? from.middle.extent : to.middle.extent;
  shape.count = is_gather ? to.middle.extent : from.middle.extent;
  shape.from_outer = from.outer.stride, shape.from_middle = from.middle.stride;
  shape.to_outer = to.outer.stride, shape.to_middle = to.middle.stride;
  shape.from_alignment = call.alignments[roles.values];
  shape.to_alignment = call.alignments[call.inputs.size()];
  return shape;
}

class IndexKernel : public PreparedKernel {
 public:
  IndexKernel(const gpu::GroupKernelPlan& plan, const Device& device)
      : kernel_(gpu::GpuDevice::get(device.index), plan, 3) {}

  std::int64_t scratch_bytes() const override { return kernel_.plan().workspace_bytes; }
  void run(const KernelRun& run) const override {
    kernel_.launch(static_cast<CUstream>(run.stream), run.operands, run.scratch, nullptr);
  }

 private:
  gpu::GroupKernel kernel_;
};

void add(const char* op, const char* name, const Roles& roles, gpu::GroupKernelPlan (*plan)(const gpu::IndexShape&)) {
  register_kernel(op, {name, DeviceKind::cuda, [roles](const KernelCall& call) { return refusal(call, roles); },
                       [roles, plan](const KernelCall& call, const Device& device) {
                         return std::make_unique<IndexKernel>(plan(shape_of(call, roles)), device);
                       }});
}

}  // namespace

void register_index_gpu() {
  add("gather", "rows", kGather, gpu::plan_gather_rows);
  add("gather_elements", "elements", kGather, gpu::plan_gather_elements);
  add("scatter_add", "rows", kScatter, gpu::plan_scatter_rows);
  add("scatter_add_elements", "elements", kScatter, gpu::plan_scatter_elements);
}

}  // namespace paoding
