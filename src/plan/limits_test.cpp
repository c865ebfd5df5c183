// SPDX-License-Identifier: Apache-2.0
// Sizes that no machine has are refused with a message before any memory is taken.
#include <gtest/gtest.h>

#include <ctime>

#include "paoding/paoding.h"
#include "tests/support/program_check.h"

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

TEST(Limits, RefuseMoreResultsThanAnOpMayHaveBeforeAnyIsMade) {
  const std::string start = "paoding graph 1\nx = input f32[";
  EXPECT_NE(compile_error(start + "1099511627776]\ny = unstack(x)\nfetch y\n").find("would give 1099511627776 values"),
            std::string::npos);
  EXPECT_NE(
      compile_error(start + "4194304]\ny = split(x) {parts=4194304}\nfetch y\n").find("would give 4194304 values"),
      std::string::npos);
  Graph g;
  const Value x = g.input("x", f32, {2, std::int64_t{1} << 40});
  EXPECT_NE(message_of([&] { unstack(x, 1); }).find("the most is 65536"), std::string::npos);
  EXPECT_NE(message_of([&] { split(x, std::int64_t{1} << 30, 1); }).find("the most is 65536"), std::string::npos);
  EXPECT_EQ(g.size(), 1);
  EXPECT_EQ(unstack(g.input("y", f32, {1 << 16})).size(), 1u << 16);
}

TEST(Limits, RefuseSizesThatAddUpToMoreThanAnyNumber) {
  Graph g;
  const Value x = g.input("x", u8, {std::int64_t{1} << 47});
  const std::vector<std::int64_t> sizes(1 << 16, std::int64_t{1} << 47);
  const std::string message = message_of([&] { split(x, sizes, 0); });
  EXPECT_NE(message.find("65536 in all] add up to more than 2^63"), std::string::npos) << message;
  EXPECT_LT(message.size(), 600u);
}

TEST(Limits, RefuseAStreamOfRandomNumbersThatCannotBeCounted) {
  for (const char* op : {"random_uniform", "random_normal", "random_bernoulli"}) {
    for (const char* stream : {"9223372036854775807", "-9223372036854775808", "-1", "2147483647"}) {
      const std::string message =
          compile_error("paoding graph 1\nx = input i64[4]\nr = input i64[]\ns = input i64[]\ny = " + std::string(op) +
                        "(x, r, s) {stream=" + stream + "}\nfetch y\n");
      EXPECT_NE(message.find("it must be from 0 to 2147483646"), std::string::npos) << op << " " << message;
    }
  }
}

// Windows of a billion taps over an image of a few pixels: neither time nor memory grows with the taps.
TEST(Limits, OfPoolsAreNotTheirTaps) {
  const std::string start = "paoding graph 1\nx = input f32[1,1,4,4]\ny = avg_pool2d(x) {kernel=[";
  EXPECT_EQ(compile_error(start + "500000000,4], padding=[249999998,249999998,0,0]}\nfetch y\n"), "no error");
  const std::string outside = compile_error(start + "2,2], padding=[1000000000,1000000000,0,0]}\nfetch y\n");
  EXPECT_NE(outside.find("window 0 along the height holds padding only"), std::string::npos) << outside;
  EXPECT_NE(compile_error("paoding graph 1\nx = input f32[1,1,65536,65536]\ny, i = max_pool2d(x) "
                          "{kernel=[65536,65536]}\nfetch y\n")
                .find("an index counts 2^31"),
            std::string::npos);
}

// The same of half a billion windows, each a step further over an image of four pixels.
TEST(Limits, OfPoolsAreNotTheirWindows) {
  const std::clock_t start = std::clock();  // of the processor: others may use the machine
  EXPECT_EQ(compile_error("paoding graph 1\nx = input f32[0,1,1,4]\ny = avg_pool2d(x) {kernel=[536870912,1], "
                          "dilation=[2,1], stride=[2,1], padding=[1073741822,1073741822,0,0]}\nfetch y\n"),
            "no error");
  EXPECT_EQ(compile_error("paoding graph 1\nx = input f32[0,1,1073741824,1]\ny, i = max_pool2d(x) {kernel=[2,1]}\n"
                          "fetch y\n"),
            "no error");
  EXPECT_LT(std::clock() - start, 5 * CLOCKS_PER_SEC);  // one by one: more than ten times that
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
  EXPECT_NE(message_of([&] { x * 0.5; }).find("the number 0.5 stands beside i32[2]"), std::string::npos);
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
