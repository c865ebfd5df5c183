// SPDX-License-Identifier: Apache-2.0
// A part of a run that starts without the host in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace paoding {

struct Segment {
  enum class Kind : std::uint8_t {
    graph,   // on a GPU one graph launch
    host,    // a segment of steps on the CPU
    choice,  // the host reads the index of its one entry: targets[index] is next
  };
  Kind kind = Kind::graph;
  bool prints = false;             // values are handed over after it
  std::size_t first = 0, end = 0;  // of Schedule::entries
  std::size_t next = 0;            // the segment after it; their number is the end of the run
  std::vector<std::size_t> targets = {};
};

}  // namespace paoding
