// SPDX-License-Identifier: Apache-2.0
// Section R: recurrent layers over time, forward and with all gradients, and one step whose state is kept.
#include "cli/bench/recurrent.h"

#include <algorithm>
#include <cmath>

#include "cli/bench/expected.h"
#include "cli/numbers.h"
#include "io/json_text.h"
#include "paoding/autodiff.h"
#include "paoding/ops.h"

namespace paoding::cli::bench {
namespace {

const char* name_of(RecurrentKind kind) {
  return kind == RecurrentKind::lstm ? "lstm" : kind == RecurrentKind::gru ? "gru" : "rnn";
}
std::int64_t gates_of(RecurrentKind kind) {
  return kind == RecurrentKind::lstm ? 4 : kind == RecurrentKind::gru ? 3 : 1;
}

std::int64_t directions_of(const RecurrentLayers& s) { return s.has_both_directions ? 2 : 1; }

// xs [T, B, H] from zero states; ys [T, B, directions * H]. Training: the gradients of sum(ys * dys) by inputs and
// weights.
void build(Graph& graph, const RecurrentLayers& s, DType dtype, const std::string& suffix) {
  const std::int64_t gates = gates_of(s.kind), H = s.hidden;
  const Value xs = graph.input("xs" + suffix, dtype, {s.steps, s.batch, H});
  std::vector<RecurrentParameters> parameters;
  Values wanted = {xs};
  std::vector<std::string> names = {"dxs"};
  // Each direction of each layer has parameters of its own.
  for (std::int64_t pass = 0; pass < s.layers * directions_of(s); ++pass) {
    const auto weight = [&](const char* name, const Shape& shape) {
      const Value value = graph.parameter(fmt::format("{}{}{}", name, pass, suffix), dtype, shape);
      wanted.push_back(value);
      names.push_back(fmt::format("d{}{}", name, pass));
      return value;
    };
    const std::int64_t features = pass < directions_of(s) ? H : directions_of(s) * H;
    const Value w = weight("w", {features, gates * H}), u = weight("u", {H, gates * H});
    parameters.push_back({w, u, weight("b", {(s.kind == RecurrentKind::gru ? 4 : gates) * H})});
  }
  RecurrentOptions options;
  options.bidirectional = s.has_both_directions;
  if (s.has_lengths) options.lengths = graph.input("lengths" + suffix, i32, {s.batch});
  const RecurrentResult result = s.kind == RecurrentKind::lstm  ? lstm(xs, parameters, options)
                                 : s.kind == RecurrentKind::gru ? gru(xs, parameters, options)
                                                                : rnn(xs, parameters, options);
  graph.fetch("ys" + suffix, result.outputs);
  if (!s.is_training) return;
  const Values outputs = {result.outputs},
               seeds = {graph.input("dys" + suffix, dtype, {s.steps, s.batch, directions_of(s) * H})};
  const Values grads = gradients(outputs, wanted, seeds);
  for (std::size_t i = 0; i < grads.size(); ++i) graph.fetch(names[i] + suffix, grads[i]);
}

// One step of a layer that is waited for; h and c stay on the device.
void build_step(Graph& graph, const RecurrentLayers& s, DType dtype, const std::string& suffix) {
  const std::int64_t H = s.hidden;
  const Value x = graph.input("x" + suffix, dtype, {s.batch, H});
  const Value w = graph.parameter("w0" + suffix, dtype, {H, 4 * H}),
              u = graph.parameter("u0" + suffix, dtype, {H, 4 * H});
  const Value b = graph.parameter("b0" + suffix, dtype, {4 * H});
  const Value h = graph.parameter("h" + suffix, dtype, {s.batch, H}),
              c = graph.parameter("c" + suffix, dtype, {s.batch, H});
  const auto [next_h, next_c] = lstm_cell(x, h, c, w, u, b);
  graph.assign(h, next_h);
  graph.assign(c, next_c);
  graph.fetch("y" + suffix, next_h);
}

// Weights of a size that keeps the gates in the range where they work.
Tensor feed(const RecurrentLayers& s, const std::string& name, const Type& type) {
  if (name == "xs" || name == "dys" || name == "x") return random_tensor(type, 1, name);
  std::vector<double> values = random_tensor({f64, type.shape}, 1, name).to_doubles();
  if (name == "lengths") {  // 5 to T, evenly spread, one of them T
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) + 1;
      values[i] = static_cast<double>(std::min<std::int64_t>(s.steps, 5) +
                                      std::max<std::int64_t>(s.steps - 5, 0) * row * row / (s.batch * s.batch));
    }
  } else {
    const double scale = name == "h" || name == "c" ? 0.5 : 1 / std::sqrt(static_cast<double>(s.hidden));
    for (double& value : values) value *= scale;
  }
  return Tensor::from(type.dtype, type.shape, values);
}

