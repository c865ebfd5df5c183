// SPDX-License-Identifier: Apache-2.0
#include "io/manifest.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "io/json_text.h"
#include "paoding/error.h"

namespace paoding::checkpoints {
namespace {

constexpr double kManifestNan = std::numeric_limits<double>::quiet_NaN(),
                 kInfinity = std::numeric_limits<double>::infinity();

SealedManifest example() {
  SealedManifest sealed;
  sealed.manifest = {.model = "g2p",
                     .options = {{"hidden", "128"}, {"of \"quotes\"\n", "\x01 \xC3\xA9 \\"}},
                     .step = std::numeric_limits<std::int64_t>::max(),
                     .epoch = 3,
                     .batch = 17,
                     .score = 0.1,
                     .score_name = "phoneme error rate",
                     .notes = {{"", std::string("a\0b", 3)}},
                     .losses = {{0, 2.5}, {100, kManifestNan}, {200, -kInfinity}, {300, kInfinity}, {400, 5e-324}},
                     .scores = {{200, 0.5}, {400, 0.1}}};
  sealed.files = {{"parameters.safetensors", {~0ull >> 1, 0xdeadbeef}}, {"words.txt", {0, 0}}};
  return sealed;
}

/// The message of the error that `text` gives.
std::string manifest_refusal(const std::string& text) {
  try {
    parse_manifest(text, "m");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file);
    return error.what();
  }
  return "no error";
}

/// A whole manifest in which `from` was `to` before the checksum was taken.
std::string forged(const std::string& from, const std::string& to) {
  std::string text = manifest_text(example());
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  return with_checksum(text.substr(0, text.find(",\n\"checksum\"")));
}

TEST(Manifest, ReadsWhatItWrites) {
  const SealedManifest sealed = example();
  const SealedManifest read = parse_manifest(manifest_text(sealed), "m");
  EXPECT_EQ(read.manifest.model, sealed.manifest.model);
  EXPECT_EQ(read.manifest.options, sealed.manifest.options);
  EXPECT_EQ(read.manifest.step, sealed.manifest.step);
  EXPECT_EQ(read.manifest.epoch, sealed.manifest.epoch);
  EXPECT_EQ(read.manifest.batch, sealed.manifest.batch);
  EXPECT_EQ(read.manifest.score, sealed.manifest.score);
  EXPECT_EQ(read.manifest.score_name, sealed.manifest.score_name);
  EXPECT_EQ(read.manifest.notes, sealed.manifest.notes);
  EXPECT_EQ(read.files, sealed.files);
  EXPECT_EQ(read.manifest.scores, sealed.manifest.scores);
  ASSERT_EQ(read.manifest.losses.size(), sealed.manifest.losses.size());
  for (std::size_t i = 0; i < read.manifest.losses.size(); ++i) {
    const double is = read.manifest.losses[i].second, was = sealed.manifest.losses[i].second;
    EXPECT_EQ(read.manifest.losses[i].first, sealed.manifest.losses[i].first);
    EXPECT_TRUE(is == was || (std::isnan(is) && std::isnan(was))) << is << " " << was;
  }
}

TEST(Manifest, KeepsEveryBitOfANumber) {
  std::mt19937_64 random(3);
  SealedManifest sealed = example();
  sealed.manifest.losses = {{1, 0.0},  {2, -0.0}, {3, std::numeric_limits<double>::max()},
                            {4, 1e22}, {5, -3},   {6, 1e18}};
  for (int i = 0; i < 20000; ++i) {
    const double number = std::bit_cast<double>(random());
    if (!std::isnan(number)) sealed.manifest.losses.emplace_back(i, number);
  }
  const SealedManifest read = parse_manifest(manifest_text(sealed), "m");
  ASSERT_EQ(read.manifest.losses.size(), sealed.manifest.losses.size());
  for (std::size_t i = 0; i < read.manifest.losses.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint64_t>(read.manifest.losses[i].second),
              std::bit_cast<std::uint64_t>(sealed.manifest.losses[i].second))
        << sealed.manifest.losses[i].second;
  }
}

