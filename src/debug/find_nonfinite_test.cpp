// SPDX-License-Identifier: Apache-2.0
// The first non-finite value is found where it was put, whatever stands around it: in groups, in scans and
// their gradients, in front of masks, in parameters and feeds; the store is left as it was. On both devices.
#include <cmath>
#include <limits>

#include "paoding/debug.h"
#include "paoding/optimizer.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

const double kInf = std::numeric_limits<double>::infinity(), kNan = std::nan("");

class FindNonfinite : public testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    if (GetParam() == DeviceKind::cuda && Device::best().kind != DeviceKind::cuda) {
      GTEST_SKIP() << "NOT CHECKED: no GPU here";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(OnCpu, FindNonfinite, testing::Values(DeviceKind::cpu));
INSTANTIATE_TEST_SUITE_P(OnGpu, FindNonfinite, testing::Values(DeviceKind::cuda));

Device device_under_test() { return FindNonfinite::GetParam() == DeviceKind::cuda ? Device::cuda(0) : Device::cpu(); }

// A graph with its store and feeds, run once to see that the run really gives the non-finite value.
struct Case {
  Graph g;
  Tensors feeds;
  std::unique_ptr<Parameters> parameters;
  CompileOptions compile;

  Case() { compile.device = device_under_test(); }
  Value input(const char* name, const Shape& shape, const Dense& values) {
    feeds[name] = Tensor::from(f32, shape, values);
    return g.input(name, f32, shape);
  }
  Parameters& store() {
    if (!parameters) parameters = std::make_unique<Parameters>(g, compile.device);
    return *parameters;
  }
  std::optional<NonfiniteReport> find(const FindNonfiniteOptions& options = {}) {
    return find_nonfinite(g, store(), feeds, compile, options);
  }
  NonfiniteReport found(const FindNonfiniteOptions& options = {}) {
    const auto report = find(options);
    EXPECT_TRUE(report.has_value());
    return report ? *report : NonfiniteReport{};
  }
};

std::string op_of(const NonfiniteReport& report) { return report.unfused ? report.unfused->name : report.first.name; }

TEST_P(FindNonfinite, GivesNothingWhenAllIsFinite) {
  Case c;
  c.g.fetch("y", log(c.input("x", {3}, {1, 2, 3})));
  EXPECT_FALSE(c.find().has_value());
}

TEST_P(FindNonfinite, NamesTheOpOfAGroupWithItsScopeAndWhatItRead) {
  Case c;
  const Value x = c.input("x", {2, 3}, {2.5, 2, 3, 4, 0.5, 6}), y = c.input("y", {3}, {1, 1, 0.5});
  {
    const Scope scope(c.g, "decoder");
    c.g.fetch("loss", sum(exp(log(x - y - 1.0) * 2.0)));
  }
  const NonfiniteReport report = c.found();
  EXPECT_EQ(report.followed, "fetch 'loss'");
  EXPECT_EQ(report.first.scope, "decoder");
  EXPECT_GT(report.first.members.size(), 2u);
  ASSERT_TRUE(report.unfused.has_value());
  EXPECT_EQ(report.unfused->name, "log");
  EXPECT_EQ(report.unfused->scope, "decoder");
  EXPECT_EQ(report.unfused->index, (Ints{1, 1}));
  EXPECT_TRUE(std::isnan(report.unfused->value));
  EXPECT_EQ(report.unfused->nans, 1);
  EXPECT_EQ(report.unfused->infinities, 1);  // log(1 - 1 - 0)
  ASSERT_EQ(report.unfused->reads.size(), 1u);
  EXPECT_EQ(report.unfused->reads[0].at, -1.5);
  EXPECT_EQ(report.unfused->reads[0].min, -1.5);
  EXPECT_EQ(report.unfused->reads[0].max, 4.5);
  EXPECT_EQ(report.unfused->time_step, -1);
  const std::string text = to_text(report);
  EXPECT_TRUE(has(text,
                  "the first non-finite value: log in decoder, element [1, 1] = NaN (1 NaN and 1 infinite "
                  "of the 6 elements of f32[2,3])\n  it read: sub f32[2,3] = -1.5 there, from -1.5 to 4.5"))
      << text;
  EXPECT_TRUE(has(text, "\n  the run computed it in one kernel: group of ")) << text;
  EXPECT_TRUE(has(text, "\n  followed back from: fetch 'loss'\n")) << text;
}

TEST_P(FindNonfinite, NamesProductsAndTheirInputs) {
  Case c;
  const Value x = c.input("x", {2, 2}, {1e30, 1, 1, 1}), w = c.g.parameter("w", f32, {2, 2});
  c.store().set("w", Tensor::from(f32, {2, 2}, Dense{1e30, 0, 0, 1}));
  const Value product = matmul(x, w);
  c.g.fetch("y", tanh(product));  // finite again
  EXPECT_FALSE(c.find().has_value());
  c.g.fetch("z", reshape(product, {4}));
  const NonfiniteReport report = c.found();
  EXPECT_EQ(report.first.name, "matmul");
  EXPECT_EQ(report.first.value, kInf);
  EXPECT_EQ(report.first.index, (Ints{0, 0}));
  EXPECT_FALSE(report.was_unfused);
  ASSERT_EQ(report.first.reads.size(), 2u);
  EXPECT_EQ(report.first.reads[0].name, "input 'x'");
  EXPECT_EQ(report.first.reads[1].name, "parameter 'w'");
  EXPECT_FLOAT_EQ(static_cast<float>(report.first.reads[1].max), 1e30f);
  EXPECT_FALSE(report.first.reads[1].at.has_value());
}

// On the CPU gates are written over their input's product, and gradients over the gates.
TEST_P(FindNonfinite, NamesWhatWasReadWhereResultsAliasEachOther) {
  Case c;
  const Value x = c.input("x", {2, 1, 1}, {1, 1}), w = c.input("w", {1, 4}, {1, 1, 1, 1}),
              u = c.input("u", {1, 4}, {4, 4, 4, 4});
  const Value start = c.input("start", {1, 1}, {0}), seed = c.input("seed", {3, 1, 1}, {3e38, 3e38, 3e38});
  const LstmRecurrence made = lstm_recurrence(matmul(x, w), u, start, start);
  c.g.fetch("dw", gradients(std::array{made.states}, std::array{w}, std::array{seed})[0]);
  const NonfiniteReport report = c.found();
  EXPECT_TRUE(has(report.first.name, "lstm_recurrence_grad")) << report.first.name;
  ASSERT_GE(report.first.reads.size(), 2u);
  EXPECT_EQ(report.first.reads[1].name, "lstm_recurrence") << to_text(report);
}

TEST_P(FindNonfinite, FollowsAnInfinityToTheNanThatItBecame) {
  Case c;
  const Value x = c.input("x", {2}, {1, 200});
  const Value big = exp(x);
  c.g.fetch("loss", matmul(reshape(big - big, {1, 2}), reshape(x, {2, 1})));
  const NonfiniteReport report = c.found();
  const NonfiniteValue& first = report.unfused ? *report.unfused : report.first;
  EXPECT_EQ(first.name, "exp");
  EXPECT_EQ(first.value, kInf);
  EXPECT_EQ(first.reads.at(0).at, 200);
  ASSERT_TRUE(report.became_nan.has_value());
  EXPECT_EQ(report.became_nan->name, "sub");
}

TEST_P(FindNonfinite, DoesNotBlameAMaskThatDoesNoHarm) {
  Case c;
  const Value scores = c.input("scores", {2, 3}, {1, 2, 3, 4, 5, 6}), keep = c.input("keep", {3}, {1, 1, 0});
  const Value masked = select(greater(keep, full(c.g, {}, 0.5, f32)), scores, full(c.g, {}, -kInf, f32));
  const Value weights = softmax(masked, 1);
  c.g.fetch("weights", weights);
  EXPECT_FALSE(c.find().has_value());
  // With a mistake after it, that is named.
  const Value x = c.input("x", {3}, {-1, 1, 1});
  c.g.fetch("loss", sum(weights * sqrt(x)));
  const NonfiniteReport report = c.found();
  EXPECT_EQ(op_of(report), "sqrt");
  EXPECT_EQ(report.followed, "fetch 'loss'");
}

// A program in mixed precision reads a rounded copy in place of a parameter; the store has no parameter for that.
TEST_P(FindNonfinite, ReadsParametersIn16BitsInMixedPrecision) {
  for (const DType precision : {bf16, f16}) {
    Case c;
    c.compile.precision = precision;
    const Value x = c.input("x", {2, 3}, {1, 2, 3, 4, 5, 6}), w = c.g.parameter("w", f32, {3, 2});
    c.g.fetch("y", exp(matmul(x, w)));
    c.store().set("w", Tensor::from(f32, {3, 2}, Dense(6, 100)));
    EXPECT_EQ(op_of(c.found()), "exp");
    c.store().set("w", Tensor::from(f32, {3, 2}, Dense{100, 0, kInf, 0, 0, 0}));
    const NonfiniteReport given = c.found();
    EXPECT_EQ(given.first.kind, NonfiniteValue::Kind::parameter);
    EXPECT_TRUE(has(given.first.name, "w")) << given.first.name;
  }
}

TEST_P(FindNonfinite, NamesTheSoftmaxOfARowThatIsMaskedWhole) {
  Case c;
  const Value scores = c.input("scores", {2, 3}, {1, 2, 3, 4, 5, 6}), keep = c.input("keep", {2, 1}, {1, 0});
  const Value masked = select(greater(keep, full(c.g, {}, 0.5, f32)), scores, full(c.g, {}, -kInf, f32));
  {
    const Scope scope(c.g, "attention");
    c.g.fetch("weights", softmax(masked, 1));
  }
  const NonfiniteReport report = c.found();
  ASSERT_TRUE(report.unfused.has_value());
  EXPECT_EQ(report.unfused->scope, "attention");  // not the select, which is meant to make infinities
  EXPECT_TRUE(std::isnan(report.unfused->value));
}

TEST_P(FindNonfinite, NamesTimeStepsOfScansForwardAndReverse) {
  for (const bool reverse : {false, true}) {
    SCOPED_TRACE(reverse);
    Case c;
    const Value xs = c.input("xs", {5, 2}, {2, 2, 3, 4, 5, 0.5, 7, 8, 9, 10});
    const Value h0 = c.input("h0", {2}, {1, 1});
    const auto body = [&](const Values& carries, const Values& x) {
      const Scope scope(carries[0].graph(), "cell");
      // log of 0.5 - 1 at time step 2; the carried value joins after it.
      const Value h = log(x[0] - 1.0 + carries[0] * 0.0) * 0.1 + 1.0;
      return StepResult{{h}, {h}};
    };
    const StepResult result = scan({h0}, {xs}, body, reverse);
    c.g.fetch("loss", sum(result.outputs[0]));
    const NonfiniteReport report = c.found();
    const NonfiniteValue& first = report.unfused ? *report.unfused : report.first;
    EXPECT_EQ(first.name, "log");
    EXPECT_EQ(first.scope, "cell");
    EXPECT_TRUE(first.time_step == 2 || first.index == (Ints{2, 1})) << to_text(report);
    EXPECT_EQ(first.time_steps, first.time_step >= 0 ? 5 : 0);
  }
}

// The branch that is taken is followed, also through a Variant, and every turn of a loop without a length.
TEST_P(FindNonfinite, FollowsBranchesVariantsAndLoopsWithoutALength) {
  for (const double chooser : {1.0, 0.0}) {
    SCOPED_TRACE(chooser);
    Case c;
    const Value x = c.input("x", {2}, {-1, 2}), p = c.input("p", {}, {chooser});
    const Value choice = greater(p, 0.5);
    const auto with_log = [&] { return Values{log(x)}; };
    const auto with_sqrt = [&] { return Values{sqrt(reshape(x, {2, 1}))}; };
    c.g.fetch("variant", case_variant({{choice, with_log}}, with_sqrt));
    EXPECT_EQ(op_of(c.found()), chooser > 0.5 ? "log" : "sqrt");
    EXPECT_EQ(c.found().followed, "fetch 'variant'");
  }
  Case c;
  const Value x = c.input("x", {2}, {4, 8});
  const Value last = while_loop(
      {x}, [](const Values& v) { return greater(sum(v[0]), -4.0); },
      [](const Values& v) {
        const Scope scope(v[0].graph(), "turn");
        return Values{v[0] - 3.0 + sqrt(v[0]) * 0.0};
      })[0];
  c.g.fetch("last", last);
  const NonfiniteReport report = c.found();
  EXPECT_EQ(op_of(report), "sqrt") << to_text(report);
  EXPECT_EQ(report.unfused ? report.unfused->scope : report.first.scope, "turn");
}

TEST_P(FindNonfinite, NamesWhatWasFedOrStoredBeforeTheRun) {
  Case c;
  const Value x = c.input("x", {2}, {1, kNan}), w = c.g.parameter("w", f32, {2}), unused = c.g.parameter("v", f32, {1});
  c.g.fetch("loss", sum(x * w));
  c.g.fetch("v", unused * 1.0);
  c.store().set("v", Tensor::from(f32, {1}, Dense{kInf}));
  const NonfiniteReport report = c.found();
  EXPECT_EQ(report.first.kind, NonfiniteValue::Kind::input);
  EXPECT_EQ(report.first.name, "x");
  EXPECT_EQ(report.first.index, Ints{1});
  ASSERT_EQ(report.others.size(), 1u);
  EXPECT_EQ(report.others[0].kind, NonfiniteValue::Kind::parameter);
  EXPECT_EQ(report.others[0].name, "v");
  EXPECT_TRUE(has(to_text(report), "input 'x', as it was fed, element [1] = NaN")) << to_text(report);
  EXPECT_TRUE(has(to_text(report), "non-finite to begin with either: parameter 'v', before the run"))
      << to_text(report);
}

// ---- training ----

struct Training : Case {
  explicit Training(const MinimizeOptions& options) {
    const Value x = input("x", {2}, {1, 2}), w = g.parameter("w", f32, {2});
    Value y;
    {
      const Scope scope(g, "model");
      y = sqrt(w * x);  // at 0 its gradient is infinite
    }
    const Value loss = sum(y);
    g.fetch("loss", loss);
    minimize(loss, Adam{}, options);
    store().set("w", Tensor::from(f32, {2}, Dense{1, 0}));
  }
};

TEST_P(FindNonfinite, FindsGradientsThatAreNotFiniteAndLeavesTheStoreAlone) {
  for (const bool skip : {false, true}) {
    SCOPED_TRACE(skip);
    Training c({.skip_nonfinite = skip});
    const NonfiniteReport report = c.found();
    EXPECT_TRUE(has(op_of(report), "sqrt_grad")) << to_text(report);
    EXPECT_EQ(report.unfused ? report.unfused->scope : report.first.scope, "model") << to_text(report);
    EXPECT_EQ(report.followed == "the gradients, for which the update was skipped", skip) << report.followed;
    EXPECT_EQ(c.store().get("w").to_doubles(), (Dense{1, 0}));
    for (const char* name : {"adam/m/w", "adam/v/w"}) EXPECT_EQ(c.store().get(name).to_doubles(), (Dense{0, 0}));
    EXPECT_EQ(c.store().get("optimizer/step").to_doubles(), Dense{0});
  }
}

TEST_P(FindNonfinite, DrawsTheRandomNumbersOfTheRunThatFailed) {
  Case c;
  const Value drawn = random_uniform(c.g, {64}, 0, 1);
  const Value w = c.g.parameter("w", f32, {});
  const Value bad = log(drawn - 0.02);  // NaN where less than 0.02 is drawn
  const Value loss = sum(bad) * 1e-3 + w;
  c.g.fetch("loss", loss);
  c.g.fetch("drawn", drawn);
  minimize(loss, Sgd{}, {.skip_nonfinite = true});
  Program program(c.g, c.compile, &c.store());
  int runs = 0;
  Tensors results;
  do {
    results = program.run(Tensors{});
  } while (std::isfinite(results.at("loss").to_doubles()[0]) && ++runs < 100);
  ASSERT_FALSE(std::isfinite(results.at("loss").to_doubles()[0]));
  const NonfiniteReport report = c.found({.rewind_random = 1});
  EXPECT_EQ(op_of(report), "log");
  const NonfiniteValue& first = report.unfused ? *report.unfused : report.first;
  ASSERT_EQ(first.index.size(), 1u);
  EXPECT_LT(results.at("drawn").to_doubles()[static_cast<std::size_t>(first.index[0])], 0.02);
}

TEST_P(FindNonfinite, SaysWhatIsWrongWithItsFeeds) {
  Case c;
  c.g.fetch("y", log(c.input("x", {2}, {1, 2})));
  EXPECT_TRUE(has(message_of([&] { find_nonfinite(c.g, c.store(), {}, c.compile); }), "input 'x' is not fed"));
  Tensors wrong{{"x", Tensor::from(f32, {3}, Dense{1, 2, 3})}};
  EXPECT_TRUE(has(message_of([&] { find_nonfinite(c.g, c.store(), wrong, c.compile); }), "'x' is f32[2], not f32[3]"));
  Tensors unknown = c.feeds;
  unknown["z"] = unknown["x"];
  EXPECT_TRUE(has(message_of([&] { find_nonfinite(c.g, c.store(), unknown, c.compile); }), "there is none named 'z'"));
}

}  // namespace
}  // namespace paoding::testing_program
