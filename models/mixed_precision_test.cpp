// SPDX-License-Identifier: Apache-2.0
// The models in mixed precision: training reaches the losses of f32, and nothing is converted by a kernel of its own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "models/task.h"
#include "paoding/data/batches.h"
#include "paoding/optimizer.h"
#include "runtime/compile.h"
#include "tests/support/small_corpora.h"

namespace paoding::models {
namespace {

void choose(Task& task, const std::string& name, const std::string& text) {
  Options all = task.options();
  for (const Option& option : task.settings.options()) all.push_back(option);
  models::set(*find(all, name), text);
}

std::unique_ptr<Graph> training_graph(const Task& task, std::int64_t bucket, DType precision) {
  auto graph = std::make_unique<Graph>();
  const Value loss = task.loss(*graph, bucket, task.settings.batch_size, true);
  MinimizeOptions options{.clip_norm = task.settings.clip_norm, .skip_nonfinite = true};
  if (precision == f16) options.loss_scale = LossScale{};
  minimize(loss, Adam{.learning_rate = task.settings.learning_rate}, options);
  graph->fetch("loss", loss);
  return graph;
}

CompileOptions in(DType precision, const Device& device = Device::cpu()) {
  CompileOptions options;
  options.device = device;
  options.precision = precision;
  return options;
}

// ---- plans ----

// True for a group whose members only convert, and for an op that does by itself.
bool only_converts(const Step& step) {
  const auto converts = [](std::string name) {
    if (const auto slash = name.rfind('/'); slash != std::string::npos) name = name.substr(slash + 1);
    name = name.substr(0, name.find('*'));
    return name == "cast" || name == "store_as";
  };
  if (step.label.members.empty()) return converts(step.label.op);
  return std::all_of(step.label.members.begin(), step.label.members.end(), converts);
}

std::vector<std::string> conversions_of(const Plan& plan) {
  std::vector<std::string> found;
  const std::function<void(const std::vector<Step>&)> walk = [&](const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      for (const auto* body : step.bodies()) walk(*body);
      if (!only_converts(step)) continue;
      const Operand& made = step.operands.back();
      if (!is_float(made.layout.type.dtype)) continue;  // lengths, as a recurrence takes them
      found.push_back(fmt::format("{} to {} in '{}'", step.label.op, to_string(made.layout.type), step.label.scope));
    }
  };
  walk(plan.steps);
  return found;
}

TEST(MixedPrecisionOfModels, ConvertsNothingByAKernelOfItsOwn) {
  for (const char* name : {"g2p", "translate", "lm", "fashion"}) {
    const auto task = make_task(name);
    task->read(small_corpora::all().path());
    for (const char* target : {"h200", "avx512"}) {
      for (const DType precision : {bf16, f16}) {
        if (precision == f16 && target == std::string("avx512")) continue;  // whose products are of f32
        SCOPED_TRACE(fmt::format("{} in {} on {}", name, to_string(precision), target));
        const auto graph = training_graph(*task, task->any_bucket(), precision);
        const auto made = compile_plan(*graph, in(precision), std::make_shared<const Target>(named_target(target)));
        EXPECT_EQ(conversions_of(made.plan), std::vector<std::string>{});
        EXPECT_FALSE(made.shadows.empty());
      }
    }
  }
}

// ---- training ----

std::vector<double> losses_of(const std::string& name, DType precision, int steps, const Device& device) {
  const auto task = make_task(name);
  choose(*task, "batch-size", "16");
  choose(*task, "learning-rate", "0.005");
  choose(*task, "hidden", "32");
  task->read(small_corpora::all().path());
  const std::vector<std::int64_t> buckets = task->buckets(Part::train);
  const auto graph_of = [&](const Programs::Key& key) { return training_graph(*task, key[0], precision); };
  const Parameters parameters(*graph_of({buckets[0]}), device, {.seed = 7});
  Programs programs(graph_of, in(precision, device), &parameters);
  std::vector<double> losses;
  for (std::int64_t epoch = 0; std::ssize(losses) < steps; ++epoch) {
    for (const auto& examples : data::shuffled_batches(buckets, task->settings.batch_size, 7, epoch)) {
      if (std::ssize(losses) == steps) break;
      const std::int64_t bucket = buckets[static_cast<std::size_t>(examples[0])];
      const Batch batch = task->batch(Part::train, examples, bucket, task->settings.batch_size);
      Program& program = programs.at({bucket});
      for (std::size_t i = 0; i < batch.feeds.size(); ++i) program.set_input(static_cast<int>(i), batch.feeds[i]);
      program.run();
      losses.push_back(program.fetch(0).to_doubles()[0]);
    }
  }
  return losses;
}

double mean_of_last(const std::vector<double>& losses, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += losses[losses.size() - 1 - static_cast<std::size_t>(i)];
  return sum / count;
}

void check_losses(const Device& device, int steps, int last) {
  for (const char* name : {"g2p", "translate"}) {
    const std::vector<double> wanted = losses_of(name, f32, steps, device);
    EXPECT_LT(mean_of_last(wanted, last), 0.95 * wanted[0]) << name << " learns";
    for (const DType precision : {bf16, f16}) {
      const std::vector<double> got = losses_of(name, precision, steps, device);
      EXPECT_NEAR(got[0], wanted[0], 0.005 * wanted[0]) << name << " in " << to_string(precision);
      EXPECT_NEAR(mean_of_last(got, last), mean_of_last(wanted, last), 0.01 * mean_of_last(wanted, last))
          << name << " in " << to_string(precision);
      EXPECT_NE(got, wanted) << "nothing was rounded";
    }
  }
}

TEST(MixedPrecisionOfModels, LoseWithinOnePercentOfF32AfterTheSameSteps) { check_losses(Device::cpu(), 40, 8); }

TEST(MixedPrecisionOfModels, LoseWithinOnePercentOfF32AfterTheSameStepsOnAGpu) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  check_losses(Device::best(), 40, 8);
}

}  // namespace
}  // namespace paoding::models
