// SPDX-License-Identifier: Apache-2.0
// The kernels around a replay whose launches leave stamps (stamps.cu), and the chip's clock beside the host's.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "gpu/codegen/text_launch.h"
#include "gpu/driver/driver.h"
#include "gpu/driver/loaded_kernel.h"

namespace paoding::gpu {

/// Operand: where to.
TextLaunch plan_stamp(const Target& target);
/// Operands: the list, which launch. The list has room for `most`.
TextLaunch plan_list_stamp(std::int64_t most, const Target& target);
/// Operands: stamps, number of replays, ring. The ring has `places`, each of 2 + `words`: number, end, stamps.
TextLaunch plan_keep_stamps(std::int64_t words, std::int64_t places, const Target& target);
/// Operands: the host's questions, the answers.
TextLaunch plan_answer_clock(const Target& target);

/// Compiles and loads all of them, those of a ClockReader too.
void load_stamp_kernels(const GpuDevice& device);

/// Both clocks at one moment, known to half of `width_ns`.
struct ClockReading {
  std::int64_t host_ns = 0;  // of steady_ns()
  std::int64_t gpu_ns = 0;
  std::int64_t width_ns = 0;
};

/// Reads the chip's clock by a kernel that the host asks and that answers at once.
class ClockReader {
 public:
  explicit ClockReader(const GpuDevice& device);
  /// While others run: until the kernel that answers runs.
  static constexpr std::int64_t kPatienceNs = 500'000;
  /// Nothing if the chip had no room for the kernel in time: it is busy.
  std::optional<ClockReading> read(std::int64_t patience_ns = kPatienceNs);

 private:
  const GpuDevice& device_;
  Stream stream_;
  Event answered_;
  bool is_asked_ = false;
  PinnedMemory words_;  // asked; answers
  TextLaunch text_;
  LoadedKernel kernel_;
};

/// Converts the chip's time to the host's by straight lines through readings. Readings that are known much worse than
/// others near them are left out, since the host was busy meanwhile.
class ClockLine {
 public:
  /// Whether the line goes through it.
  bool add(const ClockReading& reading);
  /// That the line goes through.
  const std::vector<ClockReading>& readings() const { return readings_; }
  /// Whether there are enough to tell good ones from others.
  bool has_begun() const { return count_ >= kFirst; }
  /// Whether no later reading would move it, or none came for long that it could go through.
  bool covers(std::int64_t gpu_ns) const;
  /// Needs a reading.
  std::int64_t to_host(std::int64_t gpu_ns) const;
  /// How far the readings lie from the lines through their neighbours, at most; 0 of fewer than three.
  std::int64_t residual_ns() const;

 private:
  static std::int64_t on_line(const ClockReading& a, const ClockReading& b, std::int64_t gpu_ns);
  static constexpr int kFirst = 8;
  std::vector<ClockReading> readings_;
  std::deque<ClockReading> recent_;  // all
  int count_ = 0;
};

}  // namespace paoding::gpu
