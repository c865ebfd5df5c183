// SPDX-License-Identifier: Apache-2.0
#include "schedule/independent.h"

#include <algorithm>

#include "gpu/codegen/text_launch.h"

namespace paoding {

MemoryRange range_of(const Launch& launch, std::size_t operand, const std::vector<std::byte*>& bases) {
  const Layout& layout = launch.step->operands[operand].layout;
  if (layout.type.shape.elements() == 0) return {};
  const auto& [slot, offset] = launch.addresses[operand];
  const auto start = reinterpret_cast<std::intptr_t>(bases[static_cast<std::size_t>(slot)] + offset);
  const std::int64_t size = size_bytes(layout.type.dtype);
  MemoryRange range{start, start + size, operand >= launch.step->reads};
  for (int axis = 0; axis < layout.type.shape.rank(); ++axis) {
    const std::int64_t last = std::max<std::int64_t>(layout.type.shape[axis] - 1, 0);
    const std::int64_t span = last * layout.strides[static_cast<std::size_t>(axis)] * size;
    (span < 0 ? range.begin : range.end) += span;
  }
  return range;
}

MemoryRanges ranges_of(const Launch& launch, const std::vector<std::byte*>& bases, std::size_t first) {
  MemoryRanges ranges;
  if (const auto& text = launch.step->text) {
    for (const auto& [slot, bytes] : {std::pair(launch.step->workspace, text->workspace_bytes),
                                      std::pair(launch.step->state, text->ticket_count * 4)}) {
      if (slot < 0) continue;
      const auto start = reinterpret_cast<std::intptr_t>(bases[static_cast<std::size_t>(slot)]);
      ranges.push_back({start, start + bytes, true});
    }
  }
  for (std::size_t k = first; k < launch.addresses.size(); ++k) {
    const MemoryRange range = range_of(launch, k, bases);
    if (range.begin < range.end) ranges.push_back(range);
  }
  return ranges;
}

bool collide(const MemoryRanges& a, const MemoryRanges& b) {
  for (const MemoryRange& x : a) {
    for (const MemoryRange& y : b) {
      if ((x.is_written || y.is_written) && x.begin < y.end && y.begin < x.end) return true;
    }
  }
  return false;
}

std::vector<bool> targets_of(const std::vector<Launch>& launches) {
  std::vector<bool> is_target(launches.size() + 1);
  for (const Launch& launch : launches) {
    for (const std::size_t target : launch.targets) is_target[target] = true;
  }
  return is_target;
}

namespace {

bool may_run_beside(const Launch& launch) {
  if (launch.kind != Launch::Kind::run) return false;
  return launch.step->kind == Step::Kind::group || launch.step->may_be_grouped;
}

}  // namespace

std::vector<std::pair<std::size_t, std::size_t>> independent_segments(const std::vector<Launch>& launches,
                                                                      const std::vector<std::byte*>& bases,
                                                                      std::size_t most) {
  std::vector<std::pair<std::size_t, std::size_t>> segments;
  std::vector<MemoryRanges> members;
  std::size_t begin = 0;
  const auto close = [&](std::size_t end) {
    if (end - begin >= 2) segments.emplace_back(begin, end);
    members.clear();
    begin = end;
  };
  // Where branches meet again a segment ends: one may come there from elsewhere.
  const std::vector<bool> is_target = targets_of(launches);
  for (std::size_t i = 0; i < launches.size(); ++i) {
    const Launch& launch = launches[i];
    if (is_target[i]) close(i);
    if (!may_run_beside(launch)) {
      close(i);
      begin = i + 1;
      continue;
    }
    MemoryRanges ranges = ranges_of(launch, bases);
    bool fits = members.size() < most;
    for (std::size_t m = 0; fits && m < members.size(); ++m) {
      fits = launches[begin + m].step != launch.step && !collide(members[m], ranges);
    }
    if (!fits) close(i);
    members.push_back(std::move(ranges));
  }
  close(launches.size());
  return segments;
}

}  // namespace paoding
