// SPDX-License-Identifier: Apache-2.0
// What a step consists of and what of it changed, of traces made by hand whose numbers can be worked out on paper.
#include "profile/diff.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <cmath>
#include <functional>
#include <random>

#include "paoding/error.h"

namespace paoding::profile {
namespace {

// Steps of one thread, each with ops one behind the other; times in us.
class Loop {
 public:
  struct Op {
    std::string scope, name;
    double us;
    std::int64_t bytes = 0;
    std::vector<std::string> members = {};
    std::string kernel = {};
  };

  explicit Loop(std::int64_t start_of_wall_ns = 0) {
    thread_ = trace_.add_track(TrackKind::thread, "thread0");
    if (start_of_wall_ns != 0)
      trace_.add_anchor(0, "one machine", {.ns = 1, .system_ns = 1, .wall_ns = start_of_wall_ns});
  }
  // Ops, then 5 us of the run itself, then as many of nobody's as the pause.
  void step(const std::vector<Op>& ops, double pause = 10) {
    double end = at_;
    for (const Op& one : ops) end += one.us;
    run_ += 1;
    add({.name = "program", .kind = SpanKind::run}, at_, end + 5);
    for (const Op& one : ops) {
      SiteInfo site{.op = one.name, .scope = one.scope, .kernel = one.kernel, .kind = SpanKind::op, .bytes = one.bytes};
      for (const std::string& member : one.members) site.members.push_back({.op = member});
      add(site, at_, at_ + one.us);
      at_ += one.us;
    }
    at_ = end + 5 + pause;
  }
  // On a GPU; times in us.
  void on_gpu(const char* stream, const SiteInfo& site, double start, double end) {
    const TrackId track = trace_.add_track(TrackKind::stream, stream, 0);
    trace_.add({.track = track,
                .site = trace_.add_site(site),
                .start_ns = ns(start),
                .duration_ns = ns(end) - ns(start),
                .run = 1});
  }
  void host(const SiteInfo& site, double start, double end) { add(site, start, end); }
  ProcessSteps finish(const std::string& name = "loop") {
    trace_.finish();
    return steps_of_process(trace_, name);
  }
  Trace& trace() { return trace_; }

