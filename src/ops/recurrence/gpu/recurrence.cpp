// SPDX-License-Identifier: Apache-2.0
// Recurrent layers over time as one launch on a GPU, whose CTAs keep the weights (recurrence*.cu, a cell_*.cu for each
// kind of cell). This file decides whether the layer fits, its CTA groups, and the constants of the sources.
#include <algorithm>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/codegen/text_kernel.h"
#include "gpu/kernels/square_products.h"
#include "ops/all_kernels.h"
#include "ops/recurrence/gpu/cta_group.h"
#include "ops/recurrence/packed_weights.h"

namespace paoding {
namespace {

// The differences between cells.
struct RecurrenceKind {
  const char* op;
  std::int64_t gates;  // products per unit
  const char *text, *grad_text;
  std::vector<const char*> inputs, outputs;            // of the op, lengths left out
  std::optional<std::size_t> saved;                    // the output that only the gradient needs
  std::vector<const char*> grad_inputs, grad_outputs;  // those that are always given
  std::vector<const char*> given;                      // gradients that attributes say are given
};

const RecurrenceKind k_lstm{.op = "lstm_recurrence",
                            .gates = 4,
                            .text = k_cell_lstm_cu,
                            .grad_text = k_cell_lstm_grad_cu,
                            .inputs = {"xw", "u", "h0", "c0"},
                            .outputs = {"states", "cells", "gates", "last_h", "last_c"},
                            .saved = 2,
                            .grad_inputs = {"u", "gates", "cells"},
                            .grad_outputs = {"dxw", "dh0", "dc0"},
                            .given = {"states", "last_h", "last_c"}};
const RecurrenceKind k_gru{.op = "gru_recurrence",
                           .gates = 3,
                           .text = k_cell_gru_cu,
                           .grad_text = k_cell_gru_grad_cu,
                           .inputs = {"xw", "u", "bm", "h0"},
                           .outputs = {"states", "saved", "last_h"},
                           .saved = 1,
                           .grad_inputs = {"u", "saved", "states"},
                           .grad_outputs = {"dxw", "dhu", "dh0"},
                           .given = {"states", "last_h"}};
const RecurrenceKind k_rnn{.op = "rnn_recurrence",
                           .gates = 1,
                           .text = k_cell_rnn_cu,
                           .grad_text = k_cell_rnn_grad_cu,
                           .inputs = {"xw", "u", "h0"},
                           .outputs = {"states", "last_h"},
                           .saved = {},
                           .grad_inputs = {"u", "states"},
                           .grad_outputs = {"dxw", "dh0"},
                           .given = {"states", "last_h"}};

// A call of one of the ops over time, either direction.
struct Layer {
  LayerExtents extents;
  std::int64_t steps = 0;
  bool has_lengths = false, has_bias = false, is_reverse = false, is_relu = false;
  bool tells_phases = false;  // KernelEnvironment::tells_phases
  DType bias_dtype = DType::f32;
  DType state_dtype = DType::f32;  // of the cells' own state
  std::int64_t sums = 0;           // backward: sums of a unit over steps and rows
  DType sums_dtype = DType::f32;

