// SPDX-License-Identifier: Apache-2.0
// paoding bench lstm_steps: one LSTM layer over time, forward and with all its gradients, built with scan and
// lstm_cell.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "bench_timing.h"
#include "command.h"
#include "cpu/parallel.h"
#include "io/json_text.h"
#include "numbers.h"
#include "paoding/autodiff.h"
#include "paoding/ops.h"

namespace paoding::cli {
namespace {

struct LstmOptions {
  CompileFlags compile;
  std::string dtype = "f32";
  std::int64_t steps = 64, hidden = 512;
  std::vector<std::int64_t> batches = {1, 32};
  bool quick = false, skip_check = false;
  std::string json_path;
};

struct Layer {
  std::int64_t steps, batch, hidden;
  DType dtype;
};

// xs [T, B, H] from zero states; ys [T, B, H]; the loss of the training row is the sum of ys * dys.
std::unique_ptr<Graph> build(const Layer& layer, bool is_training) {
  const auto [steps, batch, hidden, dtype] = layer;
  auto graph = std::make_unique<Graph>();
  const Value xs = graph->input("xs", dtype, {steps, batch, hidden});
  const Value h0 = graph->input("h0", dtype, {batch, hidden}), c0 = graph->input("c0", dtype, {batch, hidden});
  const Value w = graph->parameter("w", dtype, {hidden, 4 * hidden});
  const Value u = graph->parameter("u", dtype, {hidden, 4 * hidden});
  const Value b = graph->parameter("b", dtype, {4 * hidden});
  const StepResult lstm = scan({h0, c0}, {xs}, [&](const Values& carries, const Values& elements) {
    const auto [h, c] = lstm_cell(elements[0], carries[0], carries[1], w, u, b);
    return step({h, c}, {h});
  });
  graph->fetch("ys", lstm.outputs[0]);
  if (!is_training) {
    graph->fetch("c", lstm.carries[1]);
    return graph;
  }
  const Value dys = graph->input("dys", dtype, {steps, batch, hidden});
  const Values outputs = {lstm.outputs[0]}, inputs = {xs, w, u, b}, seeds = {dys};
  const Values grads = gradients(outputs, inputs, seeds);
  const char* names[] = {"dxs", "dw", "du", "db"};
  for (std::size_t i = 0; i < grads.size(); ++i) graph->fetch(names[i], grads[i]);
  return graph;
}

// ---- the expected values, in float64 ----

using Doubles = std::vector<double>;

// c [m, n] += op(a) b, row-major; a is [k, m] when transposed. Threads take columns.
void add_product(bool transpose_a, std::int64_t m, std::int64_t n, std::int64_t k, const double* a, const double* b,
                 double* c) {
  struct Product {
    bool transpose_a;
    std::int64_t m, n, k;
    const double *a, *b;
    double* c;
    int threads;
  } product{transpose_a, m, n, k, a, b, c, max_threads()};
  parallel(
      product.threads,
      [](int thread, void* state) {
        const Product& p = *static_cast<const Product*>(state);
        const std::int64_t begin = p.n * thread / p.threads, end = p.n * (thread + 1) / p.threads;
        for (std::int64_t i = 0; i < p.m; ++i) {
          double* to = p.c + i * p.n;
          for (std::int64_t l = 0; l < p.k; ++l) {
            const double factor = p.transpose_a ? p.a[l * p.m + i] : p.a[i * p.k + l];
            const double* from = p.b + l * p.n;
            for (std::int64_t j = begin; j < end; ++j) to[j] += factor * from[j];
          }
        }
      },
      &product);
}

Doubles transposed(const Doubles& matrix, std::size_t rows, std::size_t columns) {
  Doubles result(matrix.size());
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) result[j * rows + i] = matrix[i * columns + j];
  }
  return result;
}

struct Expected {
  Doubles ys, c, dxs, dw, du, db;
};

