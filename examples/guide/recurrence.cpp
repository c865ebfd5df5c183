// SPDX-License-Identifier: Apache-2.0
// The programs of docs/guide/recurrence.md: a loop over a sequence, a cell of one's own that learns to count, layers
// over sequences of several lengths, a loop by count that writes, and states that are kept between calls.
#include <paoding/paoding.h>

#include <iostream>
#include <random>

namespace pd = paoding;

namespace {

void a_smoother() {
  pd::Graph g;
  const pd::Value xs = g.input("xs", pd::f32, {5});
  const pd::Value start = pd::zeros(g, {});
  const pd::StepResult smooth = pd::scan({start}, {xs}, [](const pd::Values& carries, const pd::Values& elements) {
    const pd::Value mean = 0.5 * carries[0] + 0.5 * elements[0];
    return pd::step({mean}, {mean});
  });
  const pd::Value last = smooth.carries[0];
  g.fetch("means", smooth.outputs[0]);
  g.fetch("dlast", pd::gradients(last, {xs})[0]);

  pd::Program program(g);
  const auto results = program.run({{"xs", pd::Tensor::from({8.0f, 0.0f, 4.0f, 0.0f, 0.0f})}});
  for (const float mean : results.at("means").values<float>()) std::cout << mean << " ";
  std::cout << "\n";
  for (const float slope : results.at("dlast").values<float>()) std::cout << slope << " ";
  std::cout << "\n";
}

// The minimal gated unit of Zhou et al. 2016.
struct GatedUnit {
  pd::nn::Linear forget, candidate;

  GatedUnit(pd::Graph& g, std::int64_t inputs, std::int64_t hidden)
      : forget(g, "forget", inputs + hidden, hidden), candidate(g, "candidate", inputs + hidden, hidden) {}

  pd::Value operator()(const pd::Value& x, const pd::Value& h) const {
    const pd::Value f = pd::sigmoid(forget(pd::concat({x, h}, 1)));
    const pd::Value n = pd::tanh(candidate(pd::concat({x, f * h}, 1)));
    return pd::lerp(h, n, f);
  }
};

// Bits [steps, batch, 1], and of each how many there were up to it, modulo 3.
struct Bits {
  pd::Tensor bits, counts;
};

Bits random_bits(std::int64_t steps, std::int64_t batch, std::mt19937_64& random) {
  Bits made{pd::Tensor(pd::f32, {steps, batch, 1}), pd::Tensor(pd::i32, {steps, batch})};
  const auto bits = made.bits.values<float>();
  const auto counts = made.counts.values<int>();
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const bool bit = random() % 2 == 1;
    const std::size_t above = static_cast<std::size_t>(batch);
    bits[i] = bit ? 1.0f : 0.0f;
    counts[i] = ((i < above ? 0 : counts[i - above]) + (bit ? 1 : 0)) % 3;
  }
  return made;
}

void a_cell_that_counts() {
  constexpr int kSteps = 16, kBatch = 64, kHidden = 32;
  pd::Graph g;
  const pd::Value bits = g.input("bits", pd::f32, {kSteps, kBatch, 1});
  const pd::Value counts = g.input("counts", pd::i32, {kSteps, kBatch});
  const GatedUnit unit(g, 1, kHidden);
  const pd::nn::Linear out(g, "out", kHidden, 3);
  const pd::Value h0 = pd::zeros(g, {kBatch, kHidden});
  const pd::StepResult steps = pd::scan({h0}, {bits}, [&](const pd::Values& carries, const pd::Values& elements) {
    const pd::Value h = unit(elements[0], carries[0]);
    return pd::step({h}, {h});
  });
  const pd::Value loss = pd::cross_entropy(out(steps.outputs[0]), counts);
  pd::minimize(loss, pd::Adam{.learning_rate = 0.01}, {.clip_norm = 1});
  g.fetch("loss", loss);

  pd::Parameters parameters(g, pd::Device::cpu(), {.seed = 2});
  pd::Program program(g, {}, &parameters);
  std::cout << program.report().launches << " launches for " << kSteps << " steps, their gradients and Adam\n";
  std::mt19937_64 random(1);
  for (int i = 1; i <= 600; ++i) {
    const Bits made = random_bits(kSteps, kBatch, random);
    const auto results = program.run({{"bits", made.bits}, {"counts", made.counts}});
    if (i % 200 == 0) std::cout << "step " << i << ": loss " << results.at("loss").item<float>() << "\n";
  }
}

