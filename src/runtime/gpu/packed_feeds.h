// SPDX-License-Identifier: Apache-2.0
// Small inputs, side by side on the GPU. Inputs written since the last run go there in front of the next, in one copy
// for every stretch of them. The host's image of them is not pinned: of so few bytes the driver has taken a copy when
// its call returns, so that nothing is waited for before they are written again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu/driver/driver.h"
#include "paoding/tensor.h"
#include "plan/plan.h"

namespace paoding {

class PackedFeeds {
 public:
  PackedFeeds(const gpu::GpuDevice& device, const Plan& plan);

  /// Where the input of this slot lies; 0 where it is not among them.
  CUdeviceptr address_of(int slot) const;
  /// Notes the value to send; false where the slot is not among them.
  bool write(int slot, const Tensor& tensor);
  /// A value written to it is not to be sent.
  void forget(int slot);
  /// Sends the new values in front of a run in `stream`.
  void send(CUstream stream) {
    if (is_any_new_) send_new(stream);
  }

 private:
  static constexpr std::int64_t kMost = gpu::kMostTaken;  // bytes of an input, and of a copy
  struct Feed {
    int slot;
    std::int64_t first, end;  // bytes
    bool is_new = false;
  };
  std::size_t index_of(int slot) const;
  void send_new(CUstream stream);

  const gpu::GpuDevice& device_;
  bool is_any_new_ = false;
  std::vector<Feed> feeds_;  // in the order of their bytes, and of their slots
  std::vector<std::byte> image_;
  gpu::DeviceMemory memory_;
};

}  // namespace paoding
