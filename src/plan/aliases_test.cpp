// SPDX-License-Identifier: Apache-2.0
// Results that lie in an input's memory, of a kernel op that a user has registered: their values and their plans, in a
// run on the CPU.
#include <array>
#include <cstring>

#include "ops/kernel.h"
#include "passes/pass.h"
#include "plan/plan.h"
#include "tests/support/op_case.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

// Adds its second input to the first element of its first, which it changes where it lies.
class AddsToFirst : public PreparedKernel {
 public:
  void run(const KernelRun& run) const override {
    ASSERT_EQ(run.operands[0], run.operands[2]) << "the result is to lie where the input does";
    *static_cast<float*>(run.operands[2]) += *static_cast<const float*>(run.operands[1]);
  }
};

const OpDef& adds_to_first() {
  static const OpDef& op = [&]() -> const OpDef& {
    const OpDef& made = register_op({.name = "test_adds_to_first",
                                     .summary = "a with b added to its first element",
                                     .kind = OpKind::kernel,
                                     .inputs = {"a", "b"},
                                     .aliases = {{.result = 0, .input = 0}},
                                     .infer = [](const OpCall& call) { return std::vector<Type>{call.inputs[0]}; }});
    register_kernel(made.name,
                    {.name = "adds_to_first",
                     .device = DeviceKind::cpu,
                     .refusal = [](const KernelCall& call) { return call.outputs[0].is_dense() ? "" : "is strided"; },
                     .prepare = [](const KernelCall&, const Device&) { return std::make_unique<AddsToFirst>(); }});
    return made;
  }();
  return op;
}

Value add_to_first(const Value& a, const Value& b) { return call(adds_to_first(), std::array{a, b}).front(); }

std::size_t steps_named(const Plan& plan, std::string_view part) {
  return static_cast<std::size_t>(std::ranges::count_if(
      plan.steps, [&](const Step& step) { return step.label.op.find(part) != std::string::npos; }));
}

Plan plan_of_aliases(const Graph& graph) {
  const auto copy = graph.clone();
  run_passes(*copy, {});
  return make_plan(*copy, {});
}

struct AliasInputs {
  Graph graph;
  Value x = graph.input("x", f32, {4}), b = graph.input("b", f32, {});
};

std::map<std::string, Tensor> run_aliases(const Graph& graph) {
  Program program(graph, {.device = Device::cpu()});
  return program.run({{"x", Tensor::from(f32, {4}, Dense{1, 2, 3, 4})}, {"b", Tensor::from(f32, {}, Dense{10})}});
}

TEST(Aliases, TakeThePlaceOfAValueThatNothingElseReads) {
  AliasInputs in;
  in.graph.fetch("y", add_to_first(add_to_first(in.x * 2.0, in.b), in.b));
  const Plan plan = plan_of_aliases(in.graph);
  EXPECT_EQ(steps_named(plan, "copy"), 0u) << to_string(plan);
  EXPECT_EQ(plan.steps.size(), 3u) << to_string(plan);
  EXPECT_EQ(run_aliases(in.graph).at("y").to_doubles(), (Dense{22, 4, 6, 8}));
}

TEST(Aliases, AreOfACopyOfWhatIsFedFetchedOrReadLater) {
  AliasInputs in;
  const Value made = in.x * 2.0;
  in.graph.fetch("of_input", add_to_first(in.x, in.b));
  in.graph.fetch("old", made);
  in.graph.fetch("of_fetched", add_to_first(made, in.b));
  const Value other = in.x * 3.0, changed = add_to_first(other, in.b);
  in.graph.fetch("product", matmul(reshape(other, {1, 4}), reshape(changed, {4, 1})));
  EXPECT_EQ(steps_named(plan_of_aliases(in.graph), "copy_test_adds_to_first"), 3u)
      << to_string(plan_of_aliases(in.graph));
  const auto got = run_aliases(in.graph);
  EXPECT_EQ(got.at("of_input").to_doubles(), (Dense{11, 2, 3, 4}));
  EXPECT_EQ(got.at("old").to_doubles(), (Dense{2, 4, 6, 8}));
  EXPECT_EQ(got.at("of_fetched").to_doubles(), (Dense{12, 4, 6, 8}));
  EXPECT_EQ(got.at("product").to_doubles(), (Dense{3 * 13 + 36 + 81 + 144}));
}

// A value of which the kernel's result is to be a part, and one that a loop carries.
TEST(Aliases, AreCopiedToWhereTheResultBelongs) {
  AliasInputs in;
  const Value twice = in.x * 2.0;
  in.graph.fetch("side_by_side", concat(std::array{reshape(add_to_first(twice, in.b), {4, 1}),
                                                   reshape(add_to_first(in.x * 3.0, in.b), {4, 1})},
                                        1));
  const StepResult made = scan({in.x}, {iota(in.graph, {3, 1}, 0, i64)}, [&](const Values& carry, const Values&) {
    const Value next = add_to_first(carry[0], in.b);
    return step({next}, {next});
  });
  in.graph.fetch("last", made.carries[0]);
  in.graph.fetch("all", made.outputs[0]);
  const auto got = run_aliases(in.graph);
  EXPECT_EQ(got.at("side_by_side").to_doubles(), (Dense{12, 13, 4, 6, 6, 9, 8, 12}));
  EXPECT_EQ(got.at("last").to_doubles(), (Dense{31, 2, 3, 4}));
  EXPECT_EQ(got.at("all").to_doubles(), (Dense{11, 2, 3, 4, 21, 2, 3, 4, 31, 2, 3, 4}));
}

TEST(Aliases, OfAParameterAreWrittenInIt) {
  AliasInputs in;
  const Value kept = in.graph.parameter("kept", f32, {4});
  in.graph.assign(kept, add_to_first(kept, in.b));
  in.graph.fetch("x", in.x * 1.0);
  const Plan plan = plan_of_aliases(in.graph);
  EXPECT_EQ(steps_named(plan, "copy_test_adds_to_first"), 0u) << to_string(plan);
  EXPECT_EQ(steps_named(plan, "assign"), 0u) << to_string(plan);
  Parameters parameters(in.graph, Device::cpu());
  Program program(in.graph, {.device = Device::cpu()}, &parameters);
  for (int i = 0; i < 2; ++i) {
    program.run({{"x", Tensor::from(f32, {4}, Dense(4))}, {"b", Tensor::from(f32, {}, Dense{10})}});
  }
  EXPECT_EQ(parameters.get("kept").to_doubles(), (Dense{20, 0, 0, 0}));
}

TEST(Aliases, OfAnotherTypeAreRefused) {
  EXPECT_THROW(register_op({.name = "test_alias_of_none",
                            .summary = "wrong",
                            .kind = OpKind::kernel,
                            .inputs = {"a"},
                            .aliases = {{.result = 0, .input = 1}},
                            .infer = [](const OpCall& call) { return std::vector<Type>{call.inputs[0]}; }}),
               Error);
  const OpDef& smaller = register_op({.name = "test_alias_of_another_type",
                                      .summary = "wrong",
                                      .kind = OpKind::kernel,
                                      .inputs = {"a"},
                                      .aliases = {{.result = 0, .input = 0}},
                                      .infer = [](const OpCall&) {
                                        return std::vector<Type>{{f32, {2}}};
                                      }});
  AliasInputs in;
  EXPECT_TRUE(has(message_of([&] { call(smaller, std::array{in.x}); }),
                  "result 0 is to lie in the memory of a, f32[4], but is f32[2]"));
}

}  // namespace
}  // namespace paoding::testing_program