void layers_and_lengths() {
  constexpr int kSteps = 6, kBatch = 3, kInputs = 4, kHidden = 8;
  pd::Graph g;
  const pd::Value xs = g.input("xs", pd::f32, {kSteps, kBatch, kInputs});
  const pd::Value lengths = g.input("lengths", pd::i32, {kBatch});
  const pd::nn::Lstm lstm(g, "lstm", kInputs, kHidden, {.layers = 2, .bidirectional = true});
  const pd::RecurrentResult made = lstm(xs, {.lengths = lengths});
  std::cout << "outputs " << to_string(made.outputs.type()) << ", " << made.last_h.size() << " last states of "
            << to_string(made.last_h[0].type()) << "\n";
  g.fetch("sums", pd::sum(pd::abs(made.outputs), {2}));

  pd::Parameters parameters(g);
  for (const pd::ParameterInfo& p : parameters.list()) {
    if (p.name.starts_with("lstm/l0/")) std::cout << p.name << " " << to_string(p.type) << "\n";
  }
  pd::Program program(g, {}, &parameters);
  const pd::Tensor ones = pd::Tensor::from({kSteps, kBatch, kInputs}, std::vector<float>(kSteps * kBatch * kInputs, 1));
  const pd::Tensor sums = program.run({{"xs", ones}, {"lengths", pd::Tensor::from({6, 2, 4})}}).at("sums");
  for (int row = 0; row < kBatch; ++row) {
    std::cout << "row " << row << ":";
    for (int t = 0; t < kSteps; ++t) std::cout << (sums.values<float>()[t * kBatch + row] > 0 ? " x" : " .");
    std::cout << "\n";
  }
}

void a_loop_that_writes() {
  constexpr int kLength = 12, kLetters = 5;
  pd::Graph g;
  const pd::nn::Embedding letters(g, "letters", kLetters, 16);
  const pd::nn::Linear out(g, "out", 16, kLetters);
  const pd::Value first = pd::zeros(g, {1}, pd::i64);
  const pd::StepResult written = pd::scan({first}, kLength, [&](const pd::Values& carries) {
    const pd::Value next = pd::categorical(out(letters(carries[0])), {.temperature = 0.5, .top_k = 3});
    return pd::step({next}, {next});
  });
  g.fetch("text", written.outputs[0]);

  pd::Parameters parameters(g, pd::Device::cpu(), {.seed = 5});
  pd::Program program(g, {}, &parameters);
  for (int i = 0; i < 2; ++i) {
    const pd::Tensor text = program.run({}).at("text");
    for (const std::int64_t letter : text.values<std::int64_t>()) std::cout << "abcde"[letter];
    std::cout << "\n";
  }
}

void states_that_are_kept() {
  constexpr int kInputs = 4, kHidden = 8;
  const auto build = [](pd::Graph& g, const pd::Value& xs, const pd::Value& lengths, const pd::Values& states) {
    const pd::nn::Gru gru(g, "gru", kInputs, kHidden);
    const pd::RecurrentResult made = gru(xs, {.lengths = lengths, .initial_h = {states[0]}});
    return pd::step({made.last_h[0]}, {made.outputs});
  };
  pd::Streaming streaming({.capacity = 2, .input = {pd::f32, {kInputs}}, .states = {{pd::f32, {kHidden}}}}, build);
  const int one = streaming.join(), other = streaming.join();
  const pd::Tensor chunk = pd::Tensor::from({3, 2, kInputs}, std::vector<float>(3 * 2 * kInputs, 1));
  streaming.run(chunk, std::array{3, 1});  // three steps of one sequence, one of the other
  streaming.run(chunk, std::array{0, 2});  // and two more of that
  streaming.leave(one);
  std::cout << "sequence " << other << " goes on, output " << to_string(streaming.output(0).type()) << "\n";
}

}  // namespace

int main() {
  a_smoother();
  a_cell_that_counts();
  layers_and_lengths();
  a_loop_that_writes();
  states_that_are_kept();
}
