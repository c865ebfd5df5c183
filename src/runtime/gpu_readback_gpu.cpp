// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "runtime/gpu_readback.h"

namespace paoding {

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
  const auto at = std::ranges::lower_bound(places_, launch, {}, &Place::launch);
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

}  // namespace paoding
