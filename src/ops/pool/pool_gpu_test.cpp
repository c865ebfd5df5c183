// SPDX-License-Identifier: Apache-2.0
// Max pools in 16 bits by rows, and their gradients by blocks: alone, with the group in front that makes their input,
// and with the groups after that make the gradient by themselves, in the emulation, against float64.
#include <gtest/gtest.h>

#include <functional>

#include "base/half.h"
#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "plan/epilogues.h"
#include "tests/gpu/emulated_cases.h"

namespace paoding::testing_program {
namespace {

constexpr std::array<std::int64_t, 3> kChecked{0, 2, 3};

struct Case {
  Shape x;
  DType dtype;
  Pool2dOptions options;
};
// Blocks that begin in front of the image and end after it, windows that end within it, two tiles of channels.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{2, 64, 14, 12}, bf16, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1, 1, 1}}},
      {{3, 72, 9, 11}, f16, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {0, 1, 1, 0}}},
      {{2, 8, 9, 7}, bf16, {.kernel = {2, 2}, .stride = {2, 2}}},
      {{2, 40, 8, 9}, bf16, {.kernel = {2, 4}, .stride = {1, 2}, .padding = {1, 0, 2, 1}}},
  };
  return all;
}

// Windows that share a row, none or are some apart, several turns of a thread, windows that begin in front of the
// image.
const std::vector<Case>& row_cases() {
  static const std::vector<Case> all = {
      {{2, 64, 35, 12}, bf16, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1, 1, 1}}},
      {{3, 72, 9, 11}, f16, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {0, 1, 2, 0}}},
      {{2, 8, 9, 7}, bf16, {.kernel = {2, 2}, .stride = {2, 2}}},
      {{2, 16, 40, 9}, bf16, {.kernel = {2, 3}, .stride = {1, 3}, .padding = {1, 0, 2, 1}}},
      {{2, 16, 9, 13}, bf16, {.kernel = {1, 2}, .stride = {3, 4}}},
  };
  return all;
}

// Given with its channels innermost.
Value image(Graph& g, const char* name, DType dtype, const Shape& shape) {
  const Value given = g.input(name, dtype, {shape[0], shape[2], shape[3], shape[1]});
  return transpose(given, std::array<std::int64_t, 4>{0, 3, 1, 2});
}

void fetch_image(Graph& g, const char* name, const Value& image) {
  g.fetch(name, transpose(image, std::array<std::int64_t, 4>{0, 2, 3, 1}));
}

// The graph after the first norm of a network: sums of the gradient, and a value made of it and, not in one group, of
// those.
void build(Graph& g, const Case& c) {
  const Value x = image(g, "x", c.dtype, c.x), y = max_pool2d(x, c.options);
  const Value dy = image(g, "dy", c.dtype, y.shape());
  const Value made = gradients(std::array{sum(cast(y, f32) * cast(dy, f32))}, std::array{x})[0];
  const Value z = image(g, "z", c.dtype, c.x), wide = cast(made, f32);
  const Value total = sum(wide, kChecked), product = sum(wide * cast(z, f32), kChecked);
  g.fetch("total", total), g.fetch("product", product);
  const auto per_channel = [&](const char* name, const Value& of) {
    const Value mixed = matmul(reshape(of, Shape{1, c.x[1]}), g.input(name, f32, {c.x[1], c.x[1]}));
    return cast(reshape(mixed, Shape{1, c.x[1], 1, 1}), c.dtype);
  };
  const Value rest = made * per_channel("of_total", total) - z * per_channel("of_product", product);
  g.fetch("rest", conv2d(rest, g.input("w", c.dtype, {8, c.x[1], 1, 1})));
}

// The plans of `build` for each case, by one CTA a kernel after the other where it stays, so that it has several turns.
struct Built {
  std::vector<std::unique_ptr<Graph>> graphs;
  std::vector<Plan> plans;

  Built(const std::vector<Case>& cases, void (*build)(Graph& g, const Case& c)) {
    Target chip = named_target("h200");
    chip.sm_count = 1;
    for (const Case& c : cases) {
      graphs.push_back(std::make_unique<Graph>());
      build(*graphs.back(), c);
      plans.push_back(std::move(compile_plan(*graphs.back(), {}, std::make_shared<const Target>(chip)).plan));
    }
  }
  void expect_each(std::size_t count, const std::function<bool(const Step&)>& is_meant) const {
    for (const Plan& plan : plans) {
      EXPECT_EQ(static_cast<std::size_t>(std::ranges::count_if(plan.steps, is_meant)), count) << to_string(plan);
    }
  }
  void check() {
    EmulatedCases made;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      Feeds feeds = make_feeds(*graphs[i], static_cast<unsigned>(i + 1));
      std::string what = to_string(graphs[i]->find("x").shape());
      made.add(std::move(what), std::move(graphs[i]), std::move(feeds), std::move(plans[i]));
    }
    made.check(16);
  }
};
std::function<bool(const Step&)> is_kernel(const char* op, const char* name) {
  return [=](const Step& step) {
    return step.kind == Step::Kind::kernel && step.call.op->name == op && step.kernel->name == name;
  };
}

