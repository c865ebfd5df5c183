// SPDX-License-Identifier: Apache-2.0
// Section S: training steps of an attention seq2seq; the time to compile one, and to bind another length.
#include "cli/bench/seq2seq.h"

#include <algorithm>

#include "cli/bench/training_feed.h"
#include "io/json_text.h"
#include "paoding/op.h"
#include "paoding/optimizer.h"

namespace paoding::cli::bench {
namespace {

// Operations of the products of a step, forward and backward, two per multiplication.
double products_of(const Seq2SeqSize& s) {
  const auto H = static_cast<double>(s.model.hidden), B = static_cast<double>(s.batch);
  const auto S = static_cast<double>(s.source_steps), T = static_cast<double>(s.target_steps);
  const auto layers = static_cast<double>(s.model.layers);
  const double encoder = S * (layers * 8 * H * H + H * H);
  const double decoder =
      T * (layers * 8 * H * H + 4 * H * H + 2 * H * H + H * static_cast<double>(s.model.target_vocabulary));
  return 3 * 2 * B * (encoder + decoder);
}

double parameters_of(const Seq2SeqSize& s) {
  const auto H = static_cast<double>(s.model.hidden), layers = static_cast<double>(s.model.layers);
  const auto words = static_cast<double>(s.model.source_vocabulary + 2 * s.model.target_vocabulary);
  return words * H + 2 * layers * (8 * H * H + 4 * H) + 4 * H * H + H * H + 2 * H * H;
}

// The model that is compared with float64, because the whole one would take minutes: fewer and shorter rows, no
// dropout, fewer words.
Seq2SeqSize smaller(const Seq2SeqSize& s) {
  Seq2SeqSize small = s;
  small.model.source_vocabulary = std::min<std::int64_t>(s.model.source_vocabulary, 300);
  small.model.target_vocabulary = std::min<std::int64_t>(s.model.target_vocabulary, 200);
  small.model.hidden = std::min<std::int64_t>(s.model.hidden, 128);
  small.model.dropout = 0;
  small.batch = std::min<std::int64_t>(s.batch, 16);
  small.source_steps = std::min<std::int64_t>(s.source_steps, 8);
  small.target_steps = std::min<std::int64_t>(s.target_steps, 8);
  return small;
}

}  // namespace

Seq2SeqSize g2p_size() { return {}; }

Seq2SeqSize translation_size() {
  return {.model = {.source_vocabulary = 17191,
                    .target_vocabulary = 7709,
                    .hidden = 512,
                    .dropout = 0.2,
                    .squashes_attention = false},
          .batch = 128,
          .source_steps = 50,
          .target_steps = 50,
          .has_lengths = true,
          .sums_over_time = true};
}

void build_seq2seq_step(Graph& graph, const Seq2SeqSize& s, DType dtype) {
  const std::int64_t B = s.batch, T = s.target_steps;
  const Value source = graph.input("source", i64, {s.source_steps, B}), target = graph.input("target", i64, {T + 1, B});
  const Value lengths = s.has_lengths ? graph.input("lengths", i64, {B}) : Value();
  models::Seq2SeqOptions options = s.model;
  options.dtype = dtype;
  const models::Seq2Seq model(graph, options);
  const auto reduction = s.sums_over_time ? LossReduction::sum : LossReduction::mean;
  const Value sum =
      model.loss(model.encode(source, lengths), slice(target, 0, 0, T), slice(target, 0, 1, T + 1), reduction);
  const Value loss = s.sums_over_time ? sum * (1.0 / static_cast<double>(B)) : sum;
  const bool keeps_f32 = dtype == DType::bf16 || dtype == DType::f16;
  MinimizeOptions minimized{.clip_norm = 5, .skip_nonfinite = true, .master_weights = keeps_f32};
  if (s.scales_loss) minimized.loss_scale = LossScale{};
  minimized.data_parallel = s.data_parallel;
  const TrainingStep step = minimize(loss, Adam{}, minimized);
  graph.fetch("loss", step.loss);
  graph.fetch("norm", step.gradient_norm);
}

Tensor feed_seq2seq(const Seq2SeqSize& s, const std::string& name, const Type& type) {
  if (name != "source" && name != "target" && name != "lengths") return training_feed(name, type);
  std::vector<double> values(static_cast<std::size_t>(type.shape.elements()));
  const auto words =
      static_cast<std::uint64_t>(name == "source" ? s.model.source_vocabulary : s.model.target_vocabulary);
  std::uint64_t seed = name.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    seed = seed * 6364136223846793005 + 1442695040888963407;
    values[i] = name == "lengths" ? static_cast<double>(s.source_steps - static_cast<std::int64_t>(i % 3))
                                  : static_cast<double>((seed >> 33) % words);
  }
  return Tensor::from(type.dtype, type.shape, values);
}

