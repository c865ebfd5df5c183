// SPDX-License-Identifier: Apache-2.0
#include "tests/support/small_corpora.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <random>
#include <set>

namespace paoding::small_corpora {
namespace {

std::string number_bytes(std::uint64_t value, int count, bool big) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * (big ? count - 1 - i : i)) & 0xff);
  return bytes;
}

std::string idx(const std::vector<std::uint32_t>& extents, const std::string& body) {
  std::string bytes = number_bytes(0x800 + extents.size(), 4, true);
  for (const std::uint32_t extent : extents) bytes += number_bytes(extent, 4, true);
  return bytes + body;
}

}  // namespace

std::vector<Word> words(int count) {
  std::mt19937 random(5);
  const std::array<std::string, 8> sounds{"AH", "B", "K", "D", "EH", "F", "G", "HH"};
  std::set<std::string> seen;
  std::vector<Word> made;
  while (static_cast<int>(made.size()) < count) {
    Word word;
    std::string said;
    for (unsigned left = 1 + random() % 12; left > 0; --left) {
      const std::size_t letter = random() % 8;
      word.spelling += static_cast<char>('a' + letter);
      // The second of two equal letters is silent.
      const std::size_t size = word.spelling.size();
      if (size > 1 && word.spelling[size - 1] == word.spelling[size - 2]) continue;
      said += (said.empty() ? "" : " ") + sounds[letter];
    }
    if (!seen.insert(word.spelling).second) continue;
    word.ways.push_back(said);
    if (made.size() % 7 == 3) word.ways.push_back(said + " S");
    made.push_back(std::move(word));
  }
  return made;
}

void write_g2p(const TemporaryFolder& folder, const std::vector<Word>& words) {
  std::string text;
  for (const Word& word : words) {
    for (std::size_t way = 0; way < word.ways.size(); ++way) {
      text += word.spelling + (way == 0 ? "" : fmt::format("({})", way + 1)) + " " + word.ways[way] + "\n";
    }
  }
  folder.write("g2p/cmudict-en-us.dict", text);
}

void write_fashion(const TemporaryFolder& folder, int train, int test) {
  std::mt19937 random(6);
  const auto write = [&](const std::string& name, int count) {
    std::string pixels, labels;
    for (int i = 0; i < count; ++i) {
      const unsigned label = random() % 10;
      labels += static_cast<char>(label);
      for (unsigned at = 0; at < 28 * 28; ++at) {
        pixels += static_cast<char>(random() % 100 + (at / 79 == label ? 150 : 0));
      }
    }
    const auto size = static_cast<std::uint32_t>(count);
    folder.write("fashion/" + name + "-images-idx3-ubyte.gz", idx({size, 28, 28}, pixels));
    folder.write("fashion/" + name + "-labels-idx1-ubyte.gz", idx({size}, labels));
  };
  write("train", train);
  write("t10k", test);
}

void write_translate(const TemporaryFolder& folder, int count) {
  const std::array<std::array<std::string, 2>, 8> dictionary{{{"library", "libreria"},
                                                              {"program", "programma"},
                                                              {"for", "per"},
                                                              {"reading", "leggere"},
                                                              {"files", "documenti"},
                                                              {"small", "piccola"},
                                                              {"and", "e"},
                                                              {"writing", "scrivere"}}};
  std::mt19937 random(7);
  std::array<std::string, 2> texts;
  for (int i = 0; i < count; ++i) {
    std::array<std::string, 2> said;
    for (unsigned left = 2 + random() % 9; left > 0; --left) {
      const auto& word = dictionary[random() % dictionary.size()];
      for (std::size_t language = 0; language < 2; ++language) {
        said[language] += (said[language].empty() ? "" : " ") + word[language];
      }
    }
    for (std::size_t language = 0; language < 2; ++language) {
      texts[language] += fmt::format("Package: p{}\nDescription-md5: 0123\nDescription-{}: {}\n\n", i,
                                     language == 0 ? "en" : "it", said[language]);
    }
  }
  folder.write("translate/Translation-en", texts[0]);
  folder.write("translate/Translation-it", texts[1]);
}

std::string verse(int number) {
  const std::array<const char*, 6> words{"light", "water", "earth", "stone", "bread", "house"};
  std::string text = "And";
  for (int i = 0; i <= (number == kLongVerse ? 60 : number % 7); ++i) {
    text += fmt::format(" the {}", words[static_cast<std::size_t>(number / 7 + i * i) % 6]);
  }
  return text + (number % 1000 == 0 ? fmt::format(" of number{}.", number) : ".");
}

void write_kjv(const TemporaryFolder& folder) {
  constexpr int kVerses = 31'102;
  folder.write("kjv/mods.d/engKJV2006eb.conf",
               "[engKJV2006eb]\nDataPath=./modules/kjv/\nModDrv=zText\nSourceType=OSIS\nEncoding=UTF-8\n"
               "CompressType=ZIP\n");
  // Two entries of each testament come before its first book.
  const auto write = [&](const std::string& testament, int first, int last) {
    std::string joined, entries;
    const auto add = [&](const std::string& entry) {
      entries +=
          number_bytes(0, 4, false) + number_bytes(joined.size(), 4, false) + number_bytes(entry.size(), 2, false);
      joined += entry;
    };
    for (const char* entry : {"", "<milestone/>", R"(<div osisID="Gen" sID="g1" type="book"/>)",
                              R"(<chapter n="1" osisID="Gen.1" sID="Gen.1"/> )"}) {
      add(entry);
    }
    for (int i = first; i < last; ++i) add(verse(i));
    std::string packed(compressBound(joined.size()), '\0');
    uLongf size = packed.size();
    compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(joined.data()),
              joined.size(), 1);
    packed.resize(size);
    const std::string folder_of = "kjv/modules/kjv/" + testament;
    folder.write(folder_of + ".bzs",
                 number_bytes(0, 4, false) + number_bytes(size, 4, false) + number_bytes(joined.size(), 4, false));
    folder.write(folder_of + ".bzv", entries);
    folder.write(folder_of + ".bzz", packed);
  };
  write("ot", 0, 20'000);
  write("nt", 20'000, kVerses);
}

const TemporaryFolder& all() {
  static const TemporaryFolder folder;
  static const bool is_written = [] {
    write_g2p(folder, words(400));
    write_fashion(folder, 200, 30);
    write_translate(folder, 900);
    write_kjv(folder);
    return true;
  }();
  EXPECT_TRUE(is_written);
  return folder;
}

}  // namespace paoding::small_corpora
