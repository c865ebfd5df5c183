// SPDX-License-Identifier: Apache-2.0
// Which kernel runs an op: the answer follows from the call, with its environment, and from nothing else; over random
// graphs passes and steps have the same decisions.
#include "ops/decision.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "paoding/nn.h"
#include "tests/support/decision_check.h"
#include "tests/support/random_graph.h"

namespace paoding::testing_program {
namespace {

// Choices that nothing but this test timed.
class ChoicesOfATest : public TimedChoices {
 public:
  std::optional<TimedChoice> find(const std::string& key, std::string* ignored) override {
    if (ignored != nullptr) *ignored = key == "f32[7]" ? "a broken file" : "";
    const auto found = of_.find(key);
    return found == of_.end() ? std::nullopt : std::optional(found->second);
  }
  void keep(const std::string& key, const TimedChoice& choice) override { of_[key] = choice; }

 private:
  std::map<std::string, TimedChoice> of_;
};

class NoKernel : public PreparedKernel {
 public:
  void run(const KernelRun&) const override {}
};

// Two kernels: "library" where it was timed to be faster, "own" where its input begins at a multiple of 16 bytes.
const OpDef& timed_op() {
  static const OpDef& op = []() -> const OpDef& {
    const OpDef& made = register_op({.name = "test_timed",
                                     .summary = "a",
                                     .kind = OpKind::kernel,
                                     .inputs = {"a"},
                                     .infer = [](const OpCall& call) { return std::vector{call.inputs[0]}; }});
    const auto prepare = [](const KernelCall&, const Device&) { return std::make_unique<NoKernel>(); };
    register_kernel(made.name, {.name = "library",
                                .device = DeviceKind::cpu,
                                .refusal = [](const KernelCall& call) -> std::string {
                                  if (call.timed == nullptr || !call.timed->choice)
                                    return "nothing is known of it" + (call.timed ? call.timed->ignored : "");
                                  return call.timed->choice->is_library ? "" : "it was slower";
                                },
                                .prepare = prepare,
                                .reason = [](const KernelCall& call) { return "timed as " + call.timed->key; },
                                .timing_key = [](const KernelCall& call) { return to_string(call.inputs[0].type); }});
    register_kernel(made.name, {.name = "own",
                                .device = DeviceKind::cpu,
                                .refusal = [](const KernelCall& call) -> std::string {
                                  return call.alignments[0] % 16 == 0 ? "" : "a begins in the middle of 16 bytes";
                                },
                                .prepare = prepare});
    return made;
  }();
  return op;
}

KernelCall timed_call(const KernelEnvironmentPtr& environment, std::int64_t elements = 4) {
  const Layout a = Layout::dense({f32, {elements}});
  return {.op = &timed_op(),
          .attrs = {},
          .inputs = {a},
          .outputs = {a},
          .alignments = {256, 256},
          .environment = environment};
}

KernelEnvironmentPtr environment_with(const std::shared_ptr<TimedChoices>& timed) {
  return std::make_shared<const KernelEnvironment>(KernelEnvironment{.timed = timed});
}

TEST(Decision, FollowsFromTheEnvironmentOfTheCall) {
  const auto faster = std::make_shared<ChoicesOfATest>(), slower = std::make_shared<ChoicesOfATest>();
  faster->keep("f32[4]", {true, "1", 2, 3}), slower->keep("f32[4]", {false, "1", 3, 2});
  const Decision by_library = decide(timed_call(environment_with(faster))),
                 by_own = decide(timed_call(environment_with(slower))), untimed = decide(timed_call(no_environment()));
  EXPECT_EQ(by_library.kernel()->name, "library");
  EXPECT_EQ(by_library.notes(),
            (std::vector<std::string>{"test_timed: library chosen: timed as f32[4]",
                                      "test_timed: library chosen by time: a library's engine 1 2.00 us, the other "
                                      "3.00 us; entry 'f32[4]'"}));
  EXPECT_EQ(by_library.call.timed->choice, faster->find("f32[4]", nullptr));
  EXPECT_EQ(by_library.accepting.size(), 2u) << "the other stands in";
  EXPECT_EQ(by_own.kernel()->name, "own");
  EXPECT_EQ(by_own.refusals, std::vector<std::string>{"test_timed: library declined: it was slower"});
  EXPECT_EQ(untimed.refusals, std::vector<std::string>{"test_timed: library declined: nothing is known of it"});
  EXPECT_EQ(untimed.call.timed, nullptr);
  EXPECT_FALSE(are_same_question(by_library.call, by_own.call));
  const Decision broken = decide(timed_call(environment_with(faster), 7));
  EXPECT_EQ(broken.refusals[0], "test_timed: library declined: nothing is known of ita broken file");
}

TEST(Decision, SaysWhichOperandsLieInStrides) {
  KernelCall call = timed_call(no_environment());
  call.inputs[0] = {{f32, {2, 4}}, {1, 2}};
  call.outputs[0] = Layout::dense({f32, {2, 4}});
  EXPECT_EQ(decide(call).notes(), std::vector<std::string>{"test_timed: own takes a f32[2,4] in strides [1, 2]"});
}

TEST(Decision, OfAProgramFollowsFromTheEnvironmentThatItIsCompiledWith) {
  const auto faster = std::make_shared<ChoicesOfATest>();
  faster->keep("f32[4]", {true, "1", 2, 3});
  Graph g;
  g.fetch("y", call(timed_op(), std::array{g.input("a", f32, {4})})[0]);
  const auto kernel = [&](const KernelEnvironmentPtr& environment) {
    const CompiledPlan made = compile_plan(g, {}, target_of(Device::cpu()), Preprocess::in_every_run, environment);
    return made.plan.steps.at(0).kernel->name;
  };
  EXPECT_EQ(kernel(environment_with(faster)), "library");
  EXPECT_EQ(kernel(no_environment()), "own");
  EXPECT_EQ(kernel(environment_with(faster)), "library");
}

// A choice that is timed after a plan was made changes nothing of it.
TEST(Decision, IsKeptWithTheEntryThatItWasMadeWith) {
  const auto choices = std::make_shared<ChoicesOfATest>();
  choices->keep("f32[4]", {true, "1", 2, 3});
  Graph g;
  g.fetch("y", call(timed_op(), std::array{g.input("a", f32, {4})})[0]);
  const CompiledPlan made =
      compile_plan(g, {}, target_of(Device::cpu()), Preprocess::in_every_run, environment_with(choices));
  choices->keep("f32[4]", {false, "2", 5, 3});
  const Step& step = made.plan.steps.at(0);
  EXPECT_EQ(step.call.timed->choice->engine, "1");
  std::vector<std::string> notes;
  EXPECT_EQ(prepare_kernel(*step.decision, *step.kernel, step.call, Device::cpu(), &notes)->made_by->name, "library");
}

TEST(Decision, IsAnotherQuestionWhereAnythingDiffersThatAKernelMayLookAt) {
  const KernelCall call = timed_call(no_environment());
  const auto differs = [&](const std::function<void(KernelCall&)>& change) {
    KernelCall other = call;
    change(other);
    return !are_same_question(call, other);
  };
  EXPECT_FALSE(differs([](KernelCall&) {}));
  EXPECT_FALSE(differs([](KernelCall& other) { other.scope = "elsewhere"; }));
  EXPECT_FALSE(differs([](KernelCall& other) { other.target = std::make_shared<const Target>(*other.target); }));
  EXPECT_TRUE(differs([](KernelCall& other) { other.target = std::make_shared<const Target>(named_target("avx2")); }));
  EXPECT_TRUE(differs([](KernelCall& other) { other.op = find_op("matmul"); }));
  EXPECT_TRUE(differs([](KernelCall& other) { other.attrs.set("any", true); }));
  EXPECT_TRUE(differs([](KernelCall& other) { other.inputs[0].type.dtype = f64; }));
  EXPECT_TRUE(differs([](KernelCall& other) { other.inputs[0].strides[0] = 2; }));
  EXPECT_TRUE(differs([](KernelCall& other) { other.outputs[0].strides[0] = 2; }));
  EXPECT_TRUE(differs([](KernelCall& other) { other.alignments[1] = 4; }));
  EXPECT_TRUE(differs([](KernelCall& other) { other.allow_tf32 = true; }));
  EXPECT_TRUE(differs([](KernelCall& other) { other.together = 2; }));
  EXPECT_TRUE(differs([](KernelCall& other) { other.pipelined_layers = 2; }));
  EXPECT_TRUE(differs([](KernelCall& other) {
    other.environment = std::make_shared<const KernelEnvironment>(KernelEnvironment{.cta_group = "of 16 CTAs"});
  }));
}

// The part of a slot that a slice is begins where no kernel takes it, and is copied.
TEST(Decision, OperandsThatBeginInTheMiddleOfASlotAreCopiedForAKernelThatNothingElseStandsInFor) {
  Graph g;
  const Value a = g.input("a", f32, {9});
  g.fetch("y", call(timed_op(), std::array{slice(a, 0, 1, 5)})[0]);
  const Plan plan = compile_plan(g, {}, target_of(Device::cpu())).plan;
  const auto step = std::ranges::find(plan.steps, Step::Kind::kernel, &Step::kind);
  ASSERT_NE(step, plan.steps.end());
  EXPECT_EQ(step->kernel->name, "own");
  EXPECT_EQ(step->operands[0].offset, 0);
  EXPECT_EQ(std::ranges::count_if(plan.notes, [](const std::string& note) { return has(note, "copies f32[4]"); }), 1)
      << to_string(plan);
}

// Random layers of ops whose kernels passes ask for: recurrences, convolutions with additions and pools, products with
// weights that many read, on inputs that may be slices.
class RandomLayers {
 public:
  RandomLayers(Graph& graph, unsigned seed) : graph_(graph), random_(seed) {
    Values trained;
    const int layers = 2 + static_cast<int>(below(3));
    for (int i = 0; i < layers; ++i) {
      const Value made = below(3) == 0 ? recurrence() : below(2) == 0 ? convolution() : loop();
      trained.push_back(sum(made * made));
      if (below(2) == 0) graph.fetch("layer " + std::to_string(i), made);
    }
    Value loss = trained[0];
    for (std::size_t i = 1; i < trained.size(); ++i) loss = loss + trained[i];
    graph.fetch("loss", loss);
    if (below(2) == 0) minimize(loss, Sgd{.learning_rate = 0.1});
  }

