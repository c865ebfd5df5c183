// SPDX-License-Identifier: Apache-2.0
// Gradients of max pools in 16 bits, with their channels innermost, by threads that have a block of pixels which the
// same windows read, and the groups after them in one kernel with them: the gradient has several times the elements
// that it is made of, so each group makes it anew.
#include <algorithm>

#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/codegen/text_kernel.h"
#include "ops/all_kernels.h"
#include "ops/conv/gpu/conv_epilogue.h"
#include "ops/conv/gpu/window.h"
#include "ops/pool/pool_shape.h"

namespace paoding {
namespace {

constexpr int kBlockThreads = 256;
constexpr std::int64_t kColumns = 64, kBlockPiece = 8;  // channels of a CTA, of a thread
constexpr int kBlockCtasOfSm = 2;
constexpr std::int64_t kMostBlockWindows = 2, kMostStride = 2;  // along an axis: as many as a thread has registers for
constexpr int kMostImages = 2;

struct Spread {
  PoolShape shape;
  std::array<WindowAxis, 2> windows;

  explicit Spread(const KernelCall& call) : shape(call) {
    const Shape& image = shape.to.type.shape;
    const auto& kernel = call.attrs.get_ints("kernel");
    windows = window_axes(call.attrs, {image[2], image[3]}, {kernel[0], kernel[1]});
  }
  /// Blocks of pixels that the same windows read.
  std::int64_t blocks(std::size_t axis) const {
    return ceil_div(windows[axis].size + windows[axis].before, windows[axis].stride);
  }
  std::int64_t tiles_n() const { return ceil_div(shape.channels, kColumns); }
  std::int64_t ctas_apart(const Target& target) const {
    const std::int64_t rows = ceil_div(shape.batch * blocks(0) * blocks(1), kBlockThreads / (kColumns / kBlockPiece));
    return std::min(rows, std::max<std::int64_t>(1, kBlockCtasOfSm * target.sm_count / tiles_n()));
  }
};

std::string blocks_refusal(const KernelCall& call) {
  const Spread spread(call);
  const PoolShape& shape = spread.shape;
  if (shape.dtype != DType::bf16 && shape.dtype != DType::f16) return "not 16 bits";
  if (shape.to.type.shape.elements() == 0) return "an extent is 0";
  if (shape.index.type.dtype != DType::u8) return "what windows chose is no byte";
  const std::array images{&shape.from, &shape.index, &shape.to};
  for (std::size_t i = 0; i < images.size(); ++i) {
    const std::string why = gpu::pieces_refusal(*images[i], call.alignments[i], shape.channels, kBlockPiece);
    if (!why.empty()) return why;
  }
  for (const WindowAxis& axis : spread.windows) {
    if (axis.dilation > 1) return "taps that are apart";
    if (axis.stride > kMostStride || 1 + (axis.kernel - 1) / axis.stride > kMostBlockWindows)
      return fmt::format("windows of {} that move by {}", axis.kernel, axis.stride);
  }
  return "";
}

std::string epilogue_refusal_of(const KernelCall& call, const Epilogue& epilogue, const KernelImplementation&) {
  if (images_of(epilogue) > kMostImages) return fmt::format("it reads {} images", images_of(epilogue));
  return epilogue_refusal(call.outputs[0], epilogue);
}

// The source of a gradient that is written as it is.
std::string text_that_stores() {
  return R"(constexpr int kSums = 0;
struct EpilogueOperands {
  Stored* out;
};
struct EpilogueChannels {};
struct EpiloguePixel {};
PD_DEVICE void read_channels(EpilogueChannels&, const EpilogueOperands&, int, const Sizes&) {}
PD_DEVICE void read_pixel(EpiloguePixel&, const EpilogueOperands&, Index) {}
PD_DEVICE void finish_pixel(const Pack<Stored, 8>& result, const EpiloguePixel&, const EpilogueChannels&, const EpilogueOperands& epilogue, Index at,
                            const Place&, int, float (&)[1][8], const Sizes&) {
  store(epilogue.out + at, result);
}
PD_DEVICE void store_sum(const EpilogueOperands&, int, int, float, const Sizes&) {}
)";
}

gpu::TextPlan plan_blocks(const KernelCall& call, const Epilogue* epilogue) {
  const Spread spread(call);
  const PoolShape& shape = spread.shape;
  const auto& [down, across] = spread.windows;
  gpu::TextParts parts;
  parts.name = call.op->name;
  parts.threads = kBlockThreads, parts.resident_ctas = kBlockCtasOfSm;
  parts.constants = fmt::format("using Stored = {};\nconstexpr int kColumns = {}, kConsumers = kThreads;\n{}",
                                gpu::stored_type(shape.dtype), kColumns, gpu::window_constants(spread.windows));
  parts.functions = "struct Place { int n, h, w; };\n" +
                    (epilogue != nullptr ? epilogue_text(&parts, *epilogue) : text_that_stores()) +
                    k_conv_epilogue_sums_cu + k_pool_blocks_cu;
  auto& s = parts.sizes;
  s.number("columns", shape.channels), s.divisor("tiles_n", spread.tiles_n());
  s.number("blocks", shape.batch * spread.blocks(0) * spread.blocks(1));
  s.divisor("block_rows", spread.blocks(0)), s.divisor("block_columns", spread.blocks(1));
  s.number("rows", down.size), s.number("image_columns", across.size);
  s.number("window_rows", down.outputs), s.number("window_columns", across.outputs);
  gpu::add_strides(&s, "from", shape.from), gpu::add_strides(&s, "index", shape.index);
  gpu::add_strides(&s, "to", shape.to);
  const std::int64_t ctas_apart = spread.ctas_apart(*call.target);
  s.number("ctas_apart", ctas_apart), s.wide_number("parts_at", 0);
  parts.operands = {gpu::input_parameter(shape.dtype, "from"), gpu::input_parameter(shape.index.type.dtype, "chosen")};
  if (epilogue != nullptr) {
    add_epilogue_operands(&parts, shape.dtype, *epilogue);
  } else {
    parts.operands.push_back(gpu::output_parameter(shape.dtype, "to"));
  }
  parts.call = fmt::format("spread(from, chosen, {}, scratch, size)",
                           epilogue != nullptr ? epilogue_argument(*epilogue) : "EpilogueOperands{to}");
  parts.ctas = ctas_apart * spread.tiles_n();
  gpu::TextPlan made;
  made.launches.push_back(gpu::make_text_kernel(parts));
  made.launches.back().shared_bytes = kBlockThreads / 32 * kColumns * 4;  // of sums, by warps
  made.launches.back().why = fmt::format("{} CTAs by blocks of {} x {} pixels", parts.ctas, down.stride, across.stride);
  if (epilogue != nullptr && sums_of(*epilogue) > 0) {
    made.workspace_bytes = parts.ctas * sums_of(*epilogue) * kColumns * 4;
    made.ticket_count = spread.tiles_n();
  }
  return made;
}

}  // namespace

void register_pool_blocks_gpu() {
  gpu::register_text_kernel(
      "max_pool2d_grad", "blocks", blocks_refusal, [](const KernelCall& call) { return plan_blocks(call, nullptr); },
      Faults::none, ~0u);
  register_epilogue_kernel("max_pool2d_grad",
                           {.name = "blocks",
                            .refusal = epilogue_refusal_of,
                            .plan_text =
                                [](const KernelCall& call, const Epilogue& epilogue) {
                                  return std::make_shared<const gpu::TextPlan>(plan_blocks(call, &epilogue));
                                },
                            .is_rematerialized = true});
}

}  // namespace paoding
