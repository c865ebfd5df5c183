// SPDX-License-Identifier: Apache-2.0
// Recurrent layers against the recurrence written with loops over single numbers: every kind, both directions, lengths,
// projections; the ops that the passes make of them.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

enum class Kind { lstm, gru, gru_before, rnn, relu };

struct LayerCase {
  Kind kind = Kind::lstm;
  std::int64_t steps = 5, batch = 3, inputs = 4, hidden = 3, projection = 0;
  int layers = 1;
  bool bidirectional = false, has_lengths = false, has_initial = false;

  std::int64_t gates() const { return kind == Kind::lstm ? 4 : kind == Kind::rnn || kind == Kind::relu ? 1 : 3; }
  std::int64_t biases() const { return kind == Kind::gru ? 4 : gates(); }
  std::int64_t width() const { return projection > 0 ? projection : hidden; }
  int sets() const { return layers * (bidirectional ? 2 : 1); }
};

RecurrentResult build(Graph& g, const LayerCase& c) {
  const Value xs = g.input("xs", f64, {c.steps, c.batch, c.inputs});
  std::vector<RecurrentParameters> parameters;
  RecurrentOptions options{.bidirectional = c.bidirectional};
  for (int i = 0; i < c.sets(); ++i) {
    const int layer = c.bidirectional ? i / 2 : i;
    const std::int64_t features = layer == 0 ? c.inputs : c.width() * (c.bidirectional ? 2 : 1);
    const std::string n = std::to_string(i);
    parameters.push_back({g.input("w" + n, f64, {features, c.gates() * c.hidden}),
                          g.input("u" + n, f64, {c.width(), c.gates() * c.hidden}),
                          g.input("b" + n, f64, {c.biases() * c.hidden})});
    if (c.projection > 0) parameters.back().projection = g.input("p" + n, f64, {c.hidden, c.projection});
    if (!c.has_initial) continue;
    options.initial_h.push_back(g.input("h" + n, f64, {c.batch, c.width()}));
    if (c.kind == Kind::lstm) options.initial_c.push_back(g.input("c" + n, f64, {c.batch, c.hidden}));
  }
  if (c.has_lengths) options.lengths = g.input("lengths", i32, {c.batch});
  options.reset_after = c.kind != Kind::gru_before;
  options.relu = c.kind == Kind::relu;
  if (c.kind == Kind::lstm) return lstm(xs, parameters, options);
  if (c.kind == Kind::rnn || c.kind == Kind::relu) return rnn(xs, parameters, options);
  return gru(xs, parameters, options);
}

// The recurrences as their papers have them, one row of the batch after the other; [H]-vectors are plain vectors.
class Expected {
 public:
  Expected(const LayerCase& c, const Feeds& feeds) : c_(c), feeds_(feeds) {
    Dense input = feeds.at("xs");
    std::int64_t features = c.inputs;
    for (int layer = 0; layer < c.layers; ++layer) {
      const int directions = c.bidirectional ? 2 : 1;
      Dense output(at(c.steps * c.batch * c.width() * directions), 0.0);
      for (int direction = 0; direction < directions; ++direction) {
        const int set = layer * directions + direction;
        for (std::int64_t row = 0; row < c.batch; ++row)
          run_row(set, direction, directions, row, input, features, &output);
      }
      input = output;
      features = c.width() * directions;
    }
    result["outputs"] = input;
  }
  Feeds result;

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  const Dense& feed(const char* name, int set) const { return feeds_.at(name + std::to_string(set)); }

  void run_row(int set, int direction, int directions, std::int64_t row, const Dense& input, std::int64_t features,
               Dense* output) {
    const std::int64_t width = c_.width(), hidden = c_.hidden;
    Dense h(at(width), 0.0), c(at(hidden), 0.0);
    if (c_.has_initial) {
      for (std::int64_t j = 0; j < width; ++j) h[at(j)] = feed("h", set)[at(row * width + j)];
      for (std::int64_t j = 0; j < hidden && c_.kind == Kind::lstm; ++j)
        c[at(j)] = feed("c", set)[at(row * hidden + j)];
    }
    const auto length = c_.has_lengths ? static_cast<std::int64_t>(feeds_.at("lengths")[at(row)]) : c_.steps;
    for (std::int64_t k = 0; k < std::min(length, c_.steps); ++k) {
      const std::int64_t t = direction == 0 ? k : std::min(length, c_.steps) - 1 - k;
      const Dense x(input.begin() + (t * c_.batch + row) * features,
                    input.begin() + (t * c_.batch + row + 1) * features);
      advance(set, x, &h, &c);
      for (std::int64_t j = 0; j < width; ++j) {
        (*output)[at(((t * c_.batch + row) * directions + direction) * width + j)] = h[at(j)];
      }
    }
    Dense &last_h = result["last_h" + std::to_string(set)], &last_c = result["last_c" + std::to_string(set)];
    last_h.insert(last_h.end(), h.begin(), h.end());
    last_c.insert(last_c.end(), c.begin(), c.end());
  }

