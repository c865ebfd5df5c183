// SPDX-License-Identifier: Apache-2.0
// lstm_recurrence against the recurrence written with loops over single elements, its gradients against differences,
// and the values that its gradient asks for.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/pass_check.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

struct LstmCase {
  std::int64_t steps = 4, rows = 3, hidden = 2;
  bool is_reverse = false;
  Dense lengths = {};  // none when empty
};

LstmRecurrence build(Graph& g, const LstmCase& c, DType dtype = f64, DType cell = f64) {
  const std::int64_t H = c.hidden;
  const Value xw = g.input("xw", dtype, {c.steps, c.rows, 4 * H}), u = g.input("u", dtype, {H, 4 * H});
  const Value h0 = g.input("h0", dtype, {c.rows, H}), c0 = g.input("c0", cell, {c.rows, H});
  const Value lengths = c.lengths.empty() ? Value() : g.input("lengths", i32, {c.rows});
  return lstm_recurrence(xw, u, h0, c0, lengths, c.is_reverse);
}

Feeds feeds_of(const Graph& g, const LstmCase& c, unsigned seed) {
  Feeds feeds = make_feeds(g, seed);
  if (!c.lengths.empty()) feeds["lengths"] = c.lengths;
  return feeds;
}

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// One row after the other, as the declaration says.
Feeds expected(const LstmCase& c, const Feeds& feeds) {
  const std::int64_t T = c.steps, B = c.rows, H = c.hidden;
  const auto sigmoid = [](double a) { return 1 / (1 + std::exp(-a)); };
  Feeds made{{"states", Dense(at((T + 1) * B * H))},
             {"cells", Dense(at((T + 1) * B * H))},
             {"gates", Dense(at(T * B * 4 * H))},
             {"last_h", Dense(at(B * H))},
             {"last_c", Dense(at(B * H))}};
  for (std::int64_t row = 0; row < B; ++row) {
    const std::int64_t length = c.lengths.empty() ? T : std::min(T, static_cast<std::int64_t>(c.lengths[at(row)]));
    Dense h(at(H)), cell(at(H));
    const auto put = [&](const char* name, std::int64_t entry, const Dense& values) {
      for (std::int64_t j = 0; j < H; ++j) made[name][at((entry * B + row) * H + j)] = values[at(j)];
    };
    for (std::int64_t j = 0; j < H; ++j) {
      h[at(j)] = feeds.at("h0")[at(row * H + j)], cell[at(j)] = feeds.at("c0")[at(row * H + j)];
    }
    put("states", c.is_reverse ? T : 0, h);
    put("cells", c.is_reverse ? T : 0, cell);
    for (std::int64_t k = 0; k < T; ++k) {
      const std::int64_t t = c.is_reverse ? T - 1 - k : k, entry = c.is_reverse ? t : t + 1;
      if (t < length) {
        Dense sums(at(4 * H));
        for (std::int64_t j = 0; j < 4 * H; ++j) {
          sums[at(j)] = feeds.at("xw")[at((t * B + row) * 4 * H + j)];
          for (std::int64_t m = 0; m < H; ++m) sums[at(j)] += h[at(m)] * feeds.at("u")[at(m * 4 * H + j)];
          sums[at(j)] = j / H == 2 ? std::tanh(sums[at(j)]) : sigmoid(sums[at(j)]);
          made["gates"][at((t * B + row) * 4 * H + j)] = sums[at(j)];
        }
        for (std::int64_t j = 0; j < H; ++j) {
          cell[at(j)] = sums[at(H + j)] * cell[at(j)] + sums[at(j)] * sums[at(2 * H + j)];
          h[at(j)] = sums[at(3 * H + j)] * std::tanh(cell[at(j)]);
        }
        put("states", entry, h);
      }
      put("cells", entry, cell);
    }
    put("last_h", 0, h);
    put("last_c", 0, cell);
  }
  return made;
}

void fetch_all(Graph& g, const LstmRecurrence& made) {
  g.fetch("states", made.states);
  g.fetch("cells", made.cells);
  g.fetch("gates", made.gates);
  g.fetch("last_h", made.last_h);
  g.fetch("last_c", made.last_c);
}

const LstmCase kCases[] = {
    {},
    {.is_reverse = true},
    {.rows = 5, .lengths = {4, 0, 1, 3, 7}},
    {.rows = 5, .is_reverse = true, .lengths = {2, 4, 0, 1, 9}},
    {.steps = 1, .rows = 1, .hidden = 5},
    {.steps = 1, .is_reverse = true, .lengths = {1, 0, 1}},
};

TEST(LstmRecurrence, LeavesEveryStepWhereItIsSaid) {
  for (const LstmCase& c : kCases) {
    Graph g;
    fetch_all(g, build(g, c));
    const Feeds feeds = feeds_of(g, c, 1), wanted = expected(c, feeds);
    Program program(g);
    for (const auto& [name, tensor] : program.run(to_tensors(g, feeds))) {
      expect_close(name, tensor.to_doubles(), wanted.at(name), 1e-12);
    }
  }
}

