// SPDX-License-Identifier: Apache-2.0
// Convolutions of one tap on the GPU as products of cuBLASLt: where channels lie innermost a pixel is a row of a
// matrix, and the weights [O, C, 1, 1] are one as they are. Its products of 16 bits and in TF32 are Hopper's wgmma
// there, and long ones of few pixels are cut along the channels, which tiles of our own are not.
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "gpu/libraries/cublaslt.h"
#include "ops/all_kernels.h"
#include "ops/conv/conv_shape.h"

namespace paoding {
namespace {

constexpr std::int64_t kWorkspace = std::int64_t{32} << 20;  // cuBLAS's own choice on Hopper
// For fewer, tiles of our own fill the chip as well; in f32 they are slow, and are not cut along the channels.
constexpr std::int64_t kLeastPixels = 1024, kLeastPixelsOfF32 = 64;

std::string image_rows_refusal(const Layout& image, const char* name) {
  const auto& strides = image.strides;
  const Shape& extents = image.type.shape;
  const bool is_there = strides[1] == 1 && strides[3] >= extents[1] &&
                        (extents[2] == 1 || strides[2] == strides[3] * extents[3]) &&
                        (extents[0] == 1 || strides[0] == strides[3] * extents[3] * extents[2]);
  return is_there ? "" : fmt::format("the pixels of {} are not the rows of a matrix", name);
}

std::string product_refusal(const KernelCall& call) {
  const ConvShape shape(call);
  const std::int64_t size = size_bytes(shape.dtype), whole = 16 / size;  // elements of 16 bytes
  if (size > 4) return "f64";
  if (shape.is_empty()) return "an extent is 0";
  if (shape.groups > 1) return fmt::format("{} groups", shape.groups);
  if (shape.has_limit) return "a limit, which the library's products do not have after them";
  for (const WindowAxis& axis : shape.axes) {
    if (axis.kernel != 1) return fmt::format("{} taps along an axis", axis.kernel);
    if (axis.stride != 1 || axis.outputs != axis.size || axis.before != 0) return "a stride or padding";
  }
  const std::int64_t pixels = shape.batch * shape.axes[0].size * shape.axes[1].size;
  const std::int64_t least = size == 2 ? kLeastPixels : kLeastPixelsOfF32;
  if (pixels < least) return fmt::format("{} pixels, fewer than {}", pixels, least);
  if (pixels > std::numeric_limits<std::int32_t>::max()) return fmt::format("{} pixels, 2^31 or more", pixels);
  if (shape.channels % whole != 0 || shape.outputs % whole != 0) {
    return fmt::format("{} channels in and {} out, needed multiples of {}", shape.channels, shape.outputs, whole);
  }
  for (const auto& [image, name] : {std::pair{&shape.x, "x"}, {&shape.y, "y"}}) {
    if (std::string why = image_rows_refusal(*image, name); !why.empty()) return why;
    if (image->strides[3] % whole != 0) return fmt::format("pixels of {} do not begin at multiples of 16 bytes", name);
  }
  if (std::ranges::any_of(call.alignments, [](std::int64_t bytes) { return bytes % 16 != 0; })) {
    return "an address is not a multiple of 16 bytes";
  }
  if (shape.w.strides[1] != 1 || shape.w.strides[0] % whole != 0) return "the weights' rows do not lie side by side";
  if (std::string why = shape.added_refusal(); !why.empty()) return why;
  if (shape.has_bias && shape.outputs > 1 && shape.bias.strides[0] != 1) return "the bias does not lie side by side";
  return "";
}

gpu::MatmulSpec product_spec_of(const KernelCall& call) {
  const ConvShape shape(call);
  const std::int64_t pixels = shape.batch * shape.axes[0].size * shape.axes[1].size;
  gpu::MatmulSpec spec;
  if (shape.dtype == DType::f32 && call.allow_tf32) spec.precision = gpu::MatmulPrecision::tf32;
  spec.a_dtype = spec.b_dtype = shape.dtype, spec.c_dtype = call.outputs[0].type.dtype;
  switch (shape.kind) {
    case ConvKind::forward:  // y = x w^T
      spec.m = pixels, spec.k = shape.channels, spec.n = shape.outputs;
      spec.lda = shape.x.strides[3], spec.ldb = shape.w.strides[0], spec.ldc = shape.y.strides[3];
      spec.transpose_b = true;
      break;
    case ConvKind::grad_input:  // dx = dy w
      spec.m = pixels, spec.k = shape.outputs, spec.n = shape.channels;
      spec.lda = shape.y.strides[3], spec.ldb = shape.w.strides[0], spec.ldc = shape.x.strides[3];
      break;
    case ConvKind::grad_weight:  // dw = dy^T x
      spec.m = shape.outputs, spec.k = pixels, spec.n = shape.channels;
      spec.lda = shape.y.strides[3], spec.ldb = shape.x.strides[3], spec.ldc = shape.w.strides[0];
      spec.transpose_a = true;
      break;
  }
  if (shape.has_bias) spec.epilogue = shape.has_relu ? gpu::MatmulEpilogue::bias_relu : gpu::MatmulEpilogue::bias;
  spec.has_added = shape.has_added;
  return spec;
}

class ConvProduct : public PreparedKernel {
 public:
  ConvProduct(const KernelCall& call, const Device& device)
      : product_(gpu::GpuDevice::get(device.index), product_spec_of(call), kWorkspace),
        is_weight_(ConvShape(call).kind == ConvKind::grad_weight),
        inputs_(call.inputs.size()) {}

  void run(const KernelRun& run) const override {
    const void* const a = run.operands[is_weight_ ? 1 : 0];
    const void* const b = run.operands[is_weight_ ? 0 : 1];
    const void* const bias = inputs_ > 2 ? run.operands[2] : nullptr;
    const void* const added = inputs_ > 3 ? run.operands[3] : nullptr;
    product_.run(static_cast<CUstream>(run.stream), a, b, run.operands[inputs_], run.scratch, bias, added);
  }

 private:
  gpu::Matmul product_;
  bool is_weight_;
  std::size_t inputs_;
};

}  // namespace

void register_convolution_product_gpu() {
  // Images, not weights and not the bias.
  const auto add = [](const char* op, std::uint32_t images) {
    register_kernel(op, {.name = "cublaslt",
                         .device = DeviceKind::cuda,
                         .refusal = product_refusal,
                         .prepare = [](const KernelCall& call,
                                       const Device& device) { return std::make_unique<ConvProduct>(call, device); },
                         .workspace_bytes = [](const KernelCall&) { return kWorkspace; },
                         .channels_last = images});
  };
  add("conv2d", 0b101), add("conv2d_bias", 0b1001), add("conv2d_add", 0b11001), add("conv2d_grad_input", 0b101);
  add("conv2d_grad_weight", 0b011), add("conv2d_grad_weight_wide", 0b011);
}

}  // namespace paoding
