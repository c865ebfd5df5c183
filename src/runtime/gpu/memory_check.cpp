// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/memory_check.h"

#include <algorithm>

#include "base/check.h"
#include "runtime/gpu/feeds.h"

namespace paoding {

void check_memory(const Plan& plan, const gpu::GpuDevice& device, std::int64_t arena_bytes) {
  std::int64_t needed = std::max<std::int64_t>(plan.arena_bytes - arena_bytes, 0);
  for (const Slot& slot : plan.slots) {
    if (slot.kind == SlotKind::input || slot.kind == SlotKind::state) needed += slot.bytes;
  }
  for (const auto& [name, slot] : plan.inputs) {
    needed += GpuFeeds::more_bytes(plan.slots[static_cast<std::size_t>(slot)].bytes);
  }
  std::size_t free_bytes = 0, all_bytes = 0;
  device.make_current();
  PD_CUDA(gpu::required_driver().cuMemGetInfo(&free_bytes, &all_bytes));
  if (needed <= static_cast<std::int64_t>(free_bytes)) return;
  fail(ErrorKind::device,
       "compile: the program needs {} bytes more on cuda:{}, where {} of {} are free; the most at once are {}\n"
       "hint: a smaller batch, shorter sequences or bf16 need less",
       needed, device.index(), free_bytes, all_bytes, largest_slots(plan, 5));
}

}  // namespace paoding
