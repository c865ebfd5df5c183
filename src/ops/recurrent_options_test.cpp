// SPDX-License-Identifier: Apache-2.0
// The other options of recurrent layers: dropout of the weights over time, zoneout, states computed again.
#include <gtest/gtest.h>

#include <random>

#include "paoding/nn.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

enum class OptionKind { lstm, gru, gru_before, rnn };
constexpr OptionKind kAll[] = {OptionKind::lstm, OptionKind::gru, OptionKind::gru_before, OptionKind::rnn};

struct Layers {
  OptionKind kind = OptionKind::lstm;
  std::int64_t steps = 5, batch = 3, width = 4;
  int sets = 1, first = 0;  // of parameters; the number of the first
  DType dtype = f64;
};

RecurrentResult build(Graph& g, const Layers& s, RecurrentOptions options, const Value& xs, double drops_u = 0) {
  const std::int64_t gates = s.kind == OptionKind::lstm ? 4 : s.kind == OptionKind::rnn ? 1 : 3, H = s.width;
  options.reset_after = s.kind != OptionKind::gru_before;
  std::vector<RecurrentParameters> parameters;
  for (int i = 0; i < s.sets; ++i) {
    const std::int64_t features = i < 2 && options.bidirectional ? H : options.bidirectional ? 2 * H : H;
    const std::string n = std::to_string(s.first + i);
    const Value w = g.input("w" + n, s.dtype, {features, gates * H}), u = g.input("u" + n, s.dtype, {H, gates * H});
    parameters.push_back(
        {w, dropout(u, drops_u), g.input("b" + n, s.dtype, {(s.kind == OptionKind::gru ? 4 : gates) * H})});
  }
  if (s.kind == OptionKind::lstm) return lstm(xs, parameters, options);
  return s.kind == OptionKind::rnn ? rnn(xs, parameters, options) : gru(xs, parameters, options);
}

Value input_of(Graph& g, const Layers& s) { return g.input("xs", s.dtype, {s.steps, s.batch, s.width}); }

// Losses that read all results, and the gradients by all inputs.
void fetch_all(Graph& g, const RecurrentResult& made) {
  g.fetch("outputs", made.outputs);
  Value loss = sum(made.outputs * made.outputs);
  for (std::size_t i = 0; i < made.last_h.size(); ++i) {
    g.fetch("last_h" + std::to_string(i), made.last_h[i]);
    loss = loss + sum(made.last_h[i] * (0.5 + static_cast<double>(i)));
  }
  for (const Value& c : made.last_c) loss = loss + sum(c * c);
  g.fetch("loss", loss);
  Values inputs;
  for (NodeId id : g.inputs()) {
    if (is_float(g.node(id).types[0].dtype)) inputs.push_back(g.value({id, 0}));
  }
  const Values grads = gradients(std::array{loss}, inputs);
  for (std::size_t i = 0; i < grads.size(); ++i) g.fetch("d_" + g.node(inputs[i].ref().node).name.str(), grads[i]);
}

Tensors run(const std::function<void(Graph&)>& make, const Dense& lengths = {}) {
  Graph g;
  make(g);
  Feeds feeds = make_feeds(g, 5);
  if (!lengths.empty()) feeds["lengths"] = lengths;
  Parameters parameters(g, Device::cpu(), {.seed = 3});
  Program program(g, {.device = Device::cpu()}, &parameters);
  return program.run(to_tensors(g, feeds));
}

TEST(RecurrentOptions, DropTheSameElementsOfTheWeightsInAllSteps) {
  for (const OptionKind kind : kAll) {
    const Layers s{.kind = kind};
    const auto with = [&](const RecurrentOptions& options, double drops_u) {
      return run([&](Graph& g) { fetch_all(g, build(g, s, options, input_of(g, s), drops_u)); });
    };
    const Tensors expected = with({}, 0.4), plain = with({}, 0);
    expect_same_bits(expected, with({.recurrent_dropout = 0.4}, 0));
    expect_same_bits(plain, with({.recurrent_dropout = 0.4, .training = false}, 0));
    EXPECT_NE(expected.at("outputs").to_doubles(), plain.at("outputs").to_doubles());
  }
}

