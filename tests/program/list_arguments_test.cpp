// SPDX-License-Identifier: Apache-2.0
// Lists in braces (paoding/ops/lists.h) mean the same as spans of the same elements.
#include <gtest/gtest.h>

#include <vector>

#include "paoding/paoding.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

// The nodes that `build` adds to a graph of a [2, 3, 4] and b [2, 3, 4], as text.
template <class Build>
std::string text_of(const Build& build) {
  Graph g;
  const Value a = g.input("a", f32, {2, 3, 4}), b = g.input("b", f32, {2, 3, 4});
  const Values results = build(a, b);
  for (std::size_t i = 0; i < results.size(); ++i) g.fetch("y" + std::to_string(i), results[i]);
  return to_text(g);
}

template <class InBraces, class BySpan>
void expect_same(const InBraces& in_braces, const BySpan& by_span) {
  EXPECT_EQ(text_of(in_braces), text_of(by_span));
}

TEST(ListArguments, AxesOfReductionsMayBeBraces) {
  expect_same(
      [](const Value& a, const Value&) {
        return Values{
            sum(a, {0, 1}),    max(a, {-1}, true),           mean(a, {0}), var(a, {1, 2}, false, 1), all(a, {2}),
            logsumexp(a, {1}), layer_norm(a, {}, {}, {1, 2})};
      },
      [](const Value& a, const Value&) {
        return Values{sum(a, Ints{0, 1}),
                      max(a, Ints{-1}, true),
                      mean(a, Ints{0}),
                      var(a, Ints{1, 2}, false, 1),
                      all(a, Ints{2}),
                      logsumexp(a, Ints{1}),
                      layer_norm(a, {}, {}, Ints{1, 2})};
      });
}

TEST(ListArguments, ViewsAndConcatenationsMayBeWrittenWithBraces) {
  expect_same(
      [](const Value& a, const Value& b) {
        Values all{transpose(a, {2, 0, 1}),
                   reshape(a, {-1, 4}),
                   slice(a, {0, 1, 0}, {2, 3, 4}, {1, 1, 2}),
                   pad(a, {0, 1, 0}, {1, 0, 0}, 5),
                   flip(a, {0}),
                   tile(a, {2, 1, 1}),
                   crop(a, {0, 1, 1}, {0, 0, 1}),
                   concat({a, b}, 1),
                   stack({a, b}),
                   unsqueeze(a, {0, 2}),
                   add_n({a, b, a})};
        for (const Value& part : split(a, {1, 3}, 2)) all.push_back(part);
        return all;
      },
      [](const Value& a, const Value& b) {
        const Values both{a, b}, three{a, b, a};
        Values all{transpose(a, Ints{2, 0, 1}),
                   reshape(a, Ints{-1, 4}),
                   slice(a, Ints{0, 1, 0}, Ints{2, 3, 4}, Ints{1, 1, 2}),
                   pad(a, Ints{0, 1, 0}, Ints{1, 0, 0}, 5),
                   flip(a, Ints{0}),
                   tile(a, Ints{2, 1, 1}),
                   crop(a, Ints{0, 1, 1}, Ints{0, 0, 1}),
                   concat(both, 1),
                   stack(both),
                   unsqueeze(a, Ints{0, 2}),
                   add_n(three)};
        for (const Value& part : split(a, Ints{1, 3}, 2)) all.push_back(part);
        return all;
      });
}

TEST(ListArguments, OnePartOfFourIsNotFourParts) {
  Graph g;
  const Value a = g.input("a", f32, {4, 2});
  EXPECT_EQ(split(a, {4}).size(), 1U);
  EXPECT_EQ(split(a, 4).size(), 4U);
}

TEST(ListArguments, StepsThatAreCountedNeedNotTakeTheirNumber) {
  expect_same(
      [](const Value& a, const Value& b) {
        return scan({a}, 3, [&](const Values& c) { return step({c[0] + b}, {c[0]}); }).outputs;
      },
      [](const Value& a, const Value& b) {
        return scan({a}, 3, [&](const Values& c, const Value&) { return step({c[0] + b}, {c[0]}); }).outputs;
      });
}

TEST(ListArguments, ParametersAreTheCpusUnlessADeviceIsSaid) {
  Graph g;
  g.fetch("y", g.parameter("w", f32, {3}) + 1.0);
  Parameters parameters(g);
  EXPECT_EQ(parameters.device(), Device::cpu());
  parameters.set("w", Tensor::from(f32, {3}, {1, 2, 3}));
  EXPECT_EQ(Program(g, {}, &parameters).run({}).at("y").to_doubles(), (std::vector<double>{2, 3, 4}));
}

TEST(ListArguments, GradientsAreOfAListThatIsThereOrOfBraces) {
  expect_same(
      [](const Value& a, const Value& b) {
        const Values wanted{a, b};
        Values all = gradients(sum(a * b), wanted);
        for (const Value& each : gradients({sum(a), sum(a * a)}, {a, b})) all.push_back(each);
        return all;
      },
      [](const Value& a, const Value& b) {
        Values all = gradients(sum(a * b), {a, b});
        const Values outputs{sum(a), sum(a * a)}, wanted{a, b};
        for (const Value& each : gradients(outputs, wanted)) all.push_back(each);
        return all;
      });
}

TEST(ListArguments, OfConstantsSayTheirType) {
  Graph g;
  const Value numbers = constant(g, {2, 2}, {1.5, 2.0, 3.0, -4.0}), counts = constant(g, {2}, {0, 2});
  EXPECT_EQ(numbers.type(), (Type{f32, {2, 2}}));
  EXPECT_EQ(counts.type(), (Type{i64, {2}}));
  EXPECT_EQ(constant(g, {2}, {0, 2}, i32).dtype(), i32);
  EXPECT_EQ(constant(g, {1}, {0.5F}, f64).dtype(), f64);
  g.fetch("numbers", numbers), g.fetch("counts", counts);
  const auto got = Program(g).run(std::map<std::string, Tensor>{});
  EXPECT_EQ(got.at("numbers").to_doubles(), (std::vector<double>{1.5, 2, 3, -4}));
  EXPECT_EQ(got.at("counts").to_doubles(), (std::vector<double>{0, 2}));
}

}  // namespace
}  // namespace paoding
