// SPDX-License-Identifier: Apache-2.0
#include "gpu/driver/driver.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "gpu/driver/driver_use.h"
#include "gpu/driver/proof.h"

namespace paoding::gpu {
namespace {

/// The older name of a function whose newer one drivers before CUDA 12.8 lack; the signature is the same.
const char* older_name(std::string_view name) {
  return name == "cuEventElapsedTime_v2" ? "cuEventElapsedTime" : nullptr;
}

/// The table once it is known to work. Kept until the process ends: destructors of statics may still free memory.
struct LoadedDriver {
  Library library;
  Driver table;
  std::string problem;
  int version = 0;
  bool usable = false;

  LoadedDriver() : library({"libcuda.so.1"}) {
    if (!library.loaded()) {
      problem = library.problem() + "; NVIDIA's driver is not installed or not visible here";
      return;
    }
    if (!load_functions(library, &table, &problem)) return;
    CUresult result = table.cuInit(0);
    if (result != CUDA_SUCCESS) {
      problem = fmt::format("{}: cuInit: {}", library.path(), describe(result));
      return;
    }
    table.cuDriverGetVersion(&version);
    usable = true;
  }

  std::string describe(CUresult result) const {
    const char* name = nullptr;
    const char* text = nullptr;
    if (table.cuGetErrorName != nullptr) table.cuGetErrorName(result, &name);
    if (table.cuGetErrorString != nullptr) table.cuGetErrorString(result, &text);
    if (name == nullptr) return fmt::format("CUDA error {}", static_cast<int>(result));
    return text == nullptr ? std::string(name) : fmt::format("{}: {}", name, text);
  }
};

const LoadedDriver& loaded_driver() {
  static const LoadedDriver* loaded = new LoadedDriver();
  return *loaded;
}

/// For destructors: the table, with `device` current on this thread; nullptr when nothing can be released.
const Driver* driver_for_release(const GpuDevice* device) noexcept {
  try {
    if (device == nullptr) return nullptr;
    device->make_current();
    return driver();
  } catch (...) {
    return nullptr;  // the driver is gone at process exit, and so are its resources
  }
}

std::int64_t attribute(const Driver& table, CUdevice_attribute which, CUdevice device) {
  int value = 0;
  PD_CUDA(table.cuDeviceGetAttribute(&value, which, device));
  return value;
}

std::atomic<bool> is_asked_for = false;

}  // namespace

bool load_functions(const Library& library, Driver* driver, std::string* problem) {
  constexpr std::size_t kMostNamed = 4;
  std::vector<std::string> missing;
  // Two steps, so that `name` is expanded before it becomes text.
#define PD_DRIVER_TEXT(name) #name
#define PD_DRIVER_LOAD(name)                                                     \
  driver->name = library.find<decltype(&::name)>(PD_DRIVER_TEXT(name));          \
  if (driver->name == nullptr) {                                                 \
    const char* older = older_name(PD_DRIVER_TEXT(name));                        \
    if (older != nullptr) driver->name = library.find<decltype(&::name)>(older); \
    if (driver->name == nullptr) missing.emplace_back(PD_DRIVER_TEXT(name));     \
  }
  PD_DRIVER_FUNCTIONS(PD_DRIVER_LOAD)
#undef PD_DRIVER_LOAD
#define PD_DRIVER_LOAD(name) driver->name = library.find<decltype(&::name)>(PD_DRIVER_TEXT(name));
  PD_NEWER_DRIVER_FUNCTIONS(PD_DRIVER_LOAD)
#undef PD_DRIVER_LOAD
#undef PD_DRIVER_TEXT
  if (missing.empty()) return true;
  int version = 0;
  auto get_version = library.find<decltype(&::cuDriverGetVersion)>("cuDriverGetVersion");
  bool known = get_version != nullptr && get_version(&version) == CUDA_SUCCESS;
  const std::size_t named = std::min(missing.size(), kMostNamed);
  std::string names = fmt::format("{}", fmt::join(std::span(missing).first(named), ", "));
  if (named < missing.size()) names += fmt::format(" and {} more", missing.size() - named);
  *problem = fmt::format("{}: the driver ({}) is too old, it has no {}", library.path(),
                         known ? "CUDA " + version_text(version) : std::string("unknown version"), names);
  return false;
}

const Driver* driver() {
  if (!is_asked_for.load(std::memory_order_relaxed)) is_asked_for.store(true, std::memory_order_relaxed);
  const LoadedDriver& loaded = loaded_driver();
  return loaded.usable ? &loaded.table : nullptr;
}

bool take_driver_use() noexcept { return is_asked_for.exchange(false); }

const std::string& driver_problem() { return loaded_driver().problem; }

const Library& driver_library() { return loaded_driver().library; }

const Driver& required_driver() {
  const Driver* table = driver();
  if (table == nullptr) fail(ErrorKind::device, "cuda: no usable GPU driver: {}", driver_problem());
  return *table;
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string error_text(CUresult result) { return loaded_driver().describe(result); }

bool is_sticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED: return true;
    default: return false;
  }
}

