// SPDX-License-Identifier: Apache-2.0
// Max pools in 16 bits, with their channels innermost, by threads that keep the rows that windows below each other
// share: of an image, or of a group's result in front (a norm and its activation after a network's first convolution,
// which are the largest of all that it has).
#include <algorithm>

#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/codegen/text_kernel.h"
#include "ops/all_kernels.h"
#include "ops/conv/gpu/conv_epilogue.h"
#include "ops/conv/gpu/window.h"
#include "ops/pool/pool_shape.h"
#include "ops/prologue.h"

namespace paoding {
namespace {

constexpr int kRowThreads = 256, kRowCtasOfSm = 2;
constexpr std::int64_t kRowPiece = 8;                    // channels of a thread
constexpr std::int64_t kMostRowWindows = 8;              // of a thread
constexpr std::int64_t kMostTaps = 3, kMostOverlap = 2;  // along an axis: of a window; windows that an element is in

std::array<WindowAxis, 2> windows_of(const KernelCall& call, const PoolShape& shape) {
  const Shape& image = shape.from.type.shape;
  const auto& kernel = call.attrs.get_ints("kernel");
  return window_axes(call.attrs, {image[2], image[3]}, {kernel[0], kernel[1]});
}

std::string pool_rows_refusal(const KernelCall& call) {
  const PoolShape shape(call);
  if (shape.dtype != DType::bf16 && shape.dtype != DType::f16) return "not 16 bits";
  if (shape.to.type.shape.elements() == 0) return "an extent is 0";
  if (shape.index.type.dtype != DType::u8) return "what windows choose is no byte";
  const std::array images{&shape.from, &shape.to, &shape.index};
  for (std::size_t i = 0; i < images.size(); ++i) {
    const std::string why = gpu::pieces_refusal(*images[i], call.alignments[i], shape.channels, kRowPiece);
    if (!why.empty()) return why;
  }
  for (const WindowAxis& axis : windows_of(call, shape)) {
    if (axis.dilation > 1) return "taps that are apart";
    if (axis.kernel > kMostTaps || ceil_div(axis.kernel, axis.stride) > kMostOverlap)
      return fmt::format("windows of {} that move by {}", axis.kernel, axis.stride);
  }
  return "";
}

std::string start_refusal(const KernelCall& call, const Epilogue& prologue) {
  if (images_of(prologue) > 0) return "it reads several images";
  if (reads_places(prologue)) return "it reads where it is";
  return epilogue_refusal(call.inputs[0], prologue);
}

// The source of a pool that reads its image itself.
std::string text_without_prologue() {
  return text_without_epilogue() + R"(struct EpilogueChannels {};
struct EpiloguePixel {};
struct EpilogueResults {
  Draft<Stored, 8> out0;
};
PD_DEVICE void read_channels(EpilogueChannels&, const EpilogueOperands&, int, const Sizes&) {}
PD_DEVICE void read_pixel(EpiloguePixel&, const EpilogueOperands&, Index) {}
PD_DEVICE void make_pixel(EpilogueResults& made, const Pack<Stored, 8>& result, const EpiloguePixel&, const EpilogueChannels&, const Place&,
                          int, float (&)[1][8], const Sizes&) {
#pragma unroll
  for (int v = 0; v < 8; ++v) made.out0.value[v] = result.get(v);
}
)";
}

gpu::TextPlan plan_rows(const KernelCall& call, const Epilogue* prologue) {
  const PoolShape shape(call);
  const std::array<WindowAxis, 2> axes = windows_of(call, shape);
  const auto& [down, across] = axes;
  const std::int64_t windows = std::min(kMostRowWindows, down.outputs), parts = ceil_div(down.outputs, windows);
  gpu::TextParts made;
  made.name = call.op->name;
  made.threads = kRowThreads, made.resident_ctas = kRowCtasOfSm;
  made.constants = fmt::format("using Stored = {};\nconstexpr int kWindows = {};\n{}", gpu::stored_type(shape.dtype),
                               windows, gpu::window_constants(axes));
  made.functions = "struct Place { int n, h, w; };\n" +
                   (prologue != nullptr ? epilogue_text(&made, *prologue) : text_without_prologue()) + k_pool_rows_cu;
  auto& s = made.sizes;
  const std::int64_t pieces = shape.channels / kRowPiece, total = shape.batch * parts * across.outputs * pieces;
  s.number("total", total), s.divisor("pieces", pieces), s.divisor("parts", parts);
  s.number("rows", down.size), s.number("image_columns", across.size);
  s.number("window_rows", down.outputs), s.divisor("window_columns", across.outputs);
  gpu::add_strides(&s, "from", shape.from), gpu::add_strides(&s, "to", shape.to);
  gpu::add_strides(&s, "index", shape.index);
  made.operands = {gpu::input_parameter(shape.dtype, "image")};
  std::string loads;
  for (std::size_t i = 1; prologue != nullptr && i < prologue->group.loads.size(); ++i) {
    made.operands.push_back(gpu::input_parameter(prologue->group.loads[i].dtype, fmt::format("start_in{}", i)));
    loads += fmt::format("start_in{}, ", i);
  }
  made.operands.push_back(gpu::output_parameter(shape.dtype, "to"));
  made.operands.push_back(gpu::output_parameter(shape.index.type.dtype, "choice"));
  const std::string result = prologue != nullptr ? "nullptr" : "";  // nobody writes it
  made.call = fmt::format("pool(image, EpilogueOperands{{{}{}}}, to, choice, size)", loads, result);
  made.ctas = ceil_div(total, kRowThreads);
  gpu::TextPlan text;
  text.launches.push_back(gpu::make_text_kernel(made));
  text.launches.back().why = fmt::format("a thread has {} windows below each other", windows);
  return text;
}

}  // namespace

void register_pool_rows_gpu() {
  gpu::register_text_kernel(
      "max_pool2d", "rows", pool_rows_refusal, [](const KernelCall& call) { return plan_rows(call, nullptr); },
      Faults::none, ~0u);
  register_prologue_kernel(
      "max_pool2d",
      {.name = "rows", .refusal = start_refusal, .plan_text = [](const KernelCall& call, const Epilogue& prologue) {
         return std::make_shared<const gpu::TextPlan>(plan_rows(call, &prologue));
       }});
}

}  // namespace paoding