 private:
  static std::int64_t ns(double us) { return std::llround(us * 1000); }
  void add(const SiteInfo& site, double start, double end) {
    trace_.add({.track = thread_,
                .site = trace_.add_site(site),
                .start_ns = ns(start),
                .duration_ns = ns(end) - ns(start),
                .run = run_});
  }
  Trace trace_;
  TrackId thread_;
  std::uint32_t run_ = 0;
  double at_ = 0;
};

using Ops = std::vector<Loop::Op>;
using Change = std::function<Ops(Ops)>;

const StepPart& part(const ProcessSteps& steps, const std::string& name) {
  for (const StepPart& one : steps.parts) {
    if (one.name == name) return one;
  }
  static const StepPart none;
  ADD_FAILURE() << "no part " << name;
  return none;
}

const DiffedPart& part(const Diff& diff, const std::string& name) {
  for (const DiffedPart& one : diff.parts) {
    if (one.name == name) return one;
  }
  static const DiffedPart none;
  ADD_FAILURE() << "no part " << name;
  return none;
}

// Processes of 20 steps; noise of 0.2% between processes and of 1% between ops.
DiffSide side_of(const char* name, const Ops& ops, int processes, std::uint64_t seed, std::int64_t wall = 0) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  DiffSide side;
  side.name = name;
  for (int p = 0; p < processes; ++p) {
    Loop loop(wall == 0 ? 0 : wall + p * 2000);
    const double speed = std::exp(0.002 * normal(random));
    for (int s = 0; s < 20; ++s) {
      Ops noisy = ops;
      for (Loop::Op& one : noisy) one.us *= speed * std::exp(0.01 * normal(random));
      loop.step(noisy);
    }
    side.steps.push_back(loop.finish(name));
  }
  return side;
}

Ops some_ops() {
  return {{"encoder", "matmul", 400, 1 << 20}, {"encoder", "mul", 50, 4096},        {"encoder", "add", 50, 4096},
          {"encoder", "tanh", 80, 4096},       {"decoder", "matmul", 300, 1 << 20}, {"", "adam", 100, 1 << 22}};
}

// ---- what a step consists of ----

TEST(StepParts, AddUpToTheStep) {
  Loop loop;
  for (int i = 0; i < 9; ++i) loop.step({{"a", "mul", 10.0 + i, 64}, {"a", "mul", 3, 128}, {"", "sum", 20}});
  const ProcessSteps steps = loop.finish();
  // 48 + i us, the last one without what is nobody's 46; in the middle is that of 51 us.
  EXPECT_TRUE(steps.has_steps);
  ASSERT_EQ(steps.ns.size(), 9u);
  double sum = 0;
  for (const StepPart& one : steps.parts) sum += one.ns;
  EXPECT_EQ(steps.median_ns, 51000);
  EXPECT_NEAR(sum, 51000, 1e-6);
  EXPECT_NEAR(part(steps, "sum").ns, 20000, 1e-6);
  EXPECT_NEAR(part(steps, "sum").calls, 1, 1e-9);
  EXPECT_NEAR(part(steps, "(run, between ops)").ns, 5000, 1e-6);
  EXPECT_NEAR(part(steps, "(your code)").ns, 10000, 1e-6);
  EXPECT_FALSE(part(steps, "(your code)").is_op);
  // Those of another size are another part.
  std::size_t muls = 0;
  for (const StepPart& one : steps.parts) muls += one.name == "mul";
  EXPECT_EQ(muls, 2u);
}

// What a GPU does is what the step is at, whatever the host does; what began first goes on.
TEST(StepParts, AreTheGpusWhereItWorks) {
  Loop loop;
  loop.step({{"", "on the host", 100}});
  const SiteInfo matmul{.name = "gemm", .op = "matmul", .kind = SpanKind::kernel};
  const SiteInfo add{.name = "add", .op = "add", .kind = SpanKind::kernel};
  loop.on_gpu("stream 7", matmul, 10, 40);
  loop.on_gpu("stream 8", add, 30, 60);
  loop.on_gpu("stream 9", {.name = "copy", .kind = SpanKind::memcpy, .copy = Copy::host_to_device}, 50, 75);
  const ProcessSteps steps = loop.finish();
  EXPECT_NEAR(part(steps, "matmul").ns, 30000, 1e-6);
  EXPECT_NEAR(part(steps, "add").ns, 20000, 1e-6);
  EXPECT_NEAR(part(steps, "copy").ns, 15000, 1e-6);  // the rest of it is hidden
  EXPECT_NEAR(part(steps, "on the host").ns, 35000, 1e-6);
  EXPECT_NEAR(part(steps, "matmul").calls, 1, 1e-9);
}

TEST(StepParts, LeaveOutStepsThatWarmUp) {
  EXPECT_EQ(warm_up_steps({900, 300, 100, 101, 99, 100, 100, 102}), 2u);
  EXPECT_EQ(warm_up_steps({100, 300, 100, 101, 99, 100, 100, 102}), 0u);  // a slow one further in is none
  EXPECT_EQ(warm_up_steps({103, 100, 101, 99, 100, 100}), 0u);
  EXPECT_EQ(warm_up_steps({900, 100}), 0u);
  EXPECT_EQ(warm_up_steps({5, 5, 5, 5, 1, 1, 1, 1}), 4u);  // never more than half
}

TEST(StepParts, TakeAWindowWithoutARunAsOneStep) {
  Loop loop;
  loop.host({.op = "mul", .kind = SpanKind::op}, 0, 30);
  loop.host({.op = "add", .kind = SpanKind::op}, 40, 50);
  const ProcessSteps steps = loop.finish();
  EXPECT_FALSE(steps.has_steps);
  EXPECT_EQ(steps.median_ns, 50000);
  EXPECT_NEAR(part(steps, "(your code)").ns, 10000, 1e-6);
  EXPECT_EQ(Loop().finish().median_ns, 0);
}

// ---- the diff ----

TEST(Diff, OfAProgramBesideItselfHasNoRow) {
  const DiffSide side = side_of("a", some_ops(), 5, 1);
  const Diff same = diff(diff_input(side, side));
  EXPECT_EQ(same.verdict, Verdict::same);
  EXPECT_TRUE(same.parts.empty());
  EXPECT_EQ(same.change, 0);
  EXPECT_NE(to_text(same).find("\nVerdict: same\n"), std::string::npos);
}

// The change is laid to the ops that were changed, all of it but a twentieth.
TEST(Diff, LaysEveryChangeToItsOps) {
  struct Seeded {
    const char* what;
    Change change;
    Verdict verdict;
    std::vector<std::string> names;  // of the rows that explain it
    Alignment how;
  };
  const std::vector<Seeded> seeded = {
      {"one op slower", [](Ops ops) { return ops[0].us *= 1.3, ops; }, Verdict::slower, {"matmul"}, Alignment::same},
      {"one op faster", [](Ops ops) { return ops[4].us *= 0.5, ops; }, Verdict::faster, {"matmul"}, Alignment::same},
      {"a new op",
       [](Ops ops) {
         return ops.push_back({"decoder", "cumsum", 90, 64}), ops;
       },
       Verdict::slower,
       {"cumsum"},
       Alignment::appeared},
      {"an op that is gone",
       [](Ops ops) { return ops.erase(ops.begin() + 5), ops; },
       Verdict::faster,
       {"adam"},
       Alignment::vanished},
      {"fused",
       [](Ops ops) {
         ops.erase(ops.begin() + 1, ops.begin() + 4);
         return ops.push_back({"encoder", "group", 60, 4096, {"mul", "add", "tanh"}}), ops;
       },
       Verdict::faster,
       {"group: mul+add+tanh"},
       Alignment::fused},
      {"of another size",
       [](Ops ops) { return ops[4].us *= 2, ops[4].bytes *= 2, ops; },
       Verdict::slower,
       {"matmul"},
       Alignment::resized},
      {"renamed scope",
       [](Ops ops) {
         for (Loop::Op& one : ops) one.scope = one.scope == "encoder" ? "reader" : one.scope;
         return ops[3].us *= 2, ops;
       },
       Verdict::slower,
       {"tanh"},
       Alignment::renamed},
  };
  for (const Seeded& one : seeded) {
    const Diff found = diff(diff_input(side_of("a", some_ops(), 5, 1), side_of("b", one.change(some_ops()), 5, 2)));
    EXPECT_EQ(found.verdict, one.verdict) << one.what << "\n" << to_text(found);
    double by_named = 0;
    for (const std::string& name : one.names) {
      EXPECT_EQ(part(found, name).how, one.how) << one.what << "\n" << to_text(found);
      EXPECT_TRUE(part(found, name).is_certain) << one.what;
      EXPECT_EQ(found.parts[0].name, name) << one.what << "\n" << to_text(found);
      by_named += part(found, name).change();
    }
    EXPECT_GT(by_named / found.change, 0.9) << one.what << "\n" << to_text(found);
    EXPECT_GT(found.by_ops / found.change, 0.95) << one.what << "\n" << to_text(found);
    EXPECT_LT(found.by_ops / found.change, 1.05) << one.what;
    EXPECT_NEAR(found.by_ops + found.by_others + found.unexplained, found.change, 1e-6) << one.what;
  }
}

TEST(Diff, SaysWhatIsNoOps) {
  const auto side = [](const char* name, double pause) {
    DiffSide made;
    made.name = name;
    for (int p = 0; p < 5; ++p) {
      Loop loop;
      for (int s = 0; s < 20; ++s) loop.step(some_ops(), pause + 0.01 * p);
      made.steps.push_back(loop.finish());
    }
    return made;
  };
  const Diff found = diff(diff_input(side("a", 10), side("b", 150)));
  EXPECT_EQ(found.verdict, Verdict::slower);
  EXPECT_EQ(found.parts[0].name, "(your code)");
  EXPECT_NEAR(found.by_others, 140000, 1e-6);
  EXPECT_NEAR(found.by_ops, 0, 1e-6);
  EXPECT_NEAR(found.unexplained, 0, 1e-6);
  EXPECT_NE(to_text(found).find("ops make 0.0%, other parts 100.0%, unexplained is"), std::string::npos)
      << to_text(found);
}

TEST(Diff, NamesTheKernelThatAnOpRanAs) {
  Ops ops = {{"", "matmul", 100, 64, {}, "gemm_128x128"}}, other = ops;
  other[0].us = 150, other[0].kernel = "gemm_64x64";
  const Diff found = diff(diff_input(side_of("a", ops, 5, 1), side_of("b", other, 5, 2)));
  EXPECT_EQ(part(found, "matmul").note, "kernel gemm_64x64, was gemm_128x128");
}

TEST(Diff, GivesNoVerdictOfMachinesThatDiffer) {
  DiffInput input = diff_input(side_of("a", some_ops(), 5, 1), side_of("b", some_ops(), 5, 2));
  input.b.machines = {"another"};
  EXPECT_EQ(diff(input).verdict, Verdict::inconclusive);
  EXPECT_NE(to_text(diff(input)).find("the machines differ"), std::string::npos);
  EXPECT_EQ(diff(input, {.across_machines = true}).verdict, Verdict::same);
}

// All of B recorded behind all of A on a machine that gets slower by the process.
TEST(Diff, GivesNoVerdictOfDrift) {
  DiffSide a, b;
  a.name = "a", b.name = "b";
  const double noise[] = {0.1, -0.1, 0.05, 0, -0.05};
  for (int p = 0; p < 10; ++p) {
    Loop loop(1'000'000 + p);
    for (int s = 0; s < 5; ++s) loop.step({{"", "mul", 1000 + 20.0 * p + noise[p % 5]}});
    (p < 5 ? a : b).steps.push_back(loop.finish());
  }
  const Diff found = diff(diff_input(a, b));
  EXPECT_EQ(found.verdict, Verdict::inconclusive);
  const std::string text = to_text(found);
  EXPECT_NE(text.find("the machine drifted by +"), std::string::npos) << text;
  EXPECT_NE(text.find("all of one side ran before all of the other"), std::string::npos) << text;
}

TEST(Diff, RefusesARecordingOfNothing) {
  DiffSide a = side_of("a", some_ops(), 1, 1), b;
  b.steps.push_back(Loop().finish("empty.paoding"));
  try {
    diff_input(a, b);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("empty.paoding has no step"), std::string::npos) << error.what();
  }
}

