// SPDX-License-Identifier: Apache-2.0
// A user's scan around a recurrent cell: which forms are ops for all steps, that they compute the same, and so do their
// gradients of both orders; which forms are not taken, with the reason.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "paoding/autodiff.h"
#include "paoding/nn.h"
#include "tests/support/pass_check.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

constexpr std::int64_t kSteps = 4, kLayerRows = 3, kInputs = 5, kHidden = 2;

// The weights of a layer, outside its scan.
struct Weights {
  Value w, u, b, second_b;

  Value part(const Value& of, int k) const { return slice(of, of.shape().rank() - 1, k * kHidden, (k + 1) * kHidden); }
};

Values parts_of(const Value& sums, int gates) {
  Values parts;
  for (int k = 0; k < gates; ++k) parts.push_back(slice(sums, 1, k * kHidden, (k + 1) * kHidden));
  return parts;
}

// h' and c' of gates' sums.
Values lstm_of(const Value& i, const Value& f, const Value& g, const Value& o, const Value& c) {
  const Value next = sigmoid(f) * c + sigmoid(i) * tanh(g);
  return {sigmoid(o) * tanh(next), next};
}

struct Form {
  const char* name;
  const char* op;  // empty: it is not taken
  const char* note;
  std::function<Values(const Values& state, const Value& x, const Weights& p)> cell;
};

int gates_of(const Form& form) {
  const std::string name = form.name;
  return name.starts_with("lstm") ? 4 : name.starts_with("gru") ? 3 : 1;
}

struct Way {
  bool is_reverse = false, is_hidden = false, stacks_before = false;
  DType dtype = f64;
  int gradients = 0;
};

// The layer with everything fetched. `is_hidden`: it also stacks a value that is no state, so that it is not taken.
void build(Graph& g, const Form& form, const Way& way) {
  const int gates = gates_of(form);
  const Value x = g.input("x", way.dtype, {kSteps, kLayerRows, kInputs});
  const Weights p{
      g.input("w", way.dtype, {kInputs, gates * kHidden}), g.input("u", way.dtype, {kHidden, gates * kHidden}),
      g.input("b", way.dtype, {(gates == 3 ? 4 : gates) * kHidden}), g.input("second_b", way.dtype, {gates * kHidden})};
  Values state = {g.input("h0", way.dtype, {kLayerRows, kHidden})};
  if (gates == 4) state.push_back(g.input("c0", way.dtype, {kLayerRows, kHidden}));
  const StepResult made = scan(
      state, {x},
      [&](const Values& before, const Values& element) {
        const Values after = form.cell(before, element[0], p);
        Values stacked = {after[0], after.back()};
        if (way.stacks_before) stacked.push_back(before[0]);
        if (way.is_hidden) stacked.push_back(after[0] * 3.0);
        return step(after, stacked);
      },
      way.is_reverse);
  g.fetch("states", made.outputs[0]);
  g.fetch("others", made.outputs[1]);
  if (way.stacks_before) g.fetch("before", made.outputs[2]);
  Value loss = sum(made.outputs[0] * made.outputs[0]);
  for (std::size_t i = 0; i < state.size(); ++i) {
    g.fetch(fmt::format("last{}", i), made.carries[i]);
    loss = loss + sum(made.carries[i]);
  }
  Values read = {x, p.w, p.u, p.b, state[0], state.back()};
  if (way.gradients == 0) return;
  const Values first = gradients(std::array{loss}, read);
  for (std::size_t i = 0; i < first.size(); ++i) g.fetch(fmt::format("d{}", i), first[i]);
  if (way.gradients == 1) return;
  Value norm = sum(first[0] * first[0]);
  for (std::size_t i = 1; i < first.size(); ++i) norm = norm + sum(first[i] * first[i]);
  const Values second = gradients(std::array{norm}, read);
  for (std::size_t i = 0; i < second.size(); ++i) g.fetch(fmt::format("dd{}", i), second[i]);
}

