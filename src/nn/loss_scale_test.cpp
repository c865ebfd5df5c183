// SPDX-License-Identifier: Apache-2.0
// A loss scale: gradients are those of the loss, overflow lowers it and skips the update, good updates raise it, and
// its value goes on from a checkpoint.
#include <cmath>

#include "paoding/checkpoint.h"
#include "paoding/optimizer.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

class ScaledLoss : public testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    if (GetParam() == DeviceKind::cuda && Device::best().kind != DeviceKind::cuda) {
      GTEST_SKIP() << "NOT CHECKED: no GPU here";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(OnCpu, ScaledLoss, testing::Values(DeviceKind::cpu));
INSTANTIATE_TEST_SUITE_P(OnGpu, ScaledLoss, testing::Values(DeviceKind::cuda));

// loss = sum(p c): the gradient of p is c, and c times the scale overflows f16 where it is large.
struct Scaled {
  Graph g;
  std::unique_ptr<Parameters> parameters;
  std::unique_ptr<Program> program;

  explicit Scaled(const LossScale& scale, MinimizeOptions options = {}) {
    const Value p = g.parameter("p", f32, {4}), c = g.input("c", f32, {4}), offset = g.input("offset", f32, {});
    const Value rounded = cast(cast(p, f16), f32);  // and so is its gradient
    const Value loss = sum(rounded * c) + offset;
    options.loss_scale = scale;
    const TrainingStep step = minimize(loss, Sgd{.learning_rate = 0.5}, options);
    g.fetch("loss", loss);
    g.fetch("norm", step.gradient_norm);
    g.fetch("is_overflow", step.is_overflow);
    CompileOptions compile;
    compile.device = ScaledLoss::GetParam() == DeviceKind::cuda ? Device::cuda(0) : Device::cpu();
    parameters = std::make_unique<Parameters>(g, compile.device);
    program = std::make_unique<Program>(g, compile, parameters.get());
  }
  Tensors run(double c, double offset = 0) {
    return program->run({{"c", Tensor::from(f32, {4}, Dense(4, c))}, {"offset", Tensor::from(f32, {}, Dense{offset})}});
  }
  double get(const char* name) const { return parameters->get(name).to_doubles()[0]; }
};

TEST_P(ScaledLoss, KeepsGradientsThatF16WouldRoundToZero) {
  Scaled scaled({.initial = 65536});
  const double tiny = std::ldexp(1.0, -24);
  const Tensors got = scaled.run(tiny);
  EXPECT_EQ(scaled.get("p"), -0.5 * tiny);
  EXPECT_EQ(got.at("norm").to_doubles()[0], 2 * tiny);
  EXPECT_EQ(scaled.get("optimizer/overflows"), 0);
  EXPECT_EQ(scaled.get("optimizer/step"), 1);
}

TEST_P(ScaledLoss, IsLoweredByAnOverflowAtTheFirstStepAndNothingIsLost) {
  Scaled scaled({.initial = 65536}, {.stop_at_nonfinite = true});
  Tensors got = scaled.run(4);  // 4 * 65536 and 2 * 65536 are beyond f16
  EXPECT_EQ(got.at("is_overflow").to_doubles()[0], 1);
  EXPECT_EQ(scaled.get("p"), 0);
  EXPECT_EQ(scaled.get("optimizer/loss_scale"), 32768);
  for (int i = 0; i < 3; ++i) got = scaled.run(4);
  EXPECT_EQ(got.at("is_overflow").to_doubles()[0], 0);
  EXPECT_EQ(scaled.get("optimizer/loss_scale"), 8192);
  EXPECT_EQ(scaled.get("optimizer/overflows"), 3);
  EXPECT_EQ(scaled.get("optimizer/skipped"), 0) << "no reason to stop";
  EXPECT_EQ(scaled.get("optimizer/step"), 1);
  EXPECT_EQ(scaled.get("p"), -2);
}

TEST_P(ScaledLoss, IsRaisedByGoodUpdatesUpToItsLimit) {
  Scaled scaled({.initial = 1024, .interval = 3, .most = 4096});
  std::vector<double> scales;
  for (int i = 0; i < 12; ++i) scaled.run(1), scales.push_back(scaled.get("optimizer/loss_scale"));
  EXPECT_EQ(scales, (std::vector<double>{1024, 1024, 2048, 2048, 2048, 4096, 4096, 4096, 4096, 4096, 4096, 4096}));
  EXPECT_EQ(scaled.get("optimizer/step"), 12);
  EXPECT_EQ(scaled.get("p"), -6);
}

TEST_P(ScaledLoss, AtItsLeastAnOverflowIsASkippedUpdateAndStops) {
  Scaled scaled({.initial = 32768, .least = 16384}, {.stop_at_nonfinite = true});
  scaled.run(8);
  EXPECT_EQ(scaled.get("optimizer/loss_scale"), 16384);
  EXPECT_EQ(scaled.get("optimizer/skipped"), 0);
  const Tensors got = scaled.run(8);
  EXPECT_EQ(got.at("is_overflow").to_doubles()[0], 0);
  EXPECT_TRUE(std::isinf(got.at("norm").to_doubles()[0]));
  EXPECT_EQ(scaled.get("optimizer/loss_scale"), 16384);
  EXPECT_EQ(scaled.get("optimizer/overflows"), 1);
  EXPECT_EQ(scaled.get("optimizer/skipped"), 1);
  scaled.run(1);
  EXPECT_EQ(scaled.get("optimizer/skipped"), 2) << "those after it are skipped too";
  EXPECT_EQ(scaled.get("optimizer/loss_scale"), 16384);
  EXPECT_EQ(scaled.get("p"), 0);
}

TEST_P(ScaledLoss, IsLeftAloneByALossThatIsNotFinite) {
  Scaled scaled({.initial = 1024});
  scaled.run(1, HUGE_VAL);
  EXPECT_EQ(scaled.get("optimizer/skipped"), 1);
  EXPECT_EQ(scaled.get("optimizer/overflows"), 0);
  EXPECT_EQ(scaled.get("optimizer/loss_scale"), 1024);
  EXPECT_EQ(scaled.get("p"), 0);
}

TEST_P(ScaledLoss, WithAccumulationAnOverflowOfOneRunSkipsTheUpdateOfAll) {
  Scaled scaled({.initial = 65536}, {.accumulate = 2});
  scaled.run(4);
  scaled.run(0.25);
  EXPECT_EQ(scaled.get("p"), 0);
  EXPECT_EQ(scaled.get("optimizer/overflows"), 1);
  EXPECT_EQ(scaled.get("optimizer/loss_scale"), 32768);
  scaled.run(0.5);
  scaled.run(0.25);
  EXPECT_EQ(scaled.get("p"), -0.1875);
  EXPECT_EQ(scaled.get("optimizer/step"), 1);
}

TEST_P(ScaledLoss, GoesOnWithTheSameBits) {
  const LossScale scale{.initial = 65536, .interval = 2};
  Scaled whole(scale), first(scale), second(scale);
  const auto feed = [](int i) { return i % 5 == 0 ? 3.0 : 0.3 * i; };
  for (int i = 0; i < 12; ++i) whole.run(feed(i));
  for (int i = 0; i < 6; ++i) first.run(feed(i));
  restore(second.parameters.get(), values_of(*first.parameters));
  for (int i = 6; i < 12; ++i) second.run(feed(i));
  for (const std::string& name : whole.parameters->names()) {
    EXPECT_EQ(second.parameters->get(name).to_doubles(), whole.parameters->get(name).to_doubles()) << name;
  }
  EXPECT_GT(whole.get("optimizer/overflows"), 0);
}

TEST_P(ScaledLoss, RefusesWhatIsNoScale) {
  const auto message_of = [](const LossScale& scale) {
    try {
      Scaled refused(scale);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_NE(message_of({.initial = 0}).find("initial = 0, needs to be"), std::string::npos)
      << message_of({.initial = 0});
  EXPECT_NE(message_of({.initial = 1e9}).find("initial = 1"), std::string::npos);
  EXPECT_NE(message_of({.initial = std::nan("")}).find("initial = nan"), std::string::npos);
  EXPECT_NE(message_of({.growth = 0.5}).find("growth = 0.5"), std::string::npos);
  EXPECT_NE(message_of({.backoff = 0}).find("backoff = 0"), std::string::npos);
  EXPECT_NE(message_of({.interval = 0}).find("interval = 0"), std::string::npos);
  EXPECT_NE(message_of({.least = 0}).find("least = 0"), std::string::npos);
  EXPECT_NE(message_of({.initial = 2, .least = 4, .most = 2}).find("most = 2"), std::string::npos);
}

}  // namespace
}  // namespace paoding::testing_program