// One of several rows that is slower decides; the intervals of many are wider.
TEST(Diff, HasOneVerdictOfAllRows) {
  DiffInput input;
  input.a.processes = input.b.processes = 3;
  input.rows = {{"x", {100, 100.1, 99.9}, {100, 100.1, 99.9}, {}}, {"y", {100, 100.1, 99.9}, {50, 50.1, 49.9}, {}}};
  EXPECT_EQ(diff(input).verdict, Verdict::faster);
  input.rows.push_back({"z", {100, 100.1, 99.9}, {120, 120.1, 119.9}, {}});
  const Diff found = diff(input);
  EXPECT_EQ(found.verdict, Verdict::slower);
  EXPECT_NEAR(found.rows[0].time.confidence, 1 - 0.01 / 3, 1e-12);
}

// ---- how it looks ----

TEST(Diff, IsJsonWithTheSameNumbers) {
  const Diff found = diff(diff_input(side_of("a\"b", some_ops(), 5, 1), side_of(
                                                                            "b",
                                                                            [] {
                                                                              Ops ops = some_ops();
                                                                              return ops[0].us *= 1.3, ops;
                                                                            }(),
                                                                            5, 2)));
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  const simdjson::padded_string text(to_json(found));
  ASSERT_EQ(parser.parse(text).get(json), simdjson::SUCCESS) << text;
  EXPECT_EQ(std::string_view(json["verdict"]), "slower");
  EXPECT_EQ(std::string_view(json["a"]["name"]), "a\"b");
  EXPECT_EQ(double(json["rows"].at(0)["ratio"]), found.rows[0].time.ratio);
  EXPECT_EQ(double(json["change"]["ns"]), found.change);
  double sum = double(json["change"]["unexplained_ns"]);
  for (const simdjson::dom::element one : json["parts"]) sum += double(one["change_ns"]);
  EXPECT_NEAR(sum, found.change, 1e-6);
}

TEST(Diff, LetsNoNameBeMarkup) {
  Ops ops = {{"<script>|a", "`b`\n@all *x*", 100, 64}}, other = ops;
  other[0].us = 150;
  const std::string text = to_markdown(diff(diff_input(side_of("a|b", ops, 5, 1), side_of("b", other, 5, 2))));
  EXPECT_NE(text.find("### paoding diff: slower"), std::string::npos);
  EXPECT_NE(text.find("| &lt;script&gt;\\|a: \\`b\\`\\\\x0a&#64;all \\*x\\* |"), std::string::npos) << text;
  EXPECT_NE(text.find("A: a\\|b, 5 processes"), std::string::npos) << text;
  for (const char* forbidden : {"<script>", "@all", "`b`"}) EXPECT_EQ(text.find(forbidden), std::string::npos) << text;
}

}  // namespace
}  // namespace paoding::profile
