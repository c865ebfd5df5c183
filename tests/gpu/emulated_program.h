// SPDX-License-Identifier: Apache-2.0
// A program as it would run on a GPU, its kernels run on the CPU by cuda_emulation: groups and kernel ops that are
// source of our own, one by one, but layers of a pipeline in one launch, and kernel ops side by side that share one.
// Only with CUDA's headers; needs no GPU.
#pragma once

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "gpu/codegen/grouped_launch.h"
#include "gpu/codegen/pipelined_launch.h"
#include "gpu/codegen/text_launch.h"
#include "schedule/gpu/layer_pipelines.h"
#include "schedule/independent.h"
#include "schedule/schedule.h"
#include "tests/gpu/cuda_emulation/emulated_kernels.h"
#include "tests/gpu/kernel_texts.h"

namespace paoding::testing_program {

/// Seeds of `count` schedules, or of as many as PAODING_SCHEDULES says; from PAODING_FIRST_SCHEDULE on, so that
/// processes beside each other try different ones.
inline std::vector<unsigned> schedules(int count) {
  const char *const asked = std::getenv("PAODING_SCHEDULES"), *const from = std::getenv("PAODING_FIRST_SCHEDULE");
  if (asked != nullptr) count = std::atoi(asked);
  std::vector<unsigned> seeds;
  for (int i = 0; i < count; ++i) seeds.push_back(static_cast<unsigned>((from != nullptr ? std::atoi(from) : 1) + i));
  return seeds;
}

class EmulatedProgram {
 public:
  explicit EmulatedProgram(const Graph& graph) : EmulatedProgram(plan_for_gpu(graph)) {}
  explicit EmulatedProgram(Plan plan) : plan_(std::move(plan)) {
    launches_ = unroll(plan_);
    add_fused_launches();
    add_kernels(plan_.steps);
    for (std::size_t i = 0; i < plan_.slots.size(); ++i) {
      if (plan_.slots[i].kind != SlotKind::state) continue;
      Memory& state = states_.emplace(i, plan_.slots[i].bytes).first->second;
      std::memset(state.start(), 0, static_cast<std::size_t>(plan_.slots[i].bytes));
    }
  }

  /// An op whose kernel is a library's, which cannot be emulated; empty when there is none.
  const std::string& library_op() const { return library_op_; }
  /// Whether a kernel op of our own is among the steps.
  bool has_text_kernel() const { return has_text_kernel_; }
  std::vector<const gpu::TextLaunch*> kernels() const {
    std::vector<const gpu::TextLaunch*> kernels;
    for (const auto& text : texts_) {
      for (const gpu::TextLaunch& kernel : text->launches) kernels.push_back(&kernel);
    }
    for (const FusedSteps& fused : fused_) kernels.push_back(&fused.launch->launch());
    return kernels;
  }
  /// Launches of several layers.
  std::size_t pipelines() const { return pipelines_; }
  /// Launches that kernel ops side by side share.
  std::size_t grouped() const { return fused_.size() - pipelines_; }

