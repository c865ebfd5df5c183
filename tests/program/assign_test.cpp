// SPDX-License-Identifier: Apache-2.0
// assign: writes at the end of a run, in place where that cannot be seen, ordered among programs that share a store.
#include <gtest/gtest.h>

#include <thread>

#include "paoding/paoding.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

Tensor assigned_ramp(const Shape& shape, double first, double step) {
  Dense values;
  for (std::int64_t i = 0; i < shape.elements(); ++i) values.push_back(first + step * static_cast<double>(i));
  return Tensor::from(f32, shape, values);
}

// Adam on p with the gradient g fed: p, m, v and the step count.
void build_adam(Graph& g, const Shape& shape) {
  const Value p = g.parameter("p", f32, shape), m = g.parameter("m", f32, shape), v = g.parameter("v", f32, shape);
  const Value grad = g.input("g", f32, shape);
  const Scope scope(g, "adam");
  const Value next_m = 0.9 * m + 0.1 * grad, next_v = 0.99 * v + 0.01 * grad * grad;
  assign(p, p - 0.1 * next_m / (sqrt(next_v) + 1e-4));
  assign(m, next_m);
  assign(v, next_v);
}

TEST(Assign, MakesAnAdamUpdateOneGroupWithoutACopy) {
  Graph g;
  build_adam(g, {3, 50});
  g.fetch("norm", sum(g.find("g")));
  Parameters parameters(g, Device::cpu());
  parameters.set("p", assigned_ramp({3, 50}, -1, 0.02));
  Program program(g, {}, &parameters);
  EXPECT_EQ(program.report().launches, 1) << program.plan_text();  // even the sum that is fetched is in it
  EXPECT_TRUE(program.report().plan_notes.empty()) << program.report().plan_notes[0];
  Dense p = parameters.get("p").to_doubles(), m(150, 0.0), v(150, 0.0);
  for (int run = 0; run < 5; ++run) {
    const Tensor grad = assigned_ramp({3, 50}, 0.5 - run, 0.03);
    program.run({{"g", grad}});
    const Dense gradient = grad.to_doubles();
    for (std::size_t i = 0; i < p.size(); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * gradient[i];
      v[i] = 0.99 * v[i] + 0.01 * gradient[i] * gradient[i];
      p[i] -= 0.1 * m[i] / (std::sqrt(v[i]) + 1e-4);
    }
  }
  expect_close("p", parameters.get("p").to_doubles(), p, 1e-5);
  expect_close("m", parameters.get("m").to_doubles(), m, 1e-5);
  expect_close("v", parameters.get("v").to_doubles(), v, 1e-5);
}

TEST(Assign, GivesTheSameWithEveryPassOff) {
  Graph g;
  build_adam(g, {7, 5});
  g.fetch("p", g.find("p"));
  Dense results[2];
  for (int way = 0; way < 2; ++way) {
    CompileOptions options;
    if (way == 1) options.disabled_passes = pass_names();
    Parameters parameters(g, Device::cpu());
    parameters.set("p", assigned_ramp({7, 5}, -1, 0.1));
    Program program(g, options, &parameters);
    for (int run = 0; run < 3; ++run) {
      const auto fetched = program.run({{"g", assigned_ramp({7, 5}, 0.3 * run, 0.01)}});
      // The fetched value is that of the start of the run, read after its end.
      if (run == 0) expect_close("p", fetched.at("p").to_doubles(), assigned_ramp({7, 5}, -1, 0.1).to_doubles(), 0);
    }
    results[way] = parameters.get("p").to_doubles();
  }
  expect_close("p", results[0], results[1], 1e-6);
}

