// SPDX-License-Identifier: Apache-2.0
// How layers are shared out: every row and unit has a place, and nothing needs more than there is.
#include "ops/recurrence/gpu/cta_group.h"

#include <gtest/gtest.h>

#include <random>

namespace paoding {
namespace {

std::optional<CtaGroup> cta_group_of(LayerExtents layer, const char* target = "h200", std::string* why_not = nullptr) {
  return choose_cta_group(layer, named_target(target), why_not);
}

TEST(CtaGroup, HasAPlaceForEveryRowAndUnitAndNeedsNoMoreThanThereIs) {
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
    layer.batch_tiles = i % 7 == 0 ? 2 : 1;
    const std::optional<CtaGroup> cta_group = choose_cta_group(layer, h200, nullptr);
    if (!cta_group) continue;
    ++accepted;
    SCOPED_TRACE(cta_group->text());
    EXPECT_GE(cta_group->ctas * cta_group->units, layer.hidden);
    EXPECT_LT((cta_group->ctas - cta_group->sum_peers) * cta_group->units, layer.hidden) << "a CTA has nothing to do";
    EXPECT_GE(cta_group->count * cta_group->rows * layer.batch_tiles, layer.batch);
    EXPECT_LT((cta_group->count - 1) * cta_group->rows, layer.batch) << "a cta_group has no rows";
    EXPECT_LE(cta_group->shared_bytes, h200.shared_bytes);
    EXPECT_LE(cta_group->count * cta_group->ctas, h200.sm_count) << "not all run at once";
    EXPECT_EQ(cta_group->exchange == Exchange::memory, cta_group->state_words > 0);
    EXPECT_GE(cta_group->rest_fragments(), 0);
    EXPECT_EQ(cta_group->streamed % cta_group->ahead, 0) << "a group's place in the ring is not the same every step";
    const std::int64_t columns = cta_group->units * layer.gates, all = cta_group->ctas * cta_group->units;
    if (cta_group->simt_fma && layer.is_backward) {  // all threads share out K
      EXPECT_EQ(cta_group->tiles * 4, cta_group->units);
      EXPECT_GE(cta_group->steps * cta_group->warps * 32, cta_group->depth_pieces);
      EXPECT_EQ(cta_group->depth_pieces * 4, all * layer.gates);
      continue;
    }
    EXPECT_GE(cta_group->matrix_rows * cta_group->sum_peers, layer.is_backward ? all : columns);
    if (cta_group->shares_state()) {
      EXPECT_GE(cta_group->matrix_rows, columns * cta_group->sum_peers);
      EXPECT_EQ(cta_group->depth_pieces * 16 * cta_group->sum_peers, all * size_bytes(layer.dtype));
    }
    const std::int64_t depth = (layer.is_backward ? columns * cta_group->sum_peers : all / cta_group->sum_peers) *
                               (cta_group->simt_fma ? 4 : size_bytes(layer.dtype));
    EXPECT_GE(cta_group->depth_pieces * 16, depth);
    if (cta_group->simt_fma) {
      if (cta_group->keeps_sums) {
        EXPECT_LE(cta_group->rows, cta_group->streamed > 0 ? 8 : 4);
      }
      EXPECT_GE(cta_group->tiles * cta_group->warps * (layer.gates == 1 ? 4 : 1), cta_group->units);
      EXPECT_GE(cta_group->steps * 512, depth);
      continue;
    }
    EXPECT_GE(cta_group->tiles * 16 * (cta_group->warps / cta_group->parts), cta_group->matrix_rows);
    EXPECT_GE(cta_group->parts * cta_group->steps * 32, depth);
  }
  EXPECT_GT(accepted, 1000);
}

TEST(CtaGroup, StreamsOnlyTheWeightsThatDoNotFit) {
  const auto streamed = [](std::int64_t hidden, DType dtype, bool is_backward = false) {
    const LayerExtents layer{.gates = 4,
                             .batch = 1,
                             .hidden = hidden,
                             .dtype = dtype,
                             .is_exact = dtype == DType::f32,
                             .is_backward = is_backward};
    const auto cta_group = cta_group_of(layer);
    EXPECT_TRUE(cta_group) << hidden;
    return cta_group ? static_cast<double>(streamed_bytes(layer, *cta_group)) / 1e6 : -1;
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

TEST(CtaGroup, IsDeclinedWhereTheWeightsDoNotFit) {
  std::string why_not;
  const LayerExtents backward{.gates = 4, .batch = 2048, .hidden = 4096, .dtype = DType::bf16, .is_backward = true};
  EXPECT_FALSE(cta_group_of(backward, "h200", &why_not));
  EXPECT_NE(why_not.find("the weights of 4096 units do not fit 132 CTAs"), std::string::npos) << why_not;
}

TEST(CtaGroup, OfALargeBatchAreAsManyAsRunAtOnce) {
  const auto cta_group = cta_group_of({.gates = 4, .batch = 128, .hidden = 512, .dtype = DType::bf16});
  ASSERT_TRUE(cta_group);
  EXPECT_LE(cta_group->count * cta_group->ctas, named_target("h200").sm_count);
  EXPECT_GE(cta_group->count * cta_group->ctas, 100);
}

// Timed by all that fit: benchmarks/results/2026-11-26-recurrence-gradients-f32-2.txt.
TEST(CtaGroup, OfAGradientInFullF32AreThoseThatTookLeast) {
  for (const auto& [batch, units] : {std::pair(1, 8), {2, 8}, {4, 16}, {8, 16}, {16, 16}, {32, 16}}) {
    const auto cta_group =
        cta_group_of({.gates = 4, .batch = batch, .hidden = 512, .is_exact = true, .is_backward = true});
    ASSERT_TRUE(cta_group);
    EXPECT_EQ(cta_group->units, units) << batch << " rows: " << cta_group->text();
  }
}

}  // namespace
}  // namespace paoding
