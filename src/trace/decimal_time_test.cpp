// SPDX-License-Identifier: Apache-2.0
#include "trace/decimal_time.h"

#include <gtest/gtest.h>

#include <string>

#include "trace/json_strings.h"

namespace paoding::trace {
namespace {

std::string ns(std::string_view text) {
  std::int64_t value = 0;
  return to_ns(text, &value) ? std::to_string(value) : "none";
}

TEST(DecimalTime, IsWholeNanosecondsOfEveryDigit) {
  EXPECT_EQ(ns("4373621494760.142"), "4373621494760142");
  EXPECT_EQ(ns("1712195495519761.132"), "1712195495519761132");  // a double has 1712195495519761152
  EXPECT_EQ(ns("0"), "0");
  EXPECT_EQ(ns("5"), "5000");
  EXPECT_EQ(ns("1.5"), "1500");
  EXPECT_EQ(ns("-3"), "-3000");
  EXPECT_EQ(ns("0.0004"), "0");
  EXPECT_EQ(ns("0.0005"), "1");
  EXPECT_EQ(ns("-0.0005"), "-1");
}

TEST(DecimalTime, IsRoundedWhereADoubleWasWritten) {
  EXPECT_EQ(ns("6.6849999999999996"), "6685");
  EXPECT_EQ(ns("16722.239000000001"), "16722239");
  EXPECT_EQ(ns("1.0000000000000000000000000004"), "1000");
  EXPECT_EQ(ns("1234567890123456.78951111"), "1234567890123456790");
}

TEST(DecimalTime, TakesExponents) {
  EXPECT_EQ(ns("1.5e3"), "1500000");
  EXPECT_EQ(ns("15E-1"), "1500");
  EXPECT_EQ(ns("1e-300"), "0");
}

TEST(DecimalTime, IsNoneForWhatIsNoNumberOrTooLarge) {
  for (const char* text : {"", "-", ".", "N/A", "NaN", "inf", "1e", "1e+", "1x", "1 ", "0x10", "--1", "1.2.3", "1e300",
                           "9999999999999999999", "99999999999999999999999", "9223372036854775.808"}) {
    EXPECT_EQ(ns(text), "none") << text;
  }
  EXPECT_EQ(ns("9223372036854775.807"), "9223372036854775807");
}

std::string text_of(std::string_view raw, bool* is_clean) { return unescaped(raw, is_clean); }

TEST(JsonText, HasItsEscapesReplaced) {
  bool is_clean = true;
  EXPECT_EQ(text_of(R"(a\"b\\c\/d\n\t\u0041\u00e9\ud83d\ude00)", &is_clean), "a\"b\\c/d\n\tA\u00e9\U0001f600");
  EXPECT_TRUE(is_clean);
}

TEST(JsonText, KeepsWhatIsNoEscapeAsItStands) {
  bool is_clean = true;
  EXPECT_EQ(text_of(R"(torch\cuda\__init__.py)", &is_clean), R"(torch\cuda\__init__.py)");
  EXPECT_EQ(text_of(R"(\u12)", &is_clean), R"(\u12)");
  EXPECT_EQ(text_of(R"(a\)", &is_clean), R"(a\)");
  EXPECT_TRUE(is_clean);
}

TEST(JsonText, SaysWhenItIsNoUtf8) {
  bool is_clean = true;
  EXPECT_EQ(text_of("a\xff"
                    "b\xc3",
                    &is_clean),
            "a\uFFFD"
            "b\uFFFD");
  EXPECT_FALSE(is_clean);
  is_clean = true;
  EXPECT_EQ(text_of("\xed\xa0\x80", &is_clean), "\uFFFD\uFFFD\uFFFD");  // half of a pair
  EXPECT_FALSE(is_clean);
  is_clean = true;
  EXPECT_EQ(text_of("\xe2\x82\xac", &is_clean), "\u20ac");
  EXPECT_TRUE(is_clean);
}

TEST(RawStrings, GiveEveryTextOneNumber) {
  RawStrings strings;
  EXPECT_EQ(strings.add(""), 0u);
  std::vector<std::uint32_t> numbers;
  for (int i = 0; i < 20000; ++i) numbers.push_back(strings.add("name " + std::to_string(i)));
  const std::string long_one(300000, 'x');
  const std::uint32_t of_long = strings.add(long_one);
  for (int i = 0; i < 20000; ++i) {
    ASSERT_EQ(strings.add("name " + std::to_string(i)), numbers[static_cast<std::size_t>(i)]);
    ASSERT_EQ(strings[numbers[static_cast<std::size_t>(i)]], "name " + std::to_string(i));
  }
  EXPECT_EQ(strings.add(long_one), of_long);
  EXPECT_EQ(strings[of_long], long_one);
  EXPECT_EQ(strings.size(), 20002u);
}

}  // namespace
}  // namespace paoding::trace