void fail_call(CUresult result, const char* what) {
  const char* hint = is_sticky(result) ? "\nhint: the GPU's context is lost, and with it all that was on the device, "
                                         "parameters too: end this process, and go on from the last checkpoint. "
                                         "Execution::stepwise (paoding run --stepwise) names the step that faults"
                                       : "";
  fail(ErrorKind::device, "{}: {}{}", what, error_text(result), hint);
}

// ---- GpuDevice ----

int GpuDevice::count() {
  int count = 0;
  const Driver* table = driver();
  if (table == nullptr || table->cuDeviceGetCount(&count) != CUDA_SUCCESS) return 0;
  return count;
}

GpuDevice& GpuDevice::get(int index) {
  required_driver();
  // Never destroyed: the driver is torn down before this process's statics are.
  static std::mutex* mutex = new std::mutex();
  static auto* devices = new std::map<int, std::unique_ptr<GpuDevice>>();
  std::lock_guard lock(*mutex);
  int there = count();
  if (index < 0 || index >= there) fail(ErrorKind::device, "cuda:{}: no such GPU; the driver shows {}", index, there);
  std::unique_ptr<GpuDevice>& device = (*devices)[index];
  if (device == nullptr) device.reset(new GpuDevice(index));
  return *device;
}

GpuDevice::GpuDevice(int index) : driver_(required_driver()), index_(index) {
  const Driver& table = driver_;
  CUdevice device = 0;
  PD_CUDA(table.cuDeviceGet(&device, index));
  char name[256] = {};
  PD_CUDA(table.cuDeviceGetName(name, sizeof(name) - 1, device));
  std::size_t memory_bytes = 0;
  PD_CUDA(table.cuDeviceTotalMem(&memory_bytes, device));
  const auto clock = static_cast<double>(attribute(table, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, device));  // kHz
  const auto width = static_cast<double>(attribute(table, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, device));
  target_ =
      described_gpu(name, static_cast<int>(attribute(table, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)),
                    static_cast<int>(attribute(table, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)),
                    static_cast<int>(attribute(table, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)),
                    2 * clock / 1000 * width / 8);
  if (proof_of(target_.major, target_.minor) == Proof::refused) {
    fail(ErrorKind::device, "cuda:{}: {} has compute capability {}.{}, needed 7.5 or later", index, target_.name,
         target_.major, target_.minor);
  }
  target_.last_cache_bytes = attribute(table, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device);
  target_.memory_bytes = static_cast<std::int64_t>(memory_bytes);
  target_.shared_bytes = attribute(table, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device);
  PD_CUDA(table.cuDevicePrimaryCtxRetain(&primary_, device));
}

[[gnu::hot]] void GpuDevice::make_current() const { PD_CUDA(driver_.cuCtxSetCurrent(primary_)); }

// ---- DeviceMemory ----

DeviceMemory::DeviceMemory(const GpuDevice& device, std::size_t size_bytes, profile::HeldFor what) {
  if (size_bytes == 0) return;
  device.make_current();
  const Driver& table = required_driver();
  CUresult result = table.cuMemAlloc(&address_, size_bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    std::size_t free_bytes = 0, total_bytes = 0;
    table.cuMemGetInfo(&free_bytes, &total_bytes);
    fail(ErrorKind::device, "cuda:{}: {} bytes of device memory are needed, {} of {} are free", device.index(),
         size_bytes, free_bytes, total_bytes);
  }
  check(result, "cuMemAlloc");
  device_ = &device;
  size_bytes_ = size_bytes;
  held_ = {what, device.index(), static_cast<std::int64_t>(size_bytes)};
}

void DeviceMemory::reset() {
  if (address_ == 0) return;
  if (const Driver* table = driver_for_release(device_)) table->cuMemFree(address_);
  address_ = 0;
  size_bytes_ = 0;
  held_.set(0);
}

void DeviceMemory::swap(DeviceMemory& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(address_, other.address_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(held_, other.held_);
}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  DeviceMemory taken(std::move(other));
  swap(taken);
  return *this;
}

