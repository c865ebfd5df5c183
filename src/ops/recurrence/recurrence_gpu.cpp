// SPDX-License-Identifier: Apache-2.0
// Recurrent layers over time as one launch on a GPU, whose CTAs keep the weights (recurrence*.cu, a cell_*.cu for each
// kind of cell). What is decided here: whether the layer fits, its teams, and what the texts are told about both.
#include <algorithm>

#include "base/check.h"
#include "cuda_text.h"
#include "gpu/text_kernel.h"
#include "ops/all_kernels.h"
#include "ops/recurrence/team.h"

namespace paoding {
namespace {

// A call of one of the ops over time, either direction.
struct Layer {
  LayerExtents extents;
  std::int64_t steps = 0;
  bool has_lengths = false, is_reverse = false;
  DType state_dtype = DType::f32;  // of what cells hold on to

  Layer(const KernelCall& call, bool is_backward) {
    is_reverse = call.attrs.get_bool("reverse");
    const Type& gates = call.inputs[is_backward ? 1 : 0].type;
    extents.gates = 4;
    extents.batch = gates.shape[1], extents.hidden = gates.shape[2] / extents.gates;
    extents.dtype = gates.dtype;
    extents.is_exact = gates.dtype == DType::f32 && !call.allow_tf32;
    extents.is_backward = is_backward;
    steps = gates.shape[0];
    if (is_backward) {
      std::size_t given = 3;
      for (const char* name : {"states", "last_h", "last_c"}) given += call.attrs.get_bool(name) ? 1 : 0;
      has_lengths = call.inputs.size() > given;
      state_dtype = call.inputs[2].type.dtype;
    } else {
      has_lengths = call.inputs.size() > 4;
      state_dtype = call.inputs[3].type.dtype;
    }
  }
};

// Steps that a kernel per step would take no longer for.
constexpr double kMostStepUs = 6;

std::string refusal(const KernelCall& call, bool is_backward) {
  const Layer layer(call, is_backward);
  const LayerExtents& e = layer.extents;
  if (e.dtype == DType::f64) return "f64, for which it has no products";
  if (call.target->major < 9) return "clusters come with compute capability 9";
  if (e.hidden == 0 || e.batch == 0 || layer.steps == 0) return "an extent is 0";
  if (e.is_exact && is_backward) return "gradients in f32 that is not to be rounded";
  for (const Layout& input : call.inputs) {
    if (!input.is_dense()) return "an operand is not dense";
  }
  for (const Layout& output : call.outputs) {
    if (!output.is_dense()) return "a result is not dense";
  }
  if (e.batch >= std::int64_t{1} << 20 || layer.steps >= std::int64_t{1} << 30)
    return "more rows or steps than it counts";
  std::string why_not;
  const std::optional<Team> team = choose_team(e, *call.target, &why_not);
  if (!team) return why_not;
  if (team->step_us > kMostStepUs) return fmt::format("{:.1f} us a step expected of {}", team->step_us, team->text());
  return "";
}

class RecurrenceText : public gpu::TextParts {
 public:
  // `u`: the operand that holds the weights.
  RecurrenceText(const KernelCall& call, const Layer& layer, const Team& team, std::size_t u) : team_(team) {
    const LayerExtents& e = layer.extents;
    name = call.op->name;
    threads = static_cast<int>(team.warps * 32);
    constants = fmt::format("using Stored = {};\nusing State = {};\n", gpu::stored_type(e.dtype),
                            gpu::stored_type(layer.state_dtype));
    constant("int kTeam", team.ctas), constant("int kUnits", team.units), constant("int kRows", team.rows);
    constant("int kWarps", team.warps), constant("int kParts", team.parts);
    constant("int kTiles", team.tiles), constant("int kSteps", team.steps), constant("int kKept", team.kept);
    constant("int kStaged", std::max<std::int64_t>(team.staged, 1));
    constant("int kRestFragments", (team.tiles * team.steps - team.kept) * (e.is_exact ? 4 : 1));
    constant("int kMatrixRows", team.matrix_rows), constant("int kDepthPieces", team.depth_pieces);
    constant("int kSumStride", team.sum_stride), constant("int kGates", e.gates);
    const std::int64_t of_piece = 16 / size_bytes(e.dtype);
    const bool is_in_pieces = e.hidden % of_piece == 0 && call.alignments[u] >= 16;
    for (const auto& [what, is] :
         {std::pair("kIsExact", e.is_exact), std::pair("kIsInPieces", is_in_pieces), std::pair("kIsBulk", team.is_bulk),
          std::pair("kHasLengths", layer.has_lengths), std::pair("kIsReverse", layer.is_reverse),
          std::pair("kIsSettled", (call.settled >> u & 1u) != 0)}) {
      constants += fmt::format("constexpr bool {} = {};\n", what, is);
    }
    is_wide = gpu::needs_wide_index((layer.steps + 1) * e.batch * e.hidden * e.gates);
    awaits_launch_before = true;
    ctas = team.ctas * team.count;
    sizes.number("steps", layer.steps), sizes.number("batch", e.batch), sizes.number("hidden", e.hidden);
  }
  gpu::TextPlan finish(const std::string& text) {
    functions = std::string(k_exchange_cu) + k_warp_products_cu + k_recurrence_cu + text;
    gpu::TextLaunch launch = gpu::make_text_kernel(*this);
    launch.cluster = static_cast<unsigned>(team_.ctas);
    launch.shared_bytes = static_cast<unsigned>(team_.shared_bytes);
    launch.is_alone = true;
    launch.why = team_.text();
    gpu::TextPlan made;
    made.launches.push_back(std::move(launch));
    return made;
  }
  // Adds a parameter, and gives its name; nothing reads what is nullptr.
  std::string input(DType dtype, const char* parameter) {
    operands.push_back(gpu::input_parameter(dtype, parameter));
    return parameter;
  }
  std::string output(const Layout& layout, const char* parameter) {
    operands.push_back(gpu::output_parameter(layout.type.dtype, parameter));
    return layout.type.shape.elements() == 0 ? "nullptr" : parameter;
  }