  Layer(const KernelCall& call, const RecurrenceKind& kind, bool is_backward) {
    is_reverse = call.attrs.get_bool("reverse");
    is_relu = &kind == &k_rnn && call.attrs.get_bool("relu");
    tells_phases = call.environment->tells_phases, extents.wanted = call.environment->cta_group;
    const Type& u = call.inputs[is_backward ? 0 : 1].type;
    const Type& sequence = call.inputs[is_backward ? 1 : 0].type;
    extents.gates = kind.gates;
    extents.batch = sequence.shape[1], extents.hidden = u.shape[0];
    extents.dtype = u.dtype, extents.is_by_units = are_by_units(u);
    extents.is_exact = u.dtype == DType::f32 && !call.allow_tf32;
    extents.is_backward = is_backward, extents.together = call.together;
    if (!is_backward && kind.saved) extents.is_training = call.outputs[*kind.saved].type.shape.elements() > 0;
    steps = sequence.shape[0];
    std::size_t given = is_backward ? kind.grad_inputs.size() : kind.inputs.size();
    if (is_backward) {
      for (const char* name : kind.given) given += call.attrs.get_bool(name) ? 1 : 0;
      if (&kind == &k_rnn) --steps;  // of its states one is the start
    }
    extents.steps = steps;
    if (!is_backward) has_bias = call.attrs.get_bool("bias");
    if (has_bias) bias_dtype = call.inputs.back().type.dtype;
    has_lengths = call.inputs.size() > given + (has_bias ? 1 : 0);
    const bool may_be_pipelined = !is_backward && !extents.is_by_units;
    if (may_be_pipelined && !tells_phases) extents.pipelined_layers = call.pipelined_layers;
    if (is_backward && call.attrs.get_bool("sums")) sums = call.outputs.back().type.shape.elements() / extents.hidden;
    if (sums > 0) sums_dtype = call.outputs.back().type.dtype;
    if (&kind == &k_lstm) state_dtype = call.inputs[is_backward ? 2 : 3].type.dtype;
  }
};

// Lanes read whole pieces of the matrix's rows where weights lie by units; else columns of u, some bytes at a time.
bool wants_by_units(const KernelCall& call, const RecurrenceKind& kind) {
  const Layer layer(call, kind, false);
  const LayerExtents& e = layer.extents;
  if (e.is_by_units || e.hidden % (16 / size_bytes(e.dtype)) != 0) return false;
  const std::optional<CtaGroup> cta_group = choose_cta_group(e, *call.target, nullptr);
  return cta_group && reads_by_units(*cta_group);
}

// Steps that a library's product and a kernel would take no longer for.
constexpr double kMostStepUs = 6, kMostExactStepUs = 5.5, kMostExactGradientUs = 8;
// Forward, added to the time of the tensor cores' products for reading weights that L2 keeps:
// benchmarks/results/2026-11-26-recurrence-streamed-rows.txt.
constexpr double kCachedBytesPerUs = 5.5e6;
// The same for more weights than L2 keeps, added to the time of reading them:
// benchmarks/results/2026-11-26-recurrence-streamed.txt.
constexpr double kLoopUs = 6, kExactLoopUs = 10, kCachedByLoop = 0.4;  // of L2

double loop_step_us(const LayerExtents& e, const Target& target) {
  const double least = !e.is_exact ? kMostStepUs : e.is_backward ? kMostExactGradientUs : kMostExactStepUs;
  const auto weights = static_cast<double>(e.gates * e.hidden * e.hidden * size_bytes(e.dtype));
  const double reading = e.is_exact || e.is_backward ? 0 : weights / kCachedBytesPerUs;
  if (weights <= kCachedByLoop * static_cast<double>(target.last_cache_bytes)) return least + reading;
  return (e.is_exact ? kExactLoopUs : kLoopUs) + weights / target.read_bytes_per_us;
}

std::string refusal(const KernelCall& call, const RecurrenceKind& kind, bool is_backward) {
  if (are_packed(call.inputs[is_backward ? 0 : 1].type)) return "u is packed as a CPU reads it";
  const Layer layer(call, kind, is_backward);
  const LayerExtents& e = layer.extents;
  if (e.dtype == DType::f64) return "f64, for which it has no products";
  if (call.target->major < 8) return "its products come with compute capability 8";
  if (e.hidden == 0 || e.batch == 0 || layer.steps == 0) return "an extent is 0";
  for (const Layout& input : call.inputs) {
    if (!input.is_dense()) return "an operand is not dense";
  }
  for (const Layout& output : call.outputs) {
    if (!output.is_dense()) return "a result is not dense";
  }
  if (e.batch >= std::int64_t{1} << 20 || layer.steps >= std::int64_t{1} << 30)
    return "more rows or steps than it counts";
  std::string why_not;
  const std::optional<CtaGroup> cta_group = choose_cta_group(e, *call.target, &why_not);
  if (!cta_group) return why_not;
  const double loop_us = loop_step_us(e, *call.target);
  const bool is_asked_for = !e.wanted.empty();  // whatever it takes
  if (cta_group->step_us > loop_us && !is_asked_for)
    return fmt::format("{}; {:.2f} of a product and a kernel", cta_group->text(), loop_us);
  return "";
}

// Why its CTA groups are as they are: the best of each other way to exchange, and with each other number of CTAs of a
// cluster.
std::string reason_of(const KernelCall& call, const RecurrenceKind& kind, bool is_backward) {
  const Layer layer(call, kind, is_backward);
  std::vector<CtaGroup> cta_groups = possible_cta_groups(layer.extents, *call.target, nullptr);
  std::ranges::stable_sort(cta_groups, {}, &CtaGroup::step_us);
  const CtaGroup chosen = *choose_cta_group(layer.extents, *call.target, nullptr);
  std::string text = chosen.text();
  if (should_pipeline(layer.extents, chosen, *call.target)) {
    text += fmt::format(", which leave room for all {} layers of the pipeline", call.pipelined_layers);
  } else if (call.pipelined_layers > 1) {
    text += fmt::format(", alone in a launch: all {} layers of the pipeline at once have no room or take longer",
                        call.pipelined_layers);
  } else if (chosen.step_us > cta_groups.at(0).step_us) {
    text += ", which leave room for the layer beside it";
  }
  std::set<std::pair<bool, std::int64_t>> told;
  told.emplace(chosen.exchange == Exchange::memory, chosen.exchange == Exchange::memory ? 0 : chosen.ctas);
  for (const CtaGroup& cta_group : cta_groups) {
    const bool is_memory = cta_group.exchange == Exchange::memory;
    if (!told.emplace(is_memory, is_memory ? 0 : cta_group.ctas).second) continue;
    text += fmt::format("{}{:.2f} of {}", told.size() == 2 ? "; else " : ", ", cta_group.step_us, cta_group.shape());
  }
  return text;
}

// Rows with lengths are also shared out by work: see recurrence_batch_tiles.cu.
constexpr std::int64_t kBatchTiles = 2, kMostSorted = 4096;  // rows, each compared with all others
constexpr double kLeastGainUs = 6;  // of lengths of half the steps; a launch more takes about 3

// The CTA groups of a layer: all rows at once, and perhaps a second launch's, that have few at a time.
struct CtaGroups {
  CtaGroup all;
  std::optional<CtaGroup> few;
  std::string why_not;  // there are none for few rows