  // Column `column` of a vector times a matrix with `columns` columns.
  static double times(const Dense& vector, const Dense& matrix, std::int64_t columns, std::int64_t column) {
    double total = 0;
    for (std::size_t k = 0; k < vector.size(); ++k) total += vector[k] * matrix[k * at(columns) + at(column)];
    return total;
  }

  void advance(int set, const Dense& x, Dense* h, Dense* c) const {
    const Dense &w = feed("w", set), &u = feed("u", set), &b = feed("b", set);
    const std::int64_t H = c_.hidden, G = c_.gates() * H;
    const auto sigmoid = [](double a) { return 1 / (1 + std::exp(-a)); };
    const auto of_x = [&](std::int64_t gate, std::int64_t j) {
      return times(x, w, G, gate * H + j) + b[at(gate * H + j)];
    };
    const auto of_h = [&](std::int64_t gate, std::int64_t j) { return times(*h, u, G, gate * H + j); };
    Dense next(at(H)), r(at(H));
    for (std::int64_t j = 0; j < H; ++j) {
      if (c_.kind == Kind::lstm) {
        double& cell = (*c)[at(j)];
        const double i = sigmoid(of_x(0, j) + of_h(0, j)), f = sigmoid(of_x(1, j) + of_h(1, j));
        cell = f * cell + i * std::tanh(of_x(2, j) + of_h(2, j));
        next[at(j)] = sigmoid(of_x(3, j) + of_h(3, j)) * std::tanh(cell);
      } else if (c_.kind == Kind::rnn || c_.kind == Kind::relu) {
        const double total = of_x(0, j) + of_h(0, j);
        next[at(j)] = c_.kind == Kind::rnn ? std::tanh(total) : std::max(total, 0.0);
      } else {
        r[at(j)] = sigmoid(of_x(0, j) + of_h(0, j));
      }
    }
    if (c_.kind == Kind::gru || c_.kind == Kind::gru_before) {
      Dense reset = *h;
      for (std::int64_t j = 0; j < H; ++j) reset[at(j)] *= r[at(j)];
      for (std::int64_t j = 0; j < H; ++j) {
        const double z = sigmoid(of_x(1, j) + of_h(1, j));
        const double inner =
            c_.kind == Kind::gru ? r[at(j)] * (of_h(2, j) + b[at(3 * H + j)]) : times(reset, u, G, 2 * H + j);
        next[at(j)] = (1 - z) * std::tanh(of_x(2, j) + inner) + z * (*h)[at(j)];
      }
    }
    if (c_.projection > 0) {
      for (std::int64_t j = 0; j < c_.projection; ++j) (*h)[at(j)] = times(next, feed("p", set), c_.projection, j);
    } else {
      *h = next;
    }
  }

  const LayerCase& c_;
  const Feeds& feeds_;
};

void check(const LayerCase& c, const Dense& lengths = {}) {
  Graph g;
  const RecurrentResult made = build(g, c);
  g.fetch("outputs", made.outputs);
  for (std::size_t i = 0; i < made.last_h.size(); ++i) g.fetch("last_h" + std::to_string(i), made.last_h[i]);
  for (std::size_t i = 0; i < made.last_c.size(); ++i) g.fetch("last_c" + std::to_string(i), made.last_c[i]);
  Feeds feeds = make_feeds(g, 1);
  if (c.has_lengths) feeds["lengths"] = lengths;
  const Expected expected(c, feeds);
  Program program(g);
  const Tensors got = program.run(to_tensors(g, feeds));
  for (const auto& [name, tensor] : got) expect_close(name, tensor.to_doubles(), expected.result.at(name), 1e-12);
}

