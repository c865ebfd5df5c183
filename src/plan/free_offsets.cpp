// SPDX-License-Identifier: Apache-2.0
#include "plan/free_offsets.h"

#include <algorithm>

namespace paoding {

void OffsetRanges::add(std::int64_t begin, std::int64_t end) {
  // Ranges that overlap or touch it become one with it.
  const auto first = std::ranges::partition_point(ranges_, [&](const Range& range) { return range.end < begin; });
  auto last = first;
  for (; last != ranges_.end() && last->begin <= end; ++last) {
    begin = std::min(begin, last->begin);
    end = std::max(end, last->end);
  }
  if (first == last) {
    ranges_.insert(first, {begin, end});
    return;
  }
  *first = {begin, end};
  ranges_.erase(first + 1, last);
}

std::int64_t OffsetRanges::free_from(std::int64_t offset, std::int64_t bytes) const {
  auto range = std::ranges::partition_point(ranges_, [&](const Range& each) { return each.end <= offset; });
  for (; range != ranges_.end() && range->begin < offset + bytes; ++range) offset = range->end;
  return offset;
}

FreeOffsets::FreeOffsets(int positions) {
  while (leaves_ < positions) leaves_ *= 2;
  throughout_.resize(static_cast<std::size_t>(leaves_) * 2);
  at_any_.resize(throughout_.size());
}

template <class Part, class Around>
void FreeOffsets::visit(PositionRange range, const Part& part, const Around& around) const {
  const auto walk = [&](const auto& self, std::size_t node, int first, int last) -> void {
    if (range.first <= first && last <= range.second) return part(node);
    around(node);
    const int middle = first + (last - first) / 2;
    if (range.first <= middle) self(self, 2 * node, first, middle);
    if (range.second > middle) self(self, 2 * node + 1, middle + 1, last);
  };
  walk(walk, 1, 0, leaves_ - 1);
}

std::int64_t FreeOffsets::lowest(std::span<const PositionRange> times, std::int64_t bytes) const {
  std::vector<const OffsetRanges*> taken;
  const auto add = [&](const OffsetRanges& ranges) {
    if (!ranges.empty()) taken.push_back(&ranges);
  };
  for (const PositionRange& time : times) {
    visit(
        time, [&](std::size_t node) { add(at_any_[node]); }, [&](std::size_t node) { add(throughout_[node]); });
  }
  std::int64_t offset = 0;
  // Round and round, until none of them has moved it.
  for (std::size_t next = 0, agreed = 0; agreed < taken.size(); next = (next + 1) % taken.size()) {
    const std::int64_t free = taken[next]->free_from(offset, bytes);
    agreed = free == offset ? agreed + 1 : 1;
    offset = free;
  }
  return offset;
}

void FreeOffsets::take(std::span<const PositionRange> times, std::int64_t offset, std::int64_t bytes) {
  for (const PositionRange& time : times) {
    visit(
        time,
        [&](std::size_t node) {
          throughout_[node].add(offset, offset + bytes);
          at_any_[node].add(offset, offset + bytes);
        },
        [&](std::size_t node) { at_any_[node].add(offset, offset + bytes); });
  }
}

}  // namespace paoding