Expected expect_lstm(const RecurrentLayers& s, const Feeds& feeds) {
  const auto count = static_cast<std::size_t>(s.layers);
  std::vector<Doubles> xs = {feeds.at("xs").to_doubles()};
  std::vector<Doubles> w, u, b;
  std::vector<LstmForward> forward;
  const auto layer_at = [&](std::size_t i) {
    return LstmLayer{s.steps, s.batch, s.hidden, &xs[i], &w[i], &u[i], &b[i]};
  };
  for (std::size_t i = 0; i < count; ++i) {
    w.push_back(feeds.at(fmt::format("w{}", i)).to_doubles());
    u.push_back(feeds.at(fmt::format("u{}", i)).to_doubles());
    b.push_back(feeds.at(fmt::format("b{}", i)).to_doubles());
  }
  for (std::size_t i = 0; i < count; ++i) {
    forward.push_back(lstm_forward(layer_at(i)));
    xs.push_back(forward.back().ys);
  }
  Expected e = {{"ys", xs.back()}};
  if (!s.is_training) return e;
  Doubles dys = feeds.at("dys").to_doubles();
  for (std::size_t i = count; i-- > 0;) {
    LstmBackward back = lstm_backward(layer_at(i), forward[i], dys);
    dys = std::move(back.dxs);
    e[fmt::format("dw{}", i)] = std::move(back.dw);
    e[fmt::format("du{}", i)] = std::move(back.du);
    e[fmt::format("db{}", i)] = std::move(back.db);
  }
  e["dxs"] = std::move(dys);
  return e;
}

// [T, rows] with its steps in the opposite order.
Doubles turned(const Doubles& values, std::int64_t steps) {
  const auto row = static_cast<std::ptrdiff_t>(values.size()) / steps;
  Doubles made;
  for (std::ptrdiff_t time = steps; time-- > 0;) {
    made.insert(made.end(), values.begin() + time * row, values.begin() + (time + 1) * row);
  }
  return made;
}

// One layer in both directions, the reverse one's results after the other's.
Expected expect_both(const RecurrentLayers& s, const Feeds& feeds) {
  const Doubles xs = feeds.at("xs").to_doubles(), turned_xs = turned(xs, s.steps);
  const auto H = static_cast<std::size_t>(s.hidden), rows = static_cast<std::size_t>(s.steps * s.batch);
  Expected e;
  e["ys"].resize(2 * rows * H);
  if (s.is_training) e["dxs"].resize(rows * H);
  for (const std::size_t direction : {0, 1}) {
    const auto parameter = [&](const char* name) {
      return feeds.at(fmt::format("{}{}", name, direction)).to_doubles();
    };
    const auto in_time = [&](Doubles values) { return direction == 0 ? values : turned(values, s.steps); };
    const Doubles w = parameter("w"), u = parameter("u"), b = parameter("b");
    const LstmLayer layer{s.steps, s.batch, s.hidden, direction == 0 ? &xs : &turned_xs, &w, &u, &b};
    const LstmForward forward = lstm_forward(layer);
    const Doubles ys = in_time(forward.ys);
    for (std::size_t i = 0; i < rows * H; ++i) e["ys"][(i / H * 2 + direction) * H + i % H] = ys[i];
    if (!s.is_training) continue;
    const Doubles all = feeds.at("dys").to_doubles();
    Doubles dys(rows * H);
    for (std::size_t i = 0; i < rows * H; ++i) dys[i] = all[(i / H * 2 + direction) * H + i % H];
    LstmBackward back = lstm_backward(layer, forward, in_time(dys));
    const Doubles dxs = in_time(back.dxs);
    for (std::size_t i = 0; i < rows * H; ++i) e["dxs"][i] += dxs[i];
    e[fmt::format("dw{}", direction)] = std::move(back.dw);
    e[fmt::format("du{}", direction)] = std::move(back.du);
    e[fmt::format("db{}", direction)] = std::move(back.db);
  }
  return e;
}