void check_on_a_gpu(const std::vector<Case>& cases, std::initializer_list<void (*)(Graph& g, const Case& c)> builds) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  CasesOnGpu made;
  for (const Case& c : cases) {
    for (const auto& build : builds) {
      auto g = std::make_unique<Graph>();
      build(*g, c);
      Feeds feeds = make_feeds(*g, 5);
      made.add(to_string(c.x), std::move(g), std::move(feeds));
    }
  }
  made.check(64);
}

TEST(PoolByBlocks, GradientsThatTwoGroupsMakeByThemselvesAreRight) {
  Built built(cases(), build);
  built.expect_each(2, is_kernel("max_pool2d_grad", "blocks"));
  built.expect_each(2, has_epilogue);
  built.check();
}

// The graph after the first convolution of a network: a norm that has its statistics, and its activation.
void build_behind_group(Graph& g, const Case& c) {
  const auto per_channel = [&](const char* name) {
    return reshape(g.input(name, f32, {c.x[1]}), Shape{1, c.x[1], 1, 1});
  };
  const Value x = cast(image(g, "x", c.dtype, c.x), f32);
  const Value made = cast(relu(x * per_channel("scale") + per_channel("shift")), c.dtype);
  const auto [y, index] = max_pool2d_with_index(made, c.options);
  g.fetch("y", conv2d(y, g.input("w", c.dtype, {8, c.x[1], 1, 1}))), fetch_image(g, "index", index);
}
TEST(PoolByRows, OfWhatAGroupInFrontMakesIsRight) {
  Built built(row_cases(), build_behind_group);
  built.expect_each(1, [](const Step& step) { return step.has_prologue; });
  built.check();
}

void build_alone(Graph& g, const Case& c) {
  const Value x = image(g, "x", c.dtype, c.x);
  const auto [y, index] = max_pool2d_with_index(x, c.options);
  const Value w = g.input("w", c.dtype, {8, c.x[1], 1, 1}), dy = image(g, "dy", c.dtype, y.shape());
  const Value made = gradients(std::array{sum(cast(y, f32) * cast(dy, f32))}, std::array{x})[0];
  g.fetch("y", conv2d(y, w)), fetch_image(g, "index", index), g.fetch("dx", conv2d(made, w));
}
TEST(PoolByRows, IsRightOfAnImage) {
  Built built(row_cases(), build_alone);
  built.expect_each(1, is_kernel("max_pool2d", "rows"));
  built.check();
}
TEST(PoolByBlocks, IsRightAlone) {
  Built built(cases(), build_alone);
  built.expect_each(1, is_kernel("max_pool2d_grad", "blocks"));
  built.check();
}

TEST(PoolByRows, IsRightOnAGpu) { check_on_a_gpu(row_cases(), {build_behind_group, build_alone}); }
TEST(PoolByBlocks, IsRightOnAGpu) { check_on_a_gpu(cases(), {build, build_alone}); }

// The largest of all is a NaN, the first of several, and of equal ones the first.
TEST(PoolByRows, ChoosesAsTheCpuDoes) {
  Graph g;
  const Shape shape{1, 8, 9, 9};
  const auto [y, index] =
      max_pool2d_with_index(image(g, "x", bf16, shape), {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1, 1, 1}});
  fetch_image(g, "y", y), fetch_image(g, "index", index);
  Tensor x(bf16, {1, 9, 9, 8});
  auto* const bits = reinterpret_cast<std::uint16_t*>(x.bytes());
  constexpr float kInfinite = std::numeric_limits<float>::infinity(), kNone = std::numeric_limits<float>::quiet_NaN();
  constexpr std::array kValues{0.0F, 1.0F, -kInfinite, kNone, 1.0F, -1.0F, kInfinite};
  for (std::size_t i = 0; i < 648; ++i) bits[i] = float_to_bf16(kValues[i * i / 5 % kValues.size()]);
  for (std::size_t i = 0; i < 200; ++i) bits[i] = float_to_bf16(-kInfinite);
  const Tensors feeds{{"x", x}};
  Plan plan = std::move(compile_plan(g, {}, std::make_shared<const Target>(named_target("h200"))).plan);
  EXPECT_EQ(std::ranges::count_if(plan.steps, is_kernel("max_pool2d", "rows")), 1) << to_string(plan);
  const EmulatedProgram program(std::move(plan));
  const Tensors got = program.run(gpu::EmulatedKernels(program.kernels()), feeds, 1), wanted = Program(g).run(feeds);
  EXPECT_EQ(got.at("index").to_doubles(), wanted.at("index").to_doubles());
  const std::vector<double> values = got.at("y").to_doubles(), expected = wanted.at("y").to_doubles();
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(values[i] == expected[i] || (std::isnan(values[i]) && std::isnan(expected[i]))) << i;
  }
}

}  // namespace
}  // namespace paoding::testing_program