TEST(RecurrentLayers, AreTheRecurrenceOfTheirPaper) {
  for (const Kind kind : {Kind::lstm, Kind::gru, Kind::gru_before, Kind::rnn, Kind::relu}) {
    SCOPED_TRACE(static_cast<int>(kind));
    check({.kind = kind});
    check({.kind = kind, .layers = 2, .has_initial = true});
    check({.kind = kind, .layers = 2, .bidirectional = true, .has_initial = true});
    check({.kind = kind, .steps = 1, .batch = 1});
  }
}

TEST(RecurrentLayers, HonourLengthsInBothDirections) {
  for (const Kind kind : {Kind::lstm, Kind::gru, Kind::gru_before, Kind::rnn, Kind::relu}) {
    SCOPED_TRACE(static_cast<int>(kind));
    check({.kind = kind, .batch = 4, .has_lengths = true}, {5, 2, 0, 3});
    check({.kind = kind, .batch = 4, .layers = 2, .bidirectional = true, .has_lengths = true, .has_initial = true},
          {1, 5, 4, 0});
  }
}

TEST(RecurrentLayers, ProjectTheStateOfAnLstm) {
  check({.projection = 2});
  check({.batch = 2, .projection = 2, .layers = 2, .bidirectional = true, .has_lengths = true, .has_initial = true},
        {4, 2});
}

// Input beyond a length reaches no output and no state, whatever it is.
TEST(RecurrentLayers, IgnorePaddingOfAnyValue) {
  for (const Kind kind : {Kind::lstm, Kind::gru, Kind::rnn}) {
    const LayerCase c{.kind = kind, .layers = 2, .bidirectional = true, .has_lengths = true};
    Graph g;
    const RecurrentResult made = build(g, c);
    g.fetch("outputs", made.outputs);
    g.fetch("last", made.last_h[2]);
    Feeds feeds = make_feeds(g, 1);
    feeds["lengths"] = {2, 5, 3};
    Program program(g);
    const Tensors clean = program.run(to_tensors(g, feeds));
    for (std::int64_t t = 2; t < 5; ++t) {
      for (std::int64_t i = 0; i < 4; ++i) feeds["xs"][static_cast<std::size_t>((t * 3 + 0) * 4 + i)] = 1e6;
    }
    expect_same_bits(clean, program.run(to_tensors(g, feeds)));
  }
}

// Compares d_x of a graph with differences of its loss, for one element of every float input x.
void expect_differences(Graph& g, const Feeds& feeds, double tolerance) {
  Program program(g);
  const Tensors got = program.run(to_tensors(g, feeds));
  std::mt19937 random(2);
  for (NodeId id : g.inputs()) {
    const std::string name = g.node(id).name.str();
    if (!is_float(g.node(id).types[0].dtype)) continue;
    const Dense gradient = got.at("d_" + name).to_doubles();
    const std::size_t element = random() % gradient.size();
    const auto moved = [&](double by) {
      Feeds other = feeds;
      other[name][element] += by;
      return program.run(to_tensors(g, other)).at("loss").to_doubles()[0];
    };
    EXPECT_NEAR(gradient[element], (moved(1e-5) - moved(-1e-5)) / 2e-5, tolerance * (1 + largest(gradient))) << name;
  }
}

Values float_inputs(Graph& g) {
  Values inputs;
  for (NodeId id : g.inputs()) {
    if (is_float(g.node(id).types[0].dtype)) inputs.push_back(g.value({id, 0}));
  }
  return inputs;
}

void fetch_gradients(Graph& g, const Value& loss) {
  const Values inputs = float_inputs(g), grads = gradients(std::array{loss}, inputs);
  g.fetch("loss", loss);
  for (std::size_t i = 0; i < grads.size(); ++i) g.fetch("d_" + g.node(inputs[i].ref().node).name.str(), grads[i]);
}

TEST(RecurrentLayers, HaveGradientsThatAgreeWithDifferences) {
  for (const Kind kind : {Kind::lstm, Kind::gru, Kind::gru_before, Kind::rnn}) {
    for (const bool has_lengths : {true, false}) {
      const LayerCase c{
          .kind = kind, .layers = 2, .bidirectional = true, .has_lengths = has_lengths, .has_initial = true};
      Graph g;
      const RecurrentResult made = build(g, c);
      fetch_gradients(g, sum(made.outputs * made.outputs) + sum(made.last_h[1]) + sum(made.last_h[2] * 0.5));
      Feeds feeds = make_feeds(g, 3);
      if (has_lengths) feeds["lengths"] = {2, 5, 3};
      expect_differences(g, feeds, 1e-7);
    }
  }
}