  /// Memory holds garbage at first, but for the state of kernels from run to run, and CTAs run in an order that the
  /// seed decides. Parameters that `feeds` names have its values. Throws the fault of a kernel, or that its CTAs wait
  /// for each other in vain.
  Tensors run(const gpu::EmulatedKernels& compiled, const Tensors& feeds, unsigned seed) const {
    std::mt19937 random(seed);
    std::vector<Memory> memories;
    const Memory arena(plan_.arena_bytes);
    std::vector<char*> bases;
    for (const Slot& slot : plan_.slots) {
      if (slot.kind == SlotKind::arena) {
        bases.push_back(arena.start() + slot.offset);
      } else if (slot.kind == SlotKind::state) {
        bases.push_back(states_.at(bases.size()).start());
      } else {
        memories.emplace_back(slot.bytes);
        bases.push_back(memories.back().start());
      }
    }
    const auto write = [&](int slot, const Tensor& tensor) {
      if (tensor.size_bytes() == 0) return;
      std::memcpy(bases[static_cast<std::size_t>(slot)], tensor.bytes(), static_cast<std::size_t>(tensor.size_bytes()));
    };
    for (const auto& [name, slot] : plan_.inputs) write(slot, feeds.at(name));
    for (const auto& [name, slot] : plan_.parameters) {
      if (const auto found = feeds.find(name); found != feeds.end()) write(slot, found->second);
    }
    for (const auto& [slot, tensor] : plan_.constants) write(slot, tensor);
    const auto place = [&](int slot) { return slot < 0 ? nullptr : bases[static_cast<std::size_t>(slot)]; };
    const auto operands_of = [&](const Launch& launch) {
      std::vector<char*> operands;
      for (const auto& [slot, offset] : launch.addresses) {
        operands.push_back(bases[static_cast<std::size_t>(slot)] + offset);
      }
      return operands;
    };
    for (std::size_t l = 0; l < launches_.size(); ++l) {
      const Launch& launch = launches_[l];
      if (const auto found = shared_at_.find(l); found != shared_at_.end()) {
        const FusedSteps& fused = fused_[found->second];
        if (fused.places[0] != l) continue;
        for (std::size_t m = 0; m < fused.places.size(); ++m) {
          const Launch& member = launches_[fused.places[m]];
          std::vector<char*> operands = operands_of(member);
          fused.launch->place(m, reinterpret_cast<void**>(operands.data()), place(member.step->workspace),
                              place(member.step->state));
        }
        gpu::LaunchScratch scratch{};
        start(compiled, fused.launch->launch(), {&scratch}, random);
        continue;
      }
      const gpu::TextPlan& text = *launch.step->text;
      std::vector<char*> operands = operands_of(launch);
      std::uint64_t fault[2] = {~0ull, ~0ull};
      gpu::LaunchScratch scratch{place(launch.step->workspace), place(launch.step->state), fault, nullptr};
      for (const gpu::TextLaunch& kernel : text.launches) {
        std::vector<void*> arguments;
        for (char*& operand : operands) arguments.push_back(&operand);
        arguments.push_back(&scratch);
        start(compiled, kernel, std::move(arguments), random, [&](const gpu::TensorMap& map) {
          const bool is_operand = map.operand != gpu::TensorMap::kWorkspace;
          const void* const memory = is_operand ? operands[static_cast<std::size_t>(map.operand)] : scratch.workspace;
          return gpu::emulated_map(map, static_cast<const char*>(memory) + map.offset);
        });
      }
      if (text.raise && (fault[0] & fault[1]) != ~0ull) text.raise(fault);
    }
    Tensors results;
    for (const Plan::Fetch& fetch : plan_.fetches) {
      Tensor tensor(fetch.operand.layout.type);
      if (tensor.size_bytes() != 0) {
        std::memcpy(tensor.bytes(), bases[static_cast<std::size_t>(fetch.operand.slot)] + fetch.operand.offset,
                    static_cast<std::size_t>(tensor.size_bytes()));
      }
      results.emplace(fetch.name, std::move(tensor));
    }
    return results;
  }

 private:
  // Aligned as the driver's memory is, and where the emulation looks for it; nothing lies after it.
  class Memory {
   public:
    explicit Memory(std::int64_t count) {
      const std::size_t bytes = (static_cast<std::size_t>(count) + kSlack) / kPage * kPage + kPage;
      static std::uintptr_t next = emulation::kCommonMemory;
      void* const there = mmap(reinterpret_cast<void*>(next), bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
      if (there == MAP_FAILED) throw std::bad_alloc();
      next += bytes + kPage;
      start_ = {static_cast<char*>(there), Unmap{bytes}};
      std::memset(there, 0x7f, bytes);
    }
    char* start() const { return start_.get(); }

   private:
    static constexpr std::size_t kSlack = 512, kPage = 4096;
    struct Unmap {
      std::size_t bytes;
      void operator()(char* start) const { munmap(start, bytes); }
    };
    std::unique_ptr<char, Unmap> start_;
  };

  static emulation::TensorMapWords no_map(const gpu::TensorMap&) { return {}; }

