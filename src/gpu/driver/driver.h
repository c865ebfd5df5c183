// SPDX-License-Identifier: Apache-2.0
// The CUDA driver API, loaded at run time: a table of its functions, its errors in words, and the few owning
// types the GPU back end is written in. cuda.h gives only types here; libcuda is never linked.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/target.h"
#include "gpu/driver/library.h"
#include "profile/held_bytes.h"

namespace paoding::gpu {

// Lists every driver function that is required; the optional ones follow in a list of their own. cuda.h renames many of
// them by macro (cuMemAlloc is cuMemAlloc_v2); the list is expanded before it is declared or turned into text, so
// members, types and symbol names agree with the header. Callers write driver()->cuMemAlloc(...) and get the same
// renaming, as long as this header is included.
#define PD_DRIVER_FUNCTIONS(X)  \
  X(cuInit)                     \
  X(cuDriverGetVersion)         \
  X(cuGetErrorName)             \
  X(cuGetErrorString)           \
  X(cuDeviceGetCount)           \
  X(cuDeviceGet)                \
  X(cuDeviceGetName)            \
  X(cuDeviceGetAttribute)       \
  X(cuDeviceTotalMem)           \
  X(cuDevicePrimaryCtxRetain)   \
  X(cuCtxSetCurrent)            \
  X(cuCtxGetCurrent)            \
  X(cuCtxSynchronize)           \
  X(cuModuleLoadData)           \
  X(cuModuleUnload)             \
  X(cuModuleGetFunction)        \
  X(cuFuncSetAttribute)         \
  X(cuLaunchKernel)             \
  X(cuMemGetInfo)               \
  X(cuMemAlloc)                 \
  X(cuMemFree)                  \
  X(cuMemAllocHost)             \
  X(cuMemFreeHost)              \
  X(cuMemcpyHtoD)               \
  X(cuMemcpyDtoH)               \
  X(cuMemcpyHtoDAsync)          \
  X(cuMemcpyDtoHAsync)          \
  X(cuMemcpyDtoDAsync)          \
  X(cuMemsetD8Async)            \
  X(cuStreamCreateWithPriority) \
  X(cuStreamDestroy)            \
  X(cuStreamSynchronize)        \
  X(cuStreamWaitEvent)          \
  X(cuStreamBeginCapture)       \
  X(cuStreamEndCapture)         \
  X(cuStreamGetCaptureInfo)     \
  X(cuGraphInstantiate)         \
  X(cuGraphUpload)              \
  X(cuGraphLaunch)              \
  X(cuGraphDestroy)             \
  X(cuGraphExecDestroy)         \
  X(cuGraphGetNodes)            \
  X(cuEventCreate)              \
  X(cuEventDestroy)             \
  X(cuEventRecord)              \
  X(cuEventQuery)               \
  X(cuEventSynchronize)         \
  X(cuEventElapsedTime)

// Newer than the oldest driver that runs programs: nullptr where it is missing.
#define PD_NEWER_DRIVER_FUNCTIONS(X) \
  X(cuFuncGetAttribute)              \
  X(cuLaunchKernelEx)                \
  X(cuTensorMapEncodeTiled)          \
  X(cuTensorMapEncodeIm2col)         \
  X(cuMemGetAllocationGranularity)   \
  X(cuMemAddressReserve)             \
  X(cuMemAddressFree)                \
  X(cuMemCreate)                     \
  X(cuMemRelease)                    \
  X(cuMemMap)                        \
  X(cuMemUnmap)                      \
  X(cuMemSetAccess)                  \
  X(cuGraphConditionalHandleCreate)  \
  X(cuGraphAddNode)                  \
  X(cuStreamBeginCaptureToGraph)     \
  X(cuStreamUpdateCaptureDependencies)

#define PD_DRIVER_MEMBER(name) decltype(&::name) name = nullptr;
struct Driver {
  PD_DRIVER_FUNCTIONS(PD_DRIVER_MEMBER)
  PD_NEWER_DRIVER_FUNCTIONS(PD_DRIVER_MEMBER)
};
#undef PD_DRIVER_MEMBER

/// Fills the table from a loaded library. False, with the reason, when a function is missing that every driver has.
bool load_functions(const Library& library, Driver* driver, std::string* problem);

/// The driver, initialised; nullptr when there is no usable one. Loaded once, from any thread.
const Driver* driver();
/// Why driver() is nullptr, in words; empty when it is not.
const std::string& driver_problem();
/// The library search behind driver(), for `doctor`.
const Library& driver_library();
/// driver(), or Error (device) with driver_problem().
const Driver& required_driver();

/// "13.0" for 13000.
std::string version_text(int version);
/// "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"; the number alone without a driver.
std::string error_text(CUresult result);
/// True for faults after which every call on the same CUcontext fails.
bool is_sticky(CUresult result);
/// Throws an error (device) that names the action and has error_text.
[[noreturn]] void fail_call(CUresult result, const char* what);
/// The same, unless the call succeeded.
inline void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    fail_call(result, what);
}

/// One GPU with its primary CUcontext, which other CUDA libraries of the process share.
class GpuDevice {
 public:
  /// GPUs that the driver shows; 0 without a driver. Never throws.
  static int count();
  /// The GPU of this index, created on first use and kept until the process ends.
  /// Error (device) when there is no usable driver or no such GPU.
  static GpuDevice& get(int index);

  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;