TEST(Assign, ReadsTheStartOfTheRunWhereAParameterIsReadAfterItsNewValueIsMade) {
  Graph g;
  const Value w = g.parameter("w", f32, {4, 4}), x = g.input("x", f32, {4, 4});
  assign(w, w * 2.0);
  g.fetch("y", matmul(x, w));
  Parameters parameters(g, Device::cpu());
  parameters.set("w", assigned_ramp({4, 4}, 1, 1));
  Program program(g, {}, &parameters);
  const Tensor one = Tensor::from(f32, {4, 4}, Dense{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1});
  expect_close("y", program.run({{"x", one}}).at("y").to_doubles(), assigned_ramp({4, 4}, 1, 1).to_doubles(), 0);
  expect_close("y", program.run({{"x", one}}).at("y").to_doubles(), assigned_ramp({4, 4}, 2, 2).to_doubles(), 0);
}

TEST(Assign, ReadsTheStartOfTheRunThroughATransposeAndABroadcast) {
  const auto text = R"(paoding graph 1
w = parameter f32[4,4]
b = parameter f32[1]
t = transpose(w) {permutation=[1,0]}
n = add(w, t)
s = sum(n) {axes=[0,1], keepdims=true}
r = reshape(s) {shape=[1]}
m = add(n, b)
assign w = m
assign b = r
)";
  const std::unique_ptr<Graph> g = parse_graph(text);
  Parameters parameters(*g, Device::cpu());
  parameters.set("w", assigned_ramp({4, 4}, 1, 1));
  parameters.set("b", assigned_ramp({1}, 5, 0));
  Program program(*g, {}, &parameters);
  Dense w = assigned_ramp({4, 4}, 1, 1).to_doubles();
  double b = 5;
  for (int run = 0; run < 3; ++run) {
    program.run({});
    Dense next = w;
    double total = 0;
    for (std::size_t i = 0; i < 16; ++i) {
      next[i] = w[i] + w[i % 4 * 4 + i / 4];
      total += next[i];
      next[i] += b;
    }
    w = next;
    b = total;
  }
  expect_close("w", parameters.get("w").to_doubles(), w, 1e-6);
  expect_close("b", parameters.get("b").to_doubles(), Dense{b}, 1e-6);
}

TEST(Assign, SwapsTwoParametersAndGivesOneValueToTwo) {
  Graph g;
  const Value a = g.parameter("a", f32, {3}), b = g.parameter("b", f32, {3});
  const Value c = g.parameter("c", f32, {3}), d = g.parameter("d", f32, {3}), e = g.parameter("e", f32, {3});
  assign(a, b);
  assign(b, a);
  const Value sum = a + b;
  assign(c, sum);
  assign(d, sum);
  assign(e, full(g, {3}, 7));
  Parameters parameters(g, Device::cpu());
  parameters.set("a", assigned_ramp({3}, 1, 1));
  parameters.set("b", assigned_ramp({3}, 10, 10));
  Program program(g, {}, &parameters);
  program.run();
  EXPECT_EQ(parameters.get("a").to_doubles(), (Dense{10, 20, 30}));
  EXPECT_EQ(parameters.get("b").to_doubles(), (Dense{1, 2, 3}));
  EXPECT_EQ(parameters.get("c").to_doubles(), (Dense{11, 22, 33}));
  EXPECT_EQ(parameters.get("d").to_doubles(), (Dense{11, 22, 33}));
  EXPECT_EQ(parameters.get("e").to_doubles(), (Dense{7, 7, 7}));
  program.run();
  EXPECT_EQ(parameters.get("a").to_doubles(), (Dense{1, 2, 3}));
}

TEST(Assign, TrainsWhateverIsFetchedUnlessItIsOff) {
  Graph g;
  const Value w = g.parameter("w", f32, {2}), x = g.input("x", f32, {2});
  const Value loss = sum((x - w) * (x - w));
  assign(w, w - 0.5 * gradients(loss, {w})[0]);
  g.fetch("loss", loss);
  g.fetch("w", w);
  Parameters parameters(g, Device::cpu());
  CompileOptions options;
  options.fetches = {"loss"};
  Program train(g, options, &parameters);
  options.assign = false;
  Program evaluate(g, options, &parameters);
  const Tensors feeds{{"x", assigned_ramp({2}, 3, 1)}};
  EXPECT_EQ(evaluate.run(feeds).at("loss").to_doubles(), (Dense{25}));
  EXPECT_EQ(evaluate.run(feeds).at("loss").to_doubles(), (Dense{25}));
  EXPECT_EQ(train.run(feeds).at("loss").to_doubles(), (Dense{25}));
  EXPECT_EQ(evaluate.run(feeds).at("loss").to_doubles(), (Dense{0}));
  EXPECT_EQ(parameters.get("w").to_doubles(), (Dense{3, 4}));
}

