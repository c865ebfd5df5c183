// SPDX-License-Identifier: Apache-2.0
// Convolutions of images whose channels lie innermost, by cuDNN's graph API: where it was measured to be faster than
// ours, by a rule, or for the very call (PlanCache). Our kernels add a bias in their epilogue, where cuDNN's would need
// a launch of its own, so convolutions with a bias stay ours.
#include "ops/conv/gpu/conv_cudnn.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/hash.h"
#include "base/one_line.h"
#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/driver/loaded_kernel.h"
#include "gpu/libraries/cudnn.h"
#include "ops/all_kernels.h"
#include "ops/conv/conv_shape.h"
#include "ops/conv/gpu/conv_tma_tiles.h"
#include "ops/conv/gpu/conv_weight_pack.h"
#include "ops/conv/gpu/conv_weight_sum.h"

namespace paoding {
namespace {

// To be raised when our own kernels choose tiles in another way: measurements against them are out of date then.
constexpr int kOwnRevision = 3;
constexpr std::int64_t kEngineWorkspace = std::int64_t{64} << 20;

bool is_weight_gradient(const ConvShape& shape) { return shape.kind == ConvKind::grad_weight; }

// Weights as cuDNN takes them beside such images: [o, tap, channel].
bool are_weights_packed(const ConvShape& shape) { return is_channels_last(shape.w); }

// A gradient for weights is made in f32, and rounded when it is put where it lies.
bool is_result_in_place(const ConvShape& shape) {
  return are_weights_packed(shape) && shape.w.type.dtype == DType::f32;
}

// Weights, or their gradient, in the workspace, in front of the engine's own part.
std::int64_t weight_bytes(const ConvShape& shape) {
  const bool is_there = is_weight_gradient(shape) ? is_result_in_place(shape) : are_weights_packed(shape);
  if (is_there) return 0;
  const DType dtype = is_weight_gradient(shape) ? DType::f32 : shape.dtype;
  return round_up(shape.w.type.shape.elements() * size_bytes(dtype), 256);
}

gpu::ConvolutionTensor tensor_of(const Layout& layout, DType dtype, std::int64_t alignment) {
  gpu::ConvolutionTensor made;
  made.dtype = dtype, made.alignment = std::min<std::int64_t>(alignment, 16);
  // An axis of one element may have any stride; the library wants the one that it would have.
  const Layout usual = channels_last(layout.type);
  for (int axis = 0; axis < 4; ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    made.extents[at] = layout.type.shape[axis];
    made.strides[at] = made.extents[at] == 1 ? usual.strides[at] : layout.strides[at];
  }
  return made;
}

gpu::ConvolutionSpec engine_spec_of(const KernelCall& call) {
  const ConvShape shape(call);
  using Result = gpu::ConvolutionSpec::Result;
  const std::int64_t result = call.alignments.back();
  gpu::ConvolutionSpec spec;
  spec.allow_tf32 = call.allow_tf32 && shape.dtype == DType::f32;
  for (std::size_t i = 0; i < 2; ++i) {
    spec.strides[i] = shape.axes[i].stride, spec.dilations[i] = shape.axes[i].dilation;
    spec.before[i] = shape.axes[i].before, spec.after[i] = shape.axes[i].after;
  }
  const bool is_weight = is_weight_gradient(shape);
  spec.result = is_weight ? Result::w : shape.kind == ConvKind::forward ? Result::y : Result::x;
  spec.x = tensor_of(shape.x, shape.dtype, spec.result == Result::x ? result : call.alignments[0]);
  spec.y = tensor_of(shape.y, shape.dtype, spec.result == Result::y ? result : call.alignments[is_weight ? 1 : 0]);
  Layout weights = channels_last({is_weight ? DType::f32 : shape.dtype, shape.w.type.shape});
  spec.w = tensor_of(weights, weights.type.dtype, weight_bytes(shape) > 0 ? 16 : call.alignments[is_weight ? 2 : 1]);
  return spec;
}

std::string rule_refusal(const KernelCall& call);

const TimedChoice* timed_choice(const KernelCall& call) {
  return call.timed != nullptr && call.timed->choice ? &*call.timed->choice : nullptr;
}

std::string ignored_entry(const KernelCall& call) {
  return call.timed == nullptr || call.timed->ignored.empty() ? "" : fmt::format(" ({})", call.timed->ignored);
}

std::string engine_refusal(const KernelCall& call) {
  if (std::string why = cudnn_refusal(call); !why.empty()) return why;
  if (const TimedChoice* const timed = timed_choice(call)) {
    if (timed->is_library) return "";
    if (timed->engine.empty()) return "it was tried, and had no engine";
    return fmt::format("it took {:.1f} us, ours {:.1f}, when they were timed", timed->library_us, timed->own_us);
  }
  const std::string why = rule_refusal(call);
  return why.empty() ? why : why + ignored_entry(call);
}

std::string reason(const KernelCall& call) {
  if (const TimedChoice* const timed = timed_choice(call)) {
    return fmt::format("it took {:.1f} us, ours {:.1f}, when they were timed", timed->library_us, timed->own_us);
  }
  return "by a rule" + ignored_entry(call);
}

// Where it was clearly faster on an H200 or an H100, and nowhere else (benchmarks/results/2026-11-24-cudnn.txt,
// 2026-11-26-convolutions.txt and 2026-11-26-convolutions-3.txt: ResNet-50's convolutions, 256 images), by the engine
// that the library names first. Timing the call itself knows better.
std::string rule_refusal(const KernelCall& call) {
  constexpr std::int64_t kLeastChannels = 64, kLeastWindows = 12544;  // of the measured calls
  const ConvShape shape(call);
  const auto& [down, across] = shape.axes;
  if (call.target->major != 9) return "ours is not known to be slower on this GPU";
  if (shape.groups > 1) return fmt::format("{} groups", shape.groups);
  for (const std::int64_t channels : {shape.channels, shape.outputs}) {
    if (channels < kLeastChannels || channels % 8 != 0) return fmt::format("{} channels", channels);
  }
  const std::int64_t windows = shape.batch * down.outputs * across.outputs;
  if (windows < kLeastWindows) return fmt::format("{} windows, fewer than {}", windows, kLeastWindows);
  if (shape.dtype == DType::f32) return call.allow_tf32 ? "" : "exact f32";
  if (is_weight_gradient(shape)) return "its gradients for weights in f32 are slower";
  if (!is_weight_gradient(shape) && goes_by_patches(call)) return "ours reads what taps share once";
  const bool is_one_tap = down.kernel * across.kernel == 1, is_strided = down.stride * across.stride > 1;
  if (is_one_tap && !is_strided) return "one tap, a product";
  if (shape.kind == ConvKind::forward && (shape.outputs > 128 || !is_strided)) return "ours is as fast forward";
  if (shape.kind != ConvKind::grad_input) return "";
  const std::int64_t most = is_strided ? 256 : 128;
  if (std::min(shape.channels, shape.outputs) > most) return "ours is as fast for images of so many channels";
  return is_one_tap ? "one tap: hardly faster than ours" : "";
}

class ConvCudnn : public PreparedKernel {
 public:
  ConvCudnn(const KernelCall& call, const gpu::GpuDevice& device, gpu::Convolution convolution)
      : shape_(call), weight_bytes_(weight_bytes(shape_)), convolution_(std::move(convolution)) {
    if (weight_bytes_ == 0) return;
    auto text = std::make_shared<gpu::TextPlan>();
    text->launches.push_back(is_weight_gradient(shape_) ? plan_weight_sum(call, 1) : plan_forward_weight_pack(call));
    gpu::TextLaunch& launch = text->launches.back();
    launch.overlaps_before = gpu::overlaps_before(*call.target, launch);
    moves_weights_ = gpu::load_text(device, std::move(text), call.inputs.size() + 1);
  }

