// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/plan_memory.h"

#include <algorithm>

#include "gpu/driver/write_memory.h"
#include "runtime/gpu/memory_check.h"
#include "runtime/gpu/readback.h"

namespace paoding {

PlanMemory::PlanMemory(const Plan& plan, const gpu::GpuDevice& device, const ExecutorOptions& options)
    : plan_(plan), device_(device), arena_(arena_for(options)), feeds_(device, arena_->stream, plan) {
  std::size_t next_parameter = 0;
  for (const Slot& slot : plan_.slots) {
    const CUdeviceptr packed = feeds_.packed_address(static_cast<int>(addresses_.size()));
    if (slot.kind == SlotKind::parameter) {
      addresses_.push_back(reinterpret_cast<CUdeviceptr>(options.parameters[next_parameter++]));
    } else if (packed != 0) {
      addresses_.push_back(packed);
    } else if (slot.kind == SlotKind::input || slot.kind == SlotKind::state) {
      addresses_.push_back(new_memory(slot));
    } else {
      addresses_.push_back(arena_->memory.address() + static_cast<CUdeviceptr>(slot.offset));
    }
  }
  is_input_.assign(plan_.slots.size(), false);
  for (const auto& [name, slot] : plan_.inputs) {
    is_input_[static_cast<std::size_t>(slot)] = true;
    feeds_.add(slot, at(slot), plan_.slots[static_cast<std::size_t>(slot)].bytes);
  }
  clear_state();
}

std::shared_ptr<GpuArena> PlanMemory::arena_for(const ExecutorOptions& options) const {
  auto arena = std::dynamic_pointer_cast<GpuArena>(options.arena);
  check_memory(plan_, device_, arena ? static_cast<std::int64_t>(arena->memory.size_bytes()) : 0);
  if (arena && arena->memory.grow(static_cast<std::size_t>(plan_.arena_bytes))) return arena;
  return std::make_shared<GpuArena>(device_, plan_.arena_bytes, options);
}

CUdeviceptr PlanMemory::new_memory(const Slot& slot) {
  const auto held_for = slot.kind == SlotKind::input ? profile::HeldFor::inputs : profile::HeldFor::kernels;
  own_.emplace_back(device_, static_cast<std::size_t>(std::max<std::int64_t>(slot.bytes, 1)), held_for);
  return own_.back().address();
}

void PlanMemory::write_constant(int slot, const Tensor& tensor) const {
  if (tensor.size_bytes() == 0) return;
  gpu::write_memory(at(slot), tensor.bytes(), static_cast<std::size_t>(tensor.size_bytes()));
}

// Copies the range of memory that the value spans, and picks its elements on the host.
Tensor PlanMemory::read(const Launch& launch, std::size_t operand) const {
  const Layout& layout = launch.step->operands[operand].layout;
  const ByteRange range = byte_range_of(layout);
  if (range.bytes == 0) return Tensor(layout.type);
  std::vector<std::byte> copied(static_cast<std::size_t>(range.bytes));
  const auto& [slot, offset] = launch.addresses[operand];
  PD_CUDA(gpu::required_driver().cuMemcpyDtoH(copied.data(), at(slot, offset) - static_cast<CUdeviceptr>(range.before),
                                              copied.size()));
  return picked(layout, copied.data());
}

void PlanMemory::clear_state() const {
  for (std::size_t i = 0; i < plan_.slots.size(); ++i) {
    const Slot& slot = plan_.slots[i];
    if (slot.kind != SlotKind::state) continue;
    PD_CUDA(
        gpu::required_driver().cuMemsetD8Async(addresses_[i], 0, static_cast<std::size_t>(slot.bytes), stream().get()));
  }
}

std::vector<std::vector<std::byte>> PlanMemory::parameters() const {
  std::vector<std::vector<std::byte>> kept;
  for (const auto& [name, slot] : plan_.parameters) {
    kept.emplace_back(static_cast<std::size_t>(plan_.slots[static_cast<std::size_t>(slot)].bytes));
    if (kept.back().empty()) continue;
    PD_CUDA(gpu::required_driver().cuMemcpyDtoH(kept.back().data(), at(slot), kept.back().size()));
  }
  return kept;
}

void PlanMemory::set_parameters(const std::vector<std::vector<std::byte>>& kept) const {
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i].empty()) gpu::write_memory(at(plan_.parameters[i].second), kept[i].data(), kept[i].size());
  }
}

}  // namespace paoding
