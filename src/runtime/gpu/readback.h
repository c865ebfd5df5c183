// SPDX-License-Identifier: Apache-2.0
// Values that a run on the GPU hands to the host besides its results: those of `print` ops.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gpu/driver/driver.h"
#include "gpu/driver/loaded_kernel.h"
#include "paoding/program.h"
#include "plan/plan.h"

namespace paoding {

/// The bytes from the first to the end of the last element of a strided value; `before`: how many of them lie before
/// the element of index 0 (strides may be negative).
struct ByteRange {
  std::int64_t before = 0, bytes = 0;
};
ByteRange byte_range_of(const Layout& layout);
/// The elements of a value, dense, out of a copy of its range.
Tensor picked(const Layout& layout, const std::byte* range);

/// The values of a program's print steps: each writes its own into a log in the host's memory where the run comes by,
/// so that branches not taken leave nothing and every turn of a loop does; handed over once the run has.
class GpuPrints {
 public:
  GpuPrints() = default;
  GpuPrints(const gpu::GpuDevice& device, const std::vector<Launch>& launches, std::function<void(Printed&&)> on_print);

  /// Logs the value of launch number `launch`, which lies at `address`, unless `asked` holds a word that is not zero.
  void start(std::size_t launch, CUdeviceptr address, void* asked, CUstream stream) const;
  /// Hands over the logged values, which are then gone; `launch` is the number of the one under way. Error
  /// (unsupported) when there was no room for all.
  void hand_over(std::size_t* launch) const;
  /// Called before a run: drops values that a failed run has left.
  void clear() const;
  bool has_any() const { return log_.size_bytes() != 0; }

 private:
  const std::vector<Launch>* launches_ = nullptr;
  std::int64_t room_ = 0;
  gpu::PinnedMemory log_;
  std::unique_ptr<gpu::TextLaunch> text_;
  std::unique_ptr<gpu::LoadedKernel> kernel_;
  std::function<void(Printed&&)> on_print_;
};

}  // namespace paoding
