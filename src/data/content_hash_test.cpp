// SPDX-License-Identifier: Apache-2.0
#include "paoding/data/content_hash.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <set>

namespace paoding::data {
namespace {

std::string hash_of(std::initializer_list<std::string_view> parts) {
  ContentHash hash;
  for (const std::string_view part : parts) hash.add(part);
  return hash.text();
}

TEST(ContentHash, KnowsPartsTheirOrderAndWhereTheyEnd) {
  EXPECT_EQ(hash_of({"ab", "c"}), hash_of({"ab", "c"}));
  const std::set<std::string> all = {hash_of({}),
                                     hash_of({""}),
                                     hash_of({"", ""}),
                                     hash_of({"abc"}),
                                     hash_of({"ab", "c"}),
                                     hash_of({"a", "bc"}),
                                     hash_of({"c", "ab"}),
                                     hash_of({"abd"}),
                                     hash_of({"abc", ""}),
                                     hash_of({"", "abc"}),
                                     hash_of({std::string_view("abc\0", 4)})};
  EXPECT_EQ(all.size(), 11u);
  for (const std::string& text : all) EXPECT_EQ(text.size(), 32u);
}

TEST(ContentHash, IsAnotherWhereverABitIsAnother) {
  std::string text(100, 'x');
  std::set<std::string> all = {hash_of({text})};
  for (char& c : text) {
    for (int bit = 0; bit < 8; ++bit) {
      c = static_cast<char>(c ^ (1 << bit));
      all.insert(hash_of({text}));
      c = static_cast<char>(c ^ (1 << bit));
    }
  }
  EXPECT_EQ(all.size(), 801u);
}

}  // namespace
}  // namespace paoding::data
