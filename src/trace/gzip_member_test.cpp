// SPDX-License-Identifier: Apache-2.0
#include "trace/gzip_member.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <random>
#include <string>

#include "trace/trace_file.h"

namespace paoding::trace {
namespace {

std::string gzipped_member(std::string_view text, int level) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string some_text(std::mt19937& random, std::size_t size) {
  std::string text;
  while (text.size() < size) text += "\"ts\": " + std::to_string(random() % 5000) + ", \"name\": \"aten::mm\"\n";
  text.resize(size);
  return text;
}

class GzipMembers : public ::testing::TestWithParam<GzipMember::Library> {
 protected:
  // In pieces of random sizes, as long as there is input, of which it took `*taken` bytes.
  std::string read(std::mt19937& random, std::string_view packed, std::size_t most, GzipMember::State* state,
                   std::size_t* taken) {
    const auto member = GzipMember::make(GetParam());
    member->begin();
    std::string text, piece(most, '\0');
    *taken = 0;
    for (int idle = 0; idle < 2;) {
      const std::size_t size = std::min<std::size_t>(packed.size() - *taken, 1 + random() % most);
      const GzipMember::Step step = member->step(packed.data() + *taken, size, piece.data(), 1 + random() % most);
      *taken += step.taken;
      text.append(piece, 0, step.made);
      *state = step.state;
      if (step.state != GzipMember::State::inside) break;
      idle = step.made == 0 && *taken == packed.size() ? idle + 1 : 0;
    }
    return text;
  }
};

TEST_P(GzipMembers, GiveWhatWasPackedInPiecesOfAnySize) {
  std::mt19937 random(3);
  for (int round = 0; round < 120; ++round) {
    const std::size_t size = round % 10 == 0 ? 0 : random() % 200'000, most = round % 3 == 0 ? 7 : 70'000;
    const std::string text = some_text(random, size), packed = gzipped_member(text, static_cast<int>(random() % 10));
    GzipMember::State state = GzipMember::State::inside;
    std::size_t taken = 0;
    // Something follows, which is not the member's.
    EXPECT_EQ(read(random, packed + "\x1f\x8b and more", most, &state, &taken), text) << round;
    EXPECT_EQ(state, GzipMember::State::over) << round;
    EXPECT_EQ(taken, packed.size()) << round;
  }
}

TEST_P(GzipMembers, SayThatTheyAreBrokenOrNotWhole) {
  std::mt19937 random(4);
  const std::string text = some_text(random, 50'000), packed = gzipped_member(text, 6);
  GzipMember::State state = GzipMember::State::inside;
  std::size_t taken = 0;
  for (const std::size_t size : {std::size_t{5}, std::size_t{100}, packed.size() / 2, packed.size() - 1}) {
    const std::string made = read(random, std::string_view(packed).substr(0, size), 4096, &state, &taken);
    EXPECT_EQ(state, GzipMember::State::inside) << size;
    EXPECT_TRUE(text.starts_with(made)) << size;
  }
  std::string wrong = packed;
  wrong[wrong.size() - 6] ^= 1;  // the sum
  read(random, wrong, 4096, &state, &taken);
  EXPECT_EQ(state, GzipMember::State::broken);
}

INSTANTIATE_TEST_SUITE_P(Libraries, GzipMembers,
                         ::testing::Values(GzipMember::Library::best, GzipMember::Library::zlib), [](const auto& info) {
                           return info.param == GzipMember::Library::zlib ? "Zlib" : has_isal() ? "Isal" : "ZlibToo";
                         });

TEST(TraceFile, ReadsFilesOfSeveralMembersWhereverTheyBegin) {
  std::mt19937 random(5);
  std::string text, packed;
  // Ends of members lie at the ends of the buffer and beside them.
  while (packed.size() < (std::size_t{1} << 19)) {
    std::string bytes(random() % 90'000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    text += bytes;
    packed += gzipped_member(bytes, 1 + static_cast<int>(random() % 9));
    if (random() % 3 == 0) packed += gzipped_member("", 6);
  }
  TraceFile file(packed, "members");
  EXPECT_EQ(file.rest(), text);
  EXPECT_EQ(file.problem(), "");
  TraceFile filled(packed += std::string(100, '\0'), "filled up");
  EXPECT_EQ(filled.rest(), text);
  EXPECT_EQ(filled.problem(), "");
  TraceFile followed(packed += "x", "followed");
  EXPECT_EQ(followed.rest(), text);
  EXPECT_NE(followed.problem(), "");
}

}  // namespace
}  // namespace paoding::trace
