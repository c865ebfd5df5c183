// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "runtime/gpu_readback.h"

namespace paoding {
namespace {

constexpr std::int64_t kFaultWords = 2;

std::uint64_t* words(const gpu::PinnedMemory& memory) { return reinterpret_cast<std::uint64_t*>(memory.bytes()); }

}  // namespace

Stretch stretch_of(const Layout& layout) {
  const Shape& shape = layout.type.shape;
  if (shape.elements() == 0) return {};
  std::int64_t lowest = 0, highest = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const std::int64_t reach = (shape[axis] - 1) * layout.strides[static_cast<std::size_t>(axis)];
    (reach < 0 ? lowest : highest) += reach;
  }
  const std::int64_t size = size_bytes(layout.type.dtype);
  return {-lowest * size, (highest - lowest + 1) * size};
}

Tensor picked(const Layout& layout, const std::byte* stretch) {
  Tensor tensor(layout.type);
  const Shape& shape = layout.type.shape;
  const std::int64_t size = size_bytes(layout.type.dtype), elements = shape.elements();
  const std::byte* origin = stretch + stretch_of(layout).before;
  for (std::int64_t i = 0; i < elements; ++i) {
    std::int64_t rest = i, at = 0;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      at += rest % shape[axis] * layout.strides[static_cast<std::size_t>(axis)];
      rest /= shape[axis];
    }
    std::memcpy(tensor.bytes() + i * size, origin + at * size, static_cast<std::size_t>(size));
  }
  return tensor;
}

// ---- print ----

GpuPrints::GpuPrints(const gpu::GpuDevice& device, const std::vector<Launch>& launches,
                     std::function<void(Printed&&)> on_print)
    : launches_(&launches), on_print_(std::move(on_print)) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    if (launches[i].step->kind != Step::Kind::print) continue;
    places_.push_back({i, bytes});
    bytes += (stretch_of(launches[i].step->operands[0].layout).bytes + 63) / 64 * 64;
  }
  if (bytes != 0) memory_ = gpu::PinnedMemory(device, static_cast<std::size_t>(bytes));
}

const GpuPrints::Place& GpuPrints::place_of(std::size_t launch) const {
  const auto at = std::lower_bound(places_.begin(), places_.end(), launch,
                                   [](const Place& p, std::size_t l) { return p.launch < l; });
  PD_ASSERT(at != places_.end() && at->launch == launch, "a launch that prints");
  return *at;
}

void GpuPrints::start(std::size_t launch, CUdeviceptr address, CUstream stream) const {
  const Stretch stretch = stretch_of((*launches_)[launch].step->operands[0].layout);
  if (stretch.bytes == 0) return;
  PD_CUDA(gpu::required_driver().cuMemcpyDtoHAsync(memory_.bytes() + place_of(launch).offset,
                                                   address - static_cast<CUdeviceptr>(stretch.before),
                                                   static_cast<std::size_t>(stretch.bytes), stream));
}

void GpuPrints::hand_over(std::size_t launch) const {
  if (!on_print_) return;
  const Launch& printed = (*launches_)[launch];
  on_print_({printed.step->message, printed.step->label.scope, printed.instance,
             picked(printed.step->operands[0].layout, memory_.bytes() + place_of(launch).offset)});
}

void GpuPrints::hand_over() const {
  for (const Place& place : places_) hand_over(place.launch);
}

// ---- faults ----

GpuFaults::GpuFaults(const gpu::GpuDevice& device, std::vector<const PreparedKernel*> kernels)
    : device_(&device), kernels_(std::move(kernels)) {
  std::int64_t count = 0;
  std::vector<std::int64_t> first;
  for (const PreparedKernel* kernel : kernels_) {
    first.push_back(count);
    if (kernel != nullptr) count += kFaultWords;
  }
  if (count == 0) return;
  first_ = std::move(first);
  const auto bytes = static_cast<std::size_t>(count) * sizeof(std::uint64_t);
  words_ = gpu::DeviceMemory(device, bytes);
  seen_ = gpu::PinnedMemory(device, bytes);
  std::memset(seen_.bytes(), 0xff, bytes);
  clear();
}

void GpuFaults::clear() const {
  device_->make_current();
  // On the default stream, which no other stream here waits for: the caller's have to be idle.
  PD_CUDA(gpu::required_driver().cuMemsetD8Async(words_.address(), 0xff, words_.size_bytes(), nullptr));
  PD_CUDA(gpu::required_driver().cuStreamSynchronize(nullptr));
}

void* GpuFaults::words_of(std::size_t launch) const {
  if (first_.empty() || kernels_[launch] == nullptr) return nullptr;
  return static_cast<std::uint64_t*>(words_.pointer()) + first_[launch];
}

void GpuFaults::start_copy(CUstream stream) const {
  if (first_.empty()) return;
  PD_CUDA(gpu::required_driver().cuMemcpyDtoHAsync(seen_.bytes(), words_.address(), seen_.size_bytes(), stream));
}

void GpuFaults::check() const {
  for (std::size_t i = 0; i < first_.size(); ++i) {
    if (kernels_[i] == nullptr) continue;
    const std::uint64_t* at = words(seen_) + first_[i];
    if (std::all_of(at, at + kFaultWords, [](std::uint64_t word) { return word == ~std::uint64_t{0}; })) continue;
    const std::vector<std::uint64_t> found(at, at + kFaultWords);
    clear();
    std::memset(seen_.bytes(), 0xff, seen_.size_bytes());
    kernels_[i]->raise(found.data());
  }
}

}  // namespace paoding
