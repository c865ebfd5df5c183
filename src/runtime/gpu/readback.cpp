// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/readback.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "gpu/kernels/to_host_text.h"
#include "paoding/cancellation.h"

namespace paoding {

ByteRange byte_range_of(const Layout& layout) {
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

Tensor picked(const Layout& layout, const std::byte* range) {
  Tensor tensor(layout.type);
  const Shape& shape = layout.type.shape;
  const std::int64_t size = size_bytes(layout.type.dtype), elements = shape.elements();
  const std::byte* origin = range + byte_range_of(layout).before;
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

namespace {

constexpr std::int64_t kReadbackHead = 2 * sizeof(std::uint64_t);  // of the log, and of a record
constexpr std::int64_t kTurns = 1024;  // of a loop without a length, for whose values there is room
constexpr std::int64_t kMostRoom = std::int64_t{64} << 20;  // for them

std::int64_t record_bytes(const Layout& layout) { return kReadbackHead + (byte_range_of(layout).bytes + 7) / 8 * 8; }

}  // namespace

GpuPrints::GpuPrints(const gpu::GpuDevice& device, const std::vector<Launch>& launches,
                     std::function<void(Printed&&)> on_print)
    : launches_(&launches), on_print_(std::move(on_print)) {
  bool has_loop = false;
  for (const Launch& launch : launches) {
    has_loop |= launch.step->kind == Step::Kind::repeat;
    if (launch.step->kind == Step::Kind::print) room_ += record_bytes(launch.step->operands[0].layout);
  }
  if (room_ == 0) return;
  if (has_loop) room_ += std::min(room_ * kTurns, kMostRoom);
  log_ = gpu::PinnedMemory(device, static_cast<std::size_t>(kReadbackHead + room_));
  clear();
  text_ = std::make_unique<gpu::TextLaunch>(gpu::plan_log_value(room_));
  kernel_ = std::make_unique<gpu::LoadedKernel>(device, *text_, 4);
}

void GpuPrints::start(std::size_t launch, CUdeviceptr address, void* asked, CUstream stream) const {
  const ByteRange range = byte_range_of((*launches_)[launch].step->operands[0].layout);
  void* operands[] = {reinterpret_cast<void*>(address - static_cast<CUdeviceptr>(range.before)),
                      reinterpret_cast<void*>(range.bytes), reinterpret_cast<void*>(launch), log_.bytes()};
  kernel_->start(stream, operands, {.failed = asked});
}

void GpuPrints::clear() const {
  if (log_.size_bytes() != 0) std::memset(log_.bytes(), 0, static_cast<std::size_t>(kReadbackHead));
}

void GpuPrints::hand_over(std::size_t* launch) const {
  if (log_.size_bytes() == 0) return;
  std::uint64_t used[2];
  std::memcpy(used, log_.bytes(), sizeof(used));
  clear();
  for (const std::byte *at = log_.bytes() + kReadbackHead, *end = at + used[0]; at < end;) {
    std::uint64_t record[2];
    std::memcpy(record, at, sizeof(record));
    *launch = static_cast<std::size_t>(record[0]);
    const Launch& printed = (*launches_)[*launch];
    const Layout& layout = printed.step->operands[0].layout;
    if (on_print_) {
      on_print_(
          {printed.step->message, printed.step->label.scope, printed.instance, picked(layout, at + kReadbackHead)});
      CancelScope::poll();
    }
    at += record_bytes(layout);
  }
  if (used[1] == 0) return;
  fail(ErrorKind::unsupported,
       "print: the values of one run take {} bytes more than the {} that there are for a loop without a length\n"
       "hint: fewer turns a run, or Execution::stepwise",
       used[1], room_);
}

}  // namespace paoding