TEST(Manifest, NoticesEveryByteThatIsFlippedOrMissing) {
  const std::string text = manifest_text(example());
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const int bit : {1, 32, 128}) {
      std::string flipped = text;
      flipped[i] = static_cast<char>(flipped[i] ^ bit);
      EXPECT_NE(manifest_refusal(flipped), "no error") << "byte " << i << " ^ " << bit;
    }
    EXPECT_NE(manifest_refusal(text.substr(0, i)), "no error") << "cut at " << i;
  }
  EXPECT_NE(manifest_refusal(text + " "), "no error");
  EXPECT_NE(manifest_refusal(" " + text), "no error");
}

TEST(Manifest, SaysWhatIsWrongAndWhatToDo) {
  const std::string what_to_do = "\nload another checkpoint, or copy this one again from where it is whole";
  EXPECT_NE(manifest_refusal("").find("m: its 0 bytes are not valid JSON"), std::string::npos);
  EXPECT_NE(manifest_refusal("").find(what_to_do), std::string::npos);
  EXPECT_EQ(manifest_refusal("[]"), "m: the text is [], must be an object");
  EXPECT_EQ(manifest_refusal("{}"), "m: 'format' is missing");
  EXPECT_EQ(manifest_refusal(R"({"format":1})"), "m: format is 1, must be a text in quotes");
  EXPECT_EQ(manifest_refusal(R"({"format":"x","format":"x"})"), "m: 'format' is there twice");
  EXPECT_EQ(manifest_refusal(R"({"format":"other"})"),
            "m: format is 'other', must be 'paoding checkpoint': this is something else's manifest");
  EXPECT_EQ(manifest_refusal(R"({"format":"paoding checkpoint","version":2})"),
            "m: is of version 2, this program reads version 1: a newer paoding wrote it, use that");
  EXPECT_EQ(manifest_refusal(R"({"format":"paoding checkpoint","version":0})"), "m: is of version 0, the first is 1");
  EXPECT_EQ(manifest_refusal(R"({"format":"paoding checkpoint","version":1})"), "m: 'checksum' is missing");
  EXPECT_EQ(manifest_refusal(R"({"format":"paoding checkpoint","version":1,"checksum":"00000000"})"),
            "m: does not end with its checksum: it was changed after it was written" + what_to_do);
}

TEST(Manifest, ChecksEveryTypeAndRange) {
  EXPECT_EQ(manifest_refusal(forged("\"version\":1", "\"version\":\"1\"")),
            "m: version is \"1\", must be a whole number from 0 to 2^63 - 1");
  EXPECT_EQ(manifest_refusal(forged("\"epoch\":3", "\"epoch\":-3")),
            "m: epoch is -3, must be a whole number from 0 to 2^63 - 1");
  EXPECT_EQ(manifest_refusal(forged("\"epoch\":3", "\"epoch\":3.5")),
            "m: epoch is 3.5, must be a whole number from 0 to 2^63 - 1");
  EXPECT_EQ(manifest_refusal(forged("\"epoch\":3", "\"epoch\":9223372036854775808")),
            "m: epoch is 9223372036854775808, must be a whole number from 0 to 2^63 - 1");
  EXPECT_EQ(manifest_refusal(forged("\"epoch\":3,\n", "")), "m: 'epoch' is missing");
  EXPECT_EQ(manifest_refusal(forged("\"score\":0.1", "\"score\":null")),
            "m: score is null, must be a number, \"NaN\", \"Infinity\" or \"-Infinity\"");
  EXPECT_EQ(manifest_refusal(forged("\"hidden\":\"128\"", "\"hidden\":128")),
            "m: options/hidden is 128, must be a text in quotes");
  EXPECT_NE(manifest_refusal(forged("\"hidden\":\"128\"", "\"hidden\":\"\\udc00\"")), "no error");
  EXPECT_EQ(manifest_refusal(forged("[0,2.5]", "[0]")), "m: an item of losses is [0], must be [step, number]");
  EXPECT_EQ(manifest_refusal(forged("[0,2.5]", "[-1,2.5]")),
            "m: a step in losses is -1, must be a whole number from 0 to 2^63 - 1");
  EXPECT_EQ(manifest_refusal(forged("\"deadbeef\"", "\"deadbee\"")),
            "m: files/parameters.safetensors/crc32 is \"deadbee\", must be 8 hexadecimal digits");
  EXPECT_EQ(manifest_refusal(forged("\"deadbeef\"", "\"+eadbeef\"")),
            "m: files/parameters.safetensors/crc32 is \"+eadbeef\", must be 8 hexadecimal digits");
  EXPECT_EQ(manifest_refusal(forged("\"parameters.safetensors\"", "\"others\"")),
            "m: files has no 'parameters.safetensors'");
}

