// SPDX-License-Identifier: Apache-2.0
#include "runtime/placed/placed_plan.h"

#include <algorithm>

#include "base/check.h"
#include "base/one_line.h"
#include "base/slot_alignment.h"

namespace paoding {

using profile::Recorder;

namespace {

// The plan says all that a run needs, and layers keep a plan for each length.
CompiledPlan without_graph(CompiledPlan compiled) {
  compiled.graph = nullptr;
  return compiled;
}

}  // namespace

PlacedPlan::PlacedPlan(PlacedSource source, bool batches_groups)
    : compiled_(without_graph(std::move(source.compiled))),
      parameters_(std::move(source.parameters)),
      run_site_(Recorder::add_site({.name = source.name, .kind = profile::SpanKind::run})),
      schedule_(make_schedule(compiled_.plan, {.in_callers_stream = true, .batches_groups = batches_groups})) {
  reads_ = plan().inputs;
  if (parameters_.empty()) reads_.insert(reads_.end(), plan().parameters.begin(), plan().parameters.end());
  refuse_entries();
  for (const Launch& launch : schedule_.launches) {
    first_pointer_.push_back(addresses_.size());
    addresses_.insert(addresses_.end(), launch.addresses.begin(), launch.addresses.end());
  }
  pointers_.resize(addresses_.size());
  for (std::size_t i = 0; i < plan().fetches.size(); ++i) fetch_slots_.push_back(slot_of(i));
  workspace_bytes_ = slot_bytes(plan().arena_bytes);
  for (const Step& step : plan().steps) add_state(step);
  fresh_state_at_ = add_to_workspace(fresh_state_bytes_);
  fault_offset_ = workspace_bytes_;
}

void PlacedPlan::refuse_entries() const {
  for (const LaunchEntry& entry : schedule_.entries) {
    const Step& step = *schedule_.launches[entry.launch].step;
    if (entry.kind == LaunchEntry::Kind::print) {
      fail(ErrorKind::unsupported,
           "print '{}'{}: a run on memory of the caller's hands no values to the host\nhint: fetch the value, or run "
           "the graph as a Program",
           one_line(step.message), in_scope(step.label.scope));
    }
    if (entry.kind == LaunchEntry::Kind::host) {
      fail(ErrorKind::unsupported,
           "{}: it is to run on the CPU{}, which a run in a stream of the caller's does not wait for\nhint: without "
           "OnCpu it runs on the GPU; or compute it in front of the run, and make it an input",
           one_line(step.label.op), in_scope(step.label.scope));
    }
  }
}

std::int64_t PlacedPlan::add_to_workspace(std::int64_t bytes) {
  return std::exchange(workspace_bytes_, workspace_bytes_ + slot_bytes(bytes));
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
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    bases_[static_cast<std::size_t>(plan.parameters[i].second)] = static_cast<std::byte*>(parameters_[i]);
  }
  for (KernelState& state : states_) state.own = bases_[static_cast<std::size_t>(state.slot)];
}

void PlacedPlan::add_faults() {
  const std::vector<char>& may_fault = schedule_.guards.may_fault;
  if (std::ranges::find(may_fault, 1) == may_fault.end()) return;
  for (const char each : may_fault) {
    fault_at_.push_back(each != 0 ? fault_bytes_ : -1);
    if (each != 0) fault_bytes_ += kFaultWords * static_cast<std::int64_t>(sizeof(std::uint64_t));
  }
  fault_offset_ = add_to_workspace(fault_bytes_);
}

std::pair<void*, std::int64_t> PlacedPlan::faults_before(std::size_t end, std::int64_t most) const {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(std::uint64_t));
  std::int64_t bytes = fault_bytes_;
  for (std::size_t i = fault_at_.size(); i-- > end;) bytes = fault_at_[i] < 0 ? bytes : fault_at_[i];
  const std::int64_t count = std::min(bytes / kBytes, most);
  return {count == 0 ? nullptr : in_workspace(fault_offset_ + bytes - count * kBytes), count};
}