// Two layers with dropout between them are two layers and a dropout, with the same random numbers.
TEST(RecurrentOptions, DropBetweenLayersWhatADropoutDrops) {
  for (const OptionKind kind : kAll) {
    const auto stacked = [&](const RecurrentOptions& options) {
      const Layers s{.kind = kind, .sets = 2};
      return run([&](Graph& g) { fetch_all(g, build(g, s, options, input_of(g, s))); });
    };
    const Tensors expected = run([&](Graph& g) {
      const Layers lower{.kind = kind}, upper{.kind = kind, .first = 1};
      const RecurrentResult below = build(g, lower, {}, input_of(g, lower));
      RecurrentResult made = build(g, upper, {}, dropout(below.outputs, 0.4));
      made.last_h.insert(made.last_h.begin(), below.last_h[0]);
      made.last_c.insert(made.last_c.begin(), below.last_c.begin(), below.last_c.end());
      fetch_all(g, made);
    });
    expect_same_bits(expected, stacked({.dropout = 0.4}));
    const Tensors plain = stacked({});
    expect_same_bits(plain, stacked({.dropout = 0.4, .training = false}));
    EXPECT_NE(expected.at("outputs").to_doubles(), plain.at("outputs").to_doubles());
  }
}

// With dropout between layers only the upper one's input has memory: no numbers, and no mask.
TEST(RecurrentOptions, DropBetweenLayersWithoutAMask) {
  const auto bytes = [](double chance) {
    Graph g;
    const Layers s{.steps = 50, .batch = 32, .width = 64, .sets = 2, .dtype = f32};
    fetch_all(g, build(g, s, {.dropout = chance}, input_of(g, s)));
    Parameters parameters(g, Device::cpu());
    return Program(g, {.device = Device::cpu()}, &parameters).report().arena_bytes;
  };
  const std::int64_t states = 50 * 32 * 64 * 4;
  EXPECT_LE(bytes(0.3), bytes(0) + states + states / 8);
}

// The layer written step by step: units keep `stays` of their old value.
Values by_hand(Graph& g, const Layers& s, const Value& xs, double stays_h, double stays_c) {
  const std::int64_t gates = s.kind == OptionKind::lstm ? 4 : s.kind == OptionKind::rnn ? 1 : 3, H = s.width;
  const Value w = g.input("w0", s.dtype, {H, gates * H}), u = g.input("u0", s.dtype, {H, gates * H});
  const Value b = g.input("b0", s.dtype, {(s.kind == OptionKind::gru ? 4 : gates) * H});
  Value h = expand(full(g, {}, 0, s.dtype), {s.batch, H}), c = h;
  Values outputs;
  for (std::int64_t t = 0; t < s.steps; ++t) {
    const Value x = reshape(slice(xs, 0, t, t + 1), {s.batch, H});
    Value next_h, next_c = c;
    if (s.kind == OptionKind::lstm) {
      std::tie(next_h, next_c) = lstm_cell(x, h, c, w, u, b);
    } else if (s.kind == OptionKind::rnn) {
      next_h = rnn_cell(x, h, w, u, b);
    } else {
      next_h = gru_cell(x, h, w, u, b, s.kind == OptionKind::gru);
    }
    h = h * stays_h + next_h * (1 - stays_h);
    c = c * stays_c + next_c * (1 - stays_c);
    outputs.push_back(reshape(h, {1, s.batch, H}));
  }
  return {concat(outputs, 0), h};
}

TEST(RecurrentOptions, ZoneoutMixesByItsChancesWhereNothingIsTrained) {
  for (const OptionKind kind : kAll) {
    const Layers s{.kind = kind};
    const double stays_c = kind == OptionKind::lstm ? 0.5 : 0;
    const Tensors got = run([&](Graph& g) {
      fetch_all(g, build(g, s, {.zoneout_h = 0.25, .zoneout_c = stays_c, .training = false}, input_of(g, s)));
    });
    const Tensors expected = run([&](Graph& g) {
      const Values made = by_hand(g, s, input_of(g, s), 0.25, stays_c);
      g.fetch("outputs", made[0]), g.fetch("last_h0", made[1]);
    });
    for (const char* name : {"outputs", "last_h0"})
      expect_close(name, got.at(name).to_doubles(), expected.at(name).to_doubles(), 1e-12);
  }
}

