// SPDX-License-Identifier: Apache-2.0
// Names of rows that are cut to a width: short enough, and still those of one row each.
#include "profile/row_names.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace paoding::profile {
namespace {

using Names = std::vector<std::string>;

Section section(const Names& names, int depth = 0) {
  Section made;
  for (const std::string& name : names) {
    Row row;
    row.name = name;
    row.depth = depth;
    made.rows.push_back(row);
  }
  return made;
}

TEST(RowNames, StandBehindTheirThreadAndAreIndented) {
  Section made = section({"matmul"});
  made.thread = "thread1";
  EXPECT_EQ(row_names(made, 0), Names{"thread1::matmul"});
  made.rows[0].depth = 2;
  EXPECT_EQ(row_names(made, 0), Names{"    matmul"});
}

TEST(RowNames, OfKernelsAreShortAndStillDiffer) {
  const std::string add = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
                    other =
                        "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<float>>(int)",
                    fill = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)";
  EXPECT_EQ(row_names(section({add, fill, "gemm(not C++)"}), 0),
            (Names{"vectorized_elementwise_kernel<CUDAFunctor_add>", "vectorized_elementwise_kernel<FillFunctor>",
                   "gemm(not C++)"}));
  EXPECT_EQ(row_names(section({add, fill, other}), 0),
            (Names{"vectorized_elementwise_kernel<CUDAFunctor_add> #1", "vectorized_elementwise_kernel<FillFunctor>",
                   "vectorized_elementwise_kernel<CUDAFunctor_add> #2"}));
  Section below = section({"aten::add", add, "aten::sub", other});  // each is the only one of its op
  below.rows[1].depth = below.rows[3].depth = 1;
  EXPECT_EQ(row_names(below, 0), (Names{"aten::add", "  vectorized_elementwise_kernel<CUDAFunctor_add>", "aten::sub",
                                        "  vectorized_elementwise_kernel<CUDAFunctor_add>"}));
}

TEST(RowNames, AreCutAtTheEndWhereThatTellsThemApart) {
  EXPECT_EQ(row_names(section({"a_rather_long_name", "another_long_name", "short"}), 10),
            (Names{"a_rathe...", "another...", "short"}));
}

TEST(RowNames, AreCutInTheMiddleWhereTheEndTellsThemApart) {
  EXPECT_EQ(row_names(section({"group: mul*2+add*3+sub", "group: mul*2+add*3+max", "gather"}), 16),
            (Names{"group: ...*3+sub", "group: ...*3+max", "gather"}));
  EXPECT_EQ(row_names(section({"transformer/block0/attention/in", "transformer/block0/attention/out"}), 22),
            (Names{"transforme...ention/in", "transforme...ntion/out"}));
}

TEST(RowNames, AreNumberedWhereNothingElseTellsThemApart) {
  const std::string same(40, 'x');
  EXPECT_EQ(row_names(section({same + "a" + same, same + "b" + same, same + "a" + same}), 16),
            (Names{"xxxxxxxxxx... #1", "xxxxxxxxxx... #2", "xxxxxxxxxx... #1"}));
}

TEST(RowNames, HaveOneRowOfDotsWhereAListWasCutBefore) {
  const std::string name = "group: sub*2+exp+... (27 ops)";
  for (int width = 4; width < 40; ++width) {
    const std::string cut = row_names(section({name}), width)[0];
    EXPECT_EQ(cut.find("...."), cut.npos) << cut;
    EXPECT_EQ(cut.find("+..."), static_cast<int>(name.size()) <= width ? name.find("+...") : cut.npos) << cut;
  }
}

TEST(RowNames, AreCountedAndCutInCharacters) {
  const std::string name = "\xd1\x81\xd0\xbb\xd0\xbe\xd0\xb9/\xe6\xb3\xa8\xe6\x84\x8f\xe5\x8a\x9b";  // 4 + 1 + 3
  EXPECT_EQ(characters(name), 8u);
  EXPECT_EQ(row_names(section({name}), 8), Names{name});
  EXPECT_EQ(row_names(section({name}), 7), Names{"\xd1\x81\xd0\xbb\xd0\xbe\xd0\xb9..."});
}

// Of many random names of few letters, so that most begin and end alike.
TEST(RowNames, OfDifferentRowsDifferAtEveryWidth) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Names names;
    for (int i = 0; i < 12; ++i) {
      std::string name(3, 'a');
      for (std::size_t k = random() % 30; k > 0; --k) name += "ab+."[random() % 4];
      names.push_back(name + "end");
    }
    for (int width : {4, 5, 8, 12, 20}) {
      const Names cut = row_names(section(names), width);
      for (std::size_t i = 0; i < names.size(); ++i) {
        for (std::size_t k = 0; k < i; ++k) EXPECT_EQ(cut[i] == cut[k], names[i] == names[k]) << names[i];
        EXPECT_LE(cut[i].size(), static_cast<std::size_t>(std::max(width, 8))) << cut[i];
      }
    }
  }
}

}  // namespace
}  // namespace paoding::profile