// Rounding adds up over the steps, so the bounds are wider than those of one product.
double tolerance_of(DType dtype, bool is_tf32) {
  if (dtype == DType::f64) return 1e-10;
  if (dtype == DType::f32) return is_tf32 ? 2e-2 : 2e-4;
  return dtype == DType::f16 ? 2e-2 : 1e-1;
}

Need need_of(const RecurrentLayers& s, DType dtype, bool is_training) {
  const double H = static_cast<double>(s.hidden), rows = static_cast<double>(s.steps * s.batch);
  const double size = static_cast<double>(size_bytes(dtype)), layers = static_cast<double>(s.layers);
  const double directions = static_cast<double>(directions_of(s));
  const double matrices = 2 * directions + (layers - 1) * directions * (directions + 1);  // of H x gates H
  const double weights = matrices * H * H * static_cast<double>(gates_of(s.kind)) * size;
  const double flops = 2 * rows * matrices * H * H * static_cast<double>(gates_of(s.kind));
  const double xs = rows * H * size, ys = directions * xs;
  if (!is_training) return {.read = weights + xs, .written = ys, .flops = flops};
  return {.read = weights + xs + ys, .written = weights + xs + ys, .flops = 3 * flops};
}

}  // namespace

Case recurrent_case(const RecurrentLayers& s, DType dtype, bool tf32) {
  Case c;
  c.section = 'R';
  c.kind = fmt::format("{}_{}", name_of(s.kind), s.is_step ? "step" : s.is_training ? "training" : "forward");
  c.dtype = dtype;
  c.tf32 = tf32;
  const std::string layers =
      (s.layers == 1 ? "" : fmt::format("_l{}", s.layers)) + (s.has_both_directions ? "_both" : "");
  const std::string steps = s.is_step ? "" : fmt::format("t{}_", s.steps);
  std::string path = c.kind;
  path[path.find('_')] = '/';
  c.name = fmt::format("{}/{}b{}_h{}{}{}_{}", path, steps, s.batch, s.hidden, layers, s.has_lengths ? "_lengths" : "",
                       type_text(c));
  c.what = fmt::format("T {}, B {}, H {}, {} layer{}{}{}", s.is_step ? 1 : s.steps, s.batch, s.hidden, s.layers,
                       s.layers == 1 ? "" : "s", s.has_both_directions ? " in both directions" : "",
                       s.has_lengths ? ", lengths 5 to T"
                       : s.is_step   ? ", state kept"
                                     : "");
  c.sizes = JsonObject()
                .add("steps", s.is_step ? 1 : s.steps)
                .add("batch", s.batch)
                .add("hidden", s.hidden)
                .add("layers", s.layers)
                .add("directions", directions_of(s))
                .add("lengths", s.has_lengths)
                .text();
  c.need = need_of(s, dtype, s.is_training);
  c.rotates = false;
  c.on_cpu = false;
  c.tolerance = tolerance_of(dtype, tf32);
  c.feed = [s](const std::string& name, const Type& type) { return feed(s, name, type); };
  if (s.is_step) {
    c.is_served = true;
    c.build = [s](Graph& graph, DType type, const std::string& suffix) { build_step(graph, s, type, suffix); };
    return c;
  }
  c.build = [s](Graph& graph, DType type, const std::string& suffix) { build(graph, s, type, suffix); };
  RecurrentLayers checked = s;
  if (c.need.flops > (s.hidden > 1024 ? 5e9 : 5e10)) {  // in float64 that would take minutes, past its caches sooner
    checked.steps = std::min<std::int64_t>(s.steps, 8);
    c.checked_as = fmt::format("T {}", checked.steps);
    c.build_small = [checked](Graph& graph, DType type, const std::string& suffix) {
      build(graph, checked, type, suffix);
    };
  }
  if (s.kind == RecurrentKind::lstm && !s.has_lengths) {
    c.expected = [checked](const Feeds& feeds) {
      return checked.has_both_directions ? expect_both(checked, feeds) : expect_lstm(checked, feeds);
    };
  }
  return c;
}

