// SPDX-License-Identifier: Apache-2.0
// Section T: a decoder-only transformer: GPT-2 small on a GPU, small ones on a CPU; a training step, and scores of
// texts.
#include "models/gpt.h"

#include <cmath>

#include "cli/bench/case.h"
#include "cli/bench/training_feed.h"
#include "io/json_text.h"
#include "paoding/optimizer.h"

namespace paoding::cli::bench {
namespace {

struct GptSize {
  models::GptOptions model;
  std::int64_t batch = 8;
  bool is_training = true;
};

// The model that is compared with float64: few layers, rows and tokens, but heads as wide.
GptSize smaller_gpt(GptSize s) {
  s.model.hidden = 2 * s.model.hidden / s.model.heads, s.model.heads = 2;
  s.model.layers = 2, s.model.context = 128, s.model.vocabulary = std::min<std::int64_t>(s.model.vocabulary, 500);
  s.batch = 2;
  return s;
}

void build_gpt(Graph& graph, const GptSize& s, DType dtype) {
  models::GptOptions options = s.model;
  options.dtype = dtype;
  const models::Gpt model(graph, options);
  const Shape shape{s.batch, options.context};
  const Value written = graph.input("written", i64, shape);
  if (!s.is_training) return graph.fetch("scores", model.logits(written));
  const Value loss = model.loss(written, graph.input("labels", i64, shape));
  const TrainingStep step = minimize(loss, AdamW{.learning_rate = 1e-4}, {.clip_norm = 1, .skip_nonfinite = true});
  graph.fetch("loss", loss);
  graph.fetch("norm", step.gradient_norm);
}

Tensor gpt_feed(std::int64_t vocabulary, const std::string& name, const Type& type) {
  std::vector<double> values(static_cast<std::size_t>(type.shape.elements()));
  if (name == "written" || name == "labels") {
    std::uint64_t seed = name.size();
    for (double& value : values) {
      seed = seed * 6364136223846793005 + 1442695040888963407;
      value = static_cast<double>((seed >> 33) % static_cast<std::uint64_t>(vocabulary));
    }
    return Tensor::from(type.dtype, type.shape, values);
  }
  const bool is_table = name == "tokens/weight" || name == "positions/weight", is_factor = name.ends_with("/gamma");
  if (name.starts_with("adam/") || !(is_table || is_factor)) return training_feed(name, type);
  values = random_tensor({f64, type.shape}, 1, name).to_doubles();
  for (double& value : values) value = is_table ? 0.02 * value : 1 + 0.1 * std::abs(value);
  return Tensor::from(type.dtype, type.shape, values);
}

// Products of a step; of a training step three times those forward, and of attention, causal, 7 halves.
Need need_of_gpt(const GptSize& s) {
  const auto width = static_cast<double>(s.model.hidden), layers = static_cast<double>(s.model.layers);
  const auto vocabulary = static_cast<double>(s.model.vocabulary), context = static_cast<double>(s.model.context);
  const double tokens = static_cast<double>(s.batch) * context;
  const double matrices = layers * 12 * width * width + vocabulary * width;
  const double weights = matrices + layers * 13 * width + context * width + 2 * width;
  const double pairs = tokens * context / 2 * layers;
  if (!s.is_training) {
    return {.read = 4 * weights + 8 * tokens,
            .written = 4 * tokens * vocabulary,
            .flops = 2 * tokens * matrices + 4 * pairs * width};
  }
  return {.read = 3 * 4 * weights + 4 * weights + 16 * tokens,
          .written = 3 * 4 * weights,
          .updated = 3 * 4 * weights,
          .flops = 6 * tokens * matrices + 14 * pairs * width};
}

Case gpt_case(const std::string& name, const GptSize& s) {
  Case c;
  c.section = 'T';
  c.kind = s.is_training ? "gpt_training" : "gpt_scores";
  c.name = fmt::format("{}/{}_f32", name, s.is_training ? "training" : "scores");
  const models::GptOptions& m = s.model;
  c.what = fmt::format("{} layers of {}, {} heads, B {}, T {}, {} tokens{}", m.layers, m.hidden, m.heads, s.batch,
                       m.context, m.vocabulary, s.is_training ? ", AdamW, clip" : "");
  c.sizes = JsonObject()
                .add("vocabulary", m.vocabulary)
                .add("hidden", m.hidden)
                .add("layers", m.layers)
                .add("heads", m.heads)
                .add("context", m.context)
                .add("batch", s.batch)
                .text();
  c.need = need_of_gpt(s);
  c.rotates = false;
  c.tolerance = 1e-3;
  c.build = [s](Graph& graph, DType type, const std::string&) { build_gpt(graph, s, type); };
  const GptSize small = smaller_gpt(s);
  c.build_small = [small](Graph& graph, DType type, const std::string&) { build_gpt(graph, small, type); };
  c.checked_as = fmt::format("2 layers of {}, B {}, T {}, {} tokens", small.model.hidden, small.batch,
                             small.model.context, small.model.vocabulary);
  c.feed = [small](const std::string& input, const Type& type) {
    return gpt_feed(small.model.vocabulary, input, type);
  };
  return c;
}

}  // namespace

Cases gpt_cases() {
  const models::GptOptions gpt2{.vocabulary = 50304, .hidden = 768, .layers = 12, .heads = 12, .context = 1024};
  Case whole = in_mixed_precision(gpt_case("gpt2", {.model = gpt2}), bf16);
  whole.goal.wall = 14000;
  whole.need.floor_us = 9500;
  whole.on_cpu = false;
  Cases cases{whole};
  for (const auto& [name, width, layers] : {std::tuple{"gpt_tiny", 64, 2}, std::tuple{"gpt_small", 256, 6}}) {
    const models::GptOptions model{
        .vocabulary = 256, .hidden = width, .layers = layers, .heads = width == 64 ? 4 : 8, .context = 256};
    for (const bool is_training : {true, false}) {
      Case c = gpt_case(name, {.model = model, .batch = is_training ? 8 : 1, .is_training = is_training});
      c.on_gpu = false;
      c.is_served = !is_training;
      c.cpu_goal.faster_2 = 2;
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

}  // namespace paoding::cli::bench
