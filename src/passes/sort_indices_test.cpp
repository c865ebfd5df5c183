// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "ops/scan/scan.h"
#include "paoding/ops.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

const TargetPtr kH200 = std::make_shared<const Target>(named_target("h200"));

constexpr std::int64_t kTableRows = 200'000, kIds = 40'000;  // more than a CTA lists

std::vector<double> some_ids(std::int64_t count, std::int64_t rows) {
  std::vector<double> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<double>(i * i * 31 % rows));
  return ids;
}

// Runs the pass for a GPU and compares the graph's fetches before and after; returns the notes.
std::vector<std::string> sort_and_compare(Graph& graph, std::int64_t rows, bool hoist = false) {
  auto feeds = random_feeds(graph, 3);
  feeds["ids"] = some_ids(static_cast<std::int64_t>(feeds.at("ids").size()), rows);
  const auto before = evaluate_graph(graph, feeds);
  PassNotes notes(kH200);
  sort_indices(graph, notes);
  if (hoist) hoist_products(graph, notes);
  verify(graph, "sort_indices");
  EXPECT_EQ(evaluate_graph(graph, feeds), before);
  return notes.list();
}

TEST(SortIndices, OneSortServesAllThatReadTheSameIndices) {
  Graph g;
  const Value ids = g.input("ids", i64, {50, kIds / 50}), a = g.input("a", f32, {50, kIds / 50, 2}),
              b = g.input("b", f32, {3, 50, kIds / 50});
  g.fetch("a", scatter_add(ids, a, 0, kTableRows));
  g.fetch("b", scatter_add(ids, b, 1, kTableRows));
  g.fetch("c", call("embedding_grad", {ids, a}, {{"padding", std::int64_t{31}}, {"extent", kTableRows}}));
  const auto notes = sort_and_compare(g, kTableRows);
  EXPECT_EQ(count_here(g, "sort"), 1);
  EXPECT_EQ(count_here(g, "scatter_add_sorted"), 3);
  EXPECT_EQ(count_here(g, "scatter_add") + count_here(g, "embedding_grad"), 0);
  ASSERT_EQ(notes.size(), 3u);
  EXPECT_NE(notes[0].find("finds its 40000 indices sorted"), std::string::npos) << notes[0];
}

TEST(SortIndices, FewAreLookedThroughAndTheNoteSaysWhy) {
  Graph g;
  g.fetch("a", scatter_add(g.input("ids", i32, {64}), g.input("a", f32, {64, 64}), 0, 500));
  const auto notes = sort_and_compare(g, 500);
  EXPECT_EQ(count_here(g, "scatter_add"), 1);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("looks through all 64 indices"), std::string::npos) << notes[0];
}

TEST(SortIndices, AsManyAsACtaListsAreLookedThroughHoweverManyRowsThereAre) {
  Graph g;
  g.fetch("a", scatter_add(g.input("ids", i64, {6400}), g.input("a", f32, {6400, 2}), 0, kTableRows));
  sort_and_compare(g, kTableRows);
  EXPECT_EQ(count_here(g, "scatter_add"), 1);
  EXPECT_EQ(count_here(g, "sort"), 0);
}

// A CTA counts its rows by 16 bits: of 132, where each has whole rows, 8,650,752 in all; of 33 for rows of 2 KB a
// quarter.
TEST(SortIndices, FewAreSortedWhereTheRowsAreMoreThanCtasCanList) {
  for (const auto& [width, rows] : {std::pair<std::int64_t, std::int64_t>{64, 8'650'752}, {512, 2'162'688}}) {
    for (const std::int64_t more : {0, 1}) {
      Graph g;
      g.fetch("a", scatter_add(g.input("ids", i64, {6400}), g.input("a", f32, {6400, width}), 0, rows + more));
      PassNotes notes(kH200);
      sort_indices(g, notes);
      EXPECT_EQ(count_here(g, "sort"), more) << width;
    }
  }
}

TEST(SortIndices, ACpuNeedsNone) {
  Graph g;
  g.fetch("a", scatter_add(g.input("ids", i64, {kIds}), g.input("a", f32, {kIds, 2}), 0, kTableRows));
  PassNotes notes;
  sort_indices(g, notes);
  EXPECT_EQ(count_here(g, "scatter_add"), 1);
}

TEST(SortIndices, IndicesThatALoopDoesNotChangeAreSortedInFrontOfIt) {
  constexpr std::int64_t kFew = 40'000, kMany = 200'000;
  for (const bool is_sequence : {false, true}) {
    Graph g;
    const Value ids = g.input("ids", i64, is_sequence ? Shape{2, kFew} : Shape{kFew}), x = g.input("x", f32, {kFew});
    const auto step_of = [&](const Value& carry, const Value& mine) {
      return step({carry + scatter_add(mine, tanh(gather(carry, mine) + x), 0, kMany)}, {});
    };
    const Value start = g.input("start", f32, {kMany});
    const Value xs = is_sequence ? ids : g.input("xs", f32, {2});
    const StepResult made =
        scan({start}, {xs}, [&](const Values& c, const Values& e) { return step_of(c[0], is_sequence ? e[0] : ids); });
    g.fetch("y", made.carries[0]);
    sort_and_compare(g, kMany, true);
    EXPECT_EQ(count_here(g, "sort"), 1);
    const Graph& body = *only(g, "scan").bodies[0];
    EXPECT_EQ(count_here(body, "sort"), 0);
    EXPECT_EQ(count_here(body, "scatter_add_sorted"), 1);
  }
}

}  // namespace
}  // namespace paoding