  void run(const KernelRun& run) const override {
    const bool is_weight = is_weight_gradient(shape_), is_forward = shape_.kind == ConvKind::forward;
    void* const first = run.operands[0];
    void* const second = run.operands[1];
    void* const result = run.operands[2];
    void* const x = is_forward || is_weight ? first : result;
    void* const y = is_forward ? result : is_weight ? second : first;
    void* const w = weight_bytes_ > 0 ? run.scratch : is_weight ? result : second;
    KernelRun of_text = run;
    of_text.stamp = nullptr;
    if (moves_weights_ != nullptr && !is_weight) moves_weights_->run(of_text);
    convolution_.run(static_cast<CUstream>(run.stream), x, w, y, static_cast<char*>(run.scratch) + weight_bytes_);
    if (moves_weights_ != nullptr && is_weight) moves_weights_->run(of_text);
  }

 private:
  ConvShape shape_;
  std::int64_t weight_bytes_;
  gpu::Convolution convolution_;
  std::unique_ptr<PreparedKernel> moves_weights_;
};

Preparation prepare_engine(const KernelCall& call, const Device& device) {
  const gpu::GpuDevice& on = gpu::GpuDevice::get(device.index);
  try {
    const gpu::ConvolutionEngines engines(on, engine_spec_of(call));
    const TimedChoice* const timed = timed_choice(call);
    const std::string engine = timed != nullptr && timed->is_library ? timed->engine : "";
    return std::make_unique<ConvCudnn>(call, on, gpu::Convolution(engines, kEngineWorkspace, engine));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unsupported) throw;
    return Preparation::declined(error.what());
  }
}

}  // namespace

