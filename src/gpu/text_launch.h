// SPDX-License-Identifier: Apache-2.0
// Kernels made of CUDA text of our own, and all that starting them needs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace paoding::gpu {

/// What a kernel is given beside its operands and sizes; `struct Room` of prelude_elements.cu.
struct Room {
  void* workspace = nullptr;
  void* tickets = nullptr;
  void* fault = nullptr;
  const void* failed = nullptr;
  void* stamp = nullptr;
};

/// A matrix of f32 that the copy engine brings into shared memory box by box, rounded to TF32 (to nearest, ties to
/// even), zeros where a box goes beyond it. A row of a box has 32 elements, 128 bytes, and in shared memory its pieces
/// of 16 bytes change places: piece p of row r is at p ^ (r % 8). The chip's own description of it (CUtensorMap) is
/// made when a launch is captured.
struct BoxMap {
  int operand = 0;
  std::int64_t rows = 0, columns = 0;  // columns lie side by side
  std::int64_t row_stride = 0;         // in elements; a multiple of 4
  int box_rows = 0;
};

/// One kernel and its launch. Arguments, in order: a pointer per operand (what is read, then what is written), a Room,
/// a struct whose bytes are `sizes` (kernelParams points at sizes.data()), and what describes each of the maps.
struct TextLaunch {
  std::string source;                // CUDA C++ text
  std::string entry;                 // the kernel's name in it
  unsigned grid[3] = {0, 1, 1};      // grid[0] == 0: every output is empty, nothing to launch
  unsigned block = 0;                // threads of a CTA
  unsigned shared_bytes = 0;         // dynamic shared memory; above 48 KB the chip is asked for it
  unsigned cluster = 1;              // neighbouring CTAs that share their memory; the grid is a multiple of it
  bool is_cooperative = false;       // all CTAs run at once, so that they may wait for each other
  bool is_alone = false;             // takes much of an SM: shares no launch with kernels beside it
  bool leaves_stamp = false;         // of when it began, in Room::stamp
  bool overlaps_before = false;      // may start before the launch in front of it has ended; waits for it by itself
  std::vector<std::uint64_t> sizes;  // the last argument
  std::vector<BoxMap> maps;
  std::int64_t workspace_bytes = 0;  // partial sums, need no initial value; aligned to 256 bytes
  std::int64_t ticket_count = 0;     // 32-bit counters, zero before the first launch; every launch leaves zeros
  /// What it adds up its time by, in ns; a 64-bit word each, among the tickets from this one on, which nobody resets.
  std::vector<std::string> phases;
  std::int64_t phases_at = 0;
  std::string why;      // one line: roles, tile, splits
  double floor_us = 0;  // least time for the bytes that have to be moved
};

/// What a step of a plan launches, one after the other.
struct TextPlan {
  std::vector<TextLaunch> launches;
  std::int64_t workspace_bytes = 0;
  std::int64_t ticket_count = 0;
  /// Given where a launch may leave a fault: throws its error.
  std::function<void(const std::uint64_t* fault)> raise = {};
};

}  // namespace paoding::gpu
