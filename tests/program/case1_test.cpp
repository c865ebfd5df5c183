// SPDX-License-Identifier: Apache-2.0
// The two programs printed in the story of the profiler (docs: examples/05_control_flow.cpp shows them): case over
// scalar predicates, whose branches differ in shape and dtype, and a crop of one tensor to the shape of another. Their
// results are exact. As printed every value is a constant; here the predicates' inputs are fed too.
#include <gtest/gtest.h>

#include "paoding/paoding.h"
#include "tests/support/devices_here.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

enum class Inputs { fed, constant };

struct Result {
  Type type;
  Dense values;
};

const Result kOnes{{f32, {1, 2}}, {1, 1}}, kTwos{{i32, {2, 2}}, {2, 2, 2, 2}}, kThrees{{i32, {3}}, {3, 3, 3}};

void expect_result(const Tensor& got, const Result& wanted, const std::string& what) {
  EXPECT_EQ(got.type(), wanted.type) << what << ": " << to_string(got.type());
  EXPECT_EQ(got.to_doubles(), wanted.values) << what;
}

// A row of x, y, z, as doubles that are exact in f32 or rounded as the story's 0.3 is.
struct Numbers {
  double x, y, z;
};

// Printed twice: everywhere on the device, and with the scalars and predicates under device_guard("cpu").
void build_case(Graph& g, Inputs inputs, bool on_cpu, const Numbers& numbers) {
  std::optional<OnCpu> guard;
  if (on_cpu) guard.emplace(g);
  const auto scalar = [&](const char* name, double value) {
    return inputs == Inputs::fed ? g.input(name, f32, {1}) : full(g, {1}, value, f32);
  };
  const Value x = scalar("x", numbers.x), y = scalar("y", numbers.y), z = scalar("z", numbers.z);
  const Value pred_1 = less(z, x), pred_2 = less(x, y), pred_3 = equal(x, y);
  guard.reset();
  const auto fn_1 = [&] { return Values{full(g, {1, 2}, 1, f32)}; };
  const auto fn_2 = [&] { return Values{full(g, {2, 2}, 2, i32)}; };
  const auto fn_3 = [&] { return Values{full(g, {3}, 3, i32)}; };
  g.fetch("out_1", case_variant({{pred_1, fn_1}, {pred_2, fn_2}}, fn_3));
  g.fetch("out_2", case_variant({{pred_2, fn_2}, {pred_3, fn_3}}));  // no default: the last case is
}

// With passes, without, and step by step, on every device.
std::vector<CompileOptions> ways() {
  std::vector<CompileOptions> list;
  for (const Device& device : devices_here()) {
    CompileOptions options;
    options.device = device;
    list.insert(list.end(), 3, options);
    list[list.size() - 2].disabled_passes = pass_names();
    list.back().execution = Execution::stepwise;
  }
  return list;
}

struct CaseRow {
  Numbers numbers;
  Result out_1, out_2;
};

// out_1: pred_1 ? fn_1 : pred_2 ? fn_2 : fn_3; out_2: pred_2 ? fn_2 : fn_3.
const CaseRow kCaseRows[] = {
    {{0.3, 0.1, 0.2}, kOnes, kThrees},    // the story's
    {{0.3, 0.5, 0.2}, kOnes, kTwos},      // pred_1 and pred_2: the first that is true
    {{0.1, 0.3, 0.2}, kTwos, kTwos},      // pred_2 alone
    {{0.1, 0.1, 0.2}, kThrees, kThrees},  // pred_3 alone: the default, and the last case
    {{0.2, 0.1, 0.2}, kThrees, kThrees},  // none; 0.2 < 0.2 is not true
    {{std::nan(""), 0.1, 0.2}, kThrees, kThrees},
};

TEST(Case1, CaseTakesTheBranchOfTheFedValues) {
  for (const bool on_cpu : {false, true}) {
    Graph g;
    build_case(g, Inputs::fed, on_cpu, {});
    const std::string text = to_text(g);
    EXPECT_EQ(to_text(*parse_graph(text)), text);
    for (const CompileOptions& options : ways()) {
      Program program(g, options);
      for (int turn = 0; turn < 2; ++turn) {
        for (const auto& [numbers, out_1, out_2] : kCaseRows) {
          const Tensors got = program.run({{"x", Tensor::from(f32, {1}, Dense{numbers.x})},
                                           {"y", Tensor::from(f32, {1}, Dense{numbers.y})},
                                           {"z", Tensor::from(f32, {1}, Dense{numbers.z})}});
          const std::string what = "x " + std::to_string(numbers.x) + ", y " + std::to_string(numbers.y);
          expect_result(got.at("out_1"), out_1, what + ", out_1");
          expect_result(got.at("out_2"), out_2, what + ", out_2");
        }
      }
    }
  }
}

