// SPDX-License-Identifier: Apache-2.0
// Parts of two steps set beside each other: by hand, so that every row is known.
#include "profile/align_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace paoding::profile {
namespace {

StepPart op(const std::string& scope, const std::string& name, std::int64_t bytes = 0,
            std::vector<std::string> members = {}) {
  StepPart part;
  part.scope = scope, part.name = name, part.bytes = bytes, part.is_op = true;
  part.members = members.empty() ? std::vector<std::string>{name} : std::move(members);
  return part;
}

// "fused: encoder/mul encoder/add | encoder/group", rows in the order of their text.
std::vector<std::string> rows_of(const std::vector<StepPart>& a, const std::vector<StepPart>& b) {
  std::vector<std::string> rows;
  for (const AlignedParts& row : align(a, b)) {
    std::vector<std::string> names[2];
    for (const std::size_t i : row.a) names[0].push_back(a[i].scope + "/" + a[i].name);
    for (const std::size_t i : row.b) names[1].push_back(b[i].scope + "/" + b[i].name);
    std::string text(to_string(row.how));
    text += ":";
    for (const int side : {0, 1}) {
      std::ranges::sort(names[side]);
      for (const std::string& name : names[side]) text += " " + name;
      if (side == 0) text += " |";
    }
    rows.push_back(text);
  }
  std::ranges::sort(rows);
  return rows;
}

using Rows = std::vector<std::string>;

TEST(AlignParts, PairsWhatIsTheSame) {
  const std::vector<StepPart> a = {op("e", "mul", 8), op("e", "mul", 16), op("", "sum", 4)};
  const std::vector<StepPart> b = {op("", "sum", 4), op("e", "mul", 16), op("e", "mul", 8)};
  const std::vector<AlignedParts> rows = align(a, b);
  ASSERT_EQ(rows.size(), 3u);
  for (const AlignedParts& row : rows) {
    EXPECT_EQ(row.how, Alignment::same);
    EXPECT_EQ(a[row.a.at(0)].name, b[row.b.at(0)].name);
    EXPECT_EQ(a[row.a.at(0)].bytes, b[row.b.at(0)].bytes);
  }
}

TEST(AlignParts, SaysWhatIsOfAnotherSizeNewOrGone) {
  EXPECT_EQ(rows_of({op("e", "mul", 8), op("e", "exp", 8)}, {op("e", "mul", 32), op("e", "tanh", 8)}),
            (Rows{"appeared: | e/tanh", "resized: e/mul | e/mul", "vanished: e/exp |"}));
}

TEST(AlignParts, FollowsScopesThatWereRenamed) {
  const std::vector<StepPart> a = {op("net/layer1", "matmul", 8), op("net/layer1/norm", "sum", 4),
                                   op("net/layer1", "relu", 8), op("net/head", "matmul", 8)};
  const std::vector<StepPart> b = {op("net/block1", "matmul", 8), op("net/block1/norm", "sum", 4),
                                   op("net/block1", "relu", 8), op("net/head", "matmul", 8)};
  EXPECT_EQ(
      rows_of(a, b),
      (Rows{"renamed: net/layer1/matmul | net/block1/matmul", "renamed: net/layer1/norm/sum | net/block1/norm/sum",
            "renamed: net/layer1/relu | net/block1/relu", "same: net/head/matmul | net/head/matmul"}));
}

// Of several that are alike the first becomes the first.
TEST(AlignParts, KeepsTheOrderOfScopesThatAreAlike) {
  std::vector<StepPart> a, b;
  for (const char* number : {"1", "2", "3"}) {
    a.push_back(op(std::string("layer") + number, "matmul", 8));
    b.push_back(op(std::string("block") + number, "matmul", 8));
  }
  EXPECT_EQ(rows_of(a, b), (Rows{"renamed: layer1/matmul | block1/matmul", "renamed: layer2/matmul | block2/matmul",
                                 "renamed: layer3/matmul | block3/matmul"}));
}

TEST(AlignParts, FindsOpsThatWereFusedAndSplit) {
  const std::vector<StepPart> apart = {op("cell", "mul", 8), op("cell", "add", 8), op("cell", "tanh", 8),
                                       op("cell", "matmul", 8)};
  const std::vector<StepPart> fused = {op("cell", "group: mul+add+tanh", 8, {"mul", "add", "tanh"}),
                                       op("cell", "matmul", 8)};
  EXPECT_EQ(rows_of(apart, fused),
            (Rows{"fused: cell/add cell/mul cell/tanh | cell/group: mul+add+tanh", "same: cell/matmul | cell/matmul"}));
  EXPECT_EQ(rows_of(fused, apart),
            (Rows{"same: cell/matmul | cell/matmul", "split: cell/group: mul+add+tanh | cell/add cell/mul cell/tanh"}));
  EXPECT_EQ(rows_of({op("c", "group: mul+add", 0, {"mul", "add"}), op("c", "group: exp+tanh", 0, {"exp", "tanh"})},
                    {op("c", "group: mul+add+exp", 0, {"mul", "add", "exp"}), op("c", "tanh")}),
            (Rows{"regrouped: c/group: exp+tanh c/group: mul+add | c/group: mul+add+exp c/tanh"}));
}

// A composed op and what it is made of are the same work, and so is work of scopes that were fused into one another.
TEST(AlignParts, FindsTheSameWorkAtTheScopeThatHasItAll) {
  EXPECT_EQ(rows_of({op("e", "softmax")}, {op("e", "softmax/exp"), op("e", "softmax/sum")}),
            (Rows{"split: e/softmax | e/softmax/exp e/softmax/sum"}));
  EXPECT_EQ(rows_of({op("n/x", "mul"), op("n/y", "add"), op("m", "add")},
                    {op("n", "group: mul+add", 0, {"mul", "add"}), op("m", "add")}),
            (Rows{"fused: n/x/mul n/y/add | n/group: mul+add", "same: m/add | m/add"}));
}

// An op of a gradient may be one of a group that does not say where its ops came from.
TEST(AlignParts, FindsOpsOfGradientsInGroups) {
  EXPECT_EQ(rows_of({op("b", "lerp_grad/mul"), op("b", "lerp_grad/sum"),
                     op("b", "group: lerp+mul", 0, {"lerp", "lerp_grad/mul"})},
                    {op("b", "group: lerp+mul*2+sum", 0, {"lerp", "mul", "mul", "sum"})}),
            (Rows{"fused: b/group: lerp+mul b/lerp_grad/mul b/lerp_grad/sum | b/group: lerp+mul*2+sum"}));
}

// What lies outside is not taken before the scopes within have been looked at.
TEST(AlignParts, FindsWhatWasFusedOutOfScopes) {
  EXPECT_EQ(rows_of({op("n/x", "add"), op("", "mul"), op("loss", "sum")},
                    {op("", "group: mul+sum+add", 0, {"mul", "sum", "add"})}),
            (Rows{"fused: /mul loss/sum n/x/add | /group: mul+sum+add"}));
}

TEST(AlignParts, FindsWhatMovedToAnotherScope) {
  EXPECT_EQ(
      rows_of({op("loop", "matmul", 8), op("loop", "add", 8)}, {op("hoisted", "matmul", 8), op("loop", "add", 8)}),
      (Rows{"renamed: loop/matmul | hoisted/matmul", "same: loop/add | loop/add"}));
}

TEST(AlignParts, NeverTakesAnOpForWhatIsNone) {
  StepPart yours;
  yours.name = "mul";
  EXPECT_EQ(rows_of({op("", "mul")}, {yours}), (Rows{"appeared: | /mul", "vanished: /mul |"}));
}

// Whatever they are, each part is in one row, and rows of a program beside itself are all the same.
TEST(AlignParts, HasEveryPartOnce) {
  std::mt19937 random(7);
  const auto pick = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  for (int round = 0; round < 300; ++round) {
    std::vector<StepPart> sides[2];
    for (std::vector<StepPart>& side : sides) {
      for (int i = pick(12); i > 0; --i) {
        const char* const ops[] = {"mul", "add", "exp", "sum", "softmax/exp"};
        const char* const scopes[] = {"", "a", "a/b", "a/c", "d", "d/b"};
        std::vector<std::string> members;
        for (int m = 1 + pick(3); m > 0; --m) members.push_back(ops[pick(5)]);
        StepPart part = op(scopes[pick(6)], members.size() == 1 ? members[0] : "group " + std::to_string(pick(3)),
                           pick(3), members);
        part.is_op = pick(8) > 0;
        side.push_back(part);
      }
    }
    std::vector<int> seen[2] = {std::vector<int>(sides[0].size()), std::vector<int>(sides[1].size())};
    for (const AlignedParts& row : align(sides[0], sides[1])) {
      EXPECT_FALSE(row.a.empty() && row.b.empty());
      for (const std::size_t i : row.a) seen[0].at(i) += 1;
      for (const std::size_t i : row.b) seen[1].at(i) += 1;
    }
    for (const std::vector<int>& side : seen)
      EXPECT_TRUE(std::ranges::all_of(side, [](int count) { return count == 1; }));
    for (const AlignedParts& row : align(sides[0], sides[0])) EXPECT_EQ(row.how, Alignment::same);
  }
}

}  // namespace
}  // namespace paoding::profile
