// SPDX-License-Identifier: Apache-2.0
// Sequences that come and go, a step or a chunk at a time, against each of them run by itself from its beginning.
#include "paoding/streaming.h"

#include <gtest/gtest.h>

#include <random>

#include "paoding/nn.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

constexpr std::int64_t kInputs = 3, kHidden = 5, kCapacity = 4;

StepResult streamed_step(Graph& g, const Value& xs, const Value& lengths, const Values& states) {
  const nn::Lstm lstm(g, "lstm", kInputs, kHidden, {.dtype = f64});
  const nn::Gru gru(g, "gru", kHidden, kHidden, {.dtype = f64});
  const auto first = lstm(xs, {.lengths = lengths, .initial_h = {states[0]}, .initial_c = {states[1]}});
  const auto second = gru(first.outputs, {.lengths = lengths, .initial_h = {states[2]}});
  return step({first.last_h[0], first.last_c[0], second.last_h[0]}, {second.outputs});
}

StreamingOptions options_for(Device device) {
  const Type state{f64, {kHidden}};
  StreamingOptions options{.capacity = kCapacity, .input = {f64, {kInputs}}, .states = {state, state, state}};
  options.compile.device = device;
  options.parameters.seed = 3;
  return options;
}

// The result of a sequence that has all its steps at once.
Dense alone(const Dense& xs, const Parameters& weights) {
  const std::int64_t steps = static_cast<std::int64_t>(xs.size()) / kInputs;
  Graph g;
  const Value input = g.input("xs", f64, {steps, 1, kInputs}), zero = full(g, Shape{1, kHidden}, 0, f64);
  const Value lengths = full(g, Shape{1}, steps, i32);
  g.fetch("y", streamed_step(g, input, lengths, {zero, zero, zero}).outputs[0]);
  Parameters parameters(g, Device::cpu());
  for (const std::string& name : parameters.names()) parameters.set(name, weights.get(name));
  return Program(g, {}, &parameters).run({{"xs", Tensor::from(f64, {steps, 1, kInputs}, xs)}}).at("y").to_doubles();
}

void check(Device device) {
  Streaming streaming(options_for(device), streamed_step);
  std::mt19937 random(5);
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  std::array<Dense, kCapacity> given, got;  // of the sequence that has the number
  std::array<bool, kCapacity> is_there{};
  for (int call = 0; call < 30; ++call) {
    if (random() % 2 == 0 && streaming.sequences() < kCapacity) {
      const auto sequence = at(streaming.join());
      ASSERT_FALSE(is_there[sequence]);
      is_there[sequence] = true, given[sequence].clear(), got[sequence].clear();
    }
    const std::int64_t steps = random() % 2 == 0 ? 1 : 3;
    std::array<std::int32_t, kCapacity> lengths{};
    Dense xs(at(steps * kCapacity * kInputs));
    for (double& x : xs) x = static_cast<double>(random() % 256) / 128 - 1;
    for (std::size_t s = 0; s < kCapacity; ++s) {
      if (is_there[s]) lengths[s] = static_cast<std::int32_t>(random() % at(steps + 1));
    }
    streaming.run(Tensor::from(f64, {steps, kCapacity, kInputs}, xs), lengths);
    const Dense made = streaming.output(0).to_doubles();
    for (std::int64_t t = 0; t < steps; ++t) {
      for (std::int64_t s = 0; s < kCapacity; ++s) {
        if (t >= lengths[at(s)]) continue;
        const auto entry = static_cast<std::ptrdiff_t>(t * kCapacity + s);
        given[at(s)].insert(given[at(s)].end(), xs.begin() + entry * kInputs, xs.begin() + (entry + 1) * kInputs);
        got[at(s)].insert(got[at(s)].end(), made.begin() + entry * kHidden, made.begin() + (entry + 1) * kHidden);
      }
    }
    for (std::size_t s = 0; s < kCapacity; ++s) {
      if (!is_there[s] || random() % 4 != 0) continue;
      if (!given[s].empty()) expect_close("sequence", got[s], alone(given[s], streaming.parameters()), 1e-11);
      streaming.leave(static_cast<int>(s));
      is_there[s] = false;
    }
  }
}

TEST(StreamingSequences, EachGivesWhatItGivesAlone) { check(Device::cpu()); }

TEST(StreamingSequences, EachGivesWhatItGivesAloneOnAGpu) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  check(Device::best());
}

TEST(StreamingSequences, SayWhatIsWrong) {
  Streaming streaming(options_for(Device::cpu()), streamed_step);
  const auto message_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const Tensor xs(f64, {2, kCapacity, kInputs});
  std::array<std::int32_t, kCapacity> lengths{};
  EXPECT_EQ(message_of([&] { streaming.output(0); }), "Streaming: nothing has run yet");
  EXPECT_EQ(message_of([&] { streaming.leave(0); }), "Streaming: there is no sequence 0");
  lengths[1] = 1;
  EXPECT_EQ(message_of([&] { streaming.run(xs, lengths); }), "Streaming: there is no sequence 1");
  for (int s = 0; s < kCapacity; ++s) EXPECT_EQ(streaming.join(), s);
  EXPECT_EQ(message_of([&] { streaming.join(); }), "Streaming: 4 sequences are there, as many as there may be");
  lengths[1] = 3;
  EXPECT_EQ(message_of([&] { streaming.run(xs, lengths); }), "Streaming: sequence 1 has 3 steps, needed are 0 to 2");
  EXPECT_EQ(message_of([&] {
              streaming.run(Tensor(f64, {2, 3, kInputs}), lengths);
            }),
            "Streaming: xs has shape [2, 3, 3], needed is [T, 4] with [3] after it, T > 0");
  StreamingOptions wrong = options_for(Device::cpu());
  wrong.states[1].shape = {kHidden + 1};
  EXPECT_NE(message_of([&] { Streaming(wrong, streamed_step); }), "");
  streaming.leave(2);
  EXPECT_EQ(streaming.join(), 2);
}

}  // namespace
}  // namespace paoding::testing_program