 private:
  std::int64_t below(std::int64_t bound) { return static_cast<std::int64_t>(random_() % static_cast<unsigned>(bound)); }
  std::string name() { return "n" + std::to_string(count_++); }

  // An input, or a slice of one that begins anywhere along one of its axes.
  Value input(Shape shape) {
    if (below(3) != 0) return graph_.input(name(), f32, shape);
    const int axis = static_cast<int>(below(shape.rank()));
    const std::int64_t before = 1 + below(3), extent = shape[axis];
    shape = shape.with_removed(axis).with_inserted(axis, extent + before);
    return slice(graph_.input(name(), f32, shape), axis, before, before + extent);
  }

  Value recurrence() {
    const std::int64_t hidden = 8 << below(6), width = 8 * (1 + below(8)), rows = 1 + below(20);
    const Value xs = input({3 + below(8), rows, width});
    const nn::RecurrentLayerOptions options{.layers = 1 + static_cast<int>(below(3)), .bidirectional = below(2) == 0};
    if (below(2) == 0) return nn::Lstm(graph_, name(), width, hidden, options)(xs).outputs;
    return nn::Gru(graph_, name(), width, hidden, options)(xs).outputs;
  }

  Value convolution() {
    const std::int64_t in = 1 + below(24), out = 4 * (1 + below(16)), kernel = 1 + 2 * below(2);
    const Conv2dOptions same{.padding = {kernel / 2, kernel / 2, kernel / 2, kernel / 2}};
    const Value x = input({1 + below(4), in, 8, 8});
    const Value w = graph_.parameter(name(), f32, {out, in, kernel, kernel}), b = graph_.parameter(name(), f32, {out});
    Value y = conv2d(x, w, b, same);
    if (below(2) == 0) y = y + input(y.shape());
    y = relu(y);
    const Value again = graph_.parameter(name(), f32, {out, out, 3, 3});
    y = relu(conv2d(y, again, graph_.parameter(name(), f32, {out}), {.padding = {1, 1, 1, 1}}));
    return below(2) == 0 ? max_pool2d(y) : y;
  }

