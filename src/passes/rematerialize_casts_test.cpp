// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "paoding/ops.h"
#include "passes/pass.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

std::vector<std::string> rematerialize_on(const char* chip, Graph& graph) {
  PassNotes notes(std::make_shared<const Target>(named_target(chip)));
  fuse_groups(graph, notes);
  notes.list().clear();
  rematerialize_casts(graph, notes);
  verify(graph, "rematerialize_casts");
  return notes.list();
}

void expect_values(const Graph& graph, unsigned seed, const std::map<std::string, std::vector<double>>& want) {
  const auto got = evaluate_graph(graph, random_feeds(graph, seed));
  for (const auto& [name, values] : want) {
    ASSERT_EQ(got.at(name).size(), values.size()) << name;
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(got.at(name)[i], values[i], 1e-10 * (1 + std::fabs(values[i]))) << name << " element " << i;
    }
  }
}

// A gradient whose norm scales its readers' results: larger than one CTA's row, so that two kernels read it.
void build_clipped(Graph& g, DType dtype) {
  const Value x = g.input("x", dtype, {4, 256}), y = g.input("y", dtype, {4, 256}), m = g.input("m", f32, {256, 256});
  const Value gradient = cast(matmul(x, y, true), f32);
  const Value norm = sum(gradient * gradient);
  g.fetch("m", m * 0.9 + gradient * (1.0 / (norm + 1.0)));
  g.fetch("norm", norm);
}

TEST(RematerializeCasts, OfAGradientIn16BitsAreMadeByTheNormAndByWhatReadsIt) {
  for (const DType dtype : {bf16, f16}) {
    Graph g;
    build_clipped(g, dtype);
    const auto before = evaluate_graph(g, random_feeds(g, 3));
    EXPECT_EQ(rematerialize_on("h200", g).size(), 1U);
    expect_values(g, 3, before);
    EXPECT_EQ(count_here(g, "group"), 2);
    for (NodeId id = 0; id < g.size(); ++id) {
      if (g.node(id).op->name != "group") continue;
      const auto is_narrow = [&](const Ref& ref) { return g.type(ref).dtype == dtype; };
      EXPECT_EQ(std::ranges::count_if(g.node(id).inputs, is_narrow), 1) << "both read the product";
      EXPECT_EQ(g.node(id).types.size(), 1U) << "and give nothing else";
    }
  }
}

TEST(RematerializeCasts, LeaveTheCpuAndWhatIsF32Alone) {
  Graph cpu, wide;
  build_clipped(cpu, bf16), build_clipped(wide, f32);
  PassNotes notes;
  fuse_groups(cpu, notes);
  notes.list().clear();
  rematerialize_casts(cpu, notes);
  EXPECT_TRUE(notes.list().empty());
  EXPECT_TRUE(rematerialize_on("h200", wide).empty());
}

TEST(RematerializeCasts, LeaveWhatIsFetchedOrReadByAKernel) {
  Graph g;
  const Value x = g.input("x", bf16, {256, 256}), wide = cast(x, f32), norm = sum(wide * wide);
  g.fetch("wide", wide), g.fetch("scaled", wide * (1.0 / (norm + 1.0)));
  EXPECT_TRUE(rematerialize_on("h200", g).empty());
  Graph other;
  const Value y = other.input("y", bf16, {256, 256}), seen = cast(y, f32), total = sum(seen * seen);
  other.fetch("product", matmul(seen, seen, true)), other.fetch("scaled", seen * (1.0 / (total + 1.0)));
  EXPECT_TRUE(rematerialize_on("h200", other).empty());
}

TEST(RematerializeCasts, KeepTheOtherResultsOfAKernelInTheirPlaces) {
  // The kernel of the sum also writes a value that is made of the cast one and that others read.
  Graph g;
  const Value x = g.input("x", bf16, {4, 256}), y = g.input("y", bf16, {4, 256});
  const Value wide = cast(matmul(x, y, true), f32), root = sqrt(exp(wide)), norm = sum(wide * wide);
  g.fetch("root", root), g.fetch("norm", norm);
  g.fetch("scaled", wide * (1.0 / (norm + 1.0)) + root);
  const auto before = evaluate_graph(g, random_feeds(g, 4));
  EXPECT_EQ(rematerialize_on("h200", g).size(), 1U);
  expect_values(g, 4, before);
}

}  // namespace
}  // namespace paoding