  CtaGroups(const Layer& layer, const Target& target) : all(*choose_cta_group(layer.extents, target, nullptr)) {
    why_not = refusal_of_few(layer, target);
    if (!why_not.empty()) few.reset();
  }
  const CtaGroup& of(bool is_few) const { return is_few ? *few : all; }

 private:
  std::string refusal_of_few(const Layer& layer, const Target& target) {
    if (!layer.has_lengths) return "rows have all steps";
    if (layer.tells_phases) return "phases are told of one launch";
    if (should_pipeline(layer.extents, all, target)) return "layers are in one pipelined launch";
    if (all.exchange == Exchange::memory) return "they synchronize through memory that launches would share";
    LayerExtents extents = layer.extents;
    extents.batch_tiles = kBatchTiles, extents.pipelined_layers = 1;
    few = choose_cta_group(extents, target, nullptr);
    if (!few || few->exchange == Exchange::memory) return "no clusters for fewer";
    if (few->count * few->rows >= extents.batch) return "there are CTA groups for each of them";
    const std::int64_t batch_tiles = ceil_div(extents.batch, few->rows);
    if (extents.batch > kMostSorted || batch_tiles * 4 > std::min(few->work_bytes, all.work_bytes)) {
      return "they are too many to sort";
    }
    const double gain = static_cast<double>(layer.steps) * (all.step_us - few->step_us);
    return gain < kLeastGainUs ? fmt::format("fewer would take {:.1f} us less", std::max(gain, 0.0)) : "";
  }
};

class RecurrenceText : public gpu::TextParts {
 public:
  // `u`: the operand that holds the weights; `h0`: that of the states to start from, where they are read as vectors.
  RecurrenceText(const KernelCall& call, const Layer& layer, const CtaGroups& cta_groups, bool is_few, std::size_t u,
                 std::optional<std::size_t> h0)
      : cta_group_(cta_groups.of(is_few)),
        target_(*call.target),
        is_reverse_(layer.is_reverse),
        dtype_(layer.extents.dtype),
        tells_phases_(layer.tells_phases) {
    const CtaGroup& cta_group = cta_group_;
    const auto nanoseconds = [](double us) { return static_cast<std::int64_t>(us * 1000); };
    if (layer.has_lengths) {
      why_ = is_few           ? "; then as many more rows, where lengths make that less than all at once"
             : cta_groups.few ? "; where lengths do not make fewer rows at a time less"
                              : "; all rows at once: " + cta_groups.why_not;
    }
    constant("int kFewRows", cta_groups.few ? cta_groups.few->rows : 1);
    constant("int kFewCtaGroups", cta_groups.few ? cta_groups.few->count : 0);
    constant("int kFewStepNs", cta_groups.few ? nanoseconds(cta_groups.few->step_us) : 0);
    constant("int kAllStepNs", nanoseconds(cta_groups.all.step_us)), constant("bool kIsFew", is_few ? 1 : 0);
    const LayerExtents& e = layer.extents;
    name = call.op->name;
    threads = static_cast<int>(cta_group.warps * 32);
    constants += fmt::format(
        "using Stored = {};\nusing State = {};\nusing Bias = {};\nusing Factor = {};\n"
        "using Summed = {};\n",
        gpu::stored_type(e.dtype), gpu::stored_type(layer.state_dtype), gpu::stored_type(layer.bias_dtype),
        cta_group.simt_fma ? "float" : "Stored", gpu::stored_type(layer.sums_dtype));
    constant("int kLayerHidden", e.hidden), constant("int kGroupCtas", cta_group.ctas),
        constant("int kUnits", cta_group.units), constant("int kRows", cta_group.rows);
    constant("int kCtaGroups", cta_group.count);
    constant("int kWarps", cta_group.warps), constant("int kParts", cta_group.parts);
    constant("int kTiles", cta_group.tiles), constant("int kSteps", cta_group.steps),
        constant("int kKept", cta_group.kept);
    constant("int kStaged", std::max<std::int64_t>(cta_group.staged, 1));
    constant("int kRowsInFlight", cta_group.rows_in_flight), constant("int kSumPeers", cta_group.sum_peers);
    const std::int64_t pieces = fragment_pieces(e, cta_group), of_chunk = cta_group.chunk_fragments * pieces;
    constant("int kRestFragments", cta_group.rest_fragments() * pieces);
    constant("int kStreamed", cta_group.streamed), constant("int kAhead", cta_group.ahead);
    constant("int kL2Resident", cta_group.l2_resident);
    constant("int kChunkPieces", of_chunk), constant("int kRingAt", cta_group.ring_at);
    constant("int kMatrixRows", cta_group.matrix_rows), constant("int kDepthPieces", cta_group.depth_pieces);
    constant("int kSumStride", cta_group.sum_stride), constant("int kGates", e.gates);
    streamed_bytes_ = streamed_bytes(e, cta_group);
    sums_bytes_ = cta_group.count * cta_group.ctas * cta_group.units * layer.sums * 4;
    arrivals_ = layer.sums > 0 && cta_group.count > 1 ? cta_group.ctas : 0;
    constant("int kArrivedAt", cta_group.state_words), constant("int kPhasesAt", phases_at());
    const std::int64_t of_piece = 16 / size_bytes(e.dtype);
    bool is_in_pieces = e.hidden % of_piece == 0 && call.alignments[u] >= 16;
    if (h0) is_in_pieces &= call.alignments[*h0] >= 16;
    for (const auto& [what, is] :
         {std::pair("kIsExact", e.is_exact), std::pair("kSimtFma", cta_group.simt_fma),
          std::pair("kKeepsSums", cta_group.keeps_sums), std::pair("kLlProtocol", cta_group.ll_protocol),
          std::pair("kIsByUnits", e.is_by_units), std::pair("kSingleBuffered", cta_group.single_buffered),
          std::pair("kIsNarrow", cta_group.is_narrow), std::pair("kWgmma", cta_group.wgmma),
          std::pair("kUnitsPerWarpgroup", cta_group.units_per_warpgroup), std::pair("kIsInPieces", is_in_pieces),
          std::pair("kCopiesAhead", cta_group.copies_ahead && is_in_pieces && call.alignments[0] >= 16),
          std::pair("kIsBulk", cta_group.exchange == Exchange::copies), std::pair("kHasLengths", layer.has_lengths),
          std::pair("kHasBias", layer.has_bias), std::pair("kTellsPhases", tells_phases_),
          std::pair("kIsRelu", layer.is_relu), std::pair("kSumsUp", layer.sums > 0),
          std::pair("kUnmodifiedByPrevious", (call.unmodified_by_previous >> u & 1u) != 0)}) {
      constants += fmt::format("constexpr bool {} = {};\n", what, is);
    }
    is_wide = gpu::needs_wide_index((layer.steps + 1) * e.batch * e.hidden * e.gates);
    waits_for_grid_dependency = true;
    // A thread that waits for the loads of few rows' steps needs registers for all of them: else the compiler has one
    // load wait for the other.
    if (!e.is_backward && cta_group.is_narrow) resident_ctas = 1;
    ctas = cta_group.ctas * cta_group.count;
    sizes.number("steps", layer.steps), sizes.number("batch", e.batch);
    sizes.number("is_reverse", layer.is_reverse ? 1 : 0);
    if (!should_pipeline(e, cta_group, *call.target)) return;
    pipelined_layers_ = e.pipelined_layers, pipeline_at_ = round_up(cta_group.state_words, 4),
    pipeline_words_ = pipeline_words(e, cta_group);
    constant("int kPipelineAt", pipeline_at_);
    sizes.number("part", 0);  // gpu/codegen/pipelined_launch.h
  }
  // Layers of a pipeline have one source more, and another call.
  gpu::TextLaunch finish(const std::string& text, const std::string& stacked_call = "") {
    const bool is_cluster = cta_group_.exchange != Exchange::memory;
    functions = std::string(k_exchange_cu) + k_warp_products_cu;
    if (cta_group_.wgmma) {
      const auto columns = static_cast<int>(round_up(cta_group_.rows, 8));
      functions += k_tensor_cores_cu + gpu::square_products(dtype_, columns);
    }
    functions += std::string(k_cell_functions_cu) + k_recurrence_cu + k_recurrence_batch_tiles_cu +
                 k_recurrence_phases_cu + (is_cluster ? k_recurrence_cluster_cu : k_recurrence_memory_cu) +
                 k_recurrence_stream_cu + text;
    // A direction that the text knows takes no registers; layers that share a launch have one text.
    const std::string common = constants;
    constants = common + "constexpr bool kIsReverse = false, kIsDirectionGiven = true;\n";
    gpu::TextParts together = *this;
    if (pipelined_layers_ > 1) together.functions += k_recurrence_pipelined_cu, together.call = stacked_call;
    const gpu::KernelSource shared = gpu::make_text_kernel(together).source;
    constants = common + fmt::format("constexpr bool kIsReverse = {}, kIsDirectionGiven = false;\n", is_reverse_);
    gpu::TextLaunch launch = gpu::make_text_kernel(*this);
    launch.shared_source = shared;
    if (is_cluster) launch.cluster = static_cast<unsigned>(cta_group_.ctas);
    launch.is_cooperative = !is_cluster;
    launch.ticket_count = pipelined_layers_ > 1 ? pipeline_at_ + pipeline_words_ : cta_group_.state_words + arrivals_;
    launch.pipelined_layers = pipelined_layers_;
    launch.workspace_bytes = arrivals_ > 0 ? sums_bytes_ : streamed_bytes_;
    if (tells_phases_) {
      launch.phases = {"weights",  "launch before",    "start", "waiting", "product", "gates",
                       "exchange", "loads and stores", "end"};
      launch.phases_at = phases_at();
      launch.ticket_count = launch.phases_at + 2 * static_cast<std::int64_t>(launch.phases.size());
    }
    launch.shared_bytes = static_cast<unsigned>(cta_group_.shared_bytes);
    // A CTA has an SM for itself, whichever of them the launch before still has.
    if (!is_cluster) launch.shared_bytes = std::max(launch.shared_bytes, gpu::half_of_shared(target_) + 16);
    launch.ctas_at_once = static_cast<unsigned>(ctas_at_once(cta_group_, target_));
    launch.why = cta_group_.text() + why_;
    return launch;
  }
  // Adds a parameter, and gives its name; nothing reads a nullptr.
  std::string input(DType dtype, const std::string& parameter) {
    operands.push_back(gpu::input_parameter(dtype, parameter));
    return parameter;
  }
  std::string output(const Layout& layout, const char* parameter) {
    operands.push_back(gpu::output_parameter(layout.type.dtype, parameter));
    return layout.type.shape.elements() == 0 ? "nullptr" : parameter;
  }

