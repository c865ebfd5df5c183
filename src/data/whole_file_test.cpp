// SPDX-License-Identifier: Apache-2.0
#include "data/whole_file.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "data/test_folder.h"
#include "tests/temporary_folder.h"

namespace paoding::data {
namespace {

std::string gzipped(std::string_view bytes) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string result(bytes.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  deflate(&stream, Z_FINISH);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  return result;
}

std::string deflated(std::string_view bytes) {
  std::string result(compressBound(bytes.size()), '\0');
  uLongf size = result.size();
  compress(reinterpret_cast<Bytef*>(result.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  result.resize(size);
  return result;
}

TEST(ReadWhole, GivesEveryByte) {
  const TemporaryFolder folder;
  std::string bytes;
  for (int i = 0; i < 300'000; ++i) bytes += static_cast<char>(i * i >> 3);
  EXPECT_EQ(read_whole(folder.write("a", bytes)), bytes);
  EXPECT_EQ(read_whole(folder.write("b", "")), "");
}

TEST(ReadWhole, RefusesMoreThanTheLimit) {
  const TemporaryFolder folder;
  const auto path = folder.write("a", "12345");
  EXPECT_EQ(read_whole(path, 5), "12345");
  EXPECT_EQ(refusal([&] { read_whole(path, 4); }),
            "file: " + path.string() + ": is larger than 4 bytes, too large for what it should be");
  EXPECT_NE(refusal([] { read_whole("/dev/zero", 1 << 20); }), "");  // has no end, and says that it has 0 bytes
}

TEST(Gunzipped, GivesWhatWasPacked) {
  const std::string text(500'000, 'x');
  EXPECT_EQ(gunzipped(gzipped(text), "f"), text);
  EXPECT_EQ(gunzipped(gzipped(""), "f"), "");
  EXPECT_EQ(gunzipped(gzipped("one ") + gzipped("two"), "f"), "one two");
  EXPECT_EQ(gunzipped("not packed", "f"), "not packed");
}

TEST(Gunzipped, RefusesEveryTruncation) {
  const std::string packed = gzipped("the quick brown fox jumps over the lazy dog");
  for (std::size_t size = 2; size < packed.size(); ++size) {
    EXPECT_EQ(refusal([&] { gunzipped(packed.substr(0, size), "f"); }),
              "file: f: the compressed data is truncated, get the file again");
  }
}

TEST(Gunzipped, RefusesDamage) {
  std::string packed = gzipped("the quick brown fox jumps over the lazy dog");
  packed[packed.size() - 6] ^= 1;  // in its checksum
  EXPECT_EQ(refusal([&] { gunzipped(packed, "f"); }),
            "file: f: the compressed data is damaged (incorrect data check), get the file again");
}

TEST(Gunzipped, RefusesMoreThanTheLimit) {
  EXPECT_EQ(refusal([] { gunzipped(gzipped(std::string(1'000'000, 'x')), "f", 500'000); }),
            "file: f: unpacks to more than 500000 bytes");
}

TEST(Inflated, MustHoldWhatTheIndexSays) {
  const std::string packed = deflated("hello");
  EXPECT_EQ(inflated(packed, "f", 5), "hello");
  EXPECT_EQ(refusal([&] { inflated(packed, "f", 4); }), "file: f: more bytes were packed here, the index says 4");
  EXPECT_EQ(refusal([&] { inflated(packed, "f", 6); }), "file: f: 5 bytes were packed here, the index says 6");
  EXPECT_EQ(refusal([&] { inflated(packed, "f", 4'000'000'000); }),
            "file: f: 13 packed bytes cannot hold 4000000000, as the index says");
  EXPECT_EQ(refusal([&] { inflated(packed.substr(0, 8), "f", 5); }),
            "file: f: the compressed data is truncated, get the file again");
}

TEST(CheckUtf8, NamesTheLine) {
  check_utf8("caf\u00e9\n", "f");
  check_utf8("", "f");
  EXPECT_EQ(refusal([] { check_utf8("\xff", "f"); }).substr(0, 60),
            "file: f:1: byte 0 of the line is not UTF-8: \"\\xff\"\nThe text ");
  EXPECT_EQ(refusal([] { check_utf8("a\n\nb\xc0", "f"); }).substr(0, 56),
            "file: f:3: byte 1 of the line is not UTF-8: \"b\\xc0\"\nThe ");
}

TEST(TakeLine, EndsLinesAsUnixAndWindowsDo) {
  std::string_view text = "a\nb\r\n\nc";
  EXPECT_EQ(take_line(text), "a");
  EXPECT_EQ(take_line(text), "b");
  EXPECT_EQ(take_line(text), "");
  EXPECT_EQ(take_line(text), "c");
  EXPECT_TRUE(text.empty());
}

}  // namespace
}  // namespace paoding::data
