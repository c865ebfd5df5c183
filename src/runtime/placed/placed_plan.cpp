// SPDX-License-Identifier: Apache-2.0
#include "runtime/placed/placed_plan.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/check.h"
#include "cpu/arena.h"
#include "cpu/group_kernel.h"
#include "cpu/parallel.h"
#include "plan/slot_alignment.h"
#include "runtime/sites.h"

namespace paoding {

using profile::Recorder;

PlacedPlan::PlacedPlan(const char* name, CompiledPlan compiled)
    : compiled_(std::move(compiled)),
      run_site_(Recorder::add_site({.name = name, .kind = profile::SpanKind::run})),
      schedule_(make_schedule(compiled_.plan, {.in_callers_stream = true})) {
  reads_ = plan().inputs;
  reads_.insert(reads_.end(), plan().parameters.begin(), plan().parameters.end());
  std::size_t most = 0;
  for (const LaunchEntry& entry : schedule_.entries) {
    if (entry.kind != LaunchEntry::Kind::launch && entry.kind != LaunchEntry::Kind::fused) {
      fail(ErrorKind::unsupported, "a plan on memory of the caller's has no control flow and no prints");
    }
    for (const std::size_t i : schedule_.members(entry)) most = std::max(most, schedule_.launches[i].addresses.size());
  }
  pointers_.resize(most);
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
  for (std::size_t k = 0; k < addresses.size(); ++k) pointers_[k] = base(addresses[k].first) + addresses[k].second;
  const Step& step = *schedule_.launches[launch].step;
  return {pointers_.data(), base(step.workspace), base(step.state)};
}

namespace {

class PlacedCpuPlan : public PlacedPlan {
 public:
  PlacedCpuPlan(const char* name, CompiledPlan compiled) : PlacedPlan(name, std::move(compiled)) {
    require_threads();
    prepare(plan().steps);
    place_own();
    const LaunchSites sites(schedule().launches, [this](const Step& step) { return kernel_of(step); });
    for (const Launch& launch : schedule().launches) sites_.push_back(sites.of(launch));
  }

 private:
  void prepare(const std::vector<Step>& steps) {
    std::vector<std::string> notes;
    for (const Step& step : steps) {
      for (const auto* body : step.bodies()) prepare(*body);
      if (step.kind == Step::Kind::group) {
        const auto& kernel = groups_.emplace(&step, CpuGroupKernel(canonical(step.group))).first->second;
        tile_bytes_ = std::max(tile_bytes_, kernel.tile_bytes());
      } else if (step.kind == Step::Kind::kernel) {
        auto kernel = prepare_kernel(*step.kernel, step.call, Device::cpu(), &notes);
        if (kernel->scratch_bytes() > scratch_.size_bytes()) scratch_ = Tensor(u8, Shape{kernel->scratch_bytes()});
        kernels_.emplace(&step, std::move(kernel));
      }
    }
  }

  void* own_memory(const Slot& slot, const Tensor* constant) override {
    own_.emplace_back(u8, Shape{slot.bytes});
    std::fill_n(own_.back().bytes(), slot.bytes, std::byte{});
    if (constant != nullptr) std::copy_n(constant->bytes(), constant->size_bytes(), own_.back().bytes());
    return own_.back().bytes();
  }

  void begin_run() override { reserve_tiles(tile_bytes_); }  // of the thread that runs it

  void start(std::size_t launch) {
    const Step& step = *schedule().launches[launch].step;
    void* const* const operands = memory_of(launch).operands;
    if (step.kind == Step::Kind::group) return groups_.at(&step).run(operands);
    kernels_.at(&step)->run({operands, scratch_.bytes(), nullptr});
  }

  void start_all(std::uint32_t, void*) override {
    if (!Recorder::active()) {
      for (std::size_t i = 0; i < sites_.size(); ++i) start(i);
      return;
    }
    const bool has_phases = Recorder::phases_active();
    profile::SpanList spans;
    for (std::size_t i = 0; i < sites_.size(); ++i) {
      start(i);
      const profile::Ticks began = spans.complete(sites_[i].op);
      if (has_phases) Recorder::complete(sites_[i].compute, began, spans.end());
    }
  }

  // Whose code it runs.
  std::string kernel_of(const Step& step) const {
    if (const auto group = groups_.find(&step); group != groups_.end()) {
      return group->second.has_machine_code() ? "machine code" : "routines";
    }
    const auto kernel = kernels_.find(&step);
    return kernel == kernels_.end() ? "" : kernel->second->made_by->name;
  }

  void copy(void* to, const void* from, std::int64_t bytes, void*) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  void clear(void* address, std::int64_t bytes, void*) override {
    std::memset(address, 0, static_cast<std::size_t>(bytes));
  }

  std::map<const Step*, CpuGroupKernel> groups_;
  std::map<const Step*, std::unique_ptr<PreparedKernel>> kernels_;
  std::vector<StepSites> sites_;  // per launch
  std::vector<Tensor> own_;
  Tensor scratch_{u8, Shape{0}};
  std::int64_t tile_bytes_ = 0;  // of a thread, for any of the groups
};

}  // namespace

std::unique_ptr<PlacedPlan> PlacedPlan::make(const char* name, const Graph& graph, const Device& device,
                                             bool allow_tf32, std::vector<std::string> fetches) {
  CompileOptions options;
  options.fetches = std::move(fetches);
  options.device = device;
  options.allow_tf32 = allow_tf32;
  CompiledPlan compiled = compile_plan(graph, options, target_of(device));
  if (device.kind == DeviceKind::cuda) return make_placed_gpu_plan(name, std::move(compiled), device);
  return std::make_unique<PlacedCpuPlan>(name, std::move(compiled));
}

}  // namespace paoding