TEST(RecurrentLayers, HaveSecondGradients) {
  for (const Kind kind : {Kind::lstm, Kind::gru, Kind::gru_before, Kind::rnn}) {
    const LayerCase c{.kind = kind, .steps = 3, .bidirectional = true, .has_lengths = true, .has_initial = true};
    Graph g;
    const RecurrentResult made = build(g, c);
    const Values inputs = float_inputs(g);
    const Values first = gradients(std::array{sum(made.outputs * made.outputs) + sum(made.last_h[1])}, inputs);
    Value loss = sum(first[0] * first[0]);
    for (std::size_t i = 1; i < first.size(); ++i) loss = loss + sum(first[i] * first[i]);
    fetch_gradients(g, loss);
    Feeds feeds = make_feeds(g, 3);
    feeds["lengths"] = {2, 3, 1};
    expect_differences(g, feeds, 1e-6);
  }
}

// Steps of a plan whose line has `word`; those of loops are indented, their numbers reach further in than 3 columns.
int steps_with(const std::string& plan, const std::string& word, bool in_loop) {
  std::istringstream lines(plan.substr(0, plan.find("\nslots")));
  int found = 0;
  for (std::string line; std::getline(lines, line);) {
    found += line.find(word) != std::string::npos && (line.find_first_not_of(" 0123456789") > 4) == in_loop;
  }
  return found;
}

// One product of the input for all steps and, in the loop, one product and one kernel.
TEST(RecurrentLayers, CostTwoLaunchesAStep) {
  for (const Kind kind : {Kind::lstm, Kind::gru, Kind::rnn}) {
    for (const bool has_lengths : {false, true}) {
      const LayerCase c{.kind = kind, .steps = 20, .layers = 2, .bidirectional = true, .has_lengths = has_lengths};
      Graph g;
      g.fetch("outputs", build(g, c).outputs);
      const Program program(g);
      const std::string plan = program.plan_text();
      EXPECT_EQ(steps_with(plan, "matmul s", false), 4) << plan;
      EXPECT_EQ(steps_with(plan, "matmul s", true), 4) << plan;
      EXPECT_EQ(steps_with(plan, " s", true), 8) << plan;
      // Besides: starting states, lengths, and joining the directions.
      EXPECT_LE(program.report().launches, 4 * (2 * 20 + 1) + 15) << plan;
    }
  }
}

TEST(RecurrentLayers, SayWhatDoesNotFit) {
  const auto message = [](const std::function<void(Graph&, RecurrentOptions*)>& change, std::int64_t features = 4) {
    Graph g;
    const Value xs = g.input("xs", f32, {5, 3, 4});
    const RecurrentParameters p{g.input("w", f32, {features, 12}), g.input("u", f32, {3, 12}), g.input("b", f32, {12})};
    RecurrentOptions options;
    change(g, &options);
    return message_of([&] { lstm(xs, std::array{p}, options); });
  };
  const auto none = [](Graph&, RecurrentOptions*) {};
  EXPECT_EQ(message(none), "no error");
  EXPECT_NE(message(none, 5).find("lstm: parameters 0 have w [5, 12]"), std::string::npos) << message(none, 5);
  EXPECT_NE(message([](Graph& g, RecurrentOptions* o) { o->lengths = g.input("l", f32, {3}); }).find("lengths are f32"),
            std::string::npos);
  EXPECT_NE(
      message([](Graph& g, RecurrentOptions* o) { o->lengths = g.input("l", i32, {4}); }).find("[4], needed is [3]"),
      std::string::npos);
  EXPECT_NE(message([](Graph& g, RecurrentOptions* o) {
              o->initial_h = {g.input("h", f32, {3, 4})};
            }).find("initial_h[0] has shape [3, 4], needed is [3, 3]"),
            std::string::npos);
  EXPECT_NE(message([](Graph&, RecurrentOptions* o) { o->bidirectional = true; }).find("1 sets of parameters"),
            std::string::npos);
  EXPECT_NE(message([](Graph&, RecurrentOptions* o) { o->dropout = 1; }).find("dropout = 1"), std::string::npos);
}

}  // namespace
}  // namespace paoding::testing_program