namespace {

struct Asked {
  RecurrentLayers layers;
  // us: f32, TF32, bf16, f16; 0 where there is no such row, kNone where there is one without a goal
  std::array<double, 4> goals, floors;
};
constexpr double kNone = -1;

std::vector<Asked> asked() {
  const auto forward = [](std::int64_t steps, std::int64_t batch, std::int64_t hidden) {
    return RecurrentLayers{.steps = steps, .batch = batch, .hidden = hidden};
  };
  const auto training = [](std::int64_t steps, std::int64_t batch, std::int64_t hidden, std::int64_t layers) {
    return RecurrentLayers{.steps = steps, .batch = batch, .hidden = hidden, .layers = layers, .is_training = true};
  };
  RecurrentLayers lengths = forward(100, 64, 512);
  lengths.has_lengths = true;
  RecurrentLayers one_step = forward(1, 1, 512);
  one_step.is_step = true;
  RecurrentLayers gru = forward(64, 1, 512), rnn = gru;
  RecurrentLayers large_gru = forward(64, 1, 2048), large_rnn = forward(64, 1, 4096);
  RecurrentLayers both = forward(64, 1, 512), both_trained = training(64, 4, 256, 1);
  both.has_both_directions = both_trained.has_both_directions = true;
  RecurrentLayers gru_trained = training(64, 1, 512, 1), rnn_trained = gru_trained;
  const auto stacked = [&](std::int64_t batch, std::int64_t hidden, std::int64_t layers) {
    RecurrentLayers s = forward(64, batch, hidden);
    s.layers = layers;
    return s;
  };
  RecurrentLayers gru_stacked = stacked(1, 512, 2), stacked_lengths = stacked(4, 512, 2);
  stacked_lengths.has_lengths = true;
  gru.kind = gru_trained.kind = gru_stacked.kind = large_gru.kind = RecurrentKind::gru;
  rnn.kind = rnn_trained.kind = large_rnn.kind = RecurrentKind::rnn;
  return {
      {forward(64, 1, 128), {36, kNone, 25, 25}, {21, 21, 20, 20}},
      {forward(64, 1, 256), {44, kNone, 34, 34}, {26, 26, 22, 22}},
      {forward(64, 1, 512), {53, kNone, 48, 48}, {41, 41, 30, 30}},
      {forward(64, 1, 1024), {78, 68, 65, 65}, {59, 59, 45, 45}},
      // Weights that exceed registers and shared memory, or nearly: the rest is read from memory every step.
      {forward(64, 1, 1536), {kNone, kNone, kNone, 0}, {}},
      {forward(64, 1, 2048), {kNone, kNone, kNone, 0}, {}},
      {forward(64, 1, 3072), {kNone, 0, kNone, 0}, {}},
      {forward(64, 1, 4096), {0, 0, kNone, 0}, {}},
      {forward(64, 8, 2048), {kNone, kNone, kNone, 0}, {}},
      {large_gru, {kNone, 0, kNone, 0}, {}},
      {large_rnn, {kNone, 0, 0, 0}, {}},
      {forward(64, 8, 512), {0, 100, 60, 60}, {}},
      {forward(50, 32, 1536), {0, kNone, 0, 0}, {}},
      {forward(64, 32, 512), {kNone, 130, 85, 85}, {0, 0, 60, 60}},
      {forward(100, 64, 512), {kNone, kNone, 130, kNone}, {}},
      {lengths, {kNone, kNone, 0.75 * 130, kNone}, {}},
      {one_step, {9, 0, 9, 9}, {}},
      {training(50, 128, 512, 2), {0, 800, 470, 470}, {0, 540, 295, 295}},
      {training(128, 32, 1024, 1), {0, 1700, 1050, 1050}, {0, 1200, 750, 750}},
      {training(1024, 16, 768, 1), {0, 6500, 3300, 3300}, {0, 5000, 2300, 2300}},
      {training(100, 64, 256, 1), {0, 500, 320, 320}, {0, 0, 120, 120}},
      // Weights that registers and shared memory cannot hold.
      {training(64, 1, 2048, 1), {kNone, kNone, 0, 0}, {}},
      {training(64, 8, 2048, 1), {0, kNone, kNone, 0}, {}},
      {training(50, 32, 1536, 1), {0, kNone, 0, 0}, {}},
      {training(64, 16, 3072, 1), {0, 0, kNone, 0}, {}},
      {gru, {1.1 * 53, 0, 1.1 * 48, 0}, {}},  // within 10% of the LSTM
      {rnn, {1.1 * 53, 0, 1.1 * 48, 0}, {}},
      {both, {kNone, kNone, kNone, kNone}, {}},
      {both_trained, {kNone, kNone, kNone, kNone}, {}},
      {stacked(1, 512, 2), {kNone, kNone, kNone, kNone}, {}},
      {stacked(1, 512, 4), {kNone, kNone, kNone, kNone}, {}},
      {stacked(1, 256, 4), {kNone, kNone, kNone, kNone}, {}},
      {stacked(8, 512, 2), {0, kNone, kNone, kNone}, {}},
      {gru_stacked, {kNone, 0, kNone, 0}, {}},
      {stacked_lengths, {0, kNone, kNone, 0}, {}},
      {training(64, 1, 512, 1), {kNone, 0, 0, 0}, {}},
      {training(64, 4, 512, 1), {kNone, 0, 0, 0}, {}},
      {training(64, 8, 512, 1), {kNone, 0, 0, 0}, {}},
      {training(64, 1, 512, 2), {kNone, 0, kNone, 0}, {}},
      {gru_trained, {kNone, 0, 0, 0}, {}},
      {rnn_trained, {kNone, 0, 0, 0}, {}},
  };
}

}  // namespace

