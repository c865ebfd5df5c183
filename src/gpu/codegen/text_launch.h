// SPDX-License-Identifier: Apache-2.0
// Kernels made of CUDA source of our own, and all that starting them needs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpu/codegen/kernel_source.h"
#include "paoding/types.h"

namespace paoding::gpu {

/// A kernel's arguments beside its operands and sizes; `struct LaunchScratch` of prelude_elements.cu.
struct LaunchScratch {
  void* workspace = nullptr;
  void* tickets = nullptr;
  void* fault = nullptr;
  const void* failed = nullptr;
  void* stamp = nullptr;
};

/// An operand that TMA loads into shared memory tile by tile, zeros where a TMA tile goes beyond it. A row of a
/// TMA tile has 128 bytes of the innermost axis, of f32 rounded to TF32 (to nearest, ties to even; is_rounded) or as
/// they are; its rows lie next to each other along the outermost axis, and at one place of those between. In shared
/// memory a row's pieces of 16 bytes change places: piece p of row r is at p ^ (r % 8). The chip's own description of
/// it (CUtensorMap) is made when a launch is captured.
struct TensorMap {
  static constexpr int kWorkspace = -1;
  int operand = 0;          // or kWorkspace: the result of a launch before
  std::int64_t offset = 0;  // bytes from its start, a multiple of 16
  DType dtype = DType::f32;
  std::vector<std::int64_t> extents;  // of two to four axes, innermost first; elements of that lie side by side
  std::vector<std::int64_t> strides;  // of the others, in elements; multiples of 16 bytes
  int tile_rows = 0;
  bool is_rounded = true;
  bool is_plain = false;  // pieces stay in their places
  int tile_columns =
      0;  // of an image: a TMA tile's rows are so many pixels of each of its rows; 0: it is no part of an image
  /// Windows over an image (channel, column, row, image): rows of a TMA tile are pixels that one tap of windows reads
  /// which follow each other, first along columns, then along rows, then from image to image. Two numbers each, of
  /// columns and of rows.
  struct Windows {
    std::int64_t first[2], step[2], count[2];  // where windows begin, how far they are apart, how many there are
    static constexpr std::int64_t kMostReach = 127, kMostTap = 255;  // of first, and beyond the image; of a tap's place
  };
  std::optional<Windows> windows;

  /// Rows of `columns` elements that lie side by side.
  static TensorMap matrix(int operand, std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
                          int tile_rows) {
    return {operand, 0, DType::f32, {columns, rows}, {row_stride}, tile_rows, true, false, 0, {}};
  }
};

/// One kernel and its launch. Arguments, in order: a pointer per operand (inputs, then outputs), a LaunchScratch, a
/// struct whose bytes are `sizes` (kernelParams points at sizes.data()), and the tensor maps.
struct TextLaunch {
  KernelSource source;  // CUDA C++
  /// The source for a fused launch, if it differs: it has an argument for a number that is a constant in `source`.
  KernelSource shared_source = {};
  std::string entry;             // the kernel's name in it
  unsigned grid[3] = {0, 1, 1};  // grid[0] == 0: every output is empty, nothing to launch
  unsigned block = 0;            // threads of a CTA
  unsigned shared_bytes = 0;     // dynamic shared memory; above 48 KB the chip is asked for it
  unsigned cluster = 1;          // neighbouring CTAs that share their memory; the grid is a multiple of it
  bool is_cooperative = false;   // all CTAs run at once, so that they may wait for each other
  bool is_alone = false;         // takes much of an SM: shares no launch with kernels beside it
  /// CTAs of this kind that run at once, where they stay to the end and leave the rest of the chip alone: as many share
  /// a launch, whatever they need of an SM. 0: it is not so.
  unsigned ctas_at_once = 0;
  /// How many layers its pipelined launch has, if it is a layer of one (pipelined_launch.h).
  std::int64_t pipelined_layers = 1;
  bool leaves_stamp = false;         // stamps when it began, in LaunchScratch::stamp
  bool overlaps_before = false;      // may start before the launch in front of it has ended; waits for it by itself
  std::vector<std::uint64_t> sizes;  // the last argument
  std::vector<TensorMap> maps;
  std::int64_t workspace_bytes = 0;  // partial sums, need no initial value; aligned to 256 bytes
  std::int64_t ticket_count = 0;     // 32-bit counters, zero before the first launch; every launch leaves zeros
  /// Phases whose time it adds up, in ns; a 64-bit word each, among the tickets from this one on, which nobody resets.
  std::vector<std::string> phases;
  std::int64_t phases_at = 0;
  std::string why;      // one line: roles, tile, splits
  double floor_us = 0;  // least time for the bytes that have to be moved
};

/// The launches of a plan's step, one after the other.
struct TextPlan {
  std::vector<TextLaunch> launches;
  std::int64_t workspace_bytes = 0;
  std::int64_t ticket_count = 0;
  /// Given where a launch may leave a fault: throws its error.
  std::function<void(const std::uint64_t* fault)> raise = {};
};

/// Whether a kernel op of this source may share a launch with others of it: one launch, twice of which has room on the
/// chip.
inline bool may_be_grouped(const TextPlan* text) {
  return text != nullptr && text->launches.size() == 1 &&
         2 * text->launches[0].grid[0] <= text->launches[0].ctas_at_once;
}

}  // namespace paoding::gpu