// The recurrence and its gradients as the textbook has them (Graves 2012, section 4.6, without peepholes).
Expected expect(const Layer& layer, const std::map<std::string, Tensor>& feeds, bool is_training) {
  const auto T = static_cast<std::size_t>(layer.steps), B = static_cast<std::size_t>(layer.batch);
  const auto H = static_cast<std::size_t>(layer.hidden);
  const std::int64_t b_ = layer.batch, h_ = layer.hidden;
  const Doubles xs = feeds.at("xs").to_doubles(), w = feeds.at("w").to_doubles(), u = feeds.at("u").to_doubles();
  const Doubles b = feeds.at("b").to_doubles(), h0 = feeds.at("h0").to_doubles(), c0 = feeds.at("c0").to_doubles();
  const auto sigmoid = [](double a) { return 1 / (1 + std::exp(-a)); };
  Expected e;
  Doubles gates(T * B * 4 * H), cs(T * B * H);  // gates after their nonlinearity
  e.ys.resize(T * B * H);
  for (std::size_t t = 0; t < T; ++t) {
    double* gate = &gates[t * B * 4 * H];
    const double* h = t == 0 ? h0.data() : &e.ys[(t - 1) * B * H];
    const double* c = t == 0 ? c0.data() : &cs[(t - 1) * B * H];
    for (std::size_t i = 0; i < B * 4 * H; ++i) gate[i] = b[i % (4 * H)];
    add_product(false, b_, 4 * h_, h_, &xs[t * B * H], w.data(), gate);
    add_product(false, b_, 4 * h_, h_, h, u.data(), gate);
    for (std::size_t r = 0; r < B; ++r) {
      for (std::size_t j = 0; j < H; ++j) {
        double* row = gate + r * 4 * H;
        const double i = row[j] = sigmoid(row[j]), f = row[H + j] = sigmoid(row[H + j]);
        const double g = row[2 * H + j] = std::tanh(row[2 * H + j]), o = row[3 * H + j] = sigmoid(row[3 * H + j]);
        const std::size_t at = t * B * H + r * H + j;
        cs[at] = f * c[r * H + j] + i * g;
        e.ys[at] = o * std::tanh(cs[at]);
      }
    }
  }
  e.c.assign(cs.end() - static_cast<std::ptrdiff_t>(B * H), cs.end());
  if (!is_training) return e;

  const Doubles dys = feeds.at("dys").to_doubles();
  const Doubles wt = transposed(w, H, 4 * H), ut = transposed(u, H, 4 * H);  // [4H, H]
  e.dxs.resize(T * B * H);
  e.dw.resize(H * 4 * H);
  e.du.resize(H * 4 * H);
  e.db.resize(4 * H);
  Doubles dh(B * H), dc(B * H), dgate(B * 4 * H);
  for (std::size_t t = T; t-- > 0;) {
    const double* gate = &gates[t * B * 4 * H];
    const double* h = t == 0 ? h0.data() : &e.ys[(t - 1) * B * H];
    const double* c = t == 0 ? c0.data() : &cs[(t - 1) * B * H];
    for (std::size_t r = 0; r < B; ++r) {
      for (std::size_t j = 0; j < H; ++j) {
        const double* row = gate + r * 4 * H;
        double* d = &dgate[r * 4 * H];
        const double i = row[j], f = row[H + j], g = row[2 * H + j], o = row[3 * H + j];
        const std::size_t at = r * H + j;
        const double squashed = std::tanh(cs[t * B * H + at]), dy = dh[at] + dys[t * B * H + at];
        const double dcell = dc[at] + dy * o * (1 - squashed * squashed);
        d[j] = dcell * g * i * (1 - i);
        d[H + j] = dcell * c[at] * f * (1 - f);
        d[2 * H + j] = dcell * i * (1 - g * g);
        d[3 * H + j] = dy * squashed * o * (1 - o);
        dc[at] = dcell * f;
      }
    }
    std::fill(dh.begin(), dh.end(), 0);
    add_product(false, b_, h_, 4 * h_, dgate.data(), ut.data(), dh.data());
    add_product(false, b_, h_, 4 * h_, dgate.data(), wt.data(), &e.dxs[t * B * H]);
    add_product(true, h_, 4 * h_, b_, h, dgate.data(), e.du.data());
    add_product(true, h_, 4 * h_, b_, &xs[t * B * H], dgate.data(), e.dw.data());
    for (std::size_t i = 0; i < B * 4 * H; ++i) e.db[i % (4 * H)] += dgate[i];
  }
  return e;
}

double error_of(const Layer& layer, const std::map<std::string, Tensor>& feeds, Program& program, bool is_training) {
  const Expected e = expect(layer, feeds, is_training);
  const std::map<std::string, const Doubles*> all = {{"ys", &e.ys}, {"c", &e.c},   {"dxs", &e.dxs},
                                                     {"dw", &e.dw}, {"du", &e.du}, {"db", &e.db}};
  double error = 0;
  for (const std::string& name : program.fetch_names()) {
    error = std::max(error, max_relative_error(program.fetch(program.fetch_index(name)), *all.at(name)));
  }
  return error;
}