 private:
  void constant(const char* what, std::int64_t value) { constants += fmt::format("constexpr {} = {};\n", what, value); }
  // Words of 64 bits after the CTA group's own.
  std::int64_t phases_at() const { return round_up(cta_group_.state_words + arrivals_, 2); }

  const CtaGroup& cta_group_;
  const Target& target_;
  const bool is_reverse_;
  const DType dtype_;
  std::int64_t sums_bytes_ = 0, arrivals_ = 0;  // of all CTA groups' sums; counters of CTA groups that have theirs
  std::int64_t pipelined_layers_ = 1, pipeline_at_ = 0, pipeline_words_ = 0;
  std::int64_t streamed_bytes_ = 0;
  std::string why_;
  const bool tells_phases_;
};

std::string tiles_of(const CtaGroup& cta_group) {
  return cta_group.wgmma ? k_recurrence_wgmma_cu : k_recurrence_tiles_cu;
}

gpu::TextLaunch forward_launch(const KernelCall& call, const RecurrenceKind& kind, const Layer& layer,
                               const CtaGroups& cta_groups, bool is_few) {
  const CtaGroup& cta_group = cta_groups.of(is_few);
  const auto h0 =
      static_cast<std::size_t>(std::ranges::find(kind.inputs, std::string_view("h0")) - kind.inputs.begin());
  RecurrenceText text(call, layer, cta_groups, is_few, 1, h0);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kind.inputs.size(); ++i) {
    names.push_back(text.input(call.inputs[i].type.dtype, kind.inputs[i]));
  }
  names.push_back(layer.has_lengths ? text.input(DType::i32, "lengths") : "nullptr");
  names.push_back(layer.has_bias ? text.input(layer.bias_dtype, "bias") : "nullptr");
  for (std::size_t i = 0; i < call.outputs.size(); ++i) names.push_back(text.output(call.outputs[i], kind.outputs[i]));
  text.call = fmt::format("run_forward({{{}}}, scratch, size, blockIdx.x, NotPipelined{{}})", fmt::join(names, ", "));
  const std::string pipelined = fmt::format("run_pipelined({{{}}}, scratch, size, blockIdx.x)", fmt::join(names, ", "));
  const std::string exchange = cta_group.exchange == Exchange::memory
                                   ? std::string(k_recurrence_sum_peers_cu) + k_recurrence_forward_memory_cu
                                   : k_recurrence_forward_cluster_cu;
  const std::string products =
      cta_group.simt_fma ? std::string(k_recurrence_simt_cu) : tiles_of(cta_group) + k_recurrence_forward_tiles_cu;
  return text.finish(std::string(k_recurrence_ll_words_cu) + exchange + kind.text + k_recurrence_ahead_copied_cu +
                         k_recurrence_forward_sums_cu + products + k_recurrence_forward_cu,
                     pipelined);
}

gpu::TextLaunch backward_launch(const KernelCall& call, const RecurrenceKind& kind, const Layer& layer,
                                const CtaGroups& cta_groups, bool is_few) {
  const CtaGroup& cta_group = cta_groups.of(is_few);
  RecurrenceText text(call, layer, cta_groups, is_few, 0, {});
  std::vector<std::string> names;
  std::size_t next = 0;
  const auto take = [&](const std::string& parameter, bool is_given) {
    names.push_back(is_given ? text.input(call.inputs[next++].type.dtype, parameter) : "nullptr");
  };
  for (const char* name : kind.grad_inputs) take(name, true);
  for (const char* name : kind.given) take(std::string("d") + name, call.attrs.get_bool(name));
  take("lengths", layer.has_lengths);
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    names.push_back(text.output(call.outputs[i], i < kind.grad_outputs.size() ? kind.grad_outputs[i] : "sums"));
  }
  if (call.outputs.size() == kind.grad_outputs.size()) names.push_back("nullptr");
  text.call = fmt::format("run_backward({{{}}}, scratch, size, blockIdx.x)", fmt::join(names, ", "));
  const char* const exchange =
      cta_group.exchange == Exchange::memory ? k_recurrence_backward_memory_cu : k_recurrence_backward_cluster_cu;
  const std::string products =
      cta_group.simt_fma ? std::string(k_recurrence_backward_simt_cu)
                         : k_recurrence_ll_words_cu + tiles_of(cta_group) + exchange + k_recurrence_backward_tiles_cu;
  return text.finish(products + kind.grad_text + k_recurrence_backward_sums_cu + k_recurrence_backward_cu);
}

