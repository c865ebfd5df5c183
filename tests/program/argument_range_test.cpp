// SPDX-License-Identifier: Apache-2.0
// Numbers out of range are refused where they are given: of ops, layers, optimizers and initial values. NaN and
// infinities too.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "paoding/op.h"
#include "paoding/paoding.h"

namespace paoding {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

std::string range_message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return std::string(to_string(error.kind())) + ": " + error.what();
  }
  return "no error";
}

void expect_refused(const std::function<void()>& f, const std::string& text) {
  const std::string message = range_message_of(f);
  EXPECT_NE(message.find(text), message.npos) << message;
}

TEST(ArgumentRanges, SayWhatTheyAre) {
  EXPECT_EQ(to_string(Range{}), "finite");
  EXPECT_EQ(to_string(Range::at_least(1)), "at least 1");
  EXPECT_EQ(to_string(Range::above(0)), "above 0");
  EXPECT_EQ(to_string(Range::from_up_to(0, 1)), "at least 0 and below 1");
  EXPECT_EQ(to_string(Range::between(-1, 1)), "at least -1 and at most 1");
  expect_refused([] { check_range("adam", "epsilon", kInf, Range::at_least(0)); },
                 "argument: adam: epsilon = inf, needs to be finite and at least 0");
}

// ---- ops ----

TEST(ArgumentRanges, AreKeptByOps) {
  Graph g;
  const Value x = g.input("x", f32, {2, 3, 4});
  for (const double bad : {-0.1, 1.0, 1.5, kNan}) {
    expect_refused([&] { dropout(x, bad); }, "probability");
    expect_refused([&] { dropout(x, bad, false); }, "probability");
    expect_refused([&] { nn::Dropout(bad, false); }, "probability");
  }
  expect_refused([&] { random_bernoulli(g, {2}, 1.1); }, "probability = 1.1");
  expect_refused([&] { random_normal(g, {2}, 0, -1); }, "deviation = -1");
  expect_refused([&] { random_uniform(g, {2}, 2, 1); }, "low is 2 and high is 1");
  expect_refused([&] { random_uniform(g, {2}, 0, kInf); }, "high = inf");
  expect_refused([&] { layer_norm(x, {}, {}, {}, -1e-5); }, "epsilon = -1e-05");
  expect_refused([&] { rms_norm(x, {}, kNan); }, "epsilon = nan");
  expect_refused([&] { batch_norm(x, {}, {}, {}, {}, {.momentum = 1.5}); }, "momentum = 1.5");
  expect_refused([&] { batch_norm(x, {}, {}, {}, {}, {.training = false, .epsilon = -1}); }, "epsilon = -1");
  expect_refused([&] { hardtanh(x, 1, -1); }, "min is 1 and max is -1");
  expect_refused([&] { clamp(x, kNan, 1); }, "min <= max");
  expect_refused([&] { scaled_dot_product_attention(x, x, x, {.scale = kNan}); }, "scale = nan");
  expect_refused([&] { scaled_dot_product_attention(x, x, x, {.dropout = 1}); }, "probability = 1");
}

// ---- layers ----

TEST(ArgumentRanges, AreKeptByLayers) {
  Graph g;
  expect_refused([&] { nn::Linear(g, "a", 0, 3); }, "argument: linear 'a': inputs = 0, needs to be at least 1");
  expect_refused([&] { nn::Linear(g, "a", 3, -2); }, "linear 'a': outputs = -2");
  expect_refused([&] { nn::Linear(g, "a", 3, 2, {.dtype = i64}); },
                 "dtype: linear 'a': dtype is i64, needed is a float");
  expect_refused([&] { nn::Conv2d(g, "a", 3, 2, {0, 3}); }, "kernel[0] = 0");
  expect_refused([&] { nn::Conv2d(g, "a", 0, 2, {3, 3}); }, "inputs = 0");
  expect_refused([&] { nn::Embedding(g, "a", -1, 2); }, "rows = -1");
  expect_refused([&] { nn::Embedding(g, "a", 3, 2, {.padding = 3}); }, "padding = 3");
  expect_refused([&] { nn::MultiHeadAttention(g, "a", 4, 0); }, "heads = 0");
  expect_refused([&] { nn::MultiHeadAttention(g, "a", 4, 2, {.key_width = -1}); }, "key_width = -1");
  expect_refused([&] { nn::MultiHeadAttention(g, "a", 4, 2, {.dropout = 1.0}); }, "dropout = 1");
  expect_refused([&] { nn::MultiHeadAttention(g, "a", 4, 2, {.dropout = -1, .training = false}); }, "dropout = -1");
  expect_refused([&] { nn::LayerNorm(g, "a", 4, -1e-5); }, "epsilon = -1e-05");
  expect_refused([&] { nn::BatchNorm(g, "a", 4, {.momentum = -0.1}); }, "momentum = -0.1");
  expect_refused([&] { nn::BatchNorm(g, "a", 0); }, "channels = 0");
  expect_refused([&] { nn::Lstm(g, "a", 4, 0); }, "lstm 'a': hidden = 0");
  expect_refused([&] { nn::Gru(g, "a", 4, 2, {.layers = 0}); }, "gru 'a': layers = 0");
  expect_refused([&] { nn::Rnn(g, "a", 4, 2, {.dropout = kNan}); }, "rnn 'a': dropout = nan");
  expect_refused([&] { nn::Lstm(g, "a", 4, 2, {.projection = -1}); }, "projection = -1");
  expect_refused([&] { nn::Lstm(g, "a", 4, 2, {.forget_bias = kInf}); }, "forget_bias = inf");
  expect_refused([&] { nn::Gru(g, "a", 4, 2, {.projection = 2}); }, "projection is an option of an LSTM alone");
  expect_refused([&] { nn::Lstm(g, "a", 4, 2, {.relu = true}); }, "relu is an option of an RNN alone");
  EXPECT_TRUE(g.parameters().empty()) << "what was refused has left nothing";
}