bool has_cudnn_row(const OpDef& op) {
  return op.name == "conv2d" || op.name == "conv2d_grad_input" || op.name == "conv2d_grad_weight" ||
         op.name == "conv2d_grad_weight_wide";
}

std::string cudnn_refusal(const KernelCall& call) {
  const ConvShape shape(call);
  if (shape.dtype == DType::f64) return "f64";
  if (shape.is_empty()) return "an extent is 0";
  for (const auto& [image, name] : {std::pair{&shape.x, "x"}, {&shape.y, "y"}}) {
    if (image->type.shape[1] > 1 && image->strides[1] != 1) return fmt::format("the channels of {} lie apart", name);
    if (gpu::reach_of(*image) > std::numeric_limits<std::int32_t>::max()) {
      return fmt::format("{} reaches over 2^31 elements or more", name);
    }
  }
  for (const Layout* of : {&shape.x, &shape.w, &shape.y}) {
    if (std::ranges::any_of(of->strides, [](std::int64_t stride) { return stride < 0; })) return "a negative stride";
  }
  if (std::ranges::any_of(call.alignments, [](std::int64_t bytes) { return bytes % 16 != 0; })) {
    return "an address is not a multiple of 16 bytes";
  }
  if (call.target->version_of("cudnn") == 0) return "libcudnn.so.9 is not there";
  return "";
}

std::string timing_key(const KernelCall& call) {
  static const std::uint64_t own = [] {
    std::uint64_t hash = kFnvStart;
    for (const char* text :
         {k_conv_tma_filters_cu,       k_conv_tma_images_cu,     k_conv_tma_rows_cu,        k_conv_tma_row_weights_cu,
          k_conv_tma_patch_weights_cu, k_conv_tma_patches_cu,    k_conv_tma_weights_cu,     k_conv_tma_windows_cu,
          k_conv_channel_cu,           k_conv_channel_images_cu, k_conv_channel_weights_cu, k_conv_gemm_cu,
          k_conv_gemm_images_cu,       k_conv_gemm_weights_cu,   k_conv_patch_cu,           k_conv_patch_images_cu,
          k_conv_patch_weights_cu,     k_conv_tap_rows_cu,       k_conv_weight_pack_cu,     k_conv_weight_sum_cu,
          k_conv_weight_tap_rows_cu}) {
      hash = fnv1a(text, hash);
    }
    return hash;
  }();
  const ConvShape shape(call);
  const Target& target = *call.target;
  // Not how weights lie: they are copied for a kernel once it is chosen, which is asked for by this key.
  return one_line(fmt::format("{} {}, weights {}, {} {} {} SMs, cudnn {}, cublaslt {}, own {} {:016x}", call.op->name,
                              gpu::to_string(engine_spec_of(call)), to_string(shape.w.type.dtype), target.name,
                              target.arch(), target.sm_count, target.version_of("cudnn"), target.version_of("cublaslt"),
                              kOwnRevision, own));
}

std::int64_t cudnn_workspace_bytes(const KernelCall& call) { return weight_bytes(ConvShape(call)) + kEngineWorkspace; }

std::vector<CudnnKernel> cudnn_kernels(const KernelCall& call, const Device& device, std::size_t most) {
  const gpu::GpuDevice& on = gpu::GpuDevice::get(device.index);
  const gpu::ConvolutionEngines engines(on, engine_spec_of(call));
  std::vector<CudnnKernel> made;
  std::string why;
  for (const std::string& name : engines.names()) {
    if (made.size() >= most) break;
    try {
      made.push_back({name, std::make_unique<ConvCudnn>(call, on, gpu::Convolution(engines, kEngineWorkspace, name))});
    } catch (const Error& error) {  // another may do
      if (error.kind() != ErrorKind::unsupported) throw;
      why = error.what();
    }
  }
  if (made.empty()) fail(ErrorKind::unsupported, "{}", why);
  return made;
}

void register_convolution_cudnn_gpu() {
  // Images, not weights.
  using Transposed = std::function<std::uint32_t(const KernelCall&)>;
  const auto add = [](const char* op, std::uint32_t images, Transposed transposed) {
    register_kernel(
        op, {.name = kCudnnRow,
             .device = DeviceKind::cuda,
             .refusal = engine_refusal,
             .prepare = prepare_engine,
             .workspace_bytes = cudnn_workspace_bytes,
             .channels_last = images,
             .transposed = std::move(transposed),
             .reason = reason,
             .timing_key = [](const KernelCall& call) { return cudnn_refusal(call).empty() ? timing_key(call) : ""; }});
  };
  add("conv2d", 0b101, transposed_weights), add("conv2d_grad_input", 0b101, transposed_weights);
  add("conv2d_grad_weight", 0b011, {}), add("conv2d_grad_weight_wide", 0b011, {});
}

}  // namespace paoding
