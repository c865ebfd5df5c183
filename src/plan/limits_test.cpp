// SPDX-License-Identifier: Apache-2.0
// Sizes that no machine has are refused with a message before any memory is taken.
#include <gtest/gtest.h>

#include "paoding/paoding.h"
#include "tests/program_check.h"

namespace paoding {
namespace {

using testing_program::message_of;

std::string compile_error(const std::string& text) {
  return message_of([&] { Program program(*parse_graph(text)); });
}

TEST(Limits, RefuseAValueOfMoreBytesThanCanBeCounted) {
  EXPECT_NE(compile_error("paoding graph 1\ny = full() {value=1.0, shape=[2147483648,2147483648]}\nfetch y\n")
                .find("more than 2^47 bytes"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              Tensor(f32, {std::int64_t{1} << 31, std::int64_t{1} << 31});
            }).find("more than 2^47 bytes"),
            std::string::npos);
}

TEST(Limits, RefuseMoreLaunchesThanCanBeUnrolled) {
  const std::string text =
      "paoding graph 1\nx = input f32[16777216]\ns0 = input f32[]\n"
      "last, all = scan(s0, x) {carries=1, sequences=1, length=16777216} [\n"
      "  s = input f32[]\n  e = input f32[]\n  n = add(s, e)\n  fetch n\n  fetch o = n\n]\nfetch last\n";
  EXPECT_NE(compile_error(text).find("launches"), std::string::npos);
}

TEST(Limits, RefuseAHistoryOfMoreBytesThanCanBeCounted) {
  const std::string text =
      "paoding graph 1\nx = input f32[16777216]\n"
      "s0 = full() {value=0.0, shape=[17179869184]}\n"
      "last, all = scan(s0, x) {carries=1, sequences=1, length=16777216} [\n"
      "  s = input f32[17179869184]\n  e = input f32[]\n  n = add(s, e)\n  fetch n\n  fetch o = n\n]\nfetch last\n";
  EXPECT_NE(compile_error(text), "no error");
}

TEST(Limits, RefuseAnIndexThatNamesNoInputOrFetch) {
  Graph g;
  g.fetch("y", g.input("x", f32, {2}) + 1.0);
  Program program(g);
  EXPECT_NE(message_of([&] { program.set_input(7, Tensor(f32, {2})); }).find("no number 7"), std::string::npos);
  EXPECT_NE(message_of([&] { program.fetch(-1); }).find("no number -1"), std::string::npos);
}

TEST(Limits, RefuseAFractionBesideAnInteger) {
  Graph g;
  const Value x = g.input("x", i32, {2});
  EXPECT_NE(message_of([&] { x * 0.5; }).find("constant 0.5"), std::string::npos);
}

TEST(Limits, KeepAUsersNamesApartFromThoseThatPassesMake) {
  const std::string text =
      "paoding graph 1\nx = input f32[4,2,3]\nw = input f32[3,5]\ns0 = input f32[2,5]\n"
      "last = scan(s0, x, w) {carries=1, sequences=1, length=4} [\n"
      "  element_6 = input f32[2,5]\n  element_5 = input f32[2,3]\n  constant_7 = input f32[3,5]\n"
      "  p = matmul(element_5, constant_7)\n  n = add(element_6, p)\n  fetch n\n]\nfetch last\n";
  EXPECT_EQ(compile_error(text), "no error");
}

TEST(Limits, RoundAConstantThatIsStoredInSixteenBits) {
  Graph g;
  const Value x = g.input("x", f32, {1});
  g.fetch("same", equal(cast(x, bf16), full(g, {1}, 0.1, bf16)));
  Program program(g);
  const auto result = program.run({{"x", Tensor::from(f32, {1}, std::vector{0.1})}});
  EXPECT_EQ(result.at("same").to_doubles()[0], 1);
}

}  // namespace
}  // namespace paoding