TEST(ArgumentRanges, AreKeptByInitialValues) {
  expect_refused([] { nn::uniform(1, 0); }, "uniform: high = 0, needs to be at least 1");
  expect_refused([] { nn::uniform(-kInf, 0); }, "uniform: low = -inf");
  expect_refused([] { nn::normal(0, -1); }, "normal: deviation = -1");
  expect_refused([] { nn::normal(kNan, 1); }, "normal: mean = nan");
  for (const auto& make : {nn::xavier_uniform, nn::xavier_normal, nn::kaiming_uniform, nn::kaiming_normal}) {
    expect_refused([&] { make(-1); }, "gain = -1");
  }
  expect_refused([] { nn::orthogonal(1, 0); }, "orthogonal: blocks = 0");
}

// ---- training ----

TEST(ArgumentRanges, AreKeptByOptimizers) {
  const auto refused = [](const std::function<Optimizer()>& optimizer, const std::string& text,
                          const MinimizeOptions& options = {}) {
    Graph g;
    const Value p = g.parameter("p", f32, {3});
    expect_refused([&] { minimize(sum(p * p), optimizer(), options); }, text);
    EXPECT_EQ(g.parameters().size(), 1u);
  };
  for (const double bad : {-1.0, kNan, kInf}) {
    refused([&] { return Sgd{bad}; }, "learning rate: rate = ");
    refused([&] { return Adam{.learning_rate = bad}; }, "learning rate: rate = ");
    refused([&] { return AdamW{.learning_rate = bad}; }, "learning rate: rate = ");
    refused([&] { return Sgd{.learning_rate = linear_warmup(bad, 3)}; }, "linear_warmup: rate = ");
    refused([&] { return Sgd{.learning_rate = cosine_decay(bad, 3)}; }, "cosine_decay: rate = ");
    refused([&] { return Sgd{.learning_rate = cosine_decay(1, 3, bad)}; }, "cosine_decay: last = ");
    refused([&] { return Sgd{.learning_rate = step_decay(bad, 3, 0.5)}; }, "step_decay: rate = ");
    refused([&] { return Sgd{.learning_rate = step_decay(1, 3, bad)}; }, "step_decay: factor = ");
    refused([&] { return Sgd{.learning_rate = inverse_square_root(bad, 3)}; }, "inverse_square_root: rate = ");
    refused([&] { return Sgd{.momentum = bad}; }, "minimize: sgd: momentum = ");
    refused([&] { return Sgd{.weight_decay = bad}; }, "minimize: sgd: weight_decay = ");
    refused([&] { return Adam{.beta1 = bad}; }, "minimize: adam: beta1 = ");
    refused([&] { return Adam{.beta2 = bad}; }, "minimize: adam: beta2 = ");
    refused([&] { return Adam{.epsilon = bad}; }, "minimize: adam: epsilon = ");
    refused([&] { return AdamW{.weight_decay = bad}; }, "minimize: adamw: weight_decay = ");
    refused([&] { return Sgd{}; }, "minimize: clip_norm = ", {.clip_norm = bad});
    refused([&] { return Sgd{}; }, "minimize: adamw: epsilon = ", {.groups = {{{"p"}, AdamW{.epsilon = bad}}}});
  }
  refused([] { return Adam{.beta1 = 1}; }, "beta1 = 1, needs to be at least 0 and below 1");
  refused([] { return Sgd{.nesterov = true}; }, "sgd with nesterov: momentum = 0, needs to be above 0");
  refused([] { return Sgd{.learning_rate = step_decay(1, 3, 0)}; }, "factor = 0, needs to be above 0");
  refused([] { return Sgd{.learning_rate = linear_warmup(1, 0)}; }, "steps = 0");
  refused([] { return Sgd{.learning_rate = cosine_decay(1, 3, 0, 3)}; }, "warmup = 3");
  refused([] { return Sgd{}; }, "accumulate = 0", {.accumulate = 0});
}

}  // namespace
}  // namespace paoding
