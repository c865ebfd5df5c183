// SPDX-License-Identifier: Apache-2.0
// Flows of a Perfetto trace: an arrow leads from each event of a flow to the next.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "profile/trace.h"

namespace paoding::trace {

class PerfettoFlows {
 public:
  /// An event of a flow, at that time.
  void add(std::uint64_t flow, std::int64_t ns, profile::SpanId span) { ends_.push_back({ns, span, number_of(flow)}); }
  /// In the order of the times; of events at one time, in the order in which they were added. Arrows are shown as a
  /// viewer does; numbers join launches and kernels.
  void link(profile::Trace& trace) const;

 private:
  struct End {
    std::int64_t ns;
    profile::SpanId span;
    std::uint32_t flow;  // its number
  };
  static constexpr std::uint32_t kEmpty = 0;

  // Writers count flows up: those that are near have their slots in one block. Where one is taken, the same place of
  // the next block is tried, and after some of them every slot: half of all are free.
  static constexpr std::uint64_t kBlock = 16;
  std::size_t slot_of(std::uint64_t flow) const {
    std::uint64_t mixed = (flow / kBlock) * 0x9e3779b97f4a7c15ull;
    mixed ^= mixed >> 32;
    return static_cast<std::size_t>(mixed * kBlock + (flow + (mixed >> 20)) % kBlock) & (slots_.size() - 1);
  }
  // The slot of the flow, or the empty one for it.
  std::size_t find(std::uint64_t flow) const {
    constexpr int kBlocks = 8;
    std::size_t at = slot_of(flow);
    for (int tries = 1; slots_[at] != kEmpty && flows_[slots_[at]] != flow; ++tries) {
      at = (at + (tries < kBlocks ? kBlock : 1)) & (slots_.size() - 1);
    }
    return at;
  }
  // Counted from 1, as they come.
  std::uint32_t number_of(std::uint64_t flow) {
    const std::size_t at = find(flow);
    return slots_[at] != kEmpty ? slots_[at] : insert(flow, at);
  }
  std::uint32_t insert(std::uint64_t flow, std::size_t at);

  std::deque<End> ends_;                    // millions, which do not move
  std::vector<std::uint64_t> flows_ = {0};  // by number
  std::vector<std::uint32_t> slots_ = std::vector<std::uint32_t>(1 << 10, kEmpty);
};

}  // namespace paoding::trace
