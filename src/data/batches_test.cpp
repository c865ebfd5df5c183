// SPDX-License-Identifier: Apache-2.0
#include "paoding/data/batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <numeric>
#include <stdexcept>

#include "data/test_folder.h"

namespace paoding::data {
namespace {

using Numbers = std::vector<std::int64_t>;

/// Buckets of 1000 examples: lengths that are not spread evenly.
Numbers some_buckets() {
  Numbers buckets;
  for (std::int64_t i = 0; i < 1000; ++i) buckets.push_back(8 * (i * i % 7));
  return buckets;
}

Numbers all_of(const std::vector<BatchExamples>& batches) {
  Numbers examples;
  for (const BatchExamples& batch : batches) examples.insert(examples.end(), batch.begin(), batch.end());
  return examples;
}

Numbers ascending(Numbers numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

Numbers count_up(std::int64_t count) {
  Numbers numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

void expect_batches_of_one_bucket(const std::vector<BatchExamples>& batches, const Numbers& buckets,
                                  std::int64_t size) {
  std::map<std::int64_t, int> smaller;
  for (const BatchExamples& batch : batches) {
    ASSERT_FALSE(batch.empty());
    ASSERT_LE(std::ssize(batch), size);
    const std::int64_t bucket = buckets[static_cast<std::size_t>(batch[0])];
    for (const std::int64_t example : batch) EXPECT_EQ(buckets[static_cast<std::size_t>(example)], bucket);
    if (std::ssize(batch) < size) ++smaller[bucket];
  }
  for (const auto& [bucket, count] : smaller) EXPECT_EQ(count, 1) << "bucket " << bucket;
}

TEST(ShuffledBatches, HaveEveryExampleOnceWithOthersOfItsBucket) {
  const Numbers buckets = some_buckets();
  for (const std::int64_t size : {1, 7, 32, 5000}) {
    const auto batches = shuffled_batches(buckets, size, 5, 3);
    expect_batches_of_one_bucket(batches, buckets, size);
    EXPECT_EQ(ascending(all_of(batches)), count_up(1000));
  }
}

TEST(ShuffledBatches, AreTheSameForSeedAndEpochAndOthersForOthers) {
  const Numbers buckets = some_buckets();
  const auto batches = shuffled_batches(buckets, 32, 5, 3);
  EXPECT_EQ(batches, shuffled_batches(buckets, 32, 5, 3));
  EXPECT_NE(batches, shuffled_batches(buckets, 32, 5, 4));
  EXPECT_NE(batches, shuffled_batches(buckets, 32, 6, 3));
}

TEST(ShuffledBatches, StayWhatTheyWereInTheFirstRelease) {
  // A resumed training goes on in the middle of an epoch: the order is part of the format of checkpoints.
  EXPECT_EQ(shuffled_batches(Numbers{1, 1, 2, 1, 2, 1, 1}, 2, 42, 1),
            (std::vector<BatchExamples>{{0}, {6, 1}, {2, 4}, {5, 3}}));
}

TEST(ShuffledBatches, PutEveryExampleFirstAboutEquallyOften) {
  // 4 examples, 4000 epochs: each is first in 1000 of them, with a standard deviation of 27.
  std::vector<int> counts(4);
  for (std::int64_t epoch = 0; epoch < 4000; ++epoch) {
    ++counts[static_cast<std::size_t>(shuffled_batches(Numbers(4, 0), 4, 9, epoch)[0][0])];
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 4 * 27);
}

TEST(ShuffledBatches, OfNothingAreNone) { EXPECT_TRUE(shuffled_batches({}, 8, 1, 1).empty()); }

TEST(ShuffledBatches, RefuseASizeOfZero) {
  EXPECT_EQ(refusal([] { shuffled_batches(Numbers{1}, 0, 1, 1); }),
            "argument: batches: the size of a batch is 0, must be at least 1");
}

TEST(BatchesInOrder, KeepTheOrderOfExamples) {
  EXPECT_EQ(batches_in_order(Numbers{5, 3, 5, 3, 5}, 2), (std::vector<BatchExamples>{{0, 2}, {1, 3}, {4}}));
  const Numbers buckets = some_buckets();
  const auto batches = batches_in_order(buckets, 32);
  expect_batches_of_one_bucket(batches, buckets, 32);
  EXPECT_EQ(ascending(all_of(batches)), count_up(1000));
  for (const BatchExamples& batch : batches) EXPECT_TRUE(std::is_sorted(batch.begin(), batch.end()));
}

TEST(Split, GivesEveryExampleToOnePart) {
  const auto parts = split(1001, std::vector{0.8, 0.1, 0.1}, 7);
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_EQ(parts[0].size(), 801U);
  EXPECT_EQ(parts[1].size(), 100U);
  EXPECT_EQ(parts[2].size(), 100U);
  EXPECT_EQ(parts[3].size(), 0U);
  for (const Numbers& part : parts) EXPECT_TRUE(std::is_sorted(part.begin(), part.end()));
  EXPECT_EQ(ascending(all_of(parts)), count_up(1001));
}

TEST(Split, GivesWhatIsLeftAsAPartOfItsOwn) {
  const auto parts = split(10, std::vector{0.3, 0.2}, 7);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].size(), 3U);
  EXPECT_EQ(parts[1].size(), 2U);
  EXPECT_EQ(parts[2].size(), 5U);
  EXPECT_EQ(split(10, {}, 7), (std::vector<Numbers>{count_up(10)}));
}

TEST(Split, LeavesNothingWhereSharesAddUpToOne) {
  // 0.93 + 0.02 + 0.05 is a little more or less than 1 in binary.
  for (const std::int64_t count : {1, 7, 100, 125'945, 1'000'003}) {
    EXPECT_TRUE(split(count, std::vector{0.93, 0.02, 0.05}, 7).back().empty());
    EXPECT_TRUE(split(count, std::vector(10, 0.1), 7).back().empty());
  }
}

TEST(Split, IsTheSameForASeedAndMixesExamples) {
  const auto parts = split(100, std::vector{0.5, 0.5}, 7);
  EXPECT_EQ(parts, split(100, std::vector{0.5, 0.5}, 7));
  EXPECT_NE(parts, split(100, std::vector{0.5, 0.5}, 8));
  EXPECT_NEAR(std::accumulate(parts[0].begin(), parts[0].end(), 0.0) / 50, 49.5, 12);
}

TEST(Split, CoversFewOrNoExamples) {
  for (const auto& part : split(0, std::vector{0.5, 0.5}, 1)) EXPECT_TRUE(part.empty());
  EXPECT_EQ(all_of(split(1, std::vector{0.9, 0.1}, 1)), Numbers{0});
  EXPECT_EQ(split(3, std::vector{0.0, 1.0}, 1)[1].size(), 3U);
}

TEST(Split, RefusesSharesThatAreNone) {
  EXPECT_EQ(refusal([] {
              split(10, std::vector{0.9, 0.2}, 1);
            }),
            "argument: split: the shares add up to 1.1, must be at most 1");
  EXPECT_EQ(refusal([] { split(10, std::vector{-0.1}, 1); }), "argument: split: share -0.1 must be in 0 .. 1");
  EXPECT_EQ(refusal([] { split(10, std::vector{std::nan("")}, 1); }), "argument: split: share nan must be in 0 .. 1");
  EXPECT_EQ(refusal([] { split(-1, std::vector{1.0}, 1); }), "argument: split: -1 examples, there must be 0 or more");
}

TEST(BucketBound, IsTheSmallestThatHoldsTheLength) {
  const Numbers bounds{4, 8, 16};
  EXPECT_EQ(bucket_bound(bounds, 0), 4);
  EXPECT_EQ(bucket_bound(bounds, 4), 4);
  EXPECT_EQ(bucket_bound(bounds, 5), 8);
  EXPECT_EQ(bucket_bound(bounds, 16), 16);
  EXPECT_EQ(bucket_bound(bounds, 17), 16);
  EXPECT_EQ(refusal([] { bucket_bound({}, 1); }),
            "argument: bucket_bound: no bounds are given, there must be at least one");
}

TEST(Prefetch, GivesEveryItemInOrder) {
  Prefetch<std::int64_t> squares(100, [](std::int64_t i) { return i * i; });
  for (std::int64_t i = 0; i < 100; ++i) ASSERT_EQ(squares.next(), i * i);
  EXPECT_EQ(squares.next(), std::nullopt);
  EXPECT_EQ(squares.next(), std::nullopt);
}

TEST(Prefetch, StaysNoFurtherAheadThanAsked) {
  for (const std::size_t depth : {0, 1, 3}) {
    std::atomic<int> made = 0;
    Prefetch<int> items(
        50,
        [&](std::int64_t i) {
          ++made;
          return static_cast<int>(i);
        },
        depth);
    for (int taken = 1; taken <= 20; ++taken) {
      ASSERT_EQ(items.next(), taken - 1);
      EXPECT_LE(made, taken + static_cast<int>(depth));
    }
  }
}

TEST(Prefetch, WithoutAThreadMakesEachItemWhenItIsAskedFor) {
  const std::thread::id own = std::this_thread::get_id();
  Prefetch<bool> items(
      3,
      [&](std::int64_t i) {
        if (i == 2) throw std::runtime_error("no item 2");
        return std::this_thread::get_id() == own;
      },
      0);
  EXPECT_EQ(items.next(), true);
  EXPECT_EQ(items.next(), true);
  EXPECT_THROW(items.next(), std::runtime_error);
  EXPECT_THROW(items.next(), std::runtime_error);
  Prefetch<int> few(
      1, [](std::int64_t) { return 7; }, 0);
  EXPECT_EQ(few.next(), 7);
  EXPECT_EQ(few.next(), std::nullopt);
}

TEST(Prefetch, WorksAheadAsTheEnvironmentSays) {
  const auto is_beside = [](std::size_t depth) {
    const std::thread::id own = std::this_thread::get_id();
    return *Prefetch<bool>(
                1, [&](std::int64_t) { return std::this_thread::get_id() != own; }, depth)
                .next();
  };
  EXPECT_TRUE(is_beside(4));
  ::setenv("PAODING_RUN", "read_ahead=0", 1);
  EXPECT_FALSE(is_beside(4));
  ::setenv("PAODING_RUN", "read_ahead=2", 1);
  EXPECT_TRUE(is_beside(0));
  ::unsetenv("PAODING_RUN");
}

TEST(Prefetch, ThrowsWhereItsItemWouldBe) {
  Prefetch<int> items(10, [](std::int64_t i) {
    if (i == 2) throw std::runtime_error("no item 2");
    return static_cast<int>(i);
  });
  EXPECT_EQ(items.next(), 0);
  EXPECT_EQ(items.next(), 1);
  EXPECT_THROW(items.next(), std::runtime_error);
  EXPECT_THROW(items.next(), std::runtime_error);
}

TEST(Prefetch, EndsWithItemsLeft) {
  constexpr int kAhead = 4;
  for (int taken = 0; taken < 4; ++taken) {
    const auto owned = std::make_shared<int>(0);
    std::atomic<int> made = 0;
    {
      Prefetch<std::shared_ptr<int>> items(
          1'000'000'000,
          [&](std::int64_t) {
            ++made;
            return owned;
          },
          kAhead);
      for (int i = 0; i < taken; ++i) EXPECT_EQ(items.next(), owned);
    }
    EXPECT_EQ(owned.use_count(), 1) << "items that nobody took are still there";
    EXPECT_GE(made, taken);
    EXPECT_LE(made, taken + kAhead);
  }
}

TEST(Prefetch, OfNothingIsAtItsEnd) {
  EXPECT_EQ(Prefetch<int>(0, [](std::int64_t) { return 1; }).next(), std::nullopt);
}

}  // namespace
}  // namespace paoding::data