const Form kTaken[] = {
    {"lstm_cell", "lstm_recurrence", "",
     [](const Values& s, const Value& x, const Weights& p) {
       const auto [h, c] = lstm_cell(x, s[0], s[1], p.w, p.u, p.b);
       return Values{h, c};
     }},
    {"lstm of a concatenation", "lstm_recurrence", "",
     [](const Values& s, const Value& x, const Weights& p) {
       const Value sums = matmul(concat(std::array{x, s[0]}, 1), concat(std::array{p.w, p.u}, 0)) + p.b;
       const Values parts = parts_of(sums, 4);
       return lstm_of(parts[0], parts[1], parts[2], parts[3], s[1]);
     }},
    {"lstm whose gates lie in another order, with two biases", "lstm_recurrence", "",
     [](const Values& s, const Value& x, const Weights& p) {
       const Values parts = split(p.second_b + (matmul(s[0], p.u) + (p.b + matmul(x, p.w))), 4, 1);
       return lstm_of(parts[0], parts[1], parts[3], parts[2], s[1]);
     }},
    {"lstm whose gates have weights of their own", "lstm_recurrence", "",
     [](const Values& s, const Value& x, const Weights& p) {
       Values sums;
       for (int k = 0; k < 4; ++k) {
         sums.push_back(matmul(s[0], p.part(p.u, k)) + matmul(x, p.part(p.w, k)) + p.part(p.b, 3 - k));
       }
       return lstm_of(sums[0], sums[1], sums[2], sums[3], s[1]);
     }},
    {"lstm with transposed weights, a forget bias, and an activated input", "lstm_recurrence", "",
     [](const Values& s, const Value& x, const Weights& p) {
       const Value w = transpose(p.w, Ints{1, 0}), u = transpose(p.u, Ints{1, 0});
       const Values parts = parts_of(matmul(tanh(x), w, false, true) + matmul(s[0], u, false, true) + p.b, 4);
       return lstm_of(parts[0], parts[1] + 1.0, parts[2], parts[3], s[1]);
     }},
    {"gru_cell", "gru_recurrence", "",
     [](const Values& s, const Value& x, const Weights& p) { return Values{gru_cell(x, s[0], p.w, p.u, p.b, true)}; }},
    {"gru as a blend", "gru_recurrence", "",
     [](const Values& s, const Value& x, const Weights& p) {
       const Values of_x = parts_of(matmul(x, p.w) + p.second_b, 3), of_h = parts_of(matmul(s[0], p.u), 3);
       const Value r = sigmoid(of_x[0] + of_h[0]), z = sigmoid(of_x[1] + of_h[1]);
       const Value n = tanh(r * of_h[2] + of_x[2]);
       return Values{(1.0 - z) * n + z * s[0]};
     }},
    {"gru whose gate says what is new, in weights of their own", "gru_recurrence", "",
     [](const Values& s, const Value& x, const Weights& p) {
       const auto sum_of = [&](int k) {
         return matmul(x, p.part(p.w, k)) + matmul(s[0], p.part(p.u, k)) + p.part(p.b, k);
       };
       const Value r = sigmoid(sum_of(0)), z = sigmoid(sum_of(1));
       const Value inner = matmul(s[0], p.part(p.u, 2)) + p.part(p.b, 3);
       const Value n = tanh(matmul(x, p.part(p.w, 2)) + p.part(p.b, 2) + r * inner);
       return Values{(1.0 - z) * s[0] + z * n};
     }},
    {"gru as a step towards what is new", "gru_recurrence", "",
     [](const Values& s, const Value& x, const Weights& p) {
       const Values of_x = parts_of(matmul(x, p.w), 3), of_h = parts_of(matmul(s[0], p.u) + p.second_b, 3);
       const Value r = sigmoid(of_x[0] + of_h[0]), z = sigmoid(of_x[1] + of_h[1]);
       const Value n = tanh(of_x[2] + r * of_h[2]);
       return Values{s[0] + (1.0 - z) * (n - s[0])};
     }},
    {"gru by lerp", "gru_recurrence", "",
     [](const Values& s, const Value& x, const Weights& p) {
       const Values of_x = parts_of(matmul(x, p.w), 3), of_h = parts_of(matmul(s[0], p.u), 3);
       const Value r = sigmoid(of_x[0] + of_h[0]), z = sigmoid(of_x[1] + of_h[1]);
       return Values{lerp(tanh(of_x[2] + r * of_h[2]), s[0], z)};
     }},
    {"rnn_cell", "rnn_recurrence", "",
     [](const Values& s, const Value& x, const Weights& p) { return Values{rnn_cell(x, s[0], p.w, p.u, p.b, false)}; }},
    {"rnn_cell with relu", "rnn_recurrence", "",
     [](const Values& s, const Value& x, const Weights& p) { return Values{rnn_cell(x, s[0], p.w, p.u, p.b, true)}; }},
    {"rnn without a product of the input", "rnn_recurrence", "",
     [](const Values& s, const Value& x, const Weights& p) {
       return Values{relu(slice(x, 1, 1, 1 + kHidden) + matmul(s[0], p.u) + sum(x, Ints{1}, true) + 0.25)};
     }},
};