TEST(LstmRecurrence, CarriesTheCellStateOf16BitTypesInF32) {
  const LstmCase c{.steps = 30, .rows = 2, .hidden = 3};
  Graph g;
  const LstmRecurrence made = build(g, c, bf16, f32);
  EXPECT_EQ(made.cells.dtype(), f32);
  EXPECT_EQ(made.last_c.dtype(), f32);
  EXPECT_EQ(made.gates.dtype(), bf16);
  fetch_all(g, made);
  const Feeds feeds = feeds_of(g, c, 1), wanted = expected(c, feeds);
  Program program(g);
  const Tensors got = program.run(to_tensors(g, feeds));
  // Rounded states of size 1 go into gates, whose slopes are at most 1/4 (1 for g); cells add up the resulting errors.
  for (const auto& [name, tensor] : got) expect_close(name, tensor.to_doubles(), wanted.at(name), 0.06);
}

// The rule of its own, which is not asked for gradients of gates and cells.
TEST(LstmRecurrence, HasGradientsThatAgreeWithDifferences) {
  for (const LstmCase& c : kCases) {
    for (const int read : {0, 1, 2, 3}) {
      SCOPED_TRACE(read);
      Graph g;
      const LstmRecurrence made = build(g, c);
      Value loss = read == 1 ? sum(made.last_h * made.last_h) : read == 2 ? sum(made.last_c * made.last_c) : Value();
      if (!loss.valid()) loss = sum(made.states * made.states);
      if (read == 3) loss = loss + sum(made.last_h) + sum(made.last_c);
      Values inputs;
      std::vector<std::string> names;
      for (NodeId id : g.inputs()) {
        if (is_float(g.node(id).types[0].dtype))
          inputs.push_back(g.value({id, 0})), names.push_back(g.node(id).name.str());
      }
      const Values grads = gradients(std::array{loss}, inputs);
      EXPECT_EQ(count_here(g, "lstm_recurrence_grad"), 1);
      EXPECT_EQ(count_here(g, "scan"), 0);
      g.fetch("loss", loss);
      for (std::size_t i = 0; i < grads.size(); ++i) g.fetch("d_" + names[i], grads[i]);
      const Feeds feeds = feeds_of(g, c, 3);
      Program program(g);
      const Tensors got = program.run(to_tensors(g, feeds));
      for (const std::string& name : names) {
        const Dense gradient = got.at("d_" + name).to_doubles();
        for (std::size_t element = 0; element < std::min<std::size_t>(gradient.size(), 12); ++element) {
          const auto moved = [&](double by) {
            Feeds other = feeds;
            other[name][element] += by;
            return program.run(to_tensors(g, other)).at("loss").to_doubles()[0];
          };
          const double difference = (moved(1e-5) - moved(-1e-5)) / 2e-5;
          EXPECT_NEAR(gradient[element], difference, 1e-7 * (1 + largest(gradient))) << name << " " << element;
        }
      }
    }
  }
}

TEST(LstmRecurrence, AsksForGradientsOfWhatIsReadOnly) {
  Graph g;
  const LstmRecurrence made = build(g, {.lengths = {1, 2, 3}});
  gradients(sum(made.last_c), {g.find("xw")});
  const Node& grad = only(g, "lstm_recurrence_grad");
  EXPECT_EQ(grad.inputs.size(), 5u);  // u, gates, cells, dlast_c, lengths
  EXPECT_FALSE(grad.attrs.get_bool("states"));
  EXPECT_FALSE(grad.attrs.get_bool("last_h"));
  EXPECT_TRUE(grad.attrs.get_bool("last_c"));
}

TEST(LstmRecurrence, HasSecondGradients) {
  for (const LstmCase& c : {kCases[0], kCases[3]}) {
    Graph g;
    const LstmRecurrence made = build(g, c);
    const Values inputs = {g.find("xw"), g.find("u"), g.find("h0"), g.find("c0")};
    const Values first = gradients(std::array{sum(made.states * made.states) + sum(made.last_c)}, inputs);
    Value loss = sum(first[0] * first[0]);
    for (std::size_t i = 1; i < first.size(); ++i) loss = loss + sum(first[i] * first[i]);
    const Values second = gradients(std::array{loss}, inputs);
    g.fetch("loss", loss);
    for (std::size_t i = 0; i < second.size(); ++i) g.fetch("d" + std::to_string(i), second[i]);
    const Feeds feeds = feeds_of(g, c, 5);
    Program program(g);
    const Tensors got = program.run(to_tensors(g, feeds));
    const char* names[] = {"xw", "u", "h0", "c0"};
    for (std::size_t i = 0; i < 4; ++i) {
      const Dense gradient = got.at("d" + std::to_string(i)).to_doubles();
      for (std::size_t element = 0; element < 6; ++element) {
        const auto moved = [&](double by) {
          Feeds other = feeds;
          other[names[i]][element] += by;
          return program.run(to_tensors(g, other)).at("loss").to_doubles()[0];
        };
        EXPECT_NEAR(gradient[element], (moved(1e-5) - moved(-1e-5)) / 2e-5, 1e-6 * (1 + largest(gradient)))
            << names[i] << " " << element;
      }
    }
  }
}

}  // namespace
}  // namespace paoding::testing_program
