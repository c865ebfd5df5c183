// SPDX-License-Identifier: Apache-2.0
// How layers are shared out: every row and unit has a place, and nothing needs more than there is.
#include <gtest/gtest.h>

#include <random>

#include "ops/recurrence/team.h"

namespace paoding {
namespace {

std::optional<Team> team_of(LayerExtents layer, const char* target = "h200", std::string* why_not = nullptr) {
  return choose_team(layer, named_target(target), why_not);
}

TEST(Team, HasAPlaceForEveryRowAndUnitAndNeedsNoMoreThanThereIs) {
  std::mt19937 random(1);
  const auto up_to = [&](std::int64_t most) {
    return 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(most));
  };
  const Target& h200 = named_target("h200");
  int accepted = 0;
  for (int i = 0; i < 2000; ++i) {
    LayerExtents layer{.gates = i % 3 == 0 ? 1 : i % 3 + 2, .batch = up_to(300), .hidden = up_to(1600)};
    if (i % 8 == 1) layer.batch = up_to(10), layer.hidden = up_to(5000);
    layer.dtype = i % 2 == 0 ? DType::f32 : DType::bf16;
    layer.is_exact = i % 4 == 0;
    layer.is_backward = i % 5 == 0;
    layer.rounds = i % 7 == 0 ? 2 : 1;
    const std::optional<Team> team = choose_team(layer, h200, nullptr);
    if (!team) continue;
    ++accepted;
    SCOPED_TRACE(team->text());
    EXPECT_GE(team->ctas * team->units, layer.hidden);
    EXPECT_LT((team->ctas - team->neighbours) * team->units, layer.hidden) << "a CTA has nothing to do";
    EXPECT_GE(team->count * team->rows * layer.rounds, layer.batch);
    EXPECT_LT((team->count - 1) * team->rows, layer.batch) << "a team has no rows";
    EXPECT_LE(team->shared_bytes, h200.shared_bytes);
    EXPECT_LE(team->count * team->ctas, h200.sm_count) << "not all run at once";
    EXPECT_EQ(team->exchange == Exchange::memory, team->state_words > 0);
    EXPECT_GE(team->rest_fragments(), 0);
    EXPECT_EQ(team->streamed % team->ahead, 0) << "a group's place in the ring is not the same every step";
    const std::int64_t columns = team->units * layer.gates, all = team->ctas * team->units;
    if (team->is_by_lanes && layer.is_backward) {  // all threads share out K
      EXPECT_EQ(team->tiles * 4, team->units);
      EXPECT_GE(team->steps * team->warps * 32, team->depth_pieces);
      EXPECT_EQ(team->depth_pieces * 4, all * layer.gates);
      continue;
    }
    EXPECT_GE(team->matrix_rows * team->neighbours, layer.is_backward ? all : columns);
    if (team->shares_state()) {
      EXPECT_GE(team->matrix_rows, columns * team->neighbours);
      EXPECT_EQ(team->depth_pieces * 16 * team->neighbours, all * size_bytes(layer.dtype));
    }
    const std::int64_t depth = (layer.is_backward ? columns * team->neighbours : all / team->neighbours) *
                               (team->is_by_lanes ? 4 : size_bytes(layer.dtype));
    EXPECT_GE(team->depth_pieces * 16, depth);
    if (team->is_by_lanes) {
      if (team->keeps_sums) {
        EXPECT_LE(team->rows, team->streamed > 0 ? 8 : 4);
      }
      EXPECT_GE(team->tiles * team->warps * (layer.gates == 1 ? 4 : 1), team->units);
      EXPECT_GE(team->steps * 512, depth);
      continue;
    }
    EXPECT_GE(team->tiles * 16 * (team->warps / team->parts), team->matrix_rows);
    EXPECT_GE(team->parts * team->steps * 32, depth);
  }
  EXPECT_GT(accepted, 1000);
}

TEST(Team, HasAsFewOfTheWeightsOutOfMemoryAsThereIsNoRoomFor) {
  const auto streamed = [](std::int64_t hidden, DType dtype, bool is_backward = false) {
    const LayerExtents layer{.gates = 4,
                             .batch = 1,
                             .hidden = hidden,
                             .dtype = dtype,
                             .is_exact = dtype == DType::f32,
                             .is_backward = is_backward};
    const auto team = team_of(layer);
    EXPECT_TRUE(team) << hidden;
    return team ? static_cast<double>(streamed_bytes(layer, *team)) / 1e6 : -1;
  };
  EXPECT_EQ(streamed(1536, DType::f32), 0);
  EXPECT_EQ(streamed(2048, DType::bf16), 0);
  for (const bool is_backward : {false, true}) {
    for (const auto& [hidden, dtype] : {std::pair(2048, DType::f32), {3072, DType::bf16}, {3072, DType::f32}}) {
      const double all = 4.0 * hidden * hidden * static_cast<double>(size_bytes(dtype)) / 1e6;
      EXPECT_GT(streamed(hidden, dtype, is_backward), all - 132 * 0.36) << hidden;
      EXPECT_LT(streamed(hidden, dtype, is_backward), all - 132 * 0.2) << hidden;
    }
  }
}

TEST(Team, IsDeclinedWhereTheWeightsDoNotFit) {
  std::string why_not;
  const LayerExtents backward{.gates = 4, .batch = 2048, .hidden = 4096, .dtype = DType::bf16, .is_backward = true};
  EXPECT_FALSE(team_of(backward, "h200", &why_not));
  EXPECT_NE(why_not.find("the weights of 4096 units do not fit 132 CTAs"), std::string::npos) << why_not;
}

TEST(Team, OfALargeBatchAreAsManyAsRunAtOnce) {
  const auto team = team_of({.gates = 4, .batch = 128, .hidden = 512, .dtype = DType::bf16});
  ASSERT_TRUE(team);
  EXPECT_LE(team->count * team->ctas, named_target("h200").sm_count);
  EXPECT_GE(team->count * team->ctas, 100);
}

// Timed by all that fit: benchmarks/results/2026-11-26-recurrence-gradients-f32-2.txt.
TEST(Team, OfAGradientInFullF32AreThoseThatTookLeast) {
  for (const auto& [batch, units] : {std::pair(1, 8), {2, 8}, {4, 16}, {8, 16}, {16, 16}, {32, 16}}) {
    const auto team = team_of({.gates = 4, .batch = batch, .hidden = 512, .is_exact = true, .is_backward = true});
    ASSERT_TRUE(team);
    EXPECT_EQ(team->units, units) << batch << " rows: " << team->text();
  }
}

}  // namespace
}  // namespace paoding