Case seq2seq_case(const char* name, const Seq2SeqSize& s, DType dtype, bool tf32) {
  Case c;
  c.section = 'S';
  c.kind = "seq2seq";
  c.dtype = dtype;
  c.tf32 = tf32;
  c.name = fmt::format("{}/{}", name, type_text(c));
  c.what = fmt::format("training step, {}+{} layers, hidden {}, batch {}, {} x {}", s.model.layers, s.model.layers,
                       s.model.hidden, s.batch, s.source_steps, s.target_steps);
  c.sizes = JsonObject()
                .add("source_words", s.model.source_vocabulary)
                .add("target_words", s.model.target_vocabulary)
                .add("hidden", s.model.hidden)
                .add("layers", s.model.layers)
                .add("dropout", s.model.dropout)
                .add("squashes_attention", s.model.squashes_attention)
                .add("batch", s.batch)
                .add("source_steps", s.source_steps)
                .add("target_steps", s.target_steps)
                .add("lengths", s.has_lengths)
                .add("sums_over_time", s.sums_over_time)
                .text();
  // Weights and Adam's two moments, in f32, are read and written back; the products read the weights once more.
  const double parameters = parameters_of(s), size = static_cast<double>(size_bytes(dtype));
  c.need = {.read = 3 * 4 * parameters + size * parameters,
            .written = 3 * 4 * parameters,
            .updated = 3 * 4 * parameters,
            .flops = products_of(s)};
  c.rotates = false;
  c.tolerance = dtype == f64 ? 1e-9 : dtype == f32 ? (tf32 ? 2e-2 : 2e-4) : 1e-1;
  c.build = [s](Graph& graph, DType type, const std::string&) { build_seq2seq_step(graph, s, type); };
  const Seq2SeqSize small = smaller(s);
  c.build_small = [small](Graph& graph, DType type, const std::string&) { build_seq2seq_step(graph, small, type); };
  c.checked_as =
      fmt::format("hidden {}, batch {}, {} x {}, {} and {} words, no dropout", small.model.hidden, small.batch,
                  small.source_steps, small.target_steps, small.model.source_vocabulary, small.model.target_vocabulary);
  c.feed = [s, small](const std::string& input, const Type& type) {
    const bool is_small = type.shape.rank() > 0 && type.shape[type.shape.rank() - 1] == small.batch;
    return feed_seq2seq(is_small ? small : s, input, type);
  };
  return c;
}

namespace {

// ---- compiling ----

Case compile_case(bool binds) {
  Case c;
  c.section = 'S';
  c.kind = binds ? "bind" : "compile";
  c.name = c.kind + "/seq2seq_tf32";
  c.what = binds ? "the step bound to 40 x 40 steps" : "the step compiled, its kernels in the cache";
  c.sizes = "{}";
  c.tf32 = true;
  c.goal.wall = binds ? 1e5 : 1e6;
  c.measure = [binds](const Setting& setting) {
    Seq2SeqSize other = translation_size();
    other.source_steps = other.target_steps = 40;
    Graph graph, shorter;
    build_seq2seq_step(graph, translation_size(), f32);
    build_seq2seq_step(shorter, other, f32);
    const Parameters parameters(graph, setting.compile.device);
    const Program program(graph, setting.compile, &parameters);
    const Effort few{3, 5, 2};
    if (binds) return time_work([&] { program.bind(shorter); }, 1, few);
    return time_work([&] { const Program again(graph, setting.compile, &parameters); }, 1, few);
  };
  return c;
}

}  // namespace

Cases seq2seq_cases() {
  Case tf32 = seq2seq_case("seq2seq", translation_size(), f32, true);
  tf32.need.floor_us = 2400;
  tf32.goal.wall = 4000;
  tf32.on_cpu = false;
  Case halves = seq2seq_case("seq2seq", translation_size(), DType::bf16, false);
  halves.need.floor_us = 1800;
  halves.goal.wall = 3000;
  halves.on_cpu = false;
  Case mixed = in_mixed_precision(seq2seq_case("seq2seq", translation_size(), f32, false), bf16);
  mixed.need.floor_us = 1800;
  mixed.goal.wall = 6200;
  mixed.on_cpu = false;
  Seq2SeqSize scaled = translation_size();
  scaled.scales_loss = true;
  Case mixed_f16 = in_mixed_precision(seq2seq_case("seq2seq", scaled, f32, false), f16);
  mixed_f16.need.floor_us = 1800;
  mixed_f16.on_cpu = false;
  Case real;
  real.section = 'S';
  real.name = "seq2seq/real_lengths_bf16";
  real.kind = "seq2seq_buckets";
  real.what = "en-it sentences in buckets, tokens/s";
  real.on_cpu = false;
  real.waits_for = "the corpus on the measuring machine, and a peer that reads the same buckets";
  Case spelling = seq2seq_case("g2p", g2p_size(), f32, false);
  spelling.section = 'G';
  spelling.cpu_goal = {.faster_2 = 2, .faster_16 = 6};
  spelling.on_gpu = false;
  Case spelling_halves = seq2seq_case("g2p", g2p_size(), DType::bf16, false);
  spelling_halves.section = 'G';
  spelling_halves.cpu_goal = {.faster_2 = 4, .faster_16 = 4};
  spelling_halves.on_gpu = false;
  return {tf32, halves, mixed, mixed_f16, real, compile_case(false), compile_case(true), spelling, spelling_halves};
}

}  // namespace paoding::cli::bench