  // `arguments`: those in front of the sizes.
  template <class MapOf = emulation::TensorMapWords (*)(const gpu::TensorMap&)>
  static void start(const gpu::EmulatedKernels& compiled, const gpu::TextLaunch& kernel, std::vector<void*> arguments,
                    std::mt19937& random, const MapOf& map_of = no_map) {
    const gpu::Launch start = compiled.find(kernel.entry);
    if (start == nullptr) throw std::runtime_error(compiled.log());
    std::vector<std::uint64_t> sizes = kernel.sizes;
    arguments.push_back(sizes.data());
    std::vector<emulation::TensorMapWords> maps;
    for (const gpu::TensorMap& map : kernel.maps) maps.push_back(map_of(map));
    for (auto& map : maps) arguments.push_back(&map);
    std::vector<unsigned> order(kernel.grid[0]);
    for (unsigned i = 0; i < kernel.grid[0]; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    if (gpu::is_together(kernel)) order[0] = static_cast<unsigned>(random());
    const int rc = start(arguments.data(), kernel.grid[0], kernel.block, order.data());
    if (rc != 0) throw gpu::EmulationFault(fmt::format("{}: {}", emulation::told_of(rc), kernel.why));
  }

  void add_fused_launches() {
    const std::vector<std::byte*> bases = pretended_addresses(plan_);
    for (const LayerPipeline& pipeline :
         layer_pipelines_of(launches_, bases, std::vector<int>(launches_.size(), 0), nullptr)) {
      std::vector<std::size_t> places;
      std::vector<gpu::FusedMember> layers;
      for (std::size_t i = pipeline.begin; i < pipeline.end(); ++i) {
        places.push_back(i);
        if ((i - pipeline.begin) % 2 == 0) layers.push_back(member_of(i));
      }
      add(places, std::make_unique<gpu::PipelinedLaunch>(layers, kPipelineWeights, *plan_.target));
    }
    pipelines_ = fused_.size();
    constexpr std::size_t kMostLaunches = 1000;
    for (const auto& [begin, end] : independent_segments(launches_, bases, kMostLaunches)) {
      std::vector<std::size_t> places;
      std::vector<gpu::FusedMember> members;
      for (std::size_t i = begin; i < end; ++i) {
        const Step& step = *launches_[i].step;
        if (shared_at_.contains(i) || step.kind != Step::Kind::kernel || step.text == nullptr) continue;
        if (step.text->launches.size() == 1) places.push_back(i), members.push_back(member_of(i));
      }
      for (const std::vector<std::size_t>& group : gpu::launch_groups_of(members)) {
        std::vector<std::size_t> of_group;
        std::vector<gpu::FusedMember> together;
        for (const std::size_t m : group) of_group.push_back(places[m]), together.push_back(members[m]);
        add(of_group, std::make_unique<gpu::GroupedLaunch>(together, *plan_.target));
      }
    }
  }
  gpu::FusedMember member_of(std::size_t launch) const {
    const Step& step = *launches_[launch].step;
    return {step.text->launches.data(), step.operands.size()};
  }
  void add(const std::vector<std::size_t>& places, std::unique_ptr<gpu::FusedLaunch> launch) {
    for (const std::size_t at : places) {
      shared_at_[at] = fused_.size();
      in_shared_.insert(launches_[at].step);
    }
    fused_.push_back({places, std::move(launch)});
  }

  void add_kernels(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      if (in_shared_.contains(&step)) continue;
      for (const auto* body : step.bodies()) add_kernels(*body);
      if (step.text != nullptr) {
        texts_.push_back(step.text);
        has_text_kernel_ |= step.kind == Step::Kind::kernel;
      } else if (step.kind == Step::Kind::kernel) {
        library_op_ = step.call.op->name;
      }
    }
  }

  // Launches, by their places, that are one.
  struct FusedSteps {
    std::vector<std::size_t> places;
    std::unique_ptr<gpu::FusedLaunch> launch;
  };

  Plan plan_;
  std::vector<Launch> launches_;
  std::vector<FusedSteps> fused_;                 // layer pipelines first
  std::map<std::size_t, std::size_t> shared_at_;  // which of them a launch is in
  std::size_t pipelines_ = 0;
  std::set<const Step*> in_shared_;
  std::map<std::size_t, Memory> states_;  // by their slots
  std::vector<std::shared_ptr<const gpu::TextPlan>> texts_;
  std::string library_op_;
  bool has_text_kernel_ = false;
};

}  // namespace paoding::testing_program
