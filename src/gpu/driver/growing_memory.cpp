// SPDX-License-Identifier: Apache-2.0
// Device memory that grows: addresses for all that the GPU has are reserved, and memory is put behind the first of them
// as it is needed (CUDA's virtual memory management).
#include <algorithm>

#include "gpu/driver/driver.h"

namespace paoding::gpu {
namespace {

CUmemAllocationProp properties_of(const GpuDevice& device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.index()};
  return properties;
}

bool can_reserve(const Driver& driver) {
  return driver.cuMemGetAllocationGranularity != nullptr && driver.cuMemAddressReserve != nullptr &&
         driver.cuMemAddressFree != nullptr && driver.cuMemCreate != nullptr && driver.cuMemRelease != nullptr &&
         driver.cuMemMap != nullptr && driver.cuMemUnmap != nullptr && driver.cuMemSetAccess != nullptr;
}

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

GrowingDeviceMemory::GrowingDeviceMemory(const GpuDevice& device, std::size_t size_bytes)
    : device_(device), held_(profile::HeldFor::arenas, device.index(), 0) {
  const Driver& driver = required_driver();
  device.make_current();
  if (can_reserve(driver)) {
    const CUmemAllocationProp properties = properties_of(device);
    const bool is_known = driver.cuMemGetAllocationGranularity(&granularity_, &properties,
                                                               CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) == CUDA_SUCCESS;
    const std::size_t all =
        is_known ? round_up(static_cast<std::size_t>(device.target().memory_bytes), granularity_) : 0;
    if (is_known && driver.cuMemAddressReserve(&start_, all, 0, 0, 0) == CUDA_SUCCESS) reserved_ = all;
  }
  if (reserved_ != 0 && grow(size_bytes)) return;
  if (reserved_ != 0) driver.cuMemAddressFree(start_, reserved_), reserved_ = 0;
  fixed_ = DeviceMemory(device, size_bytes, profile::HeldFor::arenas);
}

GrowingDeviceMemory::~GrowingDeviceMemory() {
  if (reserved_ == 0) return;
  try {
    device_.make_current();
    const Driver& driver = required_driver();
    std::size_t offset = 0;
    for (const auto& [handle, bytes] : pieces_) {
      driver.cuMemUnmap(start_ + offset, bytes);
      driver.cuMemRelease(handle);
      offset += bytes;
    }
    driver.cuMemAddressFree(start_, reserved_);
  } catch (...) {  // the driver is gone at process exit, and so is its memory
  }
}

bool GrowingDeviceMemory::grow(std::size_t size_bytes) {
  if (size_bytes <= this->size_bytes()) return true;
  if (reserved_ == 0) return false;
  const std::size_t bytes = round_up(size_bytes - size_bytes_, granularity_);
  if (size_bytes_ + bytes > reserved_) return false;
  const Driver& driver = required_driver();
  device_.make_current();
  const CUmemAllocationProp properties = properties_of(device_);
  CUmemGenericAllocationHandle handle = 0;
  if (driver.cuMemCreate(&handle, bytes, &properties, 0) != CUDA_SUCCESS) return false;
  const CUdeviceptr at = start_ + size_bytes_;
  if (driver.cuMemMap(at, bytes, 0, handle, 0) != CUDA_SUCCESS) {
    driver.cuMemRelease(handle);
    return false;
  }
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (driver.cuMemSetAccess(at, bytes, &access, 1) != CUDA_SUCCESS) {
    driver.cuMemUnmap(at, bytes);
    driver.cuMemRelease(handle);
    return false;
  }
  pieces_.emplace_back(handle, bytes);
  size_bytes_ += bytes;
  held_.set(static_cast<std::int64_t>(size_bytes_));
  return true;
}

}  // namespace paoding::gpu
