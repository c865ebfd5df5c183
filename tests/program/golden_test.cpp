// SPDX-License-Identifier: Apache-2.0
// Golden plans: the plans of small programs that between them meet every pass, kept in tests/golden/. A change there is
// either meant, and recorded with the change that makes it, or a mistake that no comparison of numbers would find: a
// fusion that no longer happens, a copy that came back, more memory. (golden_passes_test.cpp shows each pass by
// itself.)
//   PAODING_RECORD_GOLDEN=1 build/paoding_tests --gtest_filter='*Golden*'     records them anew; then read `git diff`
// Nothing printed depends on the machine: no time, no number of threads, no instruction set.
#include "tests/program/golden.h"

#include <gtest/gtest.h>

#include "ops/matmul/matmul_packed.h"
#include "paoding/nn.h"
#include "paoding/paoding.h"
#include "passes/pass.h"
#include "tests/support/decision_check.h"

namespace paoding {
namespace {

// ---- programs ----

void fetch_gradients(Graph& g, const Value& loss, const std::vector<std::pair<std::string, Value>>& wanted) {
  Values values;
  for (const auto& [name, value] : wanted) values.push_back(value);
  const Values made = gradients(std::array{loss}, values);
  for (std::size_t i = 0; i < made.size(); ++i) g.fetch(wanted[i].first, made[i]);
}

// Two layers, softmax cross entropy, momentum.
void build_mlp(Graph& g) {
  const Value x = g.input("x", f32, {8, 12}), labels = g.input("labels", i32, {8});
  const nn::Linear hidden(g, "hidden", 12, 16), out(g, "out", 16, 5, {.bias = false});
  const Value loss = cross_entropy(out(relu(hidden(x))), labels);
  g.fetch("loss", loss);
  minimize(loss, Sgd{.learning_rate = 0.1, .momentum = 0.9});
}

// A recurrent layer, its last state regressed, and the gradients of its weights.
void build_lstm(Graph& g) {
  const Value xs = g.input("xs", f32, {6, 2, 3}), target = g.input("target", f32, {2, 4});
  const nn::Lstm lstm(g, "lstm", 3, 4);
  const Value loss = mse_loss(lstm(xs).last_h[0], target);
  g.fetch("loss", loss);
  const RecurrentParameters& weights = lstm.parameters()[0];
  fetch_gradients(g, loss, {{"dw", weights.w}, {"du", weights.u}, {"db", weights.b}});
}

// Convolution with bias and relu, pool, product; gradients of the weights.
void build_conv_net(Graph& g) {
  const Value x = g.input("x", f32, {2, 3, 8, 8}), labels = g.input("labels", i32, {2});
  const Value w1 = g.parameter("w1", f32, {4, 3, 3, 3}), b1 = g.parameter("b1", f32, {4});
  const Value w2 = g.parameter("w2", f32, {4, 4, 3, 3}), b2 = g.parameter("b2", f32, {4});
  const Value w3 = g.parameter("w3", f32, {64, 5});
  const Conv2dOptions same{.padding = {1, 1, 1, 1}};
  Value y = max_pool2d(relu(conv2d(x, w1, b1, same)));
  y = relu(conv2d(y, w2, b2, same));
  const Value loss = cross_entropy(matmul(flatten(y, 1), w3), labels);
  g.fetch("loss", loss);
  fetch_gradients(g, loss, {{"dw1", w1}, {"db1", b1}, {"dw2", w2}, {"db2", b2}, {"dw3", w3}});
}

void build_layer_norm(Graph& g) {
  const Value x = g.input("x", bf16, {4, 10, 32}), gamma = g.input("gamma", bf16, {32}),
              beta = g.input("beta", bf16, {32}), dy = g.input("dy", bf16, {4, 10, 32});
  const Value y = layer_norm(x, gamma, beta);
  g.fetch("y", y);
  const Values made = gradients(std::array{y}, std::array{x, gamma, beta}, std::array{dy});
  const char* names[] = {"dx", "dgamma", "dbeta"};
  for (std::size_t i = 0; i < made.size(); ++i) g.fetch(names[i], made[i]);
}

// Masked and smoothed, as sequence models have it.
void build_cross_entropy(Graph& g) {
  const Value logits = g.input("logits", f32, {5, 3, 11}), labels = g.input("labels", i32, {5, 3}),
              counts = g.input("counts", i32, {3});
  const Value mask = less(iota(g, {5, 3}, 0, i32), counts);
  const Value loss = cross_entropy(logits, labels, {.weights = mask, .label_smoothing = 0.1});
  g.fetch("loss", loss);
  fetch_gradients(g, loss, {{"dlogits", logits}});
}

// A decoder with input feeding and attention over encoder states, and the gradients of those states.
void build_decoder(Graph& g) {
  const std::int64_t T = 4, S = 5, B = 2, E = 3, H = 4;
  const Value words = g.input("words", f32, {T, B, E}), memory = g.input("memory", f32, {B, S, H}),
              seen_mask = g.input("mask", boolean, {B, S});
  const Value w = g.parameter("w", f32, {E + H, H}), u = g.parameter("u", f32, {H, H}), b = g.parameter("b", f32, {H}),
              wa = g.parameter("wa", f32, {2 * H, H});
  const Value start = zeros(g, {B, H});
  const StepResult made = scan({start, start}, {words}, [&](const Values& carry, const Values& element) {
    const Value h = rnn_cell(concat(std::array{element[0], carry[1]}, 1), carry[0], w, u, b);
    const Value seen = multiplicative_attention(h, memory, seen_mask).first;
    const Value fed = tanh(matmul(concat(std::array{h, seen}, 1), wa));
    return step({h, fed}, {fed});
  });
  const Value loss = sum(square(made.outputs[0]));
  g.fetch("loss", loss);
  fetch_gradients(g, loss, {{"dwa", wa}, {"dmemory", memory}});
}

void build_branch(Graph& g) {
  const Value index = g.input("index", i32, {}), x = g.input("x", f32, {3, 3}), w = g.input("w", f32, {3, 3});
  const Values made = switch_case(index, {[&] { return Values{matmul(x, w)}; }, [&] { return Values{exp(x) * w}; },
                                          [&] { return Values{softmax(x)}; }});
  const Value loss = sum(made[0] * made[0]);
  g.fetch("loss", loss);
  fetch_gradients(g, loss, {{"dx", x}, {"dw", w}});
  const auto alternatives = {std::function<Values()>([&] { return Values{sum(x)}; }),
                             std::function<Values()>([&] { return Values{cast(x, i32)}; })};
  g.fetch("either", switch_variant(index, alternatives));
}

// An open loop, one with a limit and its gradient, a part computed again, a predicate on the CPU.
void build_while(Graph& g) {
  const Value x = g.input("x", f32, {4}), limit = g.input("limit", f32, {});
  const Values grown = while_loop(
      {x}, [&](const Values& v) { return less(sum(v[0] * v[0]), limit); },
      [&](const Values& v) { return Values{v[0] * 2.0}; });
  g.fetch("grown", grown[0]);
  const Values smooth = checkpoint([&](const Values& v) { return Values{sin(exp(v[0]))}; }, {x});
  const LoopResult bounded = while_loop(
      {smooth[0]},
      [&](const Values& v) {
        const OnCpu guard(v[0].graph());
        return less(sum(v[0]), limit);
      },
      [&](const Values& v) { return Values{v[0] + x}; }, 5);
  g.fetch("turns", bounded.iterations);
  const Value loss = sum(bounded.values[0] * bounded.values[0]);
  fetch_gradients(g, loss, {{"dx", x}});
}

// A recurrence of no known cell, whose weights are worth packing in front of the loop, and whose weight gradient leaves
// it.
constexpr std::int64_t kPackedRows = 5, kPackedWidth = 384;

void build_packed(Graph& g) {
  const Value xs = g.input("xs", f32, {6, kPackedRows, kPackedWidth}),
              h0 = g.input("h0", f32, {kPackedRows, kPackedWidth});
  const Value w = g.parameter("w", f32, {kPackedWidth, kPackedWidth});
  const StepResult made = scan({h0}, {xs}, [&](const Values& carry, const Values& element) {
    const Value h = sigmoid(matmul(carry[0], w) + element[0]);
    return step({h}, {h});
  });
  const Value loss = sum(square(made.outputs[0]));
  g.fetch("loss", loss);
  fetch_gradients(g, loss, {{"dw", w}});
}

// Two tables, one with a padding, read at the same ids: many enough for a GPU to sort them, once.
void build_embedding(Graph& g) {
  const Value ids = g.input("ids", i64, {64, 40});
  const Value words = g.parameter("words", f32, {100000, 64}), kinds = g.parameter("kinds", f32, {100000, 4});
  const Value read = concat(std::array{embedding(words, ids, 0), embedding(kinds, ids)}, 2);
  const Value loss = sum(square(read));
  g.fetch("loss", loss);
  fetch_gradients(g, loss, {{"dwords", words}, {"dkinds", kinds}});
}

constexpr const char *kCpu = "", *kGpu = "h200";
struct Golden {
  const char* name;
  void (*build)(Graph&);
  const char* target;
};
const Golden kGolden[] = {
    {"mlp", build_mlp, kCpu},
    {"lstm", build_lstm, kCpu},
    {"conv_net", build_conv_net, kCpu},
    {"layer_norm", build_layer_norm, kCpu},
    {"cross_entropy", build_cross_entropy, kCpu},
    {"decoder", build_decoder, kCpu},
    {"branch", build_branch, kCpu},
    {"while", build_while, kCpu},
    {"packed", build_packed, kCpu},
    {"embedding", build_embedding, kCpu},
    {"mlp", build_mlp, kGpu},
    {"lstm", build_lstm, kGpu},
    {"conv_net", build_conv_net, kGpu},
    {"layer_norm", build_layer_norm, kGpu},
    {"cross_entropy", build_cross_entropy, kGpu},
    {"decoder", build_decoder, kGpu},
    {"branch", build_branch, kGpu},
    {"packed", build_packed, kGpu},
    {"embedding", build_embedding, kGpu},
};

bool is_for_gpu(const Golden& golden) { return std::string(golden.target) != kCpu; }
std::string full_name(const Golden& golden) {
  return golden.name + (is_for_gpu(golden) ? std::string("_") + golden.target : "");
}

// ---- printed texts, and the recorded ones ----

// On a CPU the graph that is planned, which has the bodies of its kernels, and the plan; on a GPU, where passes do much
// the same, the plan.
std::string flags_of(const Golden& golden) {
  if (is_for_gpu(golden)) return std::string("--plan --device cuda --target ") + golden.target;
  return std::string("--plan --after ") + pipeline().back().name;
}

class GoldenDump : public testing::TestWithParam<Golden> {
 protected:
  void SetUp() override {
#if !PAODING_WITH_CUDA
    if (is_for_gpu(GetParam())) GTEST_SKIP() << "NOT CHECKED: this build has no GPU back end";
#endif
  }
};

TEST_P(GoldenDump, IsWhatItWas) {
#ifdef __clang__
  GTEST_SKIP() << "NOT CHECKED: GCC makes the nodes of a call's last argument first, clang those of its first";
#endif
  const bool is_packed = GetParam().build == build_packed && !is_for_gpu(GetParam());
  if (is_packed && packed_order(f32, kPackedRows, kPackedWidth, kPackedWidth).order.empty()) {
    GTEST_SKIP() << "NOT CHECKED: oneDNN reads plain weights on this machine";
  }
  Graph graph;
  GetParam().build(graph);
  golden::compare(golden::folder() / (full_name(GetParam()) + ".txt"), golden::dump_of(graph, flags_of(GetParam())));
}

// Passes and steps of these programs have the same decisions: no pass expects another kernel than the one that runs.
TEST_P(GoldenDump, IsOfKernelsThatWereDecidedOnce) {
  Graph graph;
  GetParam().build(graph);
  const TargetPtr target = is_for_gpu(GetParam()) ? std::make_shared<const Target>(named_target(GetParam().target))
                                                  : target_of(Device::cpu());
  for (const DType precision : {f32, bf16}) {
    CompileOptions options;
    options.precision = precision;
    for (const Preprocess preprocess : {Preprocess::in_every_run, Preprocess::once}) {
      const CompiledPlan compiled = compile_plan(graph, options, target, preprocess);
      EXPECT_EQ(testing_program::DecisionCheck(compiled).counts().otherwise, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenDump, testing::ValuesIn(kGolden),
                         [](const auto& tested) { return full_name(tested.param); });

}  // namespace
}  // namespace paoding