void PlacedPlan::run(std::span<const void* const> reads, std::span<void* const> fetches, void* workspace,
                     void* stream) {
  Recorder::before_run();
  const std::uint32_t number = Recorder::active() ? Recorder::next_run() : 0;
  const profile::LongSpanScope seen(run_site_, number);
  if (!is_given(reads, fetches, workspace)) place(reads, fetches, workspace);
  start(number, stream);
}

bool PlacedPlan::is_given(std::span<const void* const> reads, std::span<void* const> fetches,
                          const void* workspace) const {
  if (given_.size() != reads.size() + fetches.size() + 1) return false;
  return given_.back() == workspace && std::equal(reads.begin(), reads.end(), given_.begin()) &&
         std::equal(fetches.begin(), fetches.end(), given_.begin() + static_cast<std::ptrdiff_t>(reads.size()));
}

void PlacedPlan::place(std::span<const void* const> reads, std::span<void* const> fetches, void* workspace) {
  const Plan& plan = compiled_.plan;
  given_.clear();
  for (const void* each : reads) given_.push_back(const_cast<void*>(each));  // which no step writes
  given_.insert(given_.end(), fetches.begin(), fetches.end());
  given_.push_back(workspace);
  workspace_ = static_cast<std::byte*>(workspace);
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {
    if (plan.slots[i].kind == SlotKind::arena) bases_[i] = workspace_ + plan.slots[i].offset;
  }
  for (std::size_t i = 0; i < reads.size(); ++i) {
    bases_[static_cast<std::size_t>(reads_[i].second)] = static_cast<std::byte*>(given_[i]);
  }
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    if (fetch_slots_[i] >= 0) bases_[static_cast<std::size_t>(fetch_slots_[i])] = static_cast<std::byte*>(fetches[i]);
  }
  for (std::size_t i = 0; i < addresses_.size(); ++i) pointers_[i] = base(addresses_[i].first) + addresses_[i].second;
}

void PlacedPlan::begin(void* stream, bool is_beside) {
  if (!states_.empty()) {
    std::byte* const fresh = in_workspace(fresh_state_at_);
    if (is_beside) clear(fresh, fresh_state_bytes_, stream);
    for (const KernelState& state : states_) {
      bases_[static_cast<std::size_t>(state.slot)] = is_beside ? fresh + state.offset : state.own;
    }
  }
  if (fault_bytes_ > 0) clear_faults(in_workspace(fault_offset_), fault_bytes_, stream);
}

void PlacedPlan::end(void* stream) {
  const std::span<void* const> fetches = std::span(given_).subspan(reads_.size(), fetch_slots_.size());
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    if (fetch_slots_[i] >= 0) continue;
    const Operand& from = plan().fetches[i].operand;
    const Type& type = from.layout.type;
    copy(fetches[i], base(from.slot) + from.offset, type.shape.elements() * size_bytes(type.dtype), stream);
  }
}

PlacedPlan::Memory PlacedPlan::memory_of(std::size_t launch) const {
  const Step& step = *schedule_.launches[launch].step;
  const bool has_fault = !fault_at_.empty() && fault_at_[launch] >= 0;
  return {pointers_.data() + first_pointer_[launch], base(step.workspace), base(step.state),
          has_fault ? in_workspace(fault_offset_ + fault_at_[launch]) : nullptr};
}

std::unique_ptr<PlacedPlan> PlacedPlan::make(const char* name, const Graph& graph, const Device& device,
                                             const PlacedOptions& options, const FindParameters& find) {
  CompileOptions compile;
  compile.fetches = options.fetches;
  compile.device = device;
  compile.allow_tf32 = options.allow_tf32;
  PlacedSource source{
      name, compile_plan(graph, compile, target_of(device), find ? Preprocess::once : Preprocess::in_every_run)};
  if (find) source.parameters = find(&source.compiled, compile);
  if (device.kind == DeviceKind::cuda) {
    return make_placed_gpu_plan(std::move(source), device, options);
  }
  return make_placed_cpu_plan(std::move(source));
}

}  // namespace paoding
