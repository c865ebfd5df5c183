// SPDX-License-Identifier: Apache-2.0
// What a run on the GPU hands to the host besides its results: values of `print` ops.
#pragma once

#include <functional>
#include <vector>

#include "gpu/driver.h"
#include "paoding/program.h"
#include "plan/plan.h"

namespace paoding {

/// The bytes from the first to behind the last element of a strided value; `before`: how many of them lie before the
/// element of index 0 (strides may be negative).
struct Stretch {
  std::int64_t before = 0, bytes = 0;
};
Stretch stretch_of(const Layout& layout);
/// The elements of a value, dense, out of a copy of its stretch.
Tensor picked(const Layout& layout, const std::byte* stretch);

/// The values of a program's print steps: copied to the host where the run comes by, handed over once that
/// is done.
class GpuPrints {
 public:
  GpuPrints() = default;
  GpuPrints(const gpu::GpuDevice& device, const std::vector<Launch>& launches, std::function<void(Printed&&)> on_print);

  /// Copies the value of launch number `launch`, which lies at `address`.
  void start(std::size_t launch, CUdeviceptr address, CUstream stream) const;
  /// Of a launch that is done.
  void hand_over(std::size_t launch) const;

 private:
  struct Place {
    std::size_t launch;
    std::int64_t offset;  // in memory_
  };
  const Place& place_of(std::size_t launch) const;
  const std::vector<Launch>* launches_ = nullptr;
  std::vector<Place> places_;  // in the order of the launches
  gpu::PinnedMemory memory_;
  std::function<void(Printed&&)> on_print_;
};

}  // namespace paoding