// ---- PinnedMemory ----

PinnedMemory::PinnedMemory(const GpuDevice& device, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  device.make_current();
  void* bytes = nullptr;
  PD_CUDA(required_driver().cuMemAllocHost(&bytes, size_bytes));
  device_ = &device;
  bytes_ = static_cast<std::byte*>(bytes);
  size_bytes_ = size_bytes;
  held_ = {profile::HeldFor::pinned, -1, static_cast<std::int64_t>(size_bytes)};
}

void PinnedMemory::reset() {
  if (bytes_ == nullptr) return;
  if (const Driver* table = driver_for_release(device_)) table->cuMemFreeHost(bytes_);
  bytes_ = nullptr;
  size_bytes_ = 0;
  held_.set(0);
}

void PinnedMemory::swap(PinnedMemory& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(bytes_, other.bytes_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(held_, other.held_);
}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  PinnedMemory taken(std::move(other));
  swap(taken);
  return *this;
}

// ---- Stream ----

Stream::Stream(const GpuDevice& device, int priority) {
  device.make_current();
  PD_CUDA(required_driver().cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, priority));
  device_ = &device;
}

void Stream::wait_idle() const { PD_CUDA(required_driver().cuStreamSynchronize(stream_)); }

void Stream::wait_for(const Event& event) const {
  PD_CUDA(required_driver().cuStreamWaitEvent(stream_, event.get(), 0));
}

void Stream::reset() {
  if (stream_ == nullptr) return;
  if (const Driver* table = driver_for_release(device_)) table->cuStreamDestroy(stream_);
  stream_ = nullptr;
}

void Stream::swap(Stream& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(stream_, other.stream_);
}

Stream& Stream::operator=(Stream&& other) noexcept {
  Stream taken(std::move(other));
  swap(taken);
  return *this;
}

// ---- Event ----

Event::Event(const GpuDevice& device, bool with_timing) {
  device.make_current();
  unsigned int flags = with_timing ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
  PD_CUDA(required_driver().cuEventCreate(&event_, flags));
  device_ = &device;
}

void Event::record(CUstream stream) const { PD_CUDA(required_driver().cuEventRecord(event_, stream)); }

bool Event::is_done() const {
  CUresult result = required_driver().cuEventQuery(event_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  check(result, "cuEventQuery");
  return true;
}

void Event::wait_done() const { PD_CUDA(required_driver().cuEventSynchronize(event_)); }

float Event::milliseconds_since(const Event& start) const {
  float milliseconds = 0;
  PD_CUDA(required_driver().cuEventElapsedTime(&milliseconds, start.event_, event_));
  return milliseconds;
}

void Event::reset() {
  if (event_ == nullptr) return;
  if (const Driver* table = driver_for_release(device_)) table->cuEventDestroy(event_);
  event_ = nullptr;
}

void Event::swap(Event& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(event_, other.event_);
}

Event& Event::operator=(Event&& other) noexcept {
  Event taken(std::move(other));
  swap(taken);
  return *this;
}

// ---- Module ----

Module::Module(const GpuDevice& device, std::span<const char> cubin, std::string name) : name_(std::move(name)) {
  if (cubin.empty()) fail(ErrorKind::device, "{}: the cubin is empty", name_);
  device.make_current();
  CUresult result = required_driver().cuModuleLoadData(&module_, cubin.data());
  if (result != CUDA_SUCCESS) {
    check(result, fmt::format("cuModuleLoadData of {} for compute capability {}.{}", name_, device.target().major,
                              device.target().minor)
                      .c_str());
  }
  device_ = &device;
}

CUfunction Module::function(const std::string& name) const {
  if (device_ == nullptr) fail(ErrorKind::device, "{}: no module is loaded to take this kernel from", name);
  device_->make_current();
  CUfunction found = nullptr;
  CUresult result = required_driver().cuModuleGetFunction(&found, module_, name.c_str());
  if (result != CUDA_SUCCESS) check(result, fmt::format("cuModuleGetFunction of {} in {}", name, name_).c_str());
  return found;
}

void Module::reset() {
  if (module_ == nullptr) return;
  if (const Driver* table = driver_for_release(device_)) table->cuModuleUnload(module_);
  module_ = nullptr;
}

void Module::swap(Module& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(module_, other.module_);
  std::swap(name_, other.name_);
}

Module& Module::operator=(Module&& other) noexcept {
  Module taken(std::move(other));
  swap(taken);
  return *this;
}

}  // namespace paoding::gpu
