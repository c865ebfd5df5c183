// SPDX-License-Identifier: Apache-2.0
// Reports nested by scope, of traces made by hand: every row, by every key and at every level of detail.
#include <gtest/gtest.h>

#include "profile/report.h"

namespace paoding::profile {
namespace {

class ScopeScene {
 public:
  ScopeScene() : thread_(trace_.add_track(TrackKind::thread, "thread0")) {}
  void add(const SiteInfo& site, int start_us, int end_us, std::uint32_t run = 0) {
    trace_.add({.track = thread_,
                .site = trace_.add_site(site),
                .start_ns = start_us * 1000,
                .duration_ns = (end_us - start_us) * 1000,
                .run = run});
  }
  const Trace& finish() {
    trace_.finish();
    return trace_;
  }
  Trace& trace() { return trace_; }

 private:
  Trace trace_;
  TrackId thread_;
};

SiteInfo scoped_op(const char* name, const char* scope, const char* instance = "") {
  return {.op = name, .scope = scope, .instance = instance, .kind = SpanKind::op};
}

// Two runs of 100 us; in each
//   encoder            0..10 matmul
//   decoder            10..20 matmul, 20..25 and 30..35 softmax in decoder/attention, 25..30 add of no scope,
//                      35..45 a group of three, two of them gradients
//   decoder/attention  45..60 softmax_grad/sum
//   optimizer          60..90 "3 groups"
void add_runs(ScopeScene& scene, int runs = 2) {
  SiteInfo mixed = scoped_op("group", "decoder", "group5");
  mixed.members = {{"mul_grad/mul", 1}, {"add", 1}, {"mul_grad/sum", 1}};
  SiteInfo updates = scoped_op("3 groups", "optimizer");
  updates.members = {{"mul", 1}, {"add", 1}, {"mul", 1}};
  for (int n = 0; n < runs; ++n) {
    const int at = 200 * n;
    scene.add({.name = "run", .kind = SpanKind::run}, at, at + 100, static_cast<std::uint32_t>(n + 1));
    scene.add(scoped_op("matmul", "encoder", "matmul0"), at, at + 10);
    scene.add(scoped_op("matmul", "decoder", "matmul1"), at + 10, at + 20);
    scene.add(scoped_op("softmax", "decoder/attention", "softmax2"), at + 20, at + 25);
    scene.add(scoped_op("add", "", "add3"), at + 25, at + 30);
    scene.add(scoped_op("softmax", "decoder/attention", "softmax4"), at + 30, at + 35);
    scene.add(mixed, at + 35, at + 45);
    scene.add(scoped_op("softmax_grad/sum", "decoder/attention", "sum6"), at + 45, at + 60);
    scene.add(updates, at + 60, at + 90);
  }
}

// "  decoder 2 80 0.4": depth as blanks, calls, total in us, ratio.
std::vector<std::string> lines(const Section& section) {
  std::vector<std::string> lines;
  for (const Row& row : section.rows) {
    lines.push_back(std::string(static_cast<std::size_t>(2 * row.depth), ' ') + row.name + " " +
                    std::to_string(row.calls) + " " + std::to_string(static_cast<int>(row.total / 1000 + 0.5)) + " " +
                    std::to_string(row.ratio).substr(0, 5));
  }
  return lines;
}

TEST(ReportByScope, NestsOpsUnderTheirScopesWithGradientsApart) {
  ScopeScene scene;
  add_runs(scene);
  const Measures m = measure(scene.finish(), {.nesting = Nesting::scope});
  ASSERT_EQ(m.per_thread.size(), 1u);
  EXPECT_EQ(lines(m.per_thread[0]), (std::vector<std::string>{
                                        "decoder 2 90 0.450",
                                        "  decoder/attention 2 50 0.250",
                                        "    decoder/attention (backward) 2 30 0.150",
                                        "      softmax_grad/sum 2 30 0.150",
                                        "    softmax 4 20 0.100",
                                        "  matmul 2 20 0.100",
                                        "  decoder (backward) 2 20 0.100",
                                        "    group: mul_grad{mul+sum}+add 2 20 0.100",
                                        "optimizer 2 60 0.300",
                                        "  3 groups: mul*2+add 2 60 0.300",
                                        "encoder 2 20 0.100",
                                        "  matmul 2 20 0.100",
                                        "(between events) 2 20 0.100",
                                        "add 2 10 0.050",
                                    }));
  // The sums are those of the report by scoped_op.
  const Measures by_op = measure(scene.trace());
  EXPECT_EQ(m.total, by_op.total);
  EXPECT_EQ(m.computation, by_op.computation);
}

TEST(ReportByScope, AScopeHasACallARunWithAllThatRanInIt) {
  ScopeScene scene;
  add_runs(scene, 1);
  // A second run with other times: the attention takes 40 us in it, not 25.
  scene.add({.name = "run", .kind = SpanKind::run}, 200, 300, 2);
  scene.add(scoped_op("softmax", "decoder/attention", "softmax2"), 200, 240);
  const Measures m = measure(scene.finish(), {.nesting = Nesting::scope});
  int found = 0;
  for (const Row& row : m.per_thread.at(0).rows) {
    if (row.name != "decoder/attention") continue;
    ++found;
    EXPECT_EQ(row.calls, 2u);
    EXPECT_EQ(row.min, 25e3);  // 20..25, 30..35, 45..60
    EXPECT_EQ(row.max, 40e3);
    EXPECT_EQ(row.average(), 32.5e3);
    EXPECT_EQ(row.ratio, 65.0 / 200);
  }
  EXPECT_EQ(found, 1);
}

TEST(ReportByScope, SortsEveryLevelByEveryKey) {
  ScopeScene scene;
  scene.add({.name = "run", .kind = SpanKind::run}, 0, 100, 1);
  scene.add(scoped_op("a", "second"), 0, 4);  // a: 1 call of 4; b: 3 calls of 1, 2, 3
  scene.add(scoped_op("b", "second"), 4, 5);
  scene.add(scoped_op("b", "second"), 5, 7);
  scene.add(scoped_op("b", "second"), 7, 10);
  scene.add(scoped_op("c", "first"), 10, 60);
  scene.add({.name = "run", .kind = SpanKind::run}, 100, 105, 2);
  scene.add(scoped_op("c", "second"), 100, 105);
  const Trace& trace = scene.finish();
  const auto order = [&](SortBy sort) {
    const Measures m = measure(trace, {.sort = sort, .nesting = Nesting::scope});
    std::string names;
    for (const Row& row : m.per_thread.at(0).rows) {
      if (row.name[0] != '(') names += row.depth == 0 ? " " + row.name + ":" : row.name;
    }
    return names;
  };
  EXPECT_EQ(order(SortBy::none), " second:abc first:c");
  EXPECT_EQ(order(SortBy::calls), " second:bac first:c");  // 2 runs, then 1; 3 calls, then 1 and 1
  EXPECT_EQ(order(SortBy::total), " first:c second:bca");  // 50, 15; 6, 5, 4
  EXPECT_EQ(order(SortBy::max), " first:c second:cab");    // 50, 10; 5, 4, 3
  EXPECT_EQ(order(SortBy::min), " first:c second:cab");    // 50, 5; 5, 4, 1
  EXPECT_EQ(order(SortBy::average), " first:c second:cab");
}

TEST(ReportByScope, TakesOpsApartAtEveryLevelOfDetail) {
  ScopeScene scene;
  scene.add({.name = "run", .kind = SpanKind::run}, 0, 50, 1);
  for (int i = 0; i < 2; ++i) {
    const std::string instance = "slice" + std::to_string(i);
    SiteInfo site{.op = "slice", .scope = "decoder", .instance = instance, .kind = SpanKind::op};
    scene.add(site, 20 * i, 20 * i + 20);
    site.kind = SpanKind::prepare;
    scene.add(site, 20 * i, 20 * i + 5);
    site.kind = SpanKind::compute;
    scene.add(site, 20 * i + 5, 20 * i + 20);
  }
  const Trace& trace = scene.finish();
  const auto at = [&](Detail detail) {
    return lines(measure(trace, {.detail = detail, .nesting = Nesting::scope}).per_thread.at(0));
  };
  EXPECT_EQ(at(Detail::op),
            (std::vector<std::string>{"decoder 1 40 0.800", "  slice 2 40 0.800", "(between events) 1 10 0.200"}));
  EXPECT_EQ(at(Detail::phases), (std::vector<std::string>{
                                    "decoder 1 40 0.800",
                                    "  slice 2 40 0.800",
                                    "    slice/compute 2 30 0.600",
                                    "    slice/prepare_data 2 10 0.200",
                                    "(between events) 1 10 0.200",
                                }));
  EXPECT_EQ(at(Detail::instances), (std::vector<std::string>{
                                       "decoder 1 40 0.800",
                                       "  slice 2 40 0.800",
                                       "    slice0 1 20 0.400",
                                       "      slice0/compute 1 15 0.300",
                                       "      slice0/prepare_data 1 5 0.100",
                                       "    slice1 1 20 0.400",
                                       "      slice1/compute 1 15 0.300",
                                       "      slice1/prepare_data 1 5 0.100",
                                       "(between events) 1 10 0.200",
                                   }));
}

// A branch of the scope "decoder" that runs ops of its scope, of one further in, of one further out, and of another.
TEST(ReportByScope, NestsWhatAnOpRunsUnderThatOp) {
  ScopeScene scene;
  scene.add({.name = "run", .kind = SpanKind::run}, 0, 50, 1);
  scene.add(scoped_op("branch", "model/decoder"), 0, 50);
  scene.add(scoped_op("mul", "model/decoder"), 0, 10);
  scene.add(scoped_op("exp", "model/decoder/cell"), 10, 20);
  scene.add(scoped_op("add", "model"), 20, 30);
  scene.add(scoped_op("log", "other"), 30, 40);
  scene.add(scoped_op("log_grad/div", "model/decoder"), 40, 50);
  const Measures m = measure(scene.finish(), {.sort = SortBy::none, .nesting = Nesting::scope});
  EXPECT_EQ(lines(m.per_thread.at(0)), (std::vector<std::string>{
                                           "model 1 50 1.000",
                                           "  model/decoder 1 50 1.000",
                                           "    branch 1 50 1.000",
                                           "      mul 1 10 0.200",
                                           "      model/decoder/cell 1 10 0.200",
                                           "        exp 1 10 0.200",
                                           "      add 1 10 0.200",
                                           "      other 1 10 0.200",
                                           "        log 1 10 0.200",
                                           "      model/decoder (backward) 1 10 0.200",
                                           "        log_grad/div 1 10 0.200",
                                       }));
}

TEST(ReportByScope, SharesGroupsOutWithinTheirScope) {
  ScopeScene scene;
  scene.add({.name = "run", .kind = SpanKind::run}, 0, 40, 1);
  SiteInfo group = scoped_op("group", "decoder");
  group.members = {{"mul", 1}, {"sum", 3}};
  scene.add(group, 0, 40);
  const Measures m = measure(scene.finish(), {.nesting = Nesting::scope, .share_groups = true});
  EXPECT_EQ(lines(m.per_thread.at(0)),
            (std::vector<std::string>{"decoder 1 40 1.000", "  sum 1 30 0.750", "  mul 1 10 0.250"}));
}

TEST(ReportByScope, SaysSoAndKeepsAScopeApartFromAnOpOfItsName) {
  ScopeScene scene;
  scene.add({.name = "run", .kind = SpanKind::run}, 0, 40, 1);
  scene.add(scoped_op("decoder", ""), 0, 10);
  scene.add(scoped_op("mul", "decoder"), 10, 40);
  const std::string text = report(scene.finish(), {.nesting = Nesting::scope});
  EXPECT_NE(text.find("\nNested by scope: a call of a scope is a run\n"), std::string::npos);
  EXPECT_NE(text.find("\nthread0::decoder  1      0.03 "), std::string::npos) << text;
  EXPECT_NE(text.find("\nthread0::decoder  1      0.01 "), std::string::npos) << text;
}

TEST(GroupName, PutsOpsOfOneOriginTogether) {
  Trace trace;
  const auto name = [&](std::vector<SiteInfo::Member> members, const char* scoped_op = "") {
    const SiteId id = trace.add_site({.op = scoped_op, .kind = SpanKind::op, .members = std::move(members)});
    return group_name(trace, trace.sites()[id]);
  };
  EXPECT_EQ(name({{"mul"}, {"sum"}, {"mul"}}), "group: mul*2+sum");
  EXPECT_EQ(name({{"softmax_grad/sub"}, {"softmax_grad/mul"}, {"sum_grad/expand"}, {"softmax_grad/mul"}}, "group"),
            "group: softmax_grad{sub+mul*2}+sum_grad/expand");
  EXPECT_EQ(name({{"add"}, {"a_grad/mul"}, {"add"}}, "lstm_cell/group"), "lstm_cell/group: add*2+a_grad/mul");
  EXPECT_EQ(name({{"x"}, {"a_long_name_of_an_op_grad/another_long_name"}, {"a_long_name_of_an_op_grad/third_name"}}),
            "group: x+a_long_name_of_an_op_grad{another_long_name+...} (3 ops)");
}

}  // namespace
}  // namespace paoding::profile