  /// Makes this GPU the one that driver calls of the calling thread act on.
  void make_current() const;
  /// The device's properties as the driver reports them, and the rates of its memory.
  const Target& target() const { return target_; }
  int index() const { return index_; }

 private:
  explicit GpuDevice(int index);
  const Driver& driver_;
  CUcontext primary_ = nullptr;
  int index_ = 0;
  Target target_;
};

// The types below are made on one GPU and released on it from any thread; making and releasing leave that GPU
// current on the calling thread.

/// Device memory, 256-byte aligned, uninitialised; freed by the destructor. No bytes give address 0.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// Error (device) when the GPU has not that much free.
  DeviceMemory(const GpuDevice& device, std::size_t size_bytes, profile::HeldFor what = profile::HeldFor::other);
  ~DeviceMemory() { reset(); }
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;

  CUdeviceptr address() const { return address_; }
  void* pointer() const { return reinterpret_cast<void*>(address_); }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  void reset();
  void swap(DeviceMemory& other) noexcept;
  const GpuDevice* device_ = nullptr;
  CUdeviceptr address_ = 0;
  std::size_t size_bytes_ = 0;
  profile::HeldBytes held_;
};

/// The arena of a GPU: device memory that grows where it is: programs of many shapes share it by address. Where the
/// driver cannot do that it is as large as at first.
class GrowingDeviceMemory {
 public:
  /// Error (device) when the GPU has not that much free.
  GrowingDeviceMemory(const GpuDevice& device, std::size_t size_bytes);
  ~GrowingDeviceMemory();
  GrowingDeviceMemory(const GrowingDeviceMemory&) = delete;
  GrowingDeviceMemory& operator=(const GrowingDeviceMemory&) = delete;

  CUdeviceptr address() const { return reserved_ != 0 ? start_ : fixed_.address(); }
  std::size_t size_bytes() const { return reserved_ != 0 ? size_bytes_ : fixed_.size_bytes(); }
  /// False when it cannot: then it is as before.
  bool grow(std::size_t size_bytes);

 private:
  const GpuDevice& device_;
  DeviceMemory fixed_;  // where nothing can be reserved
  CUdeviceptr start_ = 0;
  std::size_t size_bytes_ = 0, reserved_ = 0, granularity_ = 0;
  std::vector<std::pair<CUmemGenericAllocationHandle, std::size_t>> pieces_;  // with their bytes
  profile::HeldBytes held_;
};

/// Bytes of a copy to the GPU out of memory that is not page-locked which the driver has taken when its asynchronous
/// call returns; of more it waits. Measured.
inline constexpr std::int64_t kMostTaken = std::int64_t{64} << 10;

/// Page-locked host memory: copies of any size, either way, are asynchronous.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(const GpuDevice& device, std::size_t size_bytes);
  ~PinnedMemory() { reset(); }
  PinnedMemory(PinnedMemory&& other) noexcept { swap(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;

  std::byte* bytes() const { return bytes_; }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  void reset();
  void swap(PinnedMemory& other) noexcept;
  const GpuDevice* device_ = nullptr;
  std::byte* bytes_ = nullptr;
  std::size_t size_bytes_ = 0;
  profile::HeldBytes held_;
};

class Event;

/// A non-blocking stream: it does not wait for the legacy default stream.
class Stream {
 public:
  Stream() = default;
  /// Lower numbers run first; 0 is the usual priority.
  explicit Stream(const GpuDevice& device, int priority = 0);
  /// One of somebody else's, who keeps it.
  explicit Stream(CUstream theirs) : stream_(theirs) {}
  ~Stream() { reset(); }
  Stream(Stream&& other) noexcept { swap(other); }
  Stream& operator=(Stream&& other) noexcept;

  CUstream get() const { return stream_; }
  void wait_idle() const;
  /// Work that is enqueued from here on runs after the event as it was recorded last.
  void wait_for(const Event& event) const;

 private:
  void reset();
  void swap(Stream& other) noexcept;
  const GpuDevice* device_ = nullptr;
  CUstream stream_ = nullptr;
};

/// A point in a stream. Events that only order streams are cheaper without timing.
class Event {
 public:
  Event() = default;
  explicit Event(const GpuDevice& device, bool with_timing = false);
  ~Event() { reset(); }
  Event(Event&& other) noexcept { swap(other); }
  Event& operator=(Event&& other) noexcept;

  CUevent get() const { return event_; }
  void record(CUstream stream) const;
  bool is_done() const;
  void wait_done() const;
  /// Milliseconds from `start` to this event; both recorded with timing and done.
  float milliseconds_since(const Event& start) const;

 private:
  void reset();
  void swap(Event& other) noexcept;
  const GpuDevice* device_ = nullptr;
  CUevent event_ = nullptr;
};

/// Kernels loaded from the bytes of a cubin. `name` appears in errors.
class Module {
 public:
  Module() = default;
  Module(const GpuDevice& device, std::span<const char> cubin, std::string name);
  ~Module() { reset(); }
  Module(Module&& other) noexcept { swap(other); }
  Module& operator=(Module&& other) noexcept;

  /// The kernel of this (extern "C") name. Error (device) when the module has none.
  CUfunction function(const std::string& name) const;

 private:
  void reset();
  void swap(Module& other) noexcept;
  const GpuDevice* device_ = nullptr;
  CUmodule module_ = nullptr;
  std::string name_;
};

}  // namespace paoding::gpu

/// Throws Error (device) with the call's text, CUDA's error name and its description when the call fails.
#define PD_CUDA(call) ::paoding::gpu::check((call), #call)
