// SPDX-License-Identifier: Apache-2.0
// Numbers in a row, and which is the first from some place on that is at most a limit: a tree of their minima.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace paoding {

class FirstAtMost {
 public:
  /// `count` values, all of them the least there is.
  explicit FirstAtMost(std::size_t count) : leaves_(std::bit_ceil(std::max<std::size_t>(count, 1))) {
    least_.assign(2 * leaves_, std::numeric_limits<std::int64_t>::min());
  }

  void set(std::size_t place, std::int64_t number) {
    std::size_t node = place + leaves_;
    least_[node] = number;
    while ((node /= 2) > 0) least_[node] = std::min(least_[2 * node], least_[2 * node + 1]);
  }

  /// The first place from `from` on whose number is at most `limit`; the number of places where there is none.
  std::size_t find(std::size_t from, std::int64_t limit) const {
    std::size_t node = from + leaves_;
    // Up to where a subtree to the right has one, then down to the first in it.
    while (least_[node] > limit) {
      while (node % 2 == 1) node /= 2;
      if (node == 0) return leaves_;
      ++node;
    }
    while (node < leaves_) node = least_[2 * node] <= limit ? 2 * node : 2 * node + 1;
    return node - leaves_;
  }

 private:
  std::size_t leaves_;
  std::vector<std::int64_t> least_;  // per node: of those below it; 1 is the root
};

}  // namespace paoding
