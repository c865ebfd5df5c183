// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>

#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

TEST(DropUnused, DropsNodesAndKeepsInputs) {
  Graph g;
  const Value x = g.input("x", f32, {3}), p = g.parameter("p", f32, {3});
  g.input("unread", f32, {3});
  exp(x * p);
  g.fetch("y", tanh(x));
  run_and_compare(g, {drop_unused});
  EXPECT_EQ(g.size(), 4);
  EXPECT_EQ(g.inputs().size(), 2u);
  EXPECT_EQ(g.parameters().size(), 1u);
}

// Two carries h and k, and values that each step makes of them; `k_in_h` makes h depend on k.
struct TwoCarries : testing::Test {
  void build(bool k_in_h) {
    const Value h0 = g.input("h0", f32, {2}), k0 = g.input("k0", f32, {2}), xs = g.input("xs", f32, {4, 2}),
                ys = g.input("ys", f32, {4, 2});
    made = scan({h0, k0}, {xs, ys}, [&](const Values& carry, const Values& in) {
      const Value h = tanh(carry[0] + in[0]), k = carry[1] * in[1] + w;
      return step({k_in_h ? h + carry[1] : h, k}, {h, k, h * k});
    });
  }
  void trim() { run_and_compare(g, {drop_unused}); }
  const Node& scan_node() { return only(g, "scan"); }

  Graph g;
  Value w = g.input("w", f32, {2});
  StepResult made;
};

TEST_F(TwoCarries, LosesAScanNobodyReads) {
  build(false);
  g.fetch("y", w);
  trim();
  EXPECT_EQ(count_here(g, "scan"), 0);
  EXPECT_EQ(g.inputs().size(), 5u);
}

TEST_F(TwoCarries, LosesTheCarryThatInfluencesNothing) {
  build(false);
  g.fetch("y", made.outputs[0]);
  trim();
  EXPECT_EQ(scan_node().attrs.get_int("carries"), 1);
  EXPECT_EQ(scan_node().attrs.get_int("sequences"), 1);
  EXPECT_EQ(scan_node().inputs.size(), 2u);  // w went too
  EXPECT_EQ(scan_node().types.size(), 2u);
  EXPECT_EQ(count_here(*scan_node().bodies[0], "mul"), 0);
}

TEST_F(TwoCarries, KeepsTheCarryThatAnotherNeeds) {
  build(true);
  g.fetch("y", made.carries[0]);
  trim();
  EXPECT_EQ(scan_node().attrs.get_int("carries"), 2);
  EXPECT_EQ(scan_node().types.size(), 2u);
}

TEST_F(TwoCarries, KeepsTheCarryThatReachesAnOutputAStepLater) {
  build(true);
  g.fetch("y", made.outputs[0]);
  trim();
  EXPECT_EQ(scan_node().attrs.get_int("carries"), 2);
}

TEST_F(TwoCarries, KeepsTheCarryWhoseLastValueIsRead) {
  build(false);
  g.fetch("y", made.outputs[0]);
  g.fetch("k", made.carries[1]);
  trim();
  EXPECT_EQ(scan_node().attrs.get_int("carries"), 2);
  EXPECT_EQ(scan_node().types.size(), 3u);
}

TEST_F(TwoCarries, KeepsWhatAnOutputNeedsOfBoth) {
  build(false);
  g.fetch("y", made.outputs[2]);
  trim();
  EXPECT_EQ(scan_node().attrs.get_int("carries"), 2);
  EXPECT_EQ(scan_node().types.size(), 3u);
}

TEST_F(TwoCarries, LosesEverythingButAnOutputOfElements) {
  const StepResult other =
      scan({g.input("a", f32, {2})}, {g.input("b", f32, {3, 2})},
           [](const Values& carry, const Values& in) { return step({carry[0] + in[0]}, {exp(in[0])}); });
  g.fetch("y", other.outputs[0]);
  trim();
  EXPECT_EQ(scan_node().attrs.get_int("carries"), 0);
  EXPECT_EQ(scan_node().types.size(), 1u);
}

TEST(DropUnused, FollowsWhatOneScanReadsOfAnother) {
  Graph g;
  const Value h0 = g.input("h0", f32, {2}), xs = g.input("xs", f32, {4, 2});
  const auto layer = [&](const Value& in) {
    return scan({h0}, {in}, [](const Values& carry, const Values& x) {
      const Value h = tanh(carry[0] + x[0]);
      return step({h}, {h, h * x[0], exp(x[0])});
    });
  };
  const StepResult first = layer(xs), second = layer(first.outputs[1]), unread = layer(first.outputs[2]);
  g.fetch("y", second.outputs[0]);
  run_and_compare(g, {drop_unused});
  EXPECT_EQ(count_here(g, "scan"), 2);
  for (NodeId id = 0; id < g.size(); ++id) {
    if (g.node(id).op->name == "scan") {
      EXPECT_EQ(g.node(id).types.size(), 2u);
    }
  }
}

TEST(DropUnused, TrimsAScanInAScanAndThenWhatFedIt) {
  Graph g;
  const Value h0 = g.input("h0", f32, {2}), xs = g.input("xs", f32, {4, 2}), ys = g.input("ys", f32, {3, 2}),
              v = g.input("v", f32, {2}), k0 = g.input("k0", f32, {2});
  const StepResult made = scan({h0, k0}, {xs}, [&](const Values& outer, const Values& x) {
    const StepResult inner = scan({outer[0], outer[1]}, {ys}, [&](const Values& carry, const Values& y) {
      const Value a = tanh(carry[0] + y[0] * x[0]), b = carry[1] * v;
      return step({a, b}, {a, b});
    });
    return step({inner.carries[0], inner.carries[1]}, {sum(inner.outputs[0], Ints{0}), inner.outputs[1]});
  });
  g.fetch("y", made.outputs[0]);
  run_and_compare(g, {drop_unused});
  const Node& outer = only(g, "scan");
  EXPECT_EQ(outer.attrs.get_int("carries"), 1);
  EXPECT_EQ(outer.inputs.size(), 3u);  // h0, xs, ys
  const Node& inner = only(*outer.bodies[0], "scan");
  EXPECT_EQ(inner.attrs.get_int("carries"), 1);
  EXPECT_EQ(inner.types.size(), 2u);
}

TEST(DropUnused, DropsTheGradientsNobodyAskedFor) {
  Graph g;
  const Value h0 = g.input("h0", f32, {1, 2}), xs = g.input("xs", f32, {4, 1, 2}), w = g.input("w", f32, {2, 2});
  const StepResult made = scan({h0}, {xs}, [&](const Values& carry, const Values& x) {
    const Value h = sigmoid(matmul(carry[0], w) + x[0]);  // no cell whose gradient is an op's own
    return step({h}, {h});
  });
  const Values d = gradients(sum(made.outputs[0]), {h0, xs, w});
  g.fetch("dxs", d[1]);
  run_and_compare(g, {drop_unused});
  // The running sum of dw goes; the adjoint of h stays.
  std::vector<std::int64_t> carries;
  for (NodeId id = 0; id < g.size(); ++id) {
    if (g.node(id).op->name == "scan") carries.push_back(g.node(id).attrs.get_int("carries"));
  }
  EXPECT_EQ(carries, (std::vector<std::int64_t>{1, 1}));
}

}  // namespace
}  // namespace paoding