Cases recurrent_cases() {
  constexpr DType kTypes[] = {f32, f32, bf16, f16};
  Cases cases;
  for (const Asked& row : asked()) {
    for (std::size_t i = 0; i < 4; ++i) {
      if (row.goals[i] == 0) continue;
      Case c = recurrent_case(row.layers, kTypes[i], i == 1);
      c.need.floor_us = row.floors[i];
      const double goal = std::max(row.goals[i], 0.0);
      (row.layers.is_step ? c.goal.wall : c.goal.hot) = goal;
      if (c.name == "lstm/forward/t64_b1_h512_f32") {
        c.goal.wall = 57;  // the last rung of the ladder
        c.cpu_goal = {.faster_2 = 1.5, .faster_16 = 1.5};
      }
      if (c.name == "lstm/forward/t64_b1_h128_f32") {
        c.cpu_goal = {.faster_2 = 2, .faster_16 = 2};
        c.on_cpu = true;
      }
      if (row.layers.hidden == 512 && row.layers.batch == 1 && !row.layers.is_step && !row.layers.is_training &&
          !row.layers.has_both_directions && row.layers.layers == 1 && (i == 0 || i == 2)) {
        c.on_cpu = true;
      }
      cases.push_back(std::move(c));
    }
  }
  for (const RecurrentKind kind : {RecurrentKind::lstm, RecurrentKind::gru, RecurrentKind::rnn}) {
    for (const DType dtype : {f32, bf16}) {
      Case on_cpu =
          recurrent_case({.kind = kind, .steps = 50, .batch = 32, .hidden = 512, .is_training = true}, dtype, false);
      on_cpu.on_cpu = true;
      on_cpu.on_gpu = false;
      if (kind == RecurrentKind::lstm && dtype == f32) on_cpu.cpu_goal = {.faster_2 = 1.2, .faster_16 = 2};
      cases.push_back(std::move(on_cpu));
    }
  }
  return cases;
}

}  // namespace paoding::cli::bench