  Value loop() {
    const std::int64_t width = 64 << below(4), rows = 1 + below(8);
    const Value w = graph_.parameter(name(), f32, {width, width});
    return scan({input({rows, width})}, {input({5, rows, width})},
                [&](const Values& carry, const Values& element) {
                  const Value h = sigmoid(matmul(carry[0], w, false, width > 256) + element[0]);
                  return step({h}, {h});
                })
        .outputs[0];
  }

  Graph& graph_;
  std::mt19937 random_;
  int count_ = 0;
};

// Passes and planner agree, with all passes and without, for a CPU and for a GPU that is not there.
TEST(Decision, IsTheSameInPassesAndStepsOverRandomGraphs) {
  DecisionCounts all;
  for (unsigned seed = 0; seed < 48; ++seed) {
    Graph g;
    if (seed % 3 == 0) {
      RandomGraph(g, seed, nullptr, seed % 2 == 0 ? f32 : bf16);
    } else {
      RandomLayers(g, seed);
    }
    for (const TargetPtr& target : {target_of(Device::cpu()), std::make_shared<const Target>(named_target("h200"))}) {
#if !PAODING_WITH_CUDA
      if (target->is_gpu()) continue;
#endif
      for (const std::vector<std::string>& disabled : {std::vector<std::string>{}, {"fuse_groups", "choose_layouts"}}) {
        SCOPED_TRACE(fmt::format("seed {} for {}", seed, target->name));
        CompileOptions options;
        options.disabled_passes = disabled;
        options.precision = seed % 4 == 1 ? bf16 : f32;
        std::optional<CompiledPlan> compiled;
        try {
          compiled = compile_plan(g, options, target, seed % 2 == 0 ? Preprocess::once : Preprocess::in_every_run);
        } catch (const Error& error) {  // a GPU has no kernel for it
          EXPECT_EQ(error.kind(), ErrorKind::unsupported) << error.what();
          continue;
        }
        const DecisionCounts counts = DecisionCheck(*compiled).counts();
        all.steps += counts.steps, all.taken_over += counts.taken_over;
        all.alike += counts.alike, all.otherwise += counts.otherwise;
      }
    }
  }
  RecordProperty("taken_over", all.taken_over), RecordProperty("alike", all.alike);
  RecordProperty("otherwise", all.otherwise);
  EXPECT_GE(all.steps, 300);
  EXPECT_GE(all.taken_over, 50) << "too few decisions of passes to compare";
  EXPECT_EQ(all.otherwise, 0) << "a pass expected another kernel than runs";
}

}  // namespace
}  // namespace paoding::testing_program