// Rounding adds up over the steps, so the bounds are wider than those of one product.
double allowed_error(DType dtype, bool is_tf32) {
  if (dtype == DType::f64) return 1e-10;
  if (dtype == DType::f32) return is_tf32 ? 2e-2 : 2e-4;
  return dtype == DType::f16 ? 2e-2 : 1e-1;
}

// ---- rows ----

// Weights of a size that keeps the gates in the range where they work.
std::map<std::string, Tensor> make_feeds(const Graph& graph, const Layer& layer) {
  std::map<std::string, Tensor> feeds;
  const double scale = 1 / std::sqrt(static_cast<double>(layer.hidden));
  for (const std::vector<NodeId>* ids : {&graph.inputs(), &graph.parameters()}) {
    for (const NodeId id : *ids) {
      const std::string& name = graph.node(id).name.str();
      const Type type = graph.node(id).types[0];
      if (name == "xs" || name == "dys") {
        feeds.emplace(name, random_tensor(type, 1, name));
      } else {
        std::vector<double> values = random_tensor({f64, type.shape}, 1, name).to_doubles();
        for (double& value : values) value *= scale;
        feeds.emplace(name, Tensor::from(type.dtype, type.shape, values));
      }
    }
  }
  return feeds;
}

struct Row {
  bool is_training;
  Layer layer;
  CompileReport report;
  Samples waiting, back_to_back;
  double error = 0;
  bool is_checked = false, is_right = true;
};

Row measure(const Layer& layer, bool is_training, const LstmOptions& options, const CompileOptions& compile) {
  const std::unique_ptr<Graph> graph = build(layer, is_training);
  const std::map<std::string, Tensor> feeds = make_feeds(*graph, layer);
  Parameters parameters(*graph, compile.device);
  for (const std::string& name : parameters.names()) parameters.set(name, feeds.at(name));
  Program program(*graph, compile, &parameters);
  explain(options.compile, program.report());
  for (const std::string& name : program.input_names()) program.set_input(program.input_index(name), feeds.at(name));
  program.run();
  program.wait();

  Row row{is_training, layer, program.report(), {}, {}};
  if (!options.skip_check) {
    row.error = error_of(layer, feeds, program, is_training);
    row.is_checked = true;
    row.is_right =
        row.error <= allowed_error(layer.dtype, compile.allow_tf32 && compile.device.kind == DeviceKind::cuda);
  }
  const Effort effort = options.quick ? Effort{5, 50, 0.5} : Effort{50, 400, 3};
  row.waiting = time_waiting(program, 1, effort);
  if (compile.device.kind == DeviceKind::cuda) row.back_to_back = time_back_to_back(program, 1, effort);
  return row;
}

void print_row(const Row& row) {
  print("{:<9}{:>4}{:>5}{:>6} {:<5}{:>11.1f}{:>12.1f}{:>10}{:>29}{:>13}{:>10.2f}{:>10.1f}  {}{}\n",
        row.is_training ? "training" : "forward", row.layer.steps, row.layer.batch, row.layer.hidden,
        to_string(row.layer.dtype), row.report.milliseconds, row.report.kernel_milliseconds, row.report.launches,
        to_string(row.waiting), row.back_to_back.count == 0 ? "-" : fmt::format("{:.1f}", row.back_to_back.median),
        row.waiting.median / static_cast<double>(row.layer.steps), static_cast<double>(row.report.arena_bytes) / 1e6,
        row.is_checked ? fmt::format("{:.1e}", row.error) : "-", row.is_right ? "" : "  WRONG");
}

std::string row_json(const Row& row) {
  JsonObject object;
  object.add("pass", row.is_training ? "training" : "forward").add("steps", row.layer.steps);
  object.add("batch", row.layer.batch).add("hidden", row.layer.hidden).add("dtype", to_string(row.layer.dtype));
  object.add("compile_ms", row.report.milliseconds).add("kernel_compile_ms", row.report.kernel_milliseconds);
  object.add("launches", row.report.launches).add("arena_bytes", row.report.arena_bytes);
  object.add("wall_us", row.waiting.median).add("wall_us_min", row.waiting.min).add("wall_us_max", row.waiting.max);
  object.add("samples", row.waiting.count);
  if (row.back_to_back.count != 0) {
    object.add("us", row.back_to_back.median).add("us_min", row.back_to_back.min).add("us_max", row.back_to_back.max);
  }
  if (row.is_checked) object.add("error", row.error).add("right", row.is_right);
  return object.text();
}