TEST(Case1, CaseOfConstantsGivesTheSame) {
  for (const bool on_cpu : {false, true}) {
    for (const CaseRow& row : kCaseRows) {
      Graph g;
      build_case(g, Inputs::constant, on_cpu, row.numbers);
      for (const CompileOptions& options : ways()) {
        Program program(g, options);
        for (int i = 0; i < 3; ++i) {
          const Tensors got = program.run({});
          expect_result(got.at("out_1"), row.out_1, "out_1");
          expect_result(got.at("out_2"), row.out_2, "out_2");
        }
      }
    }
  }
}

// data1 cut to the shape of data2: shape, the slice of it that crop_tensor reads, and the crop.
void build_crop(Graph& g, Inputs inputs) {
  const Shape shape1 = {1, 3, 8, 8}, shape2 = {1, 3, 5, 5};
  const auto tensor = [&](const char* name, const Shape& shape) {
    return inputs == Inputs::fed ? g.input(name, f32, shape) : full(g, shape, 0.5, f32);
  };
  const Value data1 = tensor("data1", shape1), data2 = tensor("data2", shape2);
  g.fetch("shape", slice(shape_of(data2), 0, 0, 4));
  // Shapes are known when a graph is built, so the amounts to leave out are plain arithmetic.
  const Ints before(4, 0);
  Ints after;
  for (int axis = 0; axis < 4; ++axis) after.push_back(data1.shape()[axis] - data2.shape()[axis]);
  g.fetch("out", crop(data1, before, after));
}

TEST(Case1, CropCutsToTheShapeOfTheOther) {
  Graph fed, constant;
  build_crop(fed, Inputs::fed);
  build_crop(constant, Inputs::constant);
  Dense counted(192), cut;
  for (std::size_t i = 0; i < counted.size(); ++i) counted[i] = static_cast<double>(i);
  for (int c = 0; c < 3; ++c) {
    for (int h = 0; h < 5; ++h) {
      for (int w = 0; w < 5; ++w) cut.push_back(c * 64 + h * 8 + w);
    }
  }
  const Dense halves(192, 0.5), halves_cut(75, 0.5);
  const Result shape{{i64, {4}}, {1, 3, 5, 5}};
  for (const CompileOptions& options : ways()) {
    Program program(fed, options), folded(constant, options);
    for (const auto& [data, wanted] : {std::pair{counted, cut}, std::pair{halves, halves_cut}}) {
      const Tensors got = program.run(
          {{"data1", Tensor::from(f32, {1, 3, 8, 8}, data)}, {"data2", Tensor::from(f32, {1, 3, 5, 5}, halves_cut)}});
      expect_result(got.at("out"), {{f32, {1, 3, 5, 5}}, wanted}, "out");
      expect_result(got.at("shape"), shape, "shape");
    }
    const Tensors got = folded.run({});
    expect_result(got.at("out"), {{f32, {1, 3, 5, 5}}, halves_cut}, "out");
    expect_result(got.at("shape"), shape, "shape");
  }
}

// Calls of the row `name`, or -1.
int calls_of(const std::string& report, const std::string& name) {
  const auto at = report.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::stoi(report.substr(at + 1 + name.size()));
}

// The story's counts over 100 runs: two less_than, one equal, two conditional blocks a run, and copies between the
// devices, of which there are none here.
TEST(Case1, ReportCountsTheOpsOf100Runs) {
  Graph g;
  build_case(g, Inputs::fed, false, {});
  CompileOptions options;
  options.disabled_passes = pass_names();
  Program program(g, options);
  for (const char* name : {"x", "y", "z"}) {
    program.set_input(program.input_index(name), Tensor::from(f32, {1}, Dense{*name == 'x' ? 0.3 : 0.1}));
  }
  start_profiler(State::all, Detail::op);
  for (int i = 0; i < 100; ++i) program.run();
  const std::string report = stop_profiler(SortBy::total);
  EXPECT_EQ(calls_of(report, "thread0::less"), 200) << report;
  EXPECT_EQ(calls_of(report, "thread0::equal"), 100) << report;
  EXPECT_EQ(calls_of(report, "thread0::branch"), 200) << report;
  EXPECT_EQ(report.find("Gpu"), std::string::npos) << report;
}

// Started before the third run and stopped before the ninth: six runs, each with the fetch of its two results.
TEST(Case1, ProfilesSixOfTenRuns) {
  Graph g;
  build_crop(g, Inputs::fed);
  Program program(g);
  const Tensors fed{{"data1", Tensor::from(f32, {1, 3, 8, 8}, Dense(192, 0.5))},
                    {"data2", Tensor::from(f32, {1, 3, 5, 5}, Dense(75, 0.5))}};
  std::string report;
  for (int iteration = 0; iteration < 10; ++iteration) {
    if (iteration == 2) start_profiler(State::all, Detail::op);
    if (iteration == 8) report = stop_profiler(SortBy::total);
    program.run(fed);
  }
  EXPECT_EQ(calls_of(report, "thread0::fetch"), 12) << report;
  Profiler scoped(State::all, Detail::op);
  for (int iteration = 0; iteration < 10; ++iteration) program.run(fed);
  report = scoped.stop(SortBy::total);
  EXPECT_EQ(calls_of(report, "thread0::fetch"), 20) << report;
}

}  // namespace
}  // namespace paoding::testing_program
