// SPDX-License-Identifier: Apache-2.0
#include "runtime/held_memory.h"

#include <map>

#include "profile/recorder.h"

namespace paoding {

void record_memory(const Plan& plan, const std::string& program, const Device& device) {
  constexpr std::size_t kShown = 5;
  profile::Memory memory;
  memory.device = device.kind == DeviceKind::cpu ? -1 : device.index;
  memory.of = program;
  const auto add = [&](std::string what, std::int64_t bytes, bool is_inside = false) {
    memory.what = std::move(what);
    memory.bytes = bytes;
    memory.is_inside = is_inside;
    if (bytes > 0) profile::Recorder::add_memory(memory);
  };
  add("arena", plan.arena_bytes);
  add("most at once", plan.peak_live_bytes, true);
  std::map<std::string, std::int64_t> largest;  // several results of one name are one line
  std::vector<std::string> in_order;
  for (const Slot* slot : largest_at_peak(plan, kShown)) {
    if (largest[slot->name] == 0) in_order.push_back(slot->name);
    largest[slot->name] += slot->bytes;
  }
  for (const std::string& name : in_order) add("of that " + name, largest[name], true);
  std::map<SlotKind, std::int64_t> others;
  for (const Slot& slot : plan.slots) others[slot.kind] += slot.bytes;
  add("parameters", others[SlotKind::parameter]);
  add("inputs", others[SlotKind::input]);
  add("state of kernels", others[SlotKind::state]);
}

}  // namespace paoding
