// SPDX-License-Identifier: Apache-2.0
#include "data/whole_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "data/test_folder.h"
#include "paoding/data/corpora.h"
#include "tests/support/allocation_count.h"
#include "tests/support/temporary_folder.h"

namespace paoding::data {
namespace {

namespace fs = std::filesystem;

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

std::string deflated_bytes(std::string_view bytes) {
  std::string result(compressBound(bytes.size()), '\0');
  uLongf size = result.size();
  compress(reinterpret_cast<Bytef*>(result.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  result.resize(size);
  return result;
}

TEST(ReadWhole, GivesEveryByte) {
  const TemporaryFolder folder;
  std::string bytes;
  for (unsigned i = 0; i < 300'000; ++i) bytes += static_cast<char>(i * i >> 3);
  EXPECT_EQ(read_whole(folder.write("a", bytes)), bytes);
  EXPECT_EQ(read_whole(folder.write("b", "")), "");
}

TEST(ReadWhole, RefusesMoreThanTheLimit) {
  const TemporaryFolder folder;
  const auto path = folder.write("a", "12345");
  EXPECT_EQ(read_whole(path, 5), "12345");
  EXPECT_EQ(refusal([&] { read_whole(path, 4); }),
            "file: " + path.string() + ": is larger than 4 bytes, too large for what it should be");
}

TEST(ReadWhole, RefusesWhatIsNoFileAndDoesNotWaitForIt) {
  const TemporaryFolder folder;
  const std::string fifo = (folder / "fifo").string();
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(refusal([&] { read_whole(fifo); }), "file: " + fifo + ": is a FIFO, not a regular file");
  EXPECT_EQ(refusal([] { read_whole("/dev/zero"); }), "file: /dev/zero: is a device, not a regular file");
  EXPECT_EQ(refusal([] { read_whole("/dev/null"); }), "file: /dev/null: is a device, not a regular file");
  // So does every reader of a data set.
  for (const auto& read :
       std::vector<std::function<void()>>{[&] { read_pronunciations(fifo); }, [&] { read_images(fifo, fifo); },
                                          [&] {
                                            read_translations({fifo, fifo});
                                          }}) {
    EXPECT_EQ(refusal(read), "file: " + fifo + ": is a FIFO, not a regular file");
  }
  fs::create_directories(folder / "mods.d");
  fs::create_symlink("/dev/zero", folder / "mods.d/engKJV2006eb.conf");
  EXPECT_NE(refusal([&] { read_kjv(folder.path()); }).find("is a device, not a regular file"), std::string::npos);
}

TEST(ReadStream, ReadsPipesButNoDevices) {
  const TemporaryFolder folder;
  const std::string fifo = (folder / "fifo").string();
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(fifo) << std::string(300'000, 'x'); });
  EXPECT_EQ(read_stream(fifo, "f"), std::string(300'000, 'x'));
  writer.join();
  EXPECT_EQ(read_stream(folder.write("a", "12345"), "f", 5), "12345");
  EXPECT_EQ(refusal([&] { read_stream(folder / "a", "f", 4); }),
            "file: f: is larger than 4 bytes, too large for what it should be");
  EXPECT_EQ(refusal([] { read_stream("/dev/zero", "f"); }), "file: f: is a device, neither a file nor a pipe");
  EXPECT_EQ(refusal([] { read_stream("/dev", "f"); }), "file: f: is a folder, neither a file nor a pipe");
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

TEST(Gunzipped, TakesNoMoreMemoryThanTheLimit) {
  if (!testing_program::AllocationCount::works()) GTEST_SKIP() << "NOT CHECKED: this build has an allocator of its own";
  const std::string packed = gzipped(std::string(32 << 20, 'x'));
  constexpr std::uint64_t kMost = (std::uint64_t{8} << 20) + 1000;
  // Doubled from 64 KB on: 16 MB up to 8 MB, then the rest up to the limit; 16 MB more if it were doubled once more.
  testing_program::AllocationLimit limit((std::int64_t{16} << 20) + kMost + (1 << 20));
  EXPECT_EQ(refusal([&] { gunzipped(packed, "f", kMost); }), "file: f: unpacks to more than 8389608 bytes");
  EXPECT_FALSE(limit.is_passed());
}

TEST(ReadStream, TakesNoMoreMemoryThanTheLimit) {
  if (!testing_program::AllocationCount::works()) GTEST_SKIP() << "NOT CHECKED: this build has an allocator of its own";
  const TemporaryFolder folder;
  const auto path = folder.write("a", std::string(32 << 20, 'x'));
  constexpr std::uint64_t kMost = (std::uint64_t{8} << 20) + 1000;
  testing_program::AllocationLimit limit((std::int64_t{16} << 20) + kMost + (1 << 20));
  EXPECT_EQ(refusal([&] { read_stream(path, "f", kMost); }),
            "file: f: is larger than 8389608 bytes, too large for what it should be");
  EXPECT_FALSE(limit.is_passed());
}

TEST(Inflated, MustHoldWhatTheIndexSays) {
  const std::string packed = deflated_bytes("hello");
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
