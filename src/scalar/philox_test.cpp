// SPDX-License-Identifier: Apache-2.0
// Philox against the published vectors; random_bits on the CPU in every order of indices; the uniform numbers made of
// it.
#include "scalar/philox.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cpu/group_kernel.h"
#include "paoding/error.h"
#include "scalar/primitive.h"

namespace paoding {
namespace {

// Random123's kat_vectors, "philox4x32 10".
TEST(Philox, GivesThePublishedWords) {
  EXPECT_EQ(Philox::block({0, 0, 0, 0}, {0, 0}), (Philox::Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kAll = 0xffffffff;
  EXPECT_EQ(Philox::block({kAll, kAll, kAll, kAll}, {kAll, kAll}),
            (Philox::Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox::block({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Philox::Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

using Numbers = std::vector<std::int64_t>;

// A column of `rows` streams by a row of indices, in one kernel.
std::vector<std::int32_t> on_cpu(Numbers index, Numbers stream, Numbers seed) {
  Group group;
  const auto rows = static_cast<std::int64_t>(stream.size()), columns = static_cast<std::int64_t>(index.size());
  group.extents = {rows, columns};
  group.loads = {{i64, {0, 1}}, {i64, {rows == 1 ? 0 : 1, 0}}, {i64, {0, seed.size() == 1 ? 0 : 1}}};
  Scalar in[3];
  for (int i = 0; i < 3; ++i) in[i] = make_input(&group.expr, i, i64);
  group.outputs = {{i32, random_bits(in[0], in[1], in[2]).id(), 0, Combine::none, {columns, 1}}};
  std::vector<std::int32_t> out(static_cast<std::size_t>(rows * columns), -1);
  void* operands[] = {index.data(), stream.data(), seed.data(), out.data()};
  CpuGroupKernel(group).run(operands);
  return out;
}

void expect_words(const Numbers& index, const Numbers& stream, const Numbers& seed) {
  const std::vector<std::int32_t> got = on_cpu(index, stream, seed);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::size_t row = i / index.size(), column = i % index.size();
    const auto bits = [](std::int64_t a) { return static_cast<std::uint64_t>(a); };
    const std::uint32_t want =
        random_bits(bits(index[column]), bits(stream[row]), bits(seed[seed.size() == 1 ? 0 : column]));
    ASSERT_EQ(static_cast<std::uint32_t>(got[i]), want) << "element " << i << " of " << got.size();
  }
}

TEST(RandomBits, AreTheSameInEveryOrder) {
  Numbers run, from_three, strided, backwards, across_words;
  for (std::int64_t i = 0; i < 1003; ++i) {
    run.push_back(i);
    from_three.push_back(i + 3);
    strided.push_back(2 * i + 1);
    backwards.push_back(1000 - i);
    across_words.push_back((std::int64_t{1} << 34) - 500 + i);  // the block number passes 2^32
  }
  for (const Numbers& index : {run, from_three, strided, backwards, across_words}) {
    expect_words(index, {5}, {7});
    expect_words(index, {5, (std::int64_t{9} << 32) + 1, -1}, {(std::int64_t{3} << 40) + 7});
  }
  expect_words(run, {5}, backwards);
  expect_words({6}, {0, 1, 2, 3}, {-7});
}

TEST(RandomBits, TakeOnlyI64) {
  Expr expr;
  const Scalar index = make_input(&expr, 0, i32);
  EXPECT_THROW(random_bits(index, index, index), Error);
}

struct Uniforms {
  std::vector<double> exact, f32, f64;  // the float64 meaning in f64, and the CPU's results
};

Uniforms uniforms(std::int64_t count) {
  Uniforms result;
  Numbers index;
  for (std::int64_t i = 0; i < count; ++i) index.push_back(i);
  Group group;
  group.extents = {count};
  group.loads = {{i64, {1}}};
  const Scalar at = make_input(&group.expr, 0, i64);
  const Scalar stream = at.constant(3), seed = at.constant(42);
  const Scalar single = random_uniform(at, stream, seed, f32), whole = random_uniform(at, stream, seed, f64);
  group.outputs = {{f32, single.id(), 0, Combine::none, {1}}, {f64, whole.id(), 0, Combine::none, {1}}};
  std::vector<float> narrow(index.size());
  result.f64.resize(index.size());
  void* operands[] = {index.data(), narrow.data(), result.f64.data()};
  CpuGroupKernel(group).run(operands);
  result.f32.assign(narrow.begin(), narrow.end());
  for (std::size_t i = 0; i < index.size(); ++i) {
    const std::vector<double> values = evaluate(group.expr, std::array{double(index[i])});
    result.exact.push_back(values[static_cast<std::size_t>(whole.id())]);
    EXPECT_EQ(result.f32[i], values[static_cast<std::size_t>(single.id())]);
  }
  return result;
}

TEST(RandomUniform, IsExactlyWhatTheFloat64MeaningSays) {
  const Uniforms made = uniforms(5000);
  EXPECT_EQ(made.f64, made.exact);
}

TEST(RandomUniform, IsUniformOnItsGrid) {
  const Uniforms made = uniforms(100000);
  for (const std::vector<double>* list : {&made.f32, &made.f64}) {
    const double steps = list == &made.f32 ? 0x1p24 : 0x1p53;
    double sum = 0, squares = 0, neighbours = 0, before = 0.5;
    for (const double u : *list) {
      ASSERT_GE(u, 0);
      ASSERT_LT(u, 1);
      ASSERT_EQ(u * steps, std::floor(u * steps));
      sum += u, squares += u * u, neighbours += (u - 0.5) * (before - 0.5), before = u;
    }
    const double n = static_cast<double>(list->size());
    EXPECT_NEAR(sum / n, 0.5, 4 * std::sqrt(1 / (12 * n)));
    EXPECT_NEAR(squares / n, 1.0 / 3, 4 * std::sqrt(4 / (45 * n)));
    EXPECT_NEAR(neighbours / n, 0, 4 / (12 * std::sqrt(n)));
  }
}

}  // namespace
}  // namespace paoding