// Each unit of each step either keeps its value or has the result of a step without zoneout.
TEST(RecurrentOptions, ZoneoutKeepsUnitsByChanceInTraining) {
  const Layers s{.kind = OptionKind::rnn, .steps = 60, .batch = 8, .width = 16};
  const Tensors got =
      run([&](Graph& g) { g.fetch("outputs", build(g, s, {.zoneout_h = 0.3}, input_of(g, s)).outputs); });
  const Dense h = got.at("outputs").to_doubles();
  const auto step = static_cast<std::size_t>(s.batch * s.width);
  std::size_t kept = 0;
  for (std::size_t i = step; i < h.size(); ++i) kept += h[i] == h[i - step] ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(h.size() - step), 0.3, 0.02);
}

// In one step all is linear in the loss's weights, and the gradient has the masks of the run that it belongs to.
TEST(RecurrentOptions, ZoneoutHasTheGradientOfTheUnitsThatMoved) {
  const Layers s{.kind = OptionKind::rnn, .steps = 4, .batch = 5};
  Graph g;
  const RecurrentOptions options{.zoneout_h = 0.4};
  fetch_all(g, build(g, s, options, input_of(g, s)));
  const Feeds feeds = make_feeds(g, 5);
  const auto run_with = [&](const Feeds& moved) {
    Parameters parameters(g, Device::cpu(), {.seed = 3});  // the same numbers every time
    Program program(g, {.device = Device::cpu()}, &parameters);
    return program.run(to_tensors(g, moved));
  };
  const Tensors got = run_with(feeds);
  for (const char* name : {"xs", "w0", "u0", "b0"}) {
    const Dense gradient = got.at("d_" + std::string(name)).to_doubles();
    for (const std::size_t element : {std::size_t{1}, gradient.size() / 2}) {
      const auto moved = [&](double by) {
        Feeds other = feeds;
        other[name][element] += by;
        return run_with(other).at("loss").to_doubles()[0];
      };
      EXPECT_NEAR(gradient[element], (moved(1e-5) - moved(-1e-5)) / 2e-5, 1e-7 * (1 + largest(gradient))) << name;
    }
  }
}

TEST(RecurrentOptions, StatesComputedAgainAreThoseThatWereThere) {
  for (const OptionKind kind : kAll) {
    for (const bool has_lengths : {false, true}) {
      const Layers s{.kind = kind, .steps = 11, .batch = 4, .sets = 4};
      const auto with = [&](std::int64_t recompute) {
        return run(
            [&](Graph& g) {
              RecurrentOptions options{.bidirectional = true, .recompute = recompute};
              const Value xs = input_of(g, s);
              if (has_lengths) options.lengths = g.input("lengths", i32, {s.batch});
              fetch_all(g, build(g, s, options, xs));
            },
            has_lengths ? Dense{11, 0, 4, 9} : Dense{});
      };
      const Tensors kept = with(0);
      for (const std::int64_t recompute : {1, 3, 11, 20}) {
        SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + ", by " + std::to_string(recompute));
        const Tensors again = with(recompute);
        for (const auto& [name, tensor] : kept)
          expect_close(name, again.at(name).to_doubles(), tensor.to_doubles(), 1e-11);
      }
    }
  }
}

