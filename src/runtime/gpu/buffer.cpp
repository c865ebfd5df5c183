// SPDX-License-Identifier: Apache-2.0
// Memory of a store on a GPU.
#include "gpu/driver/write_memory.h"
#include "runtime/device_tensor.h"
#include "runtime/executor.h"
#include "runtime/gpu/commit_guard.h"

namespace paoding {
namespace {

class GpuBuffer : public DeviceBuffer {
 public:
  GpuBuffer(std::int64_t bytes, const Device& device)
      : device_(gpu::GpuDevice::get(device.index)),
        memory_(device_, static_cast<std::size_t>(bytes), profile::HeldFor::parameters) {
    if (bytes == 0) return;
    PD_CUDA(gpu::required_driver().cuMemsetD8Async(memory_.address(), 0, memory_.size_bytes(), nullptr));
    PD_CUDA(gpu::required_driver().cuStreamSynchronize(nullptr));
  }
  void* address() const override { return memory_.pointer(); }

  // Runs that use it have been waited for.
  void write(const Tensor& tensor) override {
    device_.make_current();
    gpu::write_memory(memory_.address(), tensor.bytes(), static_cast<std::size_t>(tensor.size_bytes()));
  }
  Tensor read(const Type& type) const override {
    device_.make_current();
    Tensor tensor(type);
    PD_CUDA(gpu::required_driver().cuMemcpyDtoH(tensor.bytes(), memory_.address(),
                                                static_cast<std::size_t>(tensor.size_bytes())));
    return tensor;
  }

 private:
  gpu::GpuDevice& device_;
  gpu::DeviceMemory memory_;
};

}  // namespace

std::unique_ptr<DeviceBuffer> make_gpu_buffer(std::int64_t bytes, const Device& device) {
  return std::make_unique<GpuBuffer>(bytes, device);
}

void read_gpu_memory(const Device& device, const void* from, Tensor* to) {
  gpu::GpuDevice::get(device.index).make_current();
  PD_CUDA(gpu::required_driver().cuMemcpyDtoH(to->bytes(), reinterpret_cast<CUdeviceptr>(from),
                                              static_cast<std::size_t>(to->size_bytes())));
}

std::shared_ptr<SharedFailure> make_gpu_failure(const Device& device) {
  return std::make_shared<GpuFailure>(gpu::GpuDevice::get(device.index));
}

}  // namespace paoding