int bench(const LstmOptions& options) {
  const CompileOptions compile = options.compile.options();
  DType dtype = f32;
  if (!parse_dtype(options.dtype, &dtype) || !is_float(dtype)) {
    throw UsageError(fmt::format("--dtype is '{}', needs to be f32, bf16, f16 or f64", options.dtype));
  }
  if (!options.json_path.empty()) write_json(options.json_path, "{}");  // a wrong path is found before the work
  const MachineFacts machine = machine_facts(compile.device);
  print("lstm_steps: an LSTM layer over time, inputs as wide as hidden, on {} ({}){}{}\n", to_string(compile.device),
        machine.name, compile.allow_tf32 ? ", TF32 products" : "",
        compile.disabled_passes.empty() ? "" : fmt::format(", without {}", fmt::join(compile.disabled_passes, ", ")));
  print_text(load_warning());
  print(
      "training also computes the gradients of inputs, weights and bias. wall: one run and its wait, median [min, "
      "max];\n"
      "streamed: runs launched back to back (GPU only); step: wall over steps; err: largest error over the largest\n"
      "expected value, against float64\n\n");
  print("{:<9}{:>4}{:>5}{:>6} {:<5}{:>11}{:>12}{:>10}{:>29}{:>13}{:>10}{:>10}  {}\n", "pass", "T", "B", "H", "type",
        "compile ms", "kernels ms", "launches", "wall us", "streamed us", "step us", "arena MB", "err");
  bool is_right = true;
  std::vector<std::string> items;
  for (const std::int64_t batch : options.batches) {
    for (const bool is_training : {false, true}) {
      show_progress(fmt::format("batch {} {}", batch, is_training ? "training" : "forward"));
      const Row row = measure({options.steps, batch, options.hidden, dtype}, is_training, options, compile);
      show_progress("");
      print_row(row);
      flush_output();
      items.push_back(row_json(row));
      is_right = is_right && row.is_right;
    }
  }
  if (!options.json_path.empty()) {
    JsonObject all;
    all.add("bench", "lstm_steps").add("device", to_string(compile.device)).add("machine", machine.name);
    all.add("tf32", compile.allow_tf32).add_json("no_pass", json_strings(compile.disabled_passes));
    write_json(options.json_path, all.add_json("rows", json_array(items)).text());
  }
  if (!is_right) print_error("paoding: lstm_steps: results are WRONG, see above\n");
  return is_right ? kOk : kFailed;
}

}  // namespace

void add_bench_lstm_steps(CLI::App& bench_app, Commands* commands) {
  auto options = std::make_shared<LstmOptions>();
  CLI::App* sub = bench_app.add_subcommand(
      "lstm_steps",
      "An LSTM layer over time, forward and training\n\n"
      "Builds one layer with scan and lstm_cell, compiles it and runs it: compile time, launches per run, and what a\n"
      "caller waits for a run. With --no-pass the same model shows what each pass is worth.");
  options->compile.add_to(*sub);
  sub->add_option("--dtype", options->dtype, "f32, bf16, f16 or f64")->type_name("DTYPE")->capture_default_str();
  const auto add_size = [&](const char* name, auto& size, int most, const char* meaning) {
    return sub->add_option(name, size, meaning)
        ->check(CLI::Range(1, most).description(""))
        ->type_name("N")
        ->capture_default_str();
  };
  add_size("--steps", options->steps, 1 << 16, "Time steps");
  add_size("--batch", options->batches, 1 << 16, "Batch sizes, split by commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_size("--hidden", options->hidden, 1 << 14, "Width of the state");
  sub->add_flag("--quick", options->quick, "Fewer samples: 5 instead of at least 50");
  sub->add_flag("--no-check", options->skip_check, "Leave out the comparison with float64");
  sub->add_option("--json", options->json_path, "Also write the rows to this file")->type_name("FILE");
  sub->footer(
      "Examples:\n"
      "  paoding bench lstm_steps --quick\n"
      "  paoding bench lstm_steps --batch 1 --hidden 128 --device cpu --quick\n"
      "  paoding bench lstm_steps --batch 8 --quick --no-pass hoist_products,fuse_groups\n"
      "  paoding bench lstm_steps --device cuda --dtype bf16 --json lstm.json");
  commands->push_back({sub, [options] { return bench(*options); }});
}

}  // namespace paoding::cli