const Form kNotTaken[] = {
    {"lstm with another activation", "", "lstm_recurrence: its cell state is not f c + i g",
     [](const Values& s, const Value& x, const Weights& p) {
       const Values parts = parts_of(matmul(x, p.w) + matmul(s[0], p.u), 4);
       const Value c = sigmoid(parts[1]) * s[1] + sigmoid(parts[0]) * relu(parts[2]);
       return Values{sigmoid(parts[3]) * tanh(c), c};
     }},
    {"lstm with one gate for what is kept and what is added", "", "lstm_recurrence: its cell state is not f c + i g",
     [](const Values& s, const Value& x, const Weights& p) {
       const Values parts = parts_of(matmul(x, p.w) + matmul(s[0], p.u), 4);
       const Value f = sigmoid(parts[1]), c = f * s[1] + (1.0 - f) * tanh(parts[2]);
       return Values{sigmoid(parts[3]) * tanh(c), c};
     }},
    {"lstm that looks at its cell state", "", "lstm_recurrence: a gate depends on the state through mul",
     [](const Values& s, const Value& x, const Weights& p) {
       const Values parts = parts_of(matmul(x, p.w) + matmul(s[0], p.u), 4);
       return lstm_of(parts[0] + s[1] * p.part(p.b, 0), parts[1], parts[2], parts[3], s[1]);
     }},
    {"lstm whose weights change", "", "lstm_recurrence: what the state is multiplied with changes from step to step",
     [](const Values& s, const Value& x, const Weights& p) {
       const Values parts = parts_of(matmul(x, p.w) + matmul(s[0], p.u * sum(x)), 4);
       return lstm_of(parts[0], parts[1], parts[2], parts[3], s[1]);
     }},
    {"lstm whose gates read different things", "", "lstm_recurrence: its gates differ in what they multiply",
     [](const Values& s, const Value& x, const Weights& p) {
       const Values parts = parts_of(matmul(s[0], p.u), 4);
       return lstm_of(parts[0] + matmul(x, p.part(p.w, 0)), parts[1], parts[2], parts[3], s[1]);
     }},
    {"lstm of a state that is multiplied twice", "", "lstm_recurrence: the state is multiplied twice",
     [](const Values& s, const Value& x, const Weights& p) {
       const Values parts = parts_of(matmul(x, p.w) + matmul(s[0], p.u) + matmul(s[0], p.u * 2.0), 4);
       return lstm_of(parts[0], parts[1], parts[2], parts[3], s[1]);
     }},
    {"gru with r in front of the product", "", "gru_recurrence: its reset gate scales the state, not a product of it",
     [](const Values& s, const Value& x, const Weights& p) {
       return Values{gru_cell(x, s[0], p.w, p.u, slice(p.b, 0, 0, 3 * kHidden), false)};
     }},
    {"gru whose reset gate scales something of the step", "",
     "gru_recurrence: what the reset gate scales depends on the step",
     [](const Values& s, const Value& x, const Weights& p) {
       const Values parts = parts_of(matmul(x, p.w) + matmul(s[0], p.u), 3);
       return Values{lerp(tanh(sigmoid(parts[0]) * parts[2]), s[0], sigmoid(parts[1]))};
     }},
    {"rnn with another activation", "", "",
     [](const Values& s, const Value& x, const Weights& p) {
       return Values{sigmoid(matmul(x, p.w) + matmul(s[0], p.u))};
     }},
};

