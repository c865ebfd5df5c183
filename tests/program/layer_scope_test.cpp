// SPDX-License-Identifier: Apache-2.0
// Layers open scopes of their names, so that reports, plans and errors tell one from another.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <set>

#include "paoding/paoding.h"
#include "paoding/profile.h"
#include "passes/pass.h"

namespace paoding {
namespace {

// The scopes of the ops of this name, in order; those of bodies too.
std::vector<std::string> scopes_of(const Graph& g, const std::string& op) {
  std::vector<std::string> scopes;
  for (NodeId id = 0; id < g.size(); ++id) {
    if (g.node(id).op->name == op) scopes.push_back(g.node(id).scope.str());
    for (const auto& body : g.node(id).bodies) {
      for (std::string& scope : scopes_of(*body, op)) scopes.push_back(std::move(scope));
    }
  }
  return scopes;
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

struct Block {
  nn::LayerNorm before_attention, before_up;
  nn::MultiHeadAttention attention;
  nn::Linear up, down;

  Block(Graph& g, const std::string& name, std::int64_t width)
      : before_attention(g, name + "/norm0", width),
        before_up(g, name + "/norm1", width),
        attention(g, name + "/attention", width, 2),
        up(g, name + "/up", width, 4 * width),
        down(g, name + "/down", 4 * width, width) {}
  Value operator()(const Value& x) const {
    const Value seen = x + attention(before_attention(x));
    return seen + down(gelu(up(before_up(seen))));
  }
};

// The graph in which attention is products and a softmax: so few queries have no kernel.
std::unique_ptr<Graph> taken_apart(const Graph& graph) {
  auto made = graph.clone();
  PassNotes notes;
  expand_composed_ops(*made, notes);
  return made;
}

TEST(LayerScopes, TellTheTwelveProductsOfATransformerApart) {
  Graph g;
  const Value x = g.input("x", f32, {2, 3, 8});
  g.fetch("y", Block(g, "block1", 8)(Block(g, "block0", 8)(x)));
  const std::vector<std::string> scopes = scopes_of(*taken_apart(g), "matmul");
  EXPECT_EQ(std::vector<std::string>(scopes.begin(), scopes.begin() + 6),
            (std::vector<std::string>{"block0/attention/in", "block0/attention/scores", "block0/attention/values",
                                      "block0/attention/out", "block0/up", "block0/down"}));
  EXPECT_EQ(std::set<std::string>(scopes.begin(), scopes.end()).size(), 12u);
  EXPECT_TRUE(g.scope.empty());

  Parameters parameters(g, Device::cpu());
  Program program(g, {}, &parameters);
  program.set_input(0, Tensor::from(f32, {2, 3, 8}, std::vector<double>(48, 0.5)));
  Profiler seen(State::all, Detail::instances);
  program.run();
  const std::string report = seen.stop();
  for (const std::string& scope : scopes) EXPECT_NE(report.find(" @" + scope + " "), report.npos) << scope << report;
}

TEST(LayerScopes, HaveEveryLayer) {
  Graph g;
  const Value x = g.input("x", f32, {5, 2, 4}), ids = g.input("ids", i32, {3}), image = g.input("i", f32, {1, 3, 4, 4});
  nn::Linear(g, "line", 4, 2)(x);
  nn::Embedding(g, "words", 7, 2)(ids);
  nn::Conv2d(g, "conv", 3, 2, {3, 3})(image);
  nn::LayerNorm(g, "norm", 4)(x);
  nn::BatchNorm(g, "batch", 3)(image);
  nn::Lstm(g, "read", 4, 3)(x);
  nn::Gru(g, "both", 4, 3, {.layers = 2, .bidirectional = true})(x);
  nn::Rnn(g, "plain", 4, 3)(x);
  nn::MultiHeadAttention(g, "see", 4, 2, {.key_width = 2})(g.input("q", f32, {1, 2, 4}), g.input("k", f32, {1, 3, 2}),
                                                           g.input("v", f32, {1, 3, 4}));
  EXPECT_EQ(scopes_of(g, "conv2d"), std::vector<std::string>{"conv"});
  EXPECT_EQ(scopes_of(g, "embedding"), std::vector<std::string>{"words"});
  EXPECT_EQ(scopes_of(g, "layer_norm"), std::vector<std::string>{"norm"});
  EXPECT_EQ(scopes_of(g, "batch_norm"), std::vector<std::string>{"batch"});
  EXPECT_EQ(scopes_of(g, "lstm_recurrence"), std::vector<std::string>{"read"});
  EXPECT_EQ(scopes_of(g, "gru_recurrence"),
            (std::vector<std::string>{"both/l0", "both/l0_reverse", "both/l1", "both/l1_reverse"}));
  EXPECT_EQ(scopes_of(g, "rnn_recurrence"), std::vector<std::string>{"plain"});
  EXPECT_EQ(scopes_of(g, "attention"), std::vector<std::string>{"see"});
  const std::vector<std::string> products = scopes_of(g, "matmul");
  const std::set<std::string> all(products.begin(), products.end());
  for (const char* scope :
       {"line", "read", "both/l1_reverse", "plain", "see/query", "see/key", "see/value", "see/out"}) {
    EXPECT_TRUE(all.contains(scope)) << scope;
  }
}

TEST(LayerScopes, SayOnceWhatTheScopeAroundEndsWith) {
  const auto scope_in = [](const char* around, const char* layer) {
    Graph g;
    const Value x = g.input("x", f32, {2, 4});
    const nn::Linear linear(g, layer, 4, 2);
    std::optional<Scope> scope;
    if (around[0] != '\0') scope.emplace(g, around);
    linear(x);
    EXPECT_EQ(g.scope.str(), around);
    return scopes_of(g, "matmul")[0];
  };
  EXPECT_EQ(scope_in("", "decoder/out"), "decoder/out");
  EXPECT_EQ(scope_in("model", "decoder/out"), "model/decoder/out");
  EXPECT_EQ(scope_in("decoder", "decoder/out"), "decoder/out");
  EXPECT_EQ(scope_in("model/decoder", "decoder/out"), "model/decoder/out");
  EXPECT_EQ(scope_in("decoder/out", "decoder/out"), "decoder/out");
  EXPECT_EQ(scope_in("my_decoder", "decoder/out"), "my_decoder/decoder/out");
  EXPECT_EQ(scope_in("decoder/out/again", "decoder/out"), "decoder/out/again/decoder/out");
}

TEST(LayerScopes, AreOpenInTheStepOfALoop) {
  Graph g;
  const Value xs = g.input("xs", f32, {5, 2, 4}), h0 = g.input("h0", f32, {2, 3}),
              memory = g.input("m", f32, {2, 6, 3});
  const nn::Linear in(g, "cell/in", 4, 3), again(g, "cell/again", 3, 3);
  const nn::MultiHeadAttention look(g, "cell/look", 3, 1);
  const StepResult made = scan({h0}, {xs}, [&](const Values& carry, const Values& element) {
    const Value h = tanh(in(element[0]) + again(carry[0]));
    const Value seen = look(reshape(h, Shape{2, 1, 3}), memory, memory);
    return step({h}, {seen});
  });
  g.fetch("y", made.outputs[0]);
  const std::vector<std::string> products = scopes_of(*taken_apart(g), "matmul");
  const std::set<std::string> all(products.begin(), products.end());
  EXPECT_EQ(all, (std::set<std::string>{"cell/in", "cell/again", "cell/look/in", "cell/look/scores", "cell/look/values",
                                        "cell/look/out"}));
}

TEST(LayerScopes, AreNamedByErrors) {
  Graph g;
  const Value x = g.input("x", f32, {2, 5});
  const nn::Linear linear(g, "decoder/out", 4, 2);
  EXPECT_EQ(message_of([&] { linear(x); }), "linear: x has shape [2, 5], its last extent must be 4 (in decoder/out)");
  EXPECT_TRUE(g.scope.empty());
  EXPECT_NE(message_of([&] { linear(Value()); }).find("never given a node"), std::string::npos);
}

}  // namespace
}  // namespace paoding
