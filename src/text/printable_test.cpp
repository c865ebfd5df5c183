// SPDX-License-Identifier: Apache-2.0
#include "text/printable.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <random>

#include "io/json_text.h"
#include "text/lexer.h"

namespace paoding {
namespace {

TEST(Printable, LeavesTextAsItIs) {
  for (const std::string text :
       {"", "plain", "two\nlines\tand a tab", "caf\u00e9 \u00a0 \u65e5\u672c \U0001f600", "\\x1b"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, WritesWhatATerminalObeysAsItsBytes) {
  EXPECT_EQ(printable("\x1b[2J\x07"), "\\x1b[2J\\x07");
  EXPECT_EQ(printable("a\rb\x7f"), "a\\x0db\\x7f");
  EXPECT_EQ(printable("\u009b2J\u0085"), "\\xc2\\x9b2J\\xc2\\x85");  // terminals take them for ESC [ and a line's end
  EXPECT_EQ(printable("a\x9b"
                      "b\xff\xc3"),
            "a\\x9bb\\xff\\xc3");  // no UTF-8
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("a\nb\tc", ""), "a\\x0ab\\x09c");
}

// Whatever the bytes are: no control character but those kept, and UTF-8.
TEST(Printable, GivesReadableTextForAnyBytes) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 40, ' ');
    for (char& c : bytes) c = static_cast<char>(random() % 3 == 0 ? random() % 0x22 : random());
    for (const std::string& text : {printable(bytes), quote(bytes), json_string(bytes)}) {
      ASSERT_TRUE(simdjson::validate_utf8(text)) << quote(bytes);
      for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        ASSERT_TRUE((byte >= 0x20 && byte != 0x7f) || byte == '\n' || byte == '\t') << quote(bytes);
        ASSERT_FALSE(byte == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0) << quote(bytes);
      }
    }
  }
}

}  // namespace
}  // namespace paoding