std::vector<std::string> notes_of(Graph& g) {
  PassNotes notes;
  recognize_recurrences(g, notes);
  verify(g, "recognize_recurrences");
  return notes.list();
}

TEST(RecognizeRecurrences, TakesACellAsPeopleWriteIt) {
  for (const Form& form : kTaken) {
    SCOPED_TRACE(form.name);
    for (const bool is_reverse : {false, true}) {
      Graph g;
      build(g, form, {.is_reverse = is_reverse, .stacks_before = true});
      run_and_compare(g, {recognize_recurrences});
      EXPECT_EQ(count_here(g, form.op), 1);
      EXPECT_EQ(count_here(g, "scan"), 0);
      EXPECT_EQ(only(g, form.op).attrs.get_bool("reverse"), is_reverse);
    }
  }
}

TEST(RecognizeRecurrences, ReadsWeightsWhereTheyLieSo) {
  for (const char* name : {"lstm_cell", "gru_cell", "rnn_cell"}) {
    const auto form =
        std::find_if(std::begin(kTaken), std::end(kTaken), [&](const Form& f) { return f.name == std::string(name); });
    Graph g;
    build(g, *form, {});
    run_and_compare(g, {recognize_recurrences, simplify_views});
    EXPECT_EQ(count_here(g, "concat"), 0) << name;
    EXPECT_EQ(count_here(g, "matmul"), 1) << name;
    EXPECT_EQ(only(g, form->op).inputs[1], g.find("u").ref()) << name;
  }
}

// A layer that is hidden from the pass has the gradients of a scan.
TEST(RecognizeRecurrences, HasTheGradientsOfTheScanOfBothOrders) {
  for (const Form& form : kTaken) {
    SCOPED_TRACE(form.name);
    for (const bool is_reverse : {false, true}) {
      Graph taken, hidden;
      build(taken, form, {.is_reverse = is_reverse, .gradients = 2});
      build(hidden, form, {.is_reverse = is_reverse, .is_hidden = true, .gradients = 2});
      EXPECT_GE(count_here(taken, std::string(form.op) + "_grad"), 1);
      EXPECT_EQ(count_here(hidden, std::string(form.op) + "_grad"), 0);
      const Feeds feeds = make_feeds(taken, 11);
      const Tensors wanted = Program(hidden).run(to_tensors(hidden, feeds));
      for (const auto& [name, tensor] : Program(taken).run(to_tensors(taken, feeds))) {
        const Dense values = wanted.at(name).to_doubles();
        expect_close(name, tensor.to_doubles(), values, 1e-11 * (1 + largest(values)));
      }
    }
  }
}

TEST(RecognizeRecurrences, ComputesTheForwardPassOnceForItsGradient) {
  for (const char* name :
       {"lstm_cell", "gru_cell", "rnn_cell", "lstm with transposed weights, a forget bias, and an activated input"}) {
    const auto form =
        std::find_if(std::begin(kTaken), std::end(kTaken), [&](const Form& f) { return f.name == std::string(name); });
    Graph g;
    build(g, *form, {.gradients = 1});
    run_and_compare(g, {recognize_recurrences});
    EXPECT_EQ(count_here(g, form->op), 1) << name;
    EXPECT_EQ(count_here(g, "scan"), 0) << name;
  }
}

