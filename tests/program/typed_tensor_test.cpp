// SPDX-License-Identifier: Apache-2.0
// Tensors of typed values, of braces, and their elements in their own type.
#include <array>
#include <span>
#include <vector>

#include "paoding/tensor.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

TEST(Tensor, HasTheDtypeOfTheValuesThatItIsMadeOf) {
  EXPECT_EQ(Tensor::from({2, 2}, std::vector<float>{1, 2, 3, 4}).type(), (Type{f32, {2, 2}}));
  EXPECT_EQ(Tensor::from(std::vector<std::int64_t>{7, -8}).type(), (Type{i64, {2}}));
  EXPECT_EQ(Tensor::from(std::vector<long long>{7}).dtype(), i64);
  EXPECT_EQ(Tensor::from(std::array<std::uint8_t, 3>{1, 2, 255}).to_doubles(), (Dense{1, 2, 255}));
  EXPECT_EQ(Tensor::from({true, false}).dtype(), boolean);
  EXPECT_EQ(Tensor::from({1, 2, 3}).dtype(), i32);
  const std::vector<double> values{1.5, 2.5};
  EXPECT_EQ(Tensor::from(std::span<const double>(values)).to_doubles(), values);
  EXPECT_EQ(Tensor::from(bf16, {2}, {1.5, -2}).to_doubles(), (Dense{1.5, -2}));
  EXPECT_TRUE(has(message_of([] {
                    Tensor::from({3}, std::vector<float>{1, 2});
                  }),
                  "2 values for shape [3], which has 3"));
}

TEST(Tensor, OfNestedBracesHasTheirShape) {
  const Tensor matrix = Tensor::from({{1.0f, 2.0f, 3.0f}, {4.0f, 5.0f, 6.0f}});
  EXPECT_EQ(matrix.type(), (Type{f32, {2, 3}}));
  EXPECT_EQ(matrix.to_doubles(), (Dense{1, 2, 3, 4, 5, 6}));
  const Tensor cube = Tensor::from({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}});
  EXPECT_EQ(cube.type(), (Type{i32, {2, 2, 2}}));
  EXPECT_EQ(cube.to_doubles()[6], 7);
  EXPECT_TRUE(has(message_of([] { Tensor::from({{1, 2}, {3}}); }), "a row of 1 values in braces beside one of 2"));
}

TEST(Tensor, GivesItsElementsAsWhatTheyAreAlone) {
  Tensor tensor = Tensor::from({2}, std::vector<float>{1, 2});
  tensor.values<float>()[1] = 5;
  const Tensor& same = tensor;
  EXPECT_EQ(same.values<float>()[1], 5);
  EXPECT_TRUE(has(message_of([&] { same.values<double>(); }), "elements of a f32[2] are asked for as f64"));
  EXPECT_EQ(Tensor::from(f16, {1}, {1.0}).values<std::uint16_t>()[0], 0x3C00);
  EXPECT_TRUE(has(message_of([&] { same.values<std::uint16_t>(); }), "as 16 bits"));
}

TEST(Tensor, ConvertsItsOnlyElement) {
  EXPECT_EQ(Tensor::from(bf16, {1, 1}, {2.5}).item<float>(), 2.5f);
  EXPECT_EQ(Tensor::from({std::int64_t{9007199254740993}}).item<std::int64_t>(), 9007199254740993);
  EXPECT_TRUE(has(message_of([] { Tensor::from({1, 2}).item<float>(); }), "item() of a i32[2], which has 2 elements"));
}

TEST(Scan, CountsItsStepsWithoutASequence) {
  for (const bool reverse : {false, true}) {
    Graph g;
    const Value x = g.input("x", f64, {});
    const StepResult made = scan(
        {x}, 4,
        [](const Values& carries, const Value& number) {
          const Value next = carries[0] * 2.0 + cast(number, f64);
          return step({next}, {next});
        },
        reverse);
    g.fetch("last", made.carries[0]);
    g.fetch("all", made.outputs[0]);
    g.fetch("dx", gradients(made.carries[0], {x})[0]);
    Tensors got = Program(g).run({{"x", Tensor::from(f64, {}, {1.0})}});
    double value = 1;
    Dense all(4);
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t t = reverse ? 3 - i : i;
      value = value * 2 + static_cast<double>(t);
      all[t] = value;
    }
    EXPECT_EQ(got.at("last").item<double>(), value);
    EXPECT_EQ(got.at("all").to_doubles(), all);
    EXPECT_EQ(got.at("dx").item<double>(), 16);
  }
  const auto nothing = [](const Values& carries, const Value&) { return step(carries, {}); };
  EXPECT_TRUE(has(message_of([&] { scan({}, 3, nothing); }), "need an initial value"));
  Graph g;
  const Value x = g.input("x", f32, {});
  EXPECT_TRUE(has(message_of([&] { scan({x}, -1, nothing); }), "scan: -1 steps"));
}

TEST(ParametersList, HasNameTypeCountAndBytesOfEach) {
  Graph g;
  const Value b = g.parameter("b", f32, {3}), a = g.parameter("a", bf16, {2, 4});
  g.fetch("y", b + cast(sum(a), f32));
  const Parameters parameters(g, Device::cpu());
  std::vector<std::string> seen;
  for (const ParameterInfo& each : parameters.list()) {
    seen.push_back(each.name + " " + to_string(each.type) + " " + std::to_string(each.size_bytes()));
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"b f32[3] 12", "a bf16[2,4] 16"}));
  EXPECT_EQ(parameters.elements(), 11);
  EXPECT_EQ(parameters.size_bytes(), 28);
}

}  // namespace
}  // namespace paoding::testing_program
