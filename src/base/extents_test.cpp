// SPDX-License-Identifier: Apache-2.0
// Extents: bounds, buckets, and errors by name.
#include "paoding/extents.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace paoding {
namespace {

template <class Call>
std::string error_from(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.kind()), error.what());
  }
  return "";
}

using Key = Extents::Key;

// The smallest bucket that holds a size, found by looking at every one.
std::int64_t least_of(const std::vector<std::int64_t>& buckets, std::int64_t size) {
  std::int64_t least = -1;
  for (const std::int64_t bucket : buckets) {
    if (bucket >= size && (least < 0 || bucket < least)) least = bucket;
  }
  return least;
}

TEST(Extents, TakeTheSmallestBucketThatHoldsASize) {
  const std::vector<std::pair<Buckets, std::vector<std::int64_t>>> rules{
      {Buckets(), {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}},
      {multiples_of(8), {0, 8, 16, 20}},
      {multiples_of(7), {0, 7, 14, 20}},
      {powers_of_two(), {0, 1, 2, 4, 8, 16, 20}},
      {bucket_sizes({3, 4, 11, 20}), {3, 4, 11, 20}},
      {buckets_by([](std::int64_t size) { return std::min<std::int64_t>(20, size | 1); }),
       {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 20}}};
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const Extents extents({{"time", 0, 20, rules[i].first}});
    for (std::int64_t size = 0; size <= 20; ++size) {
      EXPECT_EQ(extents.bucket_of({size}), Key{least_of(rules[i].second, size)}) << "rule " << i << ", " << size;
    }
    EXPECT_EQ(extents.buckets(0), rules[i].second) << "rule " << i;
  }
}

TEST(Extents, ListEveryCombination) {
  const Extents extents({{"batch", 1, 4, bucket_sizes({1, 4})}, {"time", 3, 17, multiples_of(8)}});
  EXPECT_EQ(extents.every_bucket(), (std::vector<Key>{{1, 8}, {1, 16}, {1, 17}, {4, 8}, {4, 16}, {4, 17}}));
  EXPECT_EQ(Extents().every_bucket(), std::vector<Key>{{}});
  const Extents many({{"a", 1, 1000}, {"b", 1, 1000}});
  EXPECT_EQ(error_from([&] { many.every_bucket(); }),
            "argument: buckets: there are more than 65536 of a (1 to 1000), b (1 to 1000)");
  EXPECT_EQ(error_from([] { Extents({{"a"}}).buckets(0); }), "argument: buckets: a has more than 65536");
}

TEST(Extents, NameThemselvesInErrors) {
  const Extents extents({{"batch", 1, 256}, {"time", 1, 256, bucket_sizes({8, 100})}, {"rows", 2}});
  EXPECT_EQ(error_from([&] { extents.bucket_of({1, 300, 2}); }), "shape: time is 300; this class holds 1 to 256");
  EXPECT_EQ(error_from([&] { extents.bucket_of({0, 1, 2}); }), "shape: batch is 0; this class holds 1 to 256");
  EXPECT_EQ(error_from([&] { extents.bucket_of({1, 1, 1}); }), "shape: rows is 1; this class holds 2 or more");
  EXPECT_EQ(error_from([&] {
              extents.bucket_of({1, 101, 2});
            }),
            "shape: time is 101; no bucket holds it, they are: 8, 100");
  const std::string known = "; the extents are: batch (1 to 256), time (1 to 256), rows (2 or more)";
  EXPECT_EQ(error_from([&] {
              extents.bucket_of({{"batch", 1}, {"tme", 8}, {"rows", 2}});
            }),
            "argument: there is no extent 'tme', time has no size" + known);
  EXPECT_EQ(error_from([&] {
              extents.bucket_of({{"batch", 1}, {"time", 8}, {"batch", 2}});
            }),
            "argument: batch is given twice, rows has no size" + known);
  EXPECT_EQ(error_from([&] {
              extents.check({1, 2});
            }),
            "argument: 2 sizes for 3 extents: batch (1 to 256), time (1 to 256), rows (2 or more)");
  EXPECT_EQ(extents.bucket_of({{"rows", 1000000}, {"time", 9}, {"batch", 3}}), (Key{3, 100, 1000000}));
  EXPECT_EQ(extents.text_of({3, 9, 2}), "batch=3, time=9, rows=2");
}

TEST(Extents, RefuseRulesThatAreNone) {
  EXPECT_EQ(error_from([] { multiples_of(0); }), "argument: multiples_of: n is 0, must be 1 to 281474976710656");
  EXPECT_EQ(error_from([] { bucket_sizes({}); }), "argument: bucket_sizes: there are no sizes, needed is at least one");
  EXPECT_EQ(error_from([] { bucket_sizes({8, 4}); }), "argument: bucket_sizes: 8 stands before 4, sizes must ascend");
  EXPECT_EQ(error_from([] { buckets_by({}); }), "argument: buckets_by: there is no function");
  EXPECT_EQ(error_from([] { Extents({{"a", 1, 2}, {"a", 1, 2}}); }), "argument: extents: a stands twice");
  EXPECT_EQ(error_from([] {
              Extents({{"", 1, 2}});
            }),
            "argument: extents: '' is no name, needed is a word as batch or time");
  EXPECT_EQ(error_from([] { Extents({{"a", 3, 2}}); }).substr(0, 32), "argument: extents: a is from 3 t");
  EXPECT_EQ(error_from([] {
              Extents({{"a", 1, 2, bucket_sizes({2, 3})}});
            }),
            "argument: extents: a has a bucket of 3; this class holds 1 to 2");
  const Extents falls({{"a", 1, 9, buckets_by([](std::int64_t) { return std::int64_t{4}; })}});
  EXPECT_EQ(falls.bucket_of({3}), Key{4});
  EXPECT_EQ(error_from([&] { falls.bucket_of({5}); }),
            "argument: a is 5; its function of buckets gives 4, needed is 5 to 9");
}

}  // namespace
}  // namespace paoding
