// SPDX-License-Identifier: Apache-2.0
#include "paoding/data/batches.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/memory.h"
#include "base/run_switches.h"
#include "scalar/philox.h"

namespace paoding::data {
namespace {

constexpr std::uint64_t kSplitStream = 0x73706c6974;  // "split": no epoch gets there

/// Numbers drawn one after the other from one stream.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}

  /// 0 .. count - 1. Of 2^64 equally likely words each number gets as many but for one.
  std::uint64_t below(std::uint64_t count) {
    const std::uint64_t high = random_bits(next_++, stream_, seed_);
    const std::uint64_t word = high << 32 | random_bits(next_++, stream_, seed_);
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(word) * count >> 64);
  }

  /// Fisher and Yates's shuffle, as Durstenfeld (1964) does it. std::shuffle differs between libraries.
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  std::uint64_t seed_, stream_, next_ = 0;
};

std::vector<std::int64_t> ascending(std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), std::int64_t{0});
  return numbers;
}

/// The examples in `order` put into batches of their bucket: the lowest bucket first.
std::vector<BatchExamples> batches_of(std::span<const std::int64_t> order, std::span<const std::int64_t> buckets,
                                      std::int64_t size) {
  if (size < 1) fail(ErrorKind::argument, "batches: the size of a batch is {}, must be at least 1", size);
  std::map<std::int64_t, std::vector<BatchExamples>> of_bucket;
  for (const std::int64_t example : order) {
    std::vector<BatchExamples>& batches = of_bucket[buckets[static_cast<std::size_t>(example)]];
    if (batches.empty() || std::ssize(batches.back()) == size) batches.emplace_back();
    batches.back().push_back(example);
  }
  std::vector<BatchExamples> result;
  for (auto& [bucket, batches] : of_bucket) std::move(batches.begin(), batches.end(), std::back_inserter(result));
  return result;
}

}  // namespace

std::size_t read_ahead(std::size_t depth) {
  const std::optional<std::int64_t> switched = run_switches().read_ahead;
  return switched ? static_cast<std::size_t>(*switched) : depth;
}

std::thread start_thread(std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    fail(ErrorKind::device, "data: no thread to prepare batches was started ({}); {}", error.code().message(),
         memory_left());
  }
}

std::vector<BatchExamples> shuffled_batches(std::span<const std::int64_t> buckets, std::int64_t size,
                                            std::uint64_t seed, std::int64_t epoch) {
  Draws draws(seed, static_cast<std::uint64_t>(epoch));
  std::vector<std::int64_t> order = ascending(std::ssize(buckets));
  draws.shuffle(order);
  std::vector<BatchExamples> batches = batches_of(order, buckets, size);
  draws.shuffle(batches);
  return batches;
}

std::vector<BatchExamples> batches_in_order(std::span<const std::int64_t> buckets, std::int64_t size) {
  std::vector<BatchExamples> batches = batches_of(ascending(std::ssize(buckets)), buckets, size);
  // Batches, too, are in the order of their first examples.
  std::sort(batches.begin(), batches.end(), [](const auto& a, const auto& b) { return a.front() < b.front(); });
  return batches;
}

std::vector<std::vector<std::int64_t>> split(std::int64_t count, std::span<const double> shares, std::uint64_t seed) {
  if (count < 0) fail(ErrorKind::argument, "split: {} examples, there must be 0 or more", count);
  double sum = 0;
  for (const double share : shares) {
    if (!(share >= 0 && share <= 1)) fail(ErrorKind::argument, "split: share {} must be in 0 .. 1", share);
    sum += share;
  }
  // 0.8 + 0.1 + 0.1 is a little more than 1 in binary.
  if (sum > 1 + 1e-9) fail(ErrorKind::argument, "split: the shares add up to {}, must be at most 1", sum);

  std::vector<std::int64_t> order = ascending(count);
  Draws(seed, kSplitStream).shuffle(order);
  std::vector<std::vector<std::int64_t>> parts;
  auto add_part = [&, begin = std::int64_t{0}](std::int64_t end) mutable {
    parts.emplace_back(order.begin() + begin, order.begin() + end);
    std::sort(parts.back().begin(), parts.back().end());
    begin = end;
  };
  double before = 0;
  for (const double share : shares) {
    before += share;
    // Where a part ends is rounded, not its size, so that the errors do not add up.
    add_part(std::min<std::int64_t>(count, std::llround(before * static_cast<double>(count))));
  }
  add_part(count);
  return parts;
}

std::int64_t bucket_bound(std::span<const std::int64_t> bounds, std::int64_t length) {
  if (bounds.empty()) fail(ErrorKind::argument, "bucket_bound: no bounds are given, there must be at least one");
  const auto at = std::lower_bound(bounds.begin(), bounds.end(), length);
  return at == bounds.end() ? bounds.back() : *at;
}

}  // namespace paoding::data
