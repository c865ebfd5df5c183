// SPDX-License-Identifier: Apache-2.0
// What a run on the GPU hands to the host besides its results: values of `print` ops, and values that a kernel found it
// cannot do, such as an index out of range.
#pragma once

#include <functional>
#include <vector>

#include "gpu/driver.h"
#include "ops/kernel.h"
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

/// The values of a program's print steps: copied to the host where the run comes by, handed over once it is done.
class GpuPrints {
 public:
  GpuPrints() = default;
  GpuPrints(const gpu::GpuDevice& device, const std::vector<Launch>& launches, std::function<void(Printed&&)> on_print);

  bool empty() const { return places_.empty(); }
  /// Copies the value of launch number `launch`, which lies at `address`.
  void start(std::size_t launch, CUdeviceptr address, CUstream stream) const;
  /// Of a run that is done: of one launch, or of all in their order.
  void hand_over(std::size_t launch) const;
  void hand_over() const;

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

/// Two words per launch whose kernel may find a fault: all ones while it found none.
class GpuFaults {
 public:
  GpuFaults() = default;
  /// `kernels`: of each launch the kernel, nullptr where it never finds one.
  GpuFaults(const gpu::GpuDevice& device, std::vector<const PreparedKernel*> kernels);

  bool empty() const { return first_.empty(); }
  /// For KernelRun::failed.
  void* failed() const { return failed_.pointer(); }
  /// For KernelRun::fault.
  void* words_of(std::size_t launch) const;
  /// Enqueued behind a run: what it found is on its way to the host.
  void start_copy(CUstream stream) const;
  /// When all that was enqueued is done: throws the error of the first launch that found a fault, and forgets it.
  void check() const;

 private:
  void clear() const;
  const gpu::GpuDevice* device_ = nullptr;
  std::vector<const PreparedKernel*> kernels_;
  std::vector<std::int64_t> first_;  // per launch, in words; empty without kernels that may find one
  gpu::DeviceMemory words_, failed_;
  gpu::PinnedMemory seen_;
};

}  // namespace paoding