TEST(RecognizeRecurrences, LeavesOtherStepsAloneAndSaysWhy) {
  for (const Form& form : kNotTaken) {
    SCOPED_TRACE(form.name);
    Graph g;
    build(g, form, {});
    const std::vector<std::string> notes = notes_of(g);
    EXPECT_EQ(count_here(g, "scan"), 1);
    ASSERT_EQ(notes.size(), std::string(form.note).empty() ? 0u : 1u);
    if (!notes.empty()) {
      EXPECT_TRUE(notes[0].starts_with(fmt::format("the scan of 4 steps is no {}", form.note))) << notes[0];
    }
  }
  Graph g;
  build(g, kTaken[0], {.is_hidden = true});
  const std::vector<std::string> notes = notes_of(g);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0], "the scan of 4 steps is no lstm_recurrence: it stacks mul, which is not its state");
}

TEST(RecognizeRecurrences, SeesScansInBodiesAndStatesInEitherOrder) {
  Graph g;
  const Value xs = g.input("x", f64, {2, kSteps, kLayerRows, kInputs}),
              start = g.input("h0", f64, {kLayerRows, kHidden});
  const Value w = g.input("w", f64, {kInputs, 4 * kHidden}), u = g.input("u", f64, {kHidden, 4 * kHidden}),
              b = g.input("b", f64, {4 * kHidden});
  const StepResult made = scan({start}, {xs}, [&](const Values& outer, const Values& sequence) {
    const StepResult inner = scan({outer[0], outer[0]}, {sequence[0]}, [&](const Values& before, const Values& x) {
      const auto [h, c] = lstm_cell(x[0], before[1], before[0], w, u, b);
      return step({c, h}, {h, before[0]});
    });
    return step({inner.carries[0] - inner.carries[1]}, {inner.outputs[0], inner.outputs[1]});
  });
  for (std::size_t i = 0; i < 2; ++i) g.fetch(fmt::format("y{}", i), made.outputs[i]);
  g.fetch("last", made.carries[0]);
  run_and_compare(g, {recognize_recurrences});
  EXPECT_EQ(count_here(*only(g, "scan").bodies[0], "lstm_recurrence"), 1);
}

TEST(RecognizeRecurrences, LetsAKernelClaimAUsersScan) {
  Graph g;
  const Value xs = g.input("x", f32, {6, 8, 64}), zero = full(g, Shape{8, 128}, 0);
  const Value w = g.input("w", f32, {64, 512}), u = g.input("u", f32, {128, 512}), b = g.input("b", f32, {512});
  const StepResult made = scan({zero, zero}, {xs}, [&](const Values& state, const Values& x) {
    const auto [h, c] = lstm_cell(x[0], state[0], state[1], w, u, b);
    return step({h, c}, {h});
  });
  g.fetch("du", gradients(sum(made.outputs[0]), {u})[0]);
  const Program program(g, {.device = Device::cpu()});
  EXPECT_TRUE(has(program.plan_text(), "lstm_recurrence_grad s")) << program.plan_text();
}

TEST(RecognizeRecurrences, SeesAScanThatIsReadFromTextForItsGradientToo) {
  const auto g = parse_graph(R"(paoding graph 1
x = input f32[6,8,64]
zero = input f32[8,128]
w = input f32[64,512]
u = input f32[128,512]
b = input f32[512]
h, c, ys = scan(zero, zero, x, w, u, b) {carries=2, sequences=1, length=6} [
  h = input f32[8,128]
  c = input f32[8,128]
  x = input f32[8,64]
  w = input f32[64,512]
  u = input f32[128,512]
  b = input f32[512]
  next_h, next_c = lstm_cell(x, h, c, w, u, b) @"cell"
  fetch h = next_h
  fetch c = next_c
  fetch y = next_h
]
loss = sum(ys)
du = gradients(loss) by (u)
fetch du
)");
  const Program program(*g, {.device = Device::cpu()});
  EXPECT_TRUE(has(program.plan_text(), "lstm_recurrence_grad s")) << program.plan_text();
}

}  // namespace
}  // namespace paoding::testing_program
