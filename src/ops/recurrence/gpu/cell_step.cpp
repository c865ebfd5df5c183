// SPDX-License-Identifier: Apache-2.0
// One step of a recurrent layer for a few rows as one launch on a GPU (cell_step.cu), for a caller who waits for one
// token after the other.
#include <algorithm>

#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/codegen/text_kernel.h"
#include "ops/all_kernels.h"

namespace paoding {
namespace {

// The differences between cells.
struct CellStepKind {
  const char* op;
  std::int64_t gates;  // products per unit
  const char* text;
  const char* operands;  // of the source, which no other cell has
  std::vector<std::pair<std::size_t, std::size_t>> in_place = {};
};

constexpr std::int64_t kMostRows = 8;  // beyond, tensor cores multiply faster than threads
constexpr int kThreads = 256, kUnits = 32, kChunk = 512;

// Where a thread's cell is, for the sources of cells.
constexpr const char* k_cell_place = R"(
struct CellPlace {
  Index at;  // of its row and unit in [batch, hidden]
  int unit;
  static constexpr bool finishes = true;
  PD_DEVICE Index in_gates(int gates) const { return at + (at - unit) * (gates - 1); }
};
)";

// A call: x, h, c of an LSTM, then w, u, b.
struct CellCall {
  std::size_t w, u, b;  // inputs
  std::int64_t rows, features, hidden;
  DType dtype;

  CellCall(const KernelCall& call, const CellStepKind& kind)
      : w(call.inputs.size() - 3), u(w + 1), b(u + 1), dtype(call.inputs[w].type.dtype) {
    const Shape &weights = call.inputs[w].type.shape, &state = call.inputs[1].type.shape;
    rows = state[0], features = weights[0], hidden = weights[1] / kind.gates;
  }
};

std::string refusal(const KernelCall& call, const CellStepKind& kind) {
  const CellCall cell(call, kind);
  if (call.target->major < 9) return "its CTAs send each other sums, which they can from compute capability 9 on";
  if (cell.dtype == DType::f64) return "f64, for which it has no sums";
  for (const Layout& input : call.inputs) {
    if (!input.is_dense()) return "an operand is not dense";
    if (input.type.dtype != cell.dtype) return "operands differ in dtype";
  }
  for (const Layout& output : call.outputs) {
    if (!output.is_dense()) return "a result is not dense";
  }
  if (cell.rows == 0 || cell.features == 0 || cell.hidden == 0) return "an extent is 0";
  if (cell.rows > kMostRows) return fmt::format("{} rows, {} at most", cell.rows, kMostRows);
  if (call.inputs[1].type.shape[1] != cell.hidden) return "its state is a projection";
  if (kind.gates == 3 && !call.attrs.get_bool("reset_after")) return "r scales its state, not the state's product";
  if (gpu::needs_wide_index(std::max(cell.features, cell.hidden) * cell.hidden * kind.gates))
    return "its weights have 2^31 elements or more";
  return "";
}

gpu::TextPlan plan(const KernelCall& call, const CellStepKind& kind) {
  const CellCall cell(call, kind);
  const std::int64_t piece_bytes = std::min(call.alignments[cell.w], call.alignments[cell.u]);
  const bool is_in_pieces = piece_bytes >= 16 && cell.hidden * size_bytes(cell.dtype) % 16 == 0;
  const bool is_unmodified = (call.unmodified_by_previous >> cell.w & call.unmodified_by_previous >> cell.u & 1u) != 0;
  gpu::TextParts text;
  text.name = kind.op;
  text.threads = kThreads;
  text.constants = fmt::format(
      "using Stored = {0};\nusing State = {0};\nusing Bias = {0};\n"
      "constexpr int kRows = {1}, kGates = {2}, kUnits = {3}, kChunk = {4};\n"
      "constexpr bool kIsExact = {5}, kIsRelu = {6}, kIsInPieces = {7}, kUnmodifiedByPrevious = {8};\n",
      gpu::stored_type(cell.dtype), cell.rows, kind.gates, kUnits, kChunk, cell.dtype == DType::f32 && !call.allow_tf32,
      kind.gates == 1 && call.attrs.get_bool("relu"), is_in_pieces, is_unmodified);
  text.functions = std::string(k_exchange_cu) + k_cell_functions_cu + k_cell_place + kind.text + k_cell_step_cu;
  std::vector<std::string> names = {"x", "h"};
  if (kind.gates == 4) names.emplace_back("c");
  for (const char* name : {"w", "u", "b"}) names.emplace_back(name);
  for (const std::string& name : names) text.operands.push_back(gpu::input_parameter(cell.dtype, name));
  text.call =
      fmt::format("Operands operands{{}};\n  operands.u = u, operands.h0 = h, operands.bias = b;\n  {}", kind.operands);
  const char* const results[] = {"last_h", "last_c"};
  for (std::size_t k = 0; k < call.outputs.size(); ++k) {
    text.operands.push_back(gpu::output_parameter(cell.dtype, results[k]));
    if (call.outputs[k].type.shape.elements() > 0) text.call += fmt::format("operands.{0} = {0};\n  ", results[k]);
  }
  text.call += "take_step(operands, x, w, scratch, size)";
  text.waits_for_grid_dependency = text.leaves_stamp = true;
  const std::int64_t cluster = 2 * kind.gates;
  text.ctas = ceil_div(cell.hidden, kUnits) * cluster;
  text.sizes.number("hidden", cell.hidden), text.sizes.number("features", cell.features);
  gpu::TextLaunch launch = gpu::make_text_kernel(text);
  launch.cluster = static_cast<unsigned>(cluster);
  const std::int64_t rows_of_cta = ceil_div(cell.rows, cluster);
  launch.shared_bytes = static_cast<unsigned>(
      16 + 4 * (cell.rows * kChunk + kThreads / 32 * cell.rows * kUnits + rows_of_cta * cluster * kUnits));
  launch.why = fmt::format("{} clusters, each with {} units, a CTA a gate of w or of u", text.ctas / cluster, kUnits);
  gpu::TextPlan made;
  made.launches.push_back(std::move(launch));
  return made;
}

}  // namespace

void register_cell_step_gpu() {
  for (const CellStepKind& kind : {CellStepKind{"lstm_cell", 4, k_cell_lstm_cu, "operands.c0 = c;\n  ", {{1, 2}}},
                                   CellStepKind{"gru_cell", 3, k_cell_gru_cu, "operands.bm = b + 3 * size.hidden;\n  "},
                                   CellStepKind{"rnn_cell", 1, k_cell_rnn_cu, ""}}) {
    gpu::register_text_kernel(
        kind.op, "step", [=](const KernelCall& call) { return refusal(call, kind); },
        [=](const KernelCall& call) { return plan(call, kind); }, Faults::none, 0, 0, kind.in_place);
  }
}

}  // namespace paoding
