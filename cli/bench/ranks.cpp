// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/ranks.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/check.h"
#include "cli/bench/seq2seq.h"
#include "cli/bench/timing.h"
#include "cli/launch.h"
#include "io/json_text.h"
#include "models/image_nets.h"
#include "paoding/ops.h"
#include "paoding/optimizer.h"

namespace paoding::cli::bench {
namespace {

using RanksClock = std::chrono::steady_clock;

constexpr int kWarm = 8, kWindows = 15;
constexpr int kReductions = 20;  // one after the other, in a run

struct RanksBench {
  RankFlags flags;
  std::string model = "seq2seq", device = "cuda", dtype = "bf16";
  std::int64_t batch = 0, steps = 10, losses = 0, bytes = std::int64_t{27} << 22;
  std::int64_t bucket_bytes = CompileOptions().bucket_bytes;
  bool tf32 = false;
};

// The work of a process: a graph, and feeds of its rank, of `ranks`.
struct Work {
  Graph graph;
  std::map<std::string, Tensor> feeds;
  std::int64_t items = 0;  // of a rank's run
};

// Rows of axis `axis` that are the rank's, of a feed of all ranks.
Tensor part_of(const Tensor& all, int axis, int rank, int ranks) {
  Graph graph;
  const Value x = graph.input("x", all.dtype(), all.shape());
  const std::int64_t rows = all.shape()[axis] / ranks;
  graph.fetch("y", slice(x, axis, rank * rows, (rank + 1) * rows));
  return Program(graph).run({{"x", all}}).at("y");
}

void make_seq2seq(const RanksBench& bench, int rank, int ranks, Work* work) {
  Seq2SeqSize all = translation_size();
  if (bench.losses > 0) all.model.dropout = 0;
  all.batch = (bench.batch > 0 ? bench.batch : all.batch) * ranks;
  Seq2SeqSize mine = all;
  mine.batch /= ranks;
  mine.data_parallel = ranks > 1;
  build_seq2seq_step(work->graph, mine, f32);
  for (const NodeId id : work->graph.inputs()) {
    const std::string name = work->graph.node(id).name.str();
    Type type = work->graph.node(id).types[0];
    const int axis = type.shape.rank() - 1;
    type.shape = type.shape.with_dim(axis, type.shape[axis] * ranks);
    work->feeds[name] = part_of(feed_seq2seq(all, name, type), axis, rank, ranks);
  }
  work->items = mine.batch * mine.target_steps;
}

void make_resnet(const RanksBench& bench, int rank, int ranks, Work* work) {
  const std::int64_t batch = bench.batch > 0 ? bench.batch : 256;
  const Value images = work->graph.input("x", f32, {batch, 3, 224, 224});
  const Value scores = models::resnet(images, {});
  const Value loss = cross_entropy(scores, work->graph.input("labels", i32, {batch}));
  const TrainingStep step = minimize(loss, Sgd{.learning_rate = 0.1, .momentum = 0.9}, {.data_parallel = ranks > 1});
  work->graph.fetch("loss", step.loss);
  Tensor x(images.type()), labels(Type{i32, {batch}});
  std::uint64_t seed = 77 + static_cast<std::uint64_t>(rank);
  for (std::int64_t i = 0; i < x.shape().elements(); ++i) {
    seed = seed * 6364136223846793005 + 1442695040888963407;
    x.data<float>()[i] = static_cast<float>(seed >> 40) / 8388608.0F - 1.0F;
  }
  for (std::int64_t i = 0; i < batch; ++i) labels.data<std::int32_t>()[i] = static_cast<std::int32_t>((i * 7) % 1000);
  work->feeds = {{"x", x}, {"labels", labels}};
  work->items = batch;
}

// So many in a row, in the same memory, as a step has them.
void make_reductions(const RanksBench& bench, Work* work) {
  const Value x = work->graph.input("x", f32, {bench.bytes / 4});
  Value y = x * 0.5;
  for (int i = 0; i < kReductions; ++i) y = all_reduce(y, "max");
  work->graph.fetch("loss", slice(y, 0, 0, 1));
  work->feeds = {{"x", Tensor(x.type())}};
  work->items = bench.bytes;
}

int measure(const RanksBench& bench, const std::optional<RankPlace>& place) {
  CompileOptions compile;
  compile.device = bench.flags.device(bench.device, place);
  compile.bucket_bytes = bench.bucket_bytes;
  compile.allow_tf32 = bench.tf32;
  if (!parse_dtype(bench.dtype, &compile.precision)) throw UsageError("--dtype needs to be f32, bf16 or f16");
  if (place) compile.communicator = connect_ranks(*place, compile.device);
  const int rank = place ? place->rank : 0, ranks = place ? place->size : 1;
  Work work;
  if (bench.model == "all_reduce") {
    if (!place) throw UsageError("--model all_reduce needs --gpus or --ranks");
    compile.precision = f32;
    make_reductions(bench, &work);
  } else {
    bench.model == "seq2seq" ? make_seq2seq(bench, rank, ranks, &work) : make_resnet(bench, rank, ranks, &work);
  }
  const Parameters parameters(work.graph, compile.device);
  Program program(work.graph, compile, &parameters);
  for (const auto& [name, tensor] : work.feeds) program.set_input(program.input_index(name), tensor);
  std::vector<std::string> losses;
  for (std::int64_t step = 0; step < bench.losses; ++step) {
    program.run();
    losses.push_back(fmt::format("{:.9g}", program.fetch(program.fetch_index("loss")).to_doubles()[0]));
  }
  const auto timed = [&](std::int64_t runs) {
    program.wait();
    if (compile.communicator != nullptr) compile.communicator->barrier();
    const auto start = RanksClock::now();
    for (std::int64_t i = 0; i < runs; ++i) program.run();
    program.wait();
    return microseconds_since(start) / static_cast<double>(runs);
  };
  for (int i = 0; i < kWarm; ++i) timed(1);
  std::vector<double> waited, in_a_row;
  for (int i = 0; i < kWindows; ++i) waited.push_back(timed(1)), in_a_row.push_back(timed(bench.steps));
  if (compile.communicator != nullptr) compile.communicator->barrier();  // none is gone before all have ended
  std::ranges::sort(waited), std::ranges::sort(in_a_row);
  const double step = in_a_row[kWindows / 2];
  if (rank != 0) return kOk;
  JsonObject row;
  const bool is_reduction = bench.model == "all_reduce";  // of f32, whatever models compute in
  row.add("model", bench.model).add("dtype", is_reduction ? "f32" : bench.dtype).add("ranks", std::int64_t{ranks});
  row.add("communicator", compile.communicator == nullptr ? "none" : compile.communicator->name());
  row.add("bucket_bytes", bench.bucket_bytes).add("launches", program.report().launches);
  if (is_reduction) {
    row.add("reduction", "max").add("bytes", bench.bytes).add("us_each", step / kReductions);
  } else {
    row.add("batch_of_a_rank", bench.batch).add("step_us", step).add("step_us_waited", waited[kWindows / 2]);
    row.add("least_us", in_a_row.front()).add("most_us", in_a_row.back());
    row.add("items_per_second", static_cast<double>(work.items * ranks) / step * 1e6);
  }
  if (!losses.empty()) row.add_json("losses", json_array(losses));
  print("{}\n", row.text());
  return kOk;
}

}  // namespace

void add_ranks(CLI::App& parent, Commands* commands) {
  CLI::App* sub = parent.add_subcommand(
      "ranks",
      "Training steps on several GPUs or CPU ranks, each with a batch of its own, as a JSON line\n"
      "Times are the median of 15; `step_us` of steps in a row, `step_us_waited` of a step that is\n"
      "waited for. Without --gpus or --ranks: one, with the same batch.");
  const auto bench = std::make_shared<RanksBench>();
  sub->add_option("--model", bench->model, "seq2seq, resnet50, or all_reduce alone")
      ->check(CLI::IsMember({"seq2seq", "resnet50", "all_reduce"}).description(""))
      ->type_name("NAME")
      ->capture_default_str();
  bench->flags.add_to(*sub);
  sub->add_option("--device", bench->device, "cpu or cuda")->type_name("DEVICE")->capture_default_str();
  sub->add_option("--dtype", bench->dtype, "Of products: f32, bf16 or f16")->type_name("DTYPE")->capture_default_str();
  sub->add_flag("--tf32", bench->tf32, "On a GPU, f32 products may round their operands to TF32");
  sub->add_option("--batch", bench->batch, "Rows of a rank; 0: 128 of seq2seq, 256 of resnet50")
      ->check(whole_number(0, 1 << 16))
      ->type_name("N");
  sub->add_option("--steps", bench->steps, "Steps in a row, of which the mean is one sample")
      ->check(whole_number(1, 1 << 16))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option(
         "--losses", bench->losses,
         "Also print the losses of so many first steps, of seq2seq without dropout: those of N ranks are those of "
         "one with N times the batch")
      ->check(whole_number(0, 1 << 16))
      ->type_name("N");
  sub->add_option("--bytes", bench->bytes, "Of all_reduce")
      ->check(whole_number(4, std::int64_t{1} << 36))
      ->type_name("N");
  sub->add_option("--bucket-bytes", bench->bucket_bytes, "Gradients are sent in messages of about so many bytes")
      ->check(whole_number(0, std::int64_t{1} << 40))
      ->type_name("N")
      ->capture_default_str();
  commands->push_back({sub, [bench] {
                         const std::optional<RankPlace> place = bench->flags.place();
                         if (place || bench->flags.asked() <= 1) return measure(*bench, place);
                         const auto logs = std::filesystem::temp_directory_path() / "paoding-bench-ranks";
                         return bench->flags.launch(bench->device, false, logs.string());
                       }});
}

}  // namespace paoding::cli::bench