// 70,001 steps: the values that the gradient needs are there for some of them at a time.
TEST(RecurrentOptions, LongSequencesTrainInLittleMemory) {
  const Layers s{.steps = 70'001, .batch = 8, .width = 8, .dtype = f32};
  std::int64_t bytes[2];
  Tensors made[2];
  for (const int i : {0, 1}) {
    Graph g;
    const RecurrentResult layer = build(g, s, {.recompute = i == 0 ? 0 : 256}, input_of(g, s));
    const Value loss = sum(layer.last_h[0] * layer.last_h[0]) + mean(layer.outputs);
    Values weights;
    for (const char* name : {"w0", "u0", "b0"}) weights.push_back(g.find(name));
    const Values grads = gradients(std::array{loss}, weights);
    g.fetch("loss", loss);
    for (std::size_t k = 0; k < grads.size(); ++k) g.fetch("d" + std::to_string(k), grads[k]);
    Program program(g, {.device = Device::cpu()});
    bytes[i] = program.report().arena_bytes;
    Feeds feeds = make_feeds(g, 5);
    made[i] = program.run(to_tensors(g, feeds));
  }
  for (const auto& [name, tensor] : made[0])
    expect_close(name, made[1].at(name).to_doubles(), tensor.to_doubles(), 1e-4);
  const std::int64_t outputs = s.steps * s.batch * s.width * 4;
  EXPECT_GT(bytes[0], 6 * outputs);  // four gates, written over their operands, states, cells
  EXPECT_LT(bytes[1], 5 * outputs);
}

TEST(RecurrentOptions, SayWhatIsNotTheirs) {
  const auto message = [](const RecurrentOptions& options, OptionKind kind) {
    return message_of([&] {
      Graph g;
      const Layers s{.kind = kind};
      build(g, s, options, input_of(g, s));
    });
  };
  EXPECT_TRUE(has(message({.recurrent_dropout = 1}, OptionKind::gru), "gru: recurrent_dropout = 1, needs to be"));
  EXPECT_TRUE(has(message({.zoneout_h = -0.1}, OptionKind::rnn), "rnn: zoneout_h = -0.1"));
  EXPECT_TRUE(has(message({.zoneout_c = 0.1}, OptionKind::rnn), "has no cell state, but zoneout_c is given"));
  EXPECT_TRUE(has(message({.recompute = -1}, OptionKind::lstm), "recompute = -1"));
}

// Whether a kernel runs all steps, a scan does, or stretches that are computed again.
TEST(RecurrentOptions, ALengthThatTheStepsDoNotHaveFailsTheRun) {
  for (const OptionKind kind : kAll) {
    const std::string name = kind == OptionKind::lstm ? "lstm" : kind == OptionKind::rnn ? "rnn" : "gru";
    for (const DType dtype : {i32, i64}) {
      for (const RecurrentOptions& options :
           {RecurrentOptions{}, RecurrentOptions{.bidirectional = true},
            RecurrentOptions{.zoneout_h = 0.5, .training = false}, RecurrentOptions{.recompute = 2}}) {
        Graph g;
        const Layers s{.kind = kind, .sets = options.bidirectional ? 2 : 1};
        RecurrentOptions given = options;
        given.lengths = g.input("lengths", dtype, {s.batch});
        {
          const Scope scope(g, "encoder");
          fetch_all(g, build(g, s, given, input_of(g, s)));
        }
        Program program(g, {.device = Device::cpu()});
        const auto with = [&](const Dense& lengths) {
          Feeds feeds = make_feeds(g, 5);
          feeds["lengths"] = lengths;
          return message_of([&] { program.run(to_tensors(g, feeds)); });
        };
        EXPECT_EQ(with({0, 5, 3}), "no error");
        EXPECT_EQ(with({0, 5, 6}), name + ": lengths[2] = 6, but from 0 to 5 are legal (in encoder)");
        EXPECT_EQ(with({3, -1, 9}), name + ": lengths[1] = -1, but from 0 to 5 are legal (in encoder)");
      }
    }
  }
}

TEST(RecurrentOptions, AreTakenByLayers) {
  const auto outputs = [](const nn::RecurrentLayerOptions& options) {
    return run([&](Graph& g) {
             const nn::Lstm layer(g, "l", 4, 4, options);
             g.fetch("outputs", layer(g.input("xs", f32, {6, 2, 4})).outputs);
           })
        .at("outputs")
        .to_doubles();
  };
  const Dense plain = outputs({});
  EXPECT_NE(outputs({.recurrent_dropout = 0.5}), plain);
  EXPECT_NE(outputs({.zoneout_h = 0.5}), plain);
  EXPECT_EQ(outputs({.recurrent_dropout = 0.5, .training = false}), plain);
  expect_close("recomputed", outputs({.recompute = 2}), plain, 1e-6);
}

}  // namespace
}  // namespace paoding::testing_program
