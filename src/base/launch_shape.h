// SPDX-License-Identifier: Apache-2.0
// The size of a kernel's launch on a GPU.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace paoding {

/// 0 is not known; without a grid nothing is.
struct LaunchShape {
  std::array<std::int64_t, 3> grid = {};  // CTAs
  std::int64_t threads = 0;               // of a CTA
  std::int64_t registers = 0;             // of a thread
  std::int64_t shared_bytes = 0;          // of a CTA
  std::int64_t ctas() const { return grid[0] * grid[1] * grid[2]; }
  bool is_known() const { return ctas() > 0; }
  bool operator==(const LaunchShape&) const = default;
};

/// "264x1x1 CTAs of 128 threads, 168 registers, 213000 bytes shared"; "" where it is not known.
std::string to_string(const LaunchShape& launch);

}  // namespace paoding
