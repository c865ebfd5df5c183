// SPDX-License-Identifier: Apache-2.0
#include "trace/wire.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "profile/protobuf.h"

namespace paoding::trace {
namespace {

using profile::ProtobufMessage;

TEST(Wire, ReadsBackWhatWasWritten) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    ProtobufMessage message;
    struct Written {
      std::uint32_t field;
      WireType type;
      std::uint64_t number;
      std::string text;
    };
    std::vector<Written> all;
    for (int i = 0; i < 20; ++i) {
      const auto field = static_cast<std::uint32_t>(1 + (random() >> (random() % 28 + 36)) % ((1u << 29) - 1));
      switch (random() % 3) {
        case 0:
          all.push_back({field, WireType::varint, random() >> random() % 64, ""});
          message.number(field, all.back().number);
          break;
        case 1:
          all.push_back({field, WireType::fixed64, random(), ""});
          message.fixed64(field, all.back().number);
          break;
        default:
          all.push_back({field, WireType::bytes, 0, std::string(random() % 300, 'x')});
          message.text(field, all.back().text);
          break;
      }
    }
    WireReader reader(message.bytes());
    for (const Written& written : all) {
      ASSERT_TRUE(reader.next());
      EXPECT_EQ(reader.field(), written.field);
      EXPECT_EQ(reader.type(), written.type);
      EXPECT_EQ(reader.number(), written.number);
      EXPECT_EQ(reader.bytes(), written.text);
    }
    EXPECT_FALSE(reader.next());
    EXPECT_FALSE(reader.is_broken());
    // Wherever it is cut, no more is read than is there, and only between fields it is whole.
    const std::string copy = message.bytes().substr(0, random() % message.bytes().size());
    WireReader cut(copy);
    std::size_t seen = 0;
    while (cut.next()) ++seen;
    EXPECT_LE(seen, all.size());
  }
}

TEST(Wire, EndsAtWhatIsNoField) {
  const std::pair<const char*, std::string> broken[] = {
      {"field 0", std::string("\x00\x01", 2)},
      {"type 6", "\x0e\x01"},
      {"type 7", "\x0f\x01"},
      {"a number of 11 bytes", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"},
      {"a number that is cut off", "\x08\xff"},
      {"a length beyond the end", "\x0a\x05xy"},
      {"the greatest length", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01xy"},
      {"half of a fixed number", "\x09\x01\x02"},
      {"an end without a beginning", "\x0c"},
      {"a group without its end", "\x0b\x10\x01"},
      {"a group with the end of another", "\x0b\x14"},
      {"groups in groups without an end", std::string(100'000, '\x0b')},
  };
  for (const auto& [what, bytes] : broken) {
    WireReader reader(bytes);
    EXPECT_FALSE(reader.next()) << what;
    EXPECT_TRUE(reader.is_broken()) << what;
    EXPECT_FALSE(reader.next()) << what;
  }
}

// Bytes behind a message may be read, and are no part of it; neither do they make a number end that the message cuts
// off.
TEST(Wire, ReadsAMessageInsideAnotherAsOneByItself) {
  std::mt19937_64 random(17);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(random() % 24, '\0');
    for (char& byte : bytes) {
      constexpr unsigned char kOften[] = {0x08, 0x0a, 0x09, 0x50, 0x80, 0xba, 0x01, 0x00, 0xff};
      byte = static_cast<char>(random() % 2 == 0 ? kOften[random() % std::size(kOften)] : random() & 0xff);
    }
    const std::string around = bytes + std::string(16, random() % 2 == 0 ? '\x01' : '\x80');
    // A copy of its own size, which a sanitizer watches.
    const std::vector<char> alone(bytes.begin(), bytes.end());
    WireReader expected(std::string_view(alone.data(), alone.size()));
    WireReader reader(std::string_view(around.data(), bytes.size()), around.data() + around.size());
    for (;;) {
      const bool has_field = expected.next();
      ASSERT_EQ(reader.next(), has_field);
      ASSERT_EQ(reader.is_broken(), expected.is_broken());
      if (!has_field) break;
      ASSERT_EQ(reader.field(), expected.field());
      ASSERT_EQ(reader.type(), expected.type());
      ASSERT_EQ(reader.number(), expected.number());
      ASSERT_EQ(reader.bytes(), expected.bytes());
    }
  }
}

TEST(Wire, ReadsNumbersOfMoreBytesThanTheyNeed) {
  for (std::size_t more = 0; more < 9; ++more) {
    const std::string bytes =
        "\x08\x85" + std::string(more, '\x80') + std::string("\x00\x10\x03", 3) + std::string(8, '\x18');
    WireReader reader(std::string_view(bytes).substr(0, bytes.size() - 8), bytes.data() + bytes.size());
    ASSERT_TRUE(reader.next()) << more;
    EXPECT_EQ(reader.number(), 5u) << more;
    ASSERT_TRUE(reader.next()) << more;
    EXPECT_EQ(reader.field(), 2u) << more;
    EXPECT_EQ(reader.number(), 3u) << more;
    EXPECT_FALSE(reader.next()) << more;
  }
}

TEST(Wire, LeavesGroupsOutWithWhatIsInThem) {
  WireReader reader(std::string_view("\x0b\x10\x01\x1b\x12\x02hi\x1c\x0c\x28\x07", 12));
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.field(), 5u);
  EXPECT_EQ(reader.number(), 7u);
  EXPECT_FALSE(reader.next());
  EXPECT_FALSE(reader.is_broken());
}

TEST(Wire, GivesOfABeginningWhatIsThere) {
  const std::string_view head("\x0a\x64only this", 11);
  WireReader whole(head);
  EXPECT_FALSE(whole.next());
  WireReader beginning(head, WireReader::Extent::beginning);
  ASSERT_TRUE(beginning.next());
  EXPECT_EQ(beginning.bytes(), "only this");
  EXPECT_FALSE(beginning.next());
}

TEST(Wire, ReadsPackedNumbers) {
  std::vector<std::uint64_t> all;
  EXPECT_TRUE(for_each_packed(std::string_view("\x01\x80\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13),
                              [&](std::uint64_t n) { all.push_back(n); }));
  EXPECT_EQ(all, (std::vector<std::uint64_t>{1, 128, std::numeric_limits<std::uint64_t>::max()}));
  EXPECT_FALSE(for_each_packed(std::string_view("\x80", 1), [](std::uint64_t) {}));
}

}  // namespace
}  // namespace paoding::trace
