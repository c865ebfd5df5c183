// SPDX-License-Identifier: Apache-2.0
// A module is put together by hand here, so that the reader is not tested with its own idea of the format.
#include <gtest/gtest.h>
#include <zlib.h>

#include "data/test_folder.h"
#include "data/ztext.h"
#include "paoding/data/corpora.h"
#include "tests/support/temporary_folder.h"

namespace paoding::data {
namespace {

std::string little(std::uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

std::string deflated(const std::string& bytes) {
  std::string result(compressBound(bytes.size()), '\0');
  uLongf size = result.size();
  compress(reinterpret_cast<Bytef*>(result.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  result.resize(size);
  return result;
}

/// The files of a testament: an entry per text, a block per list of texts.
struct Module {
  std::string blocks, verses, text;

  explicit Module(const std::vector<std::vector<std::string>>& books) {
    for (std::size_t block = 0; block < books.size(); ++block) {
      std::string joined;
      for (const std::string& entry : books[block]) {
        verses += little(block, 4) + little(joined.size(), 4) + little(entry.size(), 2);
        joined += entry;
      }
      const std::string packed = joined.empty() ? "" : deflated(joined);
      blocks += little(text.size(), 4) + little(packed.size(), 4) + little(joined.size(), 4);
      text += packed;
    }
  }
  std::vector<std::string> read() const { return ztext_verses({blocks, verses, text}, "ot"); }
};

const std::string kBook = R"(<div osisID="Gen" sID="g1" type="book"/> <title>Genesis</title>)";
const std::string kChapter = R"(<chapter n="1" osisID="Gen.1" sID="Gen.1"/> )";

Module two_books() {
  return Module({{"", "<milestone/>"},
                 {kBook, kChapter, "In the beginning. ", R"(And <w x="a>b">it</w> was.<chapter eID="Gen.1"/>)"},
                 {kBook, kChapter, R"(One.<div eID="g1" osisID="Gen" type="book"/>)", "", "Two."}});
}

std::string plain(std::string_view osis) { return without_markup(osis, "v"); }

TEST(ZText, GivesEntriesThatAreVerses) {
  EXPECT_EQ(two_books().read(),
            (std::vector<std::string>{"In the beginning. ", R"(And <w x="a>b">it</w> was.<chapter eID="Gen.1"/>)",
                                      R"(One.<div eID="g1" osisID="Gen" type="book"/>)", "Two."}));
  EXPECT_TRUE(ztext_verses({"", "", ""}, "ot").empty());
}

TEST(ZText, RefusesFilesThatDoNotFitTogether) {
  Module module = two_books();
  module.verses += 'x';
  EXPECT_EQ(refusal([&] { module.read(); }),
            "file: ot: .bzs has 36 bytes and .bzv has 111, they must be multiples of 12 and 10: get the module again");

  module = two_books();
  module.text.pop_back();
  EXPECT_NE(refusal([&] { module.read(); }).find("file: ot: block 2 ends at byte "), std::string::npos);

  module = two_books();
  module.text[module.text.size() - 3] ^= 1;  // in the checksum of the last block
  EXPECT_EQ(refusal([&] { module.read(); }),
            "file: ot: block 2: the compressed data is damaged (incorrect data check), get the file again");

  module = two_books();
  module.verses.replace(20, 4, little(7, 4));
  EXPECT_NE(refusal([&] { module.read(); }).find("of block 7, which is not there"), std::string::npos);

  module = two_books();
  module.verses.replace(24, 4, little(0xffffffff, 4));
  EXPECT_NE(refusal([&] { module.read(); }).find("file: ot: entry 2 is bytes 4294967295 .. "), std::string::npos);

  module = two_books();
  module.blocks.replace(20, 4, little(0xffffffff, 4));
  EXPECT_EQ(refusal([&] { module.read(); }), "file: ot: unpacks to more than 67108864 bytes");
}

TEST(Osis, LeavesTextWithoutMarkup) {
  EXPECT_EQ(plain("In the <w lemma=\"strong:H7225\">begin</w><w>ning</w>,\n <q who='Jesus'>God</q>. "),
            "In the beginning, God.");
  EXPECT_EQ(plain("one<lb/>two<l level=\"1\"/>three<p>four</p>"), "one two three four");
  EXPECT_EQ(plain("a &amp; b &lt;c&gt; &quot;d&quot;"), "a & b <c> \"d\"");
  EXPECT_EQ(plain("\u00b6 And the \\nd LORD\\nd* spake\u2019"), "And the LORD spake\u2019");
  EXPECT_EQ(plain(""), "");
}

TEST(Osis, LeavesNotesAndHeadingsOutButThoseOfPsalms) {
  EXPECT_EQ(plain("light<note a=\"1\">Heb. <note>in</note> between</note> from"), "light from");
  EXPECT_EQ(plain("day.<note/> And"), "day. And");
  EXPECT_EQ(plain("<title>BETH.</title>Wherewithal"), "Wherewithal");
  EXPECT_EQ(plain("<title canonical=\"true\" type=\"psalm\">A <w>Psalm</w>.</title>Lord"), "A Psalm. Lord");
}

TEST(Osis, RefusesBrokenMarkup) {
  EXPECT_EQ(refusal([] { plain("a <w b"); }), "file: v: a tag has no end: \"<w b\"");
  EXPECT_EQ(refusal([] { plain("a <w b=\">"); }), "file: v: a tag has no end: \"<w b=\\\">\"");
  EXPECT_EQ(refusal([] { plain("a <> b"); }), "file: v: a tag has no name: \"\"");
  EXPECT_EQ(refusal([] { plain("a <note>b"); }), "file: v: a <note> has no end");
  EXPECT_EQ(refusal([] { plain("a &b c"); }), "file: v: an entity that is not known: \"&b c\"");
}

class KjvModule : public testing::Test {
 protected:
  void write(const std::string& conf) {
    folder_.write("mods.d/engKJV2006eb.conf", conf);
    const Module module = two_books();
    for (const std::string testament : {"ot", "nt"}) {
      folder_.write("modules/kjv/" + testament + ".bzs", module.blocks);
      folder_.write("modules/kjv/" + testament + ".bzv", module.verses);
      folder_.write("modules/kjv/" + testament + ".bzz", module.text);
    }
  }
  std::string refused() {
    return refusal([&] { read_kjv(folder_.path()); });
  }
  std::string conf_path() const { return (folder_ / "mods.d/engKJV2006eb.conf").string(); }

  const std::string conf_ =
      "[engKJV2006eb]\n# of no interest\nDataPath=./modules/kjv/\nModDrv=zText\nSourceType=OSIS\nEncoding=UTF-8\n"
      "CompressType=ZIP\n";
  TemporaryFolder folder_;
};

TEST_F(KjvModule, MustHaveTheVersesThatTheBookHas) {
  write(conf_);
  EXPECT_EQ(refused(), "file: " + (folder_ / "modules/kjv/").string() +
                           ": 8 verses, the King James Version has 31102: get the module again");
}

TEST_F(KjvModule, OfAnotherKindIsRefused) {
  write(conf_.substr(0, conf_.find("CompressType")));
  EXPECT_EQ(refused(), "file: " + conf_path() + ": CompressType is LZSS, only ZIP is read");
  write("ModDrv=zText4\n");
  EXPECT_EQ(refused(), "file: " + conf_path() + ": ModDrv is zText4, only zText is read");
}

TEST_F(KjvModule, MustLieInItsFolder) {
  for (const std::string path : {"/etc", "./modules/../../x", ""}) {
    write("DataPath=" + path + "\n" + conf_.substr(conf_.find("ModDrv")));
    EXPECT_EQ(refused(), "file: " + conf_path() + ": DataPath is '" + path + "', must be a folder below " +
                             folder_.path().string());
  }
}

TEST_F(KjvModule, WithAFileMissingNamesIt) {
  write(conf_);
  std::filesystem::remove(folder_ / "modules/kjv/nt.bzv");
  EXPECT_EQ(refused(),
            "file: " + (folder_ / "modules/kjv/nt.bzv").string() + ": cannot open: No such file or directory");
}

TEST(Kjv, OfDebianIsReadWhole) {
  FOUND_OR_SKIP(folder, find_kjv(test_folder()));
  const std::vector<std::string> verses = read_kjv(folder);
  ASSERT_EQ(verses.size(), 31'102U);
  EXPECT_EQ(verses.front(), "In the beginning God created the heaven and the earth.");
  EXPECT_EQ(verses.back(), "The grace of our Lord Jesus Christ be with you all. Amen.");
  EXPECT_EQ(verses[23'145], "The book of the generation of Jesus Christ, the son of David, the son of Abraham.");
  EXPECT_EQ(verses[26'558], "Jesus wept.");  // John 11:35
  std::string all;
  for (const std::string& verse : verses) all += verse + '\n';
  // Made by a Python script, with regular expressions in place of this reader.
  EXPECT_EQ(crc32(0, reinterpret_cast<const Bytef*>(all.data()), static_cast<uInt>(all.size())), 2'781'124'065U);
}

}  // namespace
}  // namespace paoding::data
