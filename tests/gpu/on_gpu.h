// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU, for tests of runs on the caller's memory.
#pragma once

#include "gpu/driver/driver.h"
#include "gpu/driver/write_memory.h"
#include "paoding/tensor.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {

/// f32 values in the device's memory.
class OnGpu {
 public:
  explicit OnGpu(const Dense& values) : OnGpu(values.size() * sizeof(float)) { write(values); }
  explicit OnGpu(std::size_t bytes) : memory_(gpu::GpuDevice::get(0), bytes + 256) {}
  void* at() const { return memory_.pointer(); }
  void write(const Dense& values) {
    const Tensor tensor = Tensor::from(f32, {static_cast<std::int64_t>(values.size())}, values);
    gpu::write_memory(memory_.address(), tensor.bytes(), static_cast<std::size_t>(tensor.size_bytes()));
  }
  Dense read(std::int64_t count) const {
    Tensor tensor(f32, {count});
    PD_CUDA(gpu::required_driver().cuMemcpyDtoH(tensor.bytes(), memory_.address(),
                                                static_cast<std::size_t>(tensor.size_bytes())));
    return tensor.to_doubles();
  }

 private:
  gpu::DeviceMemory memory_;
};

}  // namespace paoding::testing_program