gpu::TextPlan plan_launches(const KernelCall& call, const RecurrenceKind& kind, bool is_backward) {
  const Layer layer(call, kind, is_backward);
  const CtaGroups cta_groups(layer, *call.target);
  const auto launch = is_backward ? backward_launch : forward_launch;
  gpu::TextPlan made;
  made.launches.push_back(launch(call, kind, layer, cta_groups, false));
  if (cta_groups.few) made.launches.push_back(launch(call, kind, layer, cta_groups, true));
  for (const gpu::TextLaunch& each : made.launches) {
    made.ticket_count = std::max(made.ticket_count, each.ticket_count);
    made.workspace_bytes = std::max(made.workspace_bytes, each.workspace_bytes);
  }
  return made;
}

}  // namespace

void register_recurrence_gpu() {
  for (const RecurrenceKind* kind : {&k_lstm, &k_gru, &k_rnn}) {
    const std::string op = kind->op;
    gpu::register_text_kernel(
        op, "cta_group", [=](const KernelCall& call) { return refusal(call, *kind, false); },
        [=](const KernelCall& call) { return plan_launches(call, *kind, false); }, Faults::none, 0, 0, {},
        [=](const KernelCall& call) { return reason_of(call, *kind, false); }, {},
        [=](const KernelCall& call) { return wants_by_units(call, *kind); });
    gpu::register_text_kernel(
        op + "_grad", "cta_group", [=](const KernelCall& call) { return refusal(call, *kind, true); },
        [=](const KernelCall& call) { return plan_launches(call, *kind, true); }, Faults::none, 0, 0, {},
        [=](const KernelCall& call) { return reason_of(call, *kind, true); });
  }
}

}  // namespace paoding