TEST(Assign, IsPrintedReadClonedAndKept) {
  Graph g;
  build_adam(g, {2});
  const std::string text = to_text(g);
  EXPECT_TRUE(has(text, "\nassign p = %")) << text;
  EXPECT_TRUE(has(text, "@\"adam\"")) << text;
  EXPECT_EQ(to_text(*parse_graph(text)), text);
  const auto copy = g.clone();
  copy->compact();
  EXPECT_EQ(to_text(*copy), text);
  EXPECT_EQ(copy->assigns().size(), 3u);
}

TEST(Assign, RefusesOtherTypesOtherValuesAndASecondTime) {
  Graph g, other;
  const Value w = g.parameter("w", f32, {2}), x = g.input("x", f32, {2});
  EXPECT_TRUE(has(message_of([&] { assign(x, w); }), "is no parameter of this graph"));
  EXPECT_TRUE(
      has(message_of([&] { assign(w, other.input("y", f32, {2})); }), "'w' is given is no value of this graph"));
  EXPECT_TRUE(has(message_of([&] { assign(w, g.input("z", f32, {3})); }), "the parameter is f32[2], the value f32[3]"));
  EXPECT_TRUE(has(message_of([&] { assign(w, cast(x, f64)); }), "the parameter is f32[2], the value f64[2]"));
  {
    const Scope scope(g, "sgd");
    assign(w, x);
  }
  const Scope scope(g, "adam");
  EXPECT_TRUE(has(message_of([&] { assign(w, x); }), "parameter 'w' is assigned twice: in sgd, and in adam"));
}

TEST(Assign, ASecondTimeIsFoundWhateverWasRewrittenInBetween) {
  Graph g;
  tanh(g.input("gone", f32, {2}));
  const Value u = g.parameter("u", f32, {2}), v = g.parameter("v", f32, {2});
  const auto is_refused = [&](const char* name) {
    const Value parameter = g.find(name);
    return has(message_of([&] { assign(parameter, parameter); }), "is assigned twice");
  };
  assign(v, u * 2);
  EXPECT_TRUE(is_refused("v"));
  g.compact(true);  // nodes have other numbers now
  EXPECT_TRUE(is_refused("v"));
  EXPECT_FALSE(is_refused("u"));
  EXPECT_TRUE(is_refused("u"));
  g.drop_assigns();
  EXPECT_FALSE(is_refused("u"));
  EXPECT_TRUE(is_refused("u"));
  EXPECT_FALSE(is_refused("v"));
}

TEST(Assign, OrdersRunsOfThreadsThatShareAStore) {
  Graph g;
  const Value w = g.parameter("w", f32, {20000});
  assign(w, w + 1.0);
  g.fetch("spread", sum(w) * (1.0 / 20000));
  Parameters parameters(g, Device::cpu());
  Program writer(g, {}, &parameters);
  CompileOptions options;
  options.assign = false;
  Program reader(g, options, &parameters);
  std::thread thread([&] {
    for (int i = 0; i < 200; ++i) writer.run();
  });
  for (int i = 0; i < 200; ++i) {
    const double mean = reader.run(Tensors()).at("spread").to_doubles()[0];
    EXPECT_EQ(mean, std::round(mean));
  }
  thread.join();
  EXPECT_EQ(parameters.get("w").to_doubles()[19999], 200);
}

}  // namespace
}  // namespace paoding::testing_program
