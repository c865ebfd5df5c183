// SPDX-License-Identifier: Apache-2.0
// Pooling on the GPU, over any layout and float; threads follow the result's memory, and have an element of it, or,
// where channels lie last, as many channels as are moved at once. Gradients are gathered, as on the CPU, in a fixed
// order.
#include "base/check.h"
#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/codegen/text_kernel.h"
#include "ops/all_kernels.h"
#include "ops/conv/gpu/window.h"
#include "ops/pool/pool_shape.h"

namespace paoding {
namespace {

constexpr int kPoolThreads = 256;
// Taps of a row of a window, or windows of a row that an element is in, whose loads are in flight together.
constexpr std::int64_t kMostAhead = 4;

constexpr std::string_view kind_name(PoolKind kind) {
  switch (kind) {
    case PoolKind::max_forward: return "kMaxForward";
    case PoolKind::max_grad: return "kMaxGrad";
    case PoolKind::max_pick: return "kMaxPick";
    case PoolKind::avg_forward: return "kAvgForward";
    case PoolKind::avg_grad: return "kAvgGrad";
  }
  return "";
}

gpu::TextPlan plan_elements(const KernelCall& call) {
  const PoolShape shape(call);
  const bool is_grad = shape.kind == PoolKind::max_grad || shape.kind == PoolKind::avg_grad;
  const bool is_last = is_channels_last(shape.to);
  const Shape &result = shape.to.type.shape, &image = is_grad ? result : shape.from.type.shape;
  const auto& kernel = call.attrs.get_ints("kernel");
  const auto windows = window_axes(call.attrs, {image[2], image[3]}, {kernel[0], kernel[1]});
  if (result.elements() == 0) return {};
  gpu::TextParts parts;
  parts.name = call.op->name;
  parts.threads = kPoolThreads;
  std::int64_t most = std::max(gpu::reach_of(shape.from), gpu::reach_of(shape.to));
  if (shape.has_index()) most = std::max(most, gpu::reach_of(shape.index));
  for (const WindowAxis& axis : windows) most = std::max(most, gpu::reach_of(axis));
  parts.is_wide = gpu::needs_wide_index(most);
  // Inputs, then outputs; of max pools one of them is the index.
  std::vector<Layout> operands = call.inputs;
  operands.insert(operands.end(), call.outputs.begin(), call.outputs.end());
  int vector = 16;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    vector = std::min(vector, gpu::channels_at_once(operands[i], call.alignments[i], result[1]));
  }
  parts.constants = fmt::format(
      "enum Kind {{ kMaxForward, kMaxGrad, kMaxPick, kAvgForward, kAvgGrad }};\nconstexpr Kind kKind = {};\n"
      "constexpr bool kChannelsLast = {}, kCountsPadding = {};\nconstexpr int kVector = {}, kAhead = {};\n",
      kind_name(shape.kind), is_last, !shape.has_index() && call.attrs.get_bool("count_padding"), vector,
      std::min(kMostAhead, is_grad ? ceil_div(windows[1].kernel, windows[1].stride) : windows[1].kernel));
  parts.functions = fmt::format("{}{}", k_window_cu, k_pool_window_cu);
  parts.sizes.number("total", result.elements() / vector);
  parts.sizes.divisor("channels", result[1] / vector);
  parts.sizes.divisor("height", result[2]), parts.sizes.divisor("width", result[3]);
  gpu::add_strides(&parts.sizes, "from", shape.from), gpu::add_strides(&parts.sizes, "to", shape.to);
  gpu::add_strides(&parts.sizes, "index", shape.index);
  const std::string both = gpu::add_window(&parts.sizes, "vertical", windows[0], true) + "  " +
                           gpu::add_window(&parts.sizes, "horizontal", windows[1], true) + "  ";
  switch (shape.kind) {
    case PoolKind::max_forward:
      parts.operands = {gpu::input_parameter(shape.dtype, "from"), gpu::output_parameter(shape.dtype, "to"),
                        gpu::output_parameter(shape.index.type.dtype, "choice")};
      parts.call = fmt::format("pool(from, (const {}*)choice, to, choice, vertical, horizontal, size)",
                               gpu::stored_type(shape.index.type.dtype));
      break;
    case PoolKind::max_grad:
    case PoolKind::max_pick:
      parts.operands = {gpu::input_parameter(shape.dtype, "from"),
                        gpu::input_parameter(shape.index.type.dtype, "chosen"),
                        gpu::output_parameter(shape.dtype, "to")};
      parts.call = fmt::format("pool(from, chosen, to, ({}*)nullptr, vertical, horizontal, size)",
                               gpu::stored_type(shape.index.type.dtype));
      break;
    case PoolKind::avg_forward:
    case PoolKind::avg_grad:
      parts.operands = {gpu::input_parameter(shape.dtype, "from"), gpu::output_parameter(shape.dtype, "to")};
      parts.call = "pool(from, (const unsigned char*)nullptr, to, (unsigned char*)nullptr, vertical, horizontal, size)";
      break;
  }
  parts.call = both + parts.call;
  parts.ctas = ceil_div(result.elements() / vector, kPoolThreads);
  return {{gpu::make_text_kernel(parts)}, 0, {}};
}

}  // namespace

void register_pooling_gpu() {
  for (const char* op : {"max_pool2d", "max_pool2d_grad", "max_pool2d_pick", "avg_pool2d", "avg_pool2d_grad"}) {
    gpu::register_text_kernel(
        op, "elements", [](const KernelCall&) { return std::string(); }, plan_elements, Faults::none, ~0u);
  }
}

}  // namespace paoding
