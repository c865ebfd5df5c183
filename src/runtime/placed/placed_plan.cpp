// SPDX-License-Identifier: Apache-2.0
#include "runtime/placed/placed_plan.h"

#include <algorithm>

#include "base/check.h"
#include "base/slot_alignment.h"

namespace paoding {

using profile::Recorder;

PlacedPlan::PlacedPlan(const char* name, CompiledPlan compiled, bool batches_groups)
    : compiled_(std::move(compiled)),
      run_site_(Recorder::add_site({.name = name, .kind = profile::SpanKind::run})),
      schedule_(make_schedule(compiled_.plan, {.in_callers_stream = true, .batches_groups = batches_groups})) {
  reads_ = plan().inputs;
  reads_.insert(reads_.end(), plan().parameters.begin(), plan().parameters.end());
  for (const LaunchEntry& entry : schedule_.entries) {
    if (entry.kind != LaunchEntry::Kind::launch && entry.kind != LaunchEntry::Kind::fused) {
      fail(ErrorKind::unsupported, "a plan on memory of the caller's has no control flow and no prints");
    }
  }
  std::size_t operands = 0;
  for (const Launch& launch : schedule_.launches) {
    first_pointer_.push_back(operands);
    operands += launch.addresses.size();
  }
  pointers_.resize(operands);
  for (std::size_t i = 0; i < plan().fetches.size(); ++i) fetch_slots_.push_back(slot_of(i));
  fresh_state_at_ = slot_bytes(plan().arena_bytes);
  for (const Step& step : plan().steps) add_state(step);
}

void PlacedPlan::add_state(const Step& step) {
  for (const auto* body : step.bodies()) {
    for (const Step& inner : *body) add_state(inner);
  }
  if (step.state < 0) return;
  states_.push_back({step.state, nullptr, fresh_state_bytes_});
  fresh_state_bytes_ += slot_bytes(plan().slots[static_cast<std::size_t>(step.state)].bytes);
}

int PlacedPlan::slot_of(std::size_t fetch) const {
  const Operand& operand = plan().fetches[fetch].operand;
  const Slot& slot = plan().slots[static_cast<std::size_t>(operand.slot)];
  const Type& type = operand.layout.type;
  const bool is_whole = operand.offset == 0 && slot.bytes == type.shape.elements() * size_bytes(type.dtype);
  const bool is_taken = std::find(fetch_slots_.begin(), fetch_slots_.end(), operand.slot) != fetch_slots_.end();
  return slot.kind == SlotKind::arena && is_whole && !is_taken ? operand.slot : -1;
}

void PlacedPlan::place_own() {
  const Plan& plan = compiled_.plan;
  bases_.resize(plan.slots.size());
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {
    const bool is_read =
        std::any_of(reads_.begin(), reads_.end(), [&](const auto& read) { return read.second == static_cast<int>(i); });
    if (is_read) continue;
    if (plan.slots[i].kind != SlotKind::input && plan.slots[i].kind != SlotKind::state) continue;
    const Tensor* constant = nullptr;
    for (const auto& [slot, value] : plan.constants) {
      if (slot == static_cast<int>(i)) constant = &value;
    }
    bases_[i] = static_cast<std::byte*>(own_memory(plan.slots[i], constant));
  }
  for (KernelState& state : states_) state.own = bases_[static_cast<std::size_t>(state.slot)];
}

void PlacedPlan::place_state(void* workspace, void* stream) {
  if (states_.empty()) return;
  const bool is_fresh = is_captured(stream);
  std::byte* const fresh = static_cast<std::byte*>(workspace) + fresh_state_at_;
  if (is_fresh) clear(fresh, fresh_state_bytes_, stream);
  for (const KernelState& state : states_) {
    bases_[static_cast<std::size_t>(state.slot)] = is_fresh ? fresh + state.offset : state.own;
  }
}

void PlacedPlan::add_faults() {
  const std::vector<char>& may_fault = schedule_.guards.may_fault;
  if (std::ranges::find(may_fault, 1) == may_fault.end()) return;
  for (const char each : may_fault) {
    fault_at_.push_back(each != 0 ? fault_bytes_ : -1);
    if (each != 0) fault_bytes_ += kFaultWords * static_cast<std::int64_t>(sizeof(std::uint64_t));
  }
}

void PlacedPlan::run(std::span<const void* const> reads, std::span<void* const> fetches, void* workspace,
                     void* stream) {
  Recorder::before_run();
  const std::uint32_t number = Recorder::active() ? Recorder::next_run() : 0;
  const profile::LongSpanScope seen(run_site_, number);
  const Plan& plan = compiled_.plan;
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {
    if (plan.slots[i].kind == SlotKind::arena) bases_[i] = static_cast<std::byte*>(workspace) + plan.slots[i].offset;
  }
  for (std::size_t i = 0; i < reads.size(); ++i) {
    void* address = const_cast<void*>(reads[i]);  // which no step writes
    bases_[static_cast<std::size_t>(reads_[i].second)] = static_cast<std::byte*>(address);
  }
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    if (fetch_slots_[i] >= 0) bases_[static_cast<std::size_t>(fetch_slots_[i])] = static_cast<std::byte*>(fetches[i]);
  }
  begin_run();
  place_state(workspace, stream);
  if (fault_bytes_ > 0) {
    faults_ = static_cast<std::byte*>(workspace) + fault_offset();
    clear_faults(faults_, fault_bytes_, stream);
  }
  start_all(number, stream);
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    if (fetch_slots_[i] >= 0) continue;
    const Operand& from = plan.fetches[i].operand;
    const Type& type = from.layout.type;
    copy(fetches[i], base(from.slot) + from.offset, type.shape.elements() * size_bytes(type.dtype), stream);
  }
}

PlacedPlan::Memory PlacedPlan::memory_of(std::size_t launch) {
  const auto& addresses = schedule_.launches[launch].addresses;
  void** const operands = pointers_.data() + first_pointer_[launch];
  for (std::size_t k = 0; k < addresses.size(); ++k) operands[k] = base(addresses[k].first) + addresses[k].second;
  const Step& step = *schedule_.launches[launch].step;
  void* const fault = fault_at_.empty() || fault_at_[launch] < 0 ? nullptr : faults_ + fault_at_[launch];
  return {operands, base(step.workspace), base(step.state), fault};
}

std::unique_ptr<PlacedPlan> PlacedPlan::make(const char* name, const Graph& graph, const Device& device,
                                             const PlacedOptions& options) {
  CompileOptions compile;
  compile.fetches = options.fetches;
  compile.device = device;
  compile.allow_tf32 = options.allow_tf32;
  CompiledPlan compiled = compile_plan(graph, compile, target_of(device));
  if (device.kind == DeviceKind::cuda) {
    return make_placed_gpu_plan(name, std::move(compiled), device, options.reports_faults);
  }
  return make_placed_cpu_plan(name, std::move(compiled));
}

}  // namespace paoding