 private:
  void constant(const char* what, std::int64_t value) { constants += fmt::format("constexpr {} = {};\n", what, value); }
  const Team& team_;
};

gpu::TextPlan plan_forward(const KernelCall& call) {
  const Layer layer(call, false);
  const Team team = *choose_team(layer.extents, *call.target, nullptr);
  RecurrenceText text(call, layer, team, 1);
  std::vector<std::string> names;
  const char* inputs[] = {"xw", "u", "h0", "c0", "lengths"};
  const char* outputs[] = {"states", "cells", "gates", "last_h", "last_c"};
  for (std::size_t i = 0; i < call.inputs.size(); ++i)
    names.push_back(text.input(call.inputs[i].type.dtype, inputs[i]));
  if (!layer.has_lengths) names.emplace_back("nullptr");
  for (std::size_t i = 0; i < call.outputs.size(); ++i) names.push_back(text.output(call.outputs[i], outputs[i]));
  text.call = fmt::format("run_forward({{{}}}, room, size)", fmt::join(names, ", "));
  const std::string products = layer.extents.is_exact
                                   ? std::string(k_recurrence_exact_cu)
                                   : std::string(k_recurrence_tiles_cu) + k_recurrence_forward_tiles_cu;
  return text.finish(products + k_cell_lstm_cu + k_recurrence_forward_cu);
}

gpu::TextPlan plan_backward(const KernelCall& call) {
  const Layer layer(call, true);
  const Team team = *choose_team(layer.extents, *call.target, nullptr);
  RecurrenceText text(call, layer, team, 0);
  std::vector<std::string> names;
  std::size_t next = 0;
  const auto take = [&](const char* parameter, bool is_given) {
    names.push_back(is_given ? text.input(call.inputs[next++].type.dtype, parameter) : "nullptr");
  };
  take("u", true), take("gates", true), take("cells", true);
  take("dstates", call.attrs.get_bool("states")), take("dlast_h", call.attrs.get_bool("last_h"));
  take("dlast_c", call.attrs.get_bool("last_c")), take("lengths", layer.has_lengths);
  const char* outputs[] = {"dxw", "dh0", "dc0"};
  for (std::size_t i = 0; i < call.outputs.size(); ++i) names.push_back(text.output(call.outputs[i], outputs[i]));
  text.call = fmt::format("run_backward({{{}}}, room, size)", fmt::join(names, ", "));
  return text.finish(std::string(k_recurrence_tiles_cu) + k_cell_lstm_grad_cu + k_recurrence_backward_cu);
}

}  // namespace

void register_recurrence_gpu() {
  gpu::register_text_kernel(
      "lstm_recurrence", "team", [](const KernelCall& call) { return refusal(call, false); }, plan_forward);
  gpu::register_text_kernel(
      "lstm_recurrence_grad", "team", [](const KernelCall& call) { return refusal(call, true); }, plan_backward);
}

}  // namespace paoding
