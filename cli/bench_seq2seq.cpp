// SPDX-License-Identifier: Apache-2.0
// paoding bench g2p, paoding bench seq2seq: training steps of an attention seq2seq, and what compiling and binding one
// takes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/check.h"
#include "bench_timing.h"
#include "command.h"
#include "io/json_text.h"
#include "models/seq2seq.h"
#include "numbers.h"
#include "paoding/op.h"
#include "paoding/profile.h"
#include "profile/report.h"
#include "report_flags.h"

namespace paoding::cli {
namespace {

struct Seq2SeqSize {
  models::Seq2SeqOptions model;
  std::int64_t batch = 64, source_steps = 10, target_steps = 10;
  bool has_lengths = false;     // source positions beyond a row's length are not seen
  bool sums_over_time = false;  // loss: mean over the batch, summed over time, rather than the mean of all
};

struct StepOptions {
  CompileFlags compile;
  Seq2SeqSize size;
  bool quick = false, compile_only = false, report = false;
  ReportFlags report_flags;
  std::string json_path, dtype = "f32";
};

struct Step {
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  double build_milliseconds = 0;
};

double milliseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

Value build_loss(Graph& graph, const Seq2SeqSize& size) {
  const std::int64_t B = size.batch, T = size.target_steps;
  const Value source = graph.input("source", i64, {size.source_steps, B}),
              target = graph.input("target", i64, {T + 1, B});
  const Value lengths = size.has_lengths ? graph.input("lengths", i64, {B}) : Value();
  const models::Seq2Seq model(graph, size.model);
  const auto reduction = size.sums_over_time ? LossReduction::sum : LossReduction::mean;
  const Value loss =
      model.loss(model.encode(source, lengths), slice(target, 0, 0, T), slice(target, 0, 1, T + 1), reduction);
  return size.sums_over_time ? loss * (1.0 / static_cast<double>(B)) : loss;
}

// Adam, gradients clipped to a norm of 5.
Step make_step(const Seq2SeqSize& size) {
  Step step;
  step.build_milliseconds = milliseconds([&] {
    const Value loss = build_loss(*step.graph, size);
    const TrainingStep training =
        minimize(loss, Adam{}, {.clip_norm = 5, .skip_nonfinite = true, .master_weights = size.model.dtype != f32});
    step.graph->fetch("loss", loss);
    step.graph->fetch("norm", training.gradient_norm);
  });
  return step;
}

Tensor random_words(const Shape& shape, std::int64_t vocabulary, std::uint64_t seed) {
  Tensor words(i64, shape);
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    seed = seed * 6364136223846793005 + 1442695040888963407;
    words.data<std::int64_t>()[i] = static_cast<std::int64_t>((seed >> 33) % static_cast<std::uint64_t>(vocabulary));
  }
  return words;
}

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

// Where the time of a run goes, in shares of it.
struct Shares {
  double products = 0, groups = 0, others = 0, framework = 0;
  std::string report;
};

Shares shares_of(Program& program, int runs, const ReportFlags& flags, const Device& device) {
  Profiler profiler(ReportFlags::state_of(device), flags.level());
  for (int i = 0; i < runs; ++i) program.run();
  program.wait();
  Shares shares;
  shares.report = profiler.stop(flags.sort_by(), "", flags.layout);
  const profile::Measures measures = profile::measure(profiler.trace());
  if (measures.total <= 0) return shares;
  shares.framework = measures.framework / measures.total;
  for (const profile::Section& section : measures.merged.empty() ? measures.per_thread : measures.merged) {
    for (const profile::Row& row : section.rows) {
      if (row.at_compile || row.name.find('(') == 0 || row.name.find("run") != std::string::npos) continue;
      if (row.depth > 1) continue;
      double& share = row.name.find("matmul") != std::string::npos  ? shares.products
                      : row.name.find("group") != std::string::npos ? shares.groups
                                                                    : shares.others;
      share += row.total / measures.total;
    }
  }
  return shares;
}

void print_compile(const Step& step, const CompileReport& report) {
  print(
      "graph built in {:.0f} ms (gradients and updates with it), {} nodes; compiled in {:.0f} ms, of which kernels "
      "{:.0f}\n",
      step.build_milliseconds, step.graph->size(), report.milliseconds, report.kernel_milliseconds);
  print("{} launches, arena {:.1f} MB (peak live {:.1f} MB)\n", report.launches,
        static_cast<double>(report.arena_bytes) / 1e6, static_cast<double>(report.peak_live_bytes) / 1e6);
}

int bench(const StepOptions& options, const char* name) {
  const CompileOptions compile = options.compile.options();
  if (!options.json_path.empty()) write_json(options.json_path, "{}");  // a wrong path is found before the work
  const Seq2SeqSize& size = options.size;
  const MachineFacts machine = machine_facts(compile.device);
  print("{}: {}+{} LSTM layers, hidden {}, vocabularies {} and {}, batch {}, {} x {} steps, Adam, clip 5, on {} ({})\n",
        name, size.model.layers, size.model.layers, size.model.hidden, size.model.source_vocabulary,
        size.model.target_vocabulary, size.batch, size.source_steps, size.target_steps, to_string(compile.device),
        machine.name);
  print_text(load_warning());
  const Step step = make_step(size);
  Parameters parameters(*step.graph, compile.device, {.seed = 7});
  Program program(*step.graph, compile, &parameters);
  explain(options.compile, program.report());
  print_compile(step, program.report());
  JsonObject json;
  json.add("bench", name).add("device", to_string(compile.device)).add("machine", machine.name);
  json.add("build_ms", step.build_milliseconds).add("compile_ms", program.report().milliseconds);
  json.add("launches", program.report().launches).add("arena_bytes", program.report().arena_bytes);

  if (options.compile_only) {
    Seq2SeqSize other = size;
    other.source_steps = std::max<std::int64_t>(1, size.source_steps * 4 / 5);
    other.target_steps = std::max<std::int64_t>(1, size.target_steps * 4 / 5);
    const Step bound = make_step(other);
    const double took = milliseconds([&] { const Program rebound = program.bind(*bound.graph); });
    print("bound to {} x {} steps in {:.0f} ms (its graph built in {:.0f} ms)\n", other.source_steps,
          other.target_steps, took, bound.build_milliseconds);
    json.add("bind_ms", took);
    if (!options.json_path.empty()) write_json(options.json_path, json.text());
    return kOk;
  }

  program.set_input(program.input_index("source"),
                    random_words({size.source_steps, size.batch}, size.model.source_vocabulary, 1));
  program.set_input(program.input_index("target"),
                    random_words({size.target_steps + 1, size.batch}, size.model.target_vocabulary, 2));
  if (size.has_lengths) {
    Tensor lengths(i64, {size.batch});
    for (std::int64_t i = 0; i < size.batch; ++i) lengths.data<std::int64_t>()[i] = size.source_steps - i % 3;
    program.set_input(program.input_index("lengths"), lengths);
  }
  const auto loss = [&] { return program.fetch(program.fetch_index("loss")).to_doubles()[0]; };
  program.run();
  program.wait();
  const double first = loss();
  const Samples wall = time_waiting(program, 1, options.quick ? Effort::quick() : Effort{50, 400, 5});
  const double last = loss();
  const Shares shares = shares_of(program, 10, options.report_flags, compile.device);
  const double rate = products_of(size) / wall.median / 1e3;
  print("wall us, one run and its wait: {} ({} runs), {:.0f} GFLOP/s of products\n", to_string(wall), wall.count, rate);
  print("shares of a recorded run: products {:.1f}%, groups {:.1f}%, other ops {:.1f}%, framework {:.1f}%\n",
        100 * shares.products, 100 * shares.groups, 100 * shares.others, 100 * shares.framework);
  if (options.report) print_text(shares.report);
  print("loss {:.4f} at first, {:.4f} after all runs on the same batch\n", first, last);
  json.add("wall_us", wall.median).add("wall_us_min", wall.min).add("wall_us_max", wall.max).add("samples", wall.count);
  json.add("products_share", shares.products)
      .add("groups_share", shares.groups)
      .add("framework_share", shares.framework);
  json.add("first_loss", first).add("last_loss", last);
  if (!options.json_path.empty()) write_json(options.json_path, json.text());
  const bool is_right = std::isfinite(last) && last < first;  // training on one batch must fit it
  if (!is_right) print_error("paoding: {}: the loss did not fall: WRONG\n", name);
  return is_right ? kOk : kFailed;
}

void add_step_bench(CLI::App& parent, Commands* commands, const char* name, const char* description,
                    const Seq2SeqSize& size) {
  const auto options = std::make_shared<StepOptions>();
  options->size = size;
  CLI::App* sub = parent.add_subcommand(name, description);
  sub->add_option("--batch", options->size.batch, "Rows of a batch")->capture_default_str();
  sub->add_option("--hidden", options->size.model.hidden, "Width of embeddings and states")->capture_default_str();
  sub->add_option("--source", options->size.source_steps, "Source positions")->capture_default_str();
  sub->add_option("--target", options->size.target_steps, "Target positions")->capture_default_str();
  sub->add_option("--dropout", options->size.model.dropout, "Share of what is dropped")->capture_default_str();
  sub->add_flag("--lengths", options->size.has_lengths, "Sources have lengths");
  sub->add_option("--dtype", options->dtype, "f32, or bf16: weights and activations; updates keep f32")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  sub->add_flag("--compile-only", options->compile_only, "Only compile, and bind to four fifths of the steps");
  sub->add_flag("--quick", options->quick, "Fewer runs");
  sub->add_flag("--report", options->report, "Also print the Profiling Report of ten runs");
  options->report_flags.add_to(*sub);
  sub->add_option("--json", options->json_path, "Also write the numbers to this file");
  options->compile.add_to(*sub);
  commands->push_back({sub, [options, name] {
                         options->size.model.dtype = options->dtype == "bf16" ? DType::bf16 : f32;
                         options->report_flags.check();
                         return bench(*options, name);
                       }});
}

}  // namespace

void add_bench_seq2seq(CLI::App& parent, Commands* commands) {
  add_step_bench(parent, commands, "g2p",
                 "A training step that spells: 2+2 LSTM layers of 256, 30 letters, 42 phonemes", {});
  add_step_bench(parent, commands, "seq2seq",
                 "A training step that translates: 2+2 LSTM layers of 512, 17,191 and 7,709 words, 50 x 50 steps",
                 {.model = {.source_vocabulary = 17191,
                            .target_vocabulary = 7709,
                            .hidden = 512,
                            .dropout = 0.2,
                            .squashes_attention = false},
                  .batch = 128,
                  .source_steps = 50,
                  .target_steps = 50,
                  .has_lengths = true,
                  .sums_over_time = true});
}

}  // namespace paoding::cli