TEST(Manifest, TakesPlainFileNamesOnly) {
  for (const char* name : {"", ".", "..", "../up", "a/b", "/etc/passwd", ".hidden", "a\\\\b", "manifest.json",
                           "a\\u0000b", "a\\nb", "\\u007f"}) {
    const std::string text = manifest_refusal(forged("words.txt", name));
    EXPECT_EQ(text.find("m: the file name '"), 0u) << name << ": " << text;
  }
  EXPECT_EQ(manifest_refusal(forged("words.txt", std::string(201, 'n'))).find("m: the file name 'nnn"), 0u);
  EXPECT_EQ(manifest_refusal(forged("words.txt", std::string(200, 'n'))), "no error");
  EXPECT_EQ(manifest_refusal(forged("words.txt", "\xC3\xA9 and spaces..txt")), "no error");
}

TEST(Manifest, SurvivesAMegabyteOfNonsense) {
  std::mt19937 random(5);
  std::string bytes(1 << 20, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  EXPECT_NE(manifest_refusal(bytes), "no error");
  EXPECT_NE(manifest_refusal(with_checksum(bytes)), "no error");
  EXPECT_NE(manifest_refusal(std::string(1 << 20, '[')), "no error");
  EXPECT_NE(manifest_refusal(std::string(1 << 20, '{')), "no error");
  EXPECT_LT(manifest_refusal("{\"format\":\"" + std::string(1 << 20, 'n') + "\"}").size(), 400u);
  std::string many = "{";
  for (int i = 0; i < 100000; ++i) many += "\"k" + std::to_string(i) + "\":" + std::to_string(i) + ",";
  EXPECT_EQ(manifest_refusal(many + "\"k\":0}"), "m: 'format' is missing");
  EXPECT_NE(
      manifest_refusal(forged("\"notes\":{", "\"notes\":{\"x\":" + std::string(900, '[') + std::string(900, ']') + ","))
          .find("notes/x is [[["),
      std::string::npos);
}

TEST(Manifest, RefusesToWriteWhatCouldNotBeRead) {
  const auto problem = [](auto change) -> std::string {
    Manifest manifest = example().manifest;
    change(manifest);
    try {
      check(manifest);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::argument);
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(problem([](Manifest&) {}), "no error");
  EXPECT_EQ(problem([](Manifest& m) { m.step = -1; }), "checkpoint: step is -1, must not be negative");
  EXPECT_EQ(problem([](Manifest& m) {
              m.losses = {{-5, 0}};
            }),
            "checkpoint: losses has 0 for step -5, must not be negative");
  EXPECT_EQ(problem([](Manifest& m) { m.model = "\xFF"; }), "checkpoint: model '\\xff' is not valid UTF-8");
  EXPECT_EQ(problem([](Manifest& m) { m.options["a"] = "\xFF"; }),
            "checkpoint: option 'a', '\\xff' is not valid UTF-8");
  EXPECT_EQ(problem([](Manifest& m) { m.notes["\xFF"] = ""; }),
            "checkpoint: the name of note '\\xff' is not valid UTF-8");
}

}  // namespace
}  // namespace paoding::checkpoints
