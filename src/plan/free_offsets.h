// SPDX-License-Identifier: Apache-2.0
// Which bytes of the arena are free when. The positions of a plan are the leaves of a binary tree; each node of it
// keeps the bytes that are taken while all its positions pass, and those that are taken at any of them, as ranges that
// are merged where they meet: adjacent slots cost no more than one slot does.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace paoding {

/// First and last position of a time.
using PositionRange = std::pair<int, int>;

/// Bytes from the first of each range to the end of the last; ranges are sorted and do not touch.
class OffsetRanges {
 public:
  void add(std::int64_t begin, std::int64_t end);
  /// The first offset from `offset` on with `bytes` free bytes.
  std::int64_t free_from(std::int64_t offset, std::int64_t bytes) const;
  bool empty() const { return ranges_.empty(); }

 private:
  struct Range {
    std::int64_t begin, end;
  };
  std::vector<Range> ranges_;
};

class FreeOffsets {
 public:
  /// For positions 0 .. positions - 1.
  explicit FreeOffsets(int positions);

  /// The lowest offset with `bytes` bytes that are free at all of these times, which do not overlap.
  std::int64_t lowest(std::span<const PositionRange> times, std::int64_t bytes) const;
  void take(std::span<const PositionRange> times, std::int64_t offset, std::int64_t bytes);

 private:
  /// Calls `part` with the fewest nodes that make up the range, and `around` with those that they are parts of.
  template <class Part, class Around>
  void visit(PositionRange range, const Part& part, const Around& around) const;

  int leaves_ = 1;
  std::vector<OffsetRanges> throughout_, at_any_;  // per node: 1 is the root, those below n are 2n and 2n + 1
};

}  // namespace paoding
