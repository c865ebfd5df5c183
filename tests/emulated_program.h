// SPDX-License-Identifier: Apache-2.0
// A program as it would run on a GPU, its kernels run on the CPU by cuda_emulation: groups and kernel ops that are text
// of our own. Only with CUDA's headers; needs no GPU.
#pragma once

#include <cstring>
#include <map>
#include <memory>

#include "gpu/text_kernel.h"
#include "tests/cuda_emulation/emulated_kernels.h"
#include "tests/kernel_texts.h"

namespace paoding::testing_program {

class EmulatedProgram {
 public:
  explicit EmulatedProgram(const Graph& graph) : plan_(plan_for_gpu(graph)) { add_kernels(plan_.steps); }

  /// An op whose kernel is a library's, which cannot be emulated; empty when there is none.
  const std::string& library_op() const { return library_op_; }
  /// Whether a kernel op of our own is among the steps.
  bool has_text_kernel() const { return has_text_kernel_; }
  std::vector<const gpu::GroupKernelPlan*> kernels() const {
    std::vector<const gpu::GroupKernelPlan*> kernels;
    for (const auto& [step, made] : kernels_) {
      for (const gpu::GroupKernelPlan& kernel : made.launches) kernels.push_back(&kernel);
    }
    return kernels;
  }

  /// Memory holds garbage at first and CTAs run in an order that the seed decides. Throws what a kernel faults with.
  Tensors run(const gpu::EmulatedKernels& compiled, const Tensors& feeds, unsigned seed) const {
    std::mt19937 random(seed);
    std::vector<Memory> memories;
    const Memory arena(plan_.arena_bytes);
    std::vector<char*> bases;
    for (const Slot& slot : plan_.slots) {
      if (slot.kind == SlotKind::arena) {
        bases.push_back(arena.start() + slot.offset);
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
    for (const auto& [slot, tensor] : plan_.constants) write(slot, tensor);
    for (const Launch& launch : unroll(plan_)) {
      const Kernels& made = kernels_.at(launch.step);
      std::vector<char*> operands;
      for (const auto& [slot, offset] : launch.addresses) {
        operands.push_back(bases[static_cast<std::size_t>(slot)] + offset);
      }
      const Memory workspace(made.workspace_bytes);
      std::vector<std::uint64_t> words(static_cast<std::size_t>(made.ticket_count + 2), made.is_group ? 0 : ~0ull);
      for (const gpu::GroupKernelPlan& kernel : made.launches) {
        const gpu::Launch start = compiled.find(kernel.entry);
        if (start == nullptr) throw std::runtime_error(compiled.log());
        std::vector<void*> arguments;
        for (char*& operand : operands) arguments.push_back(&operand);
        char* at = workspace.start();
        std::uint64_t* extra = words.data();
        std::vector<std::uint64_t> sizes = kernel.sizes;
        arguments.insert(arguments.end(), {&at, &extra, sizes.data()});
        std::vector<unsigned> order(kernel.grid[0]);
        for (unsigned i = 0; i < kernel.grid[0]; ++i) order[i] = i;
        std::shuffle(order.begin(), order.end(), random);
        EXPECT_EQ(start(arguments.data(), kernel.grid[0], kernel.block, order.data()), 0) << "deadlock: " << kernel.why;
      }
      if (made.raise && (words[0] & words[1]) != ~0ull) made.raise(words.data());
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
  struct Kernels {
    std::vector<gpu::GroupKernelPlan> launches;
    bool is_group = false;
    std::int64_t workspace_bytes = 0, ticket_count = 0;
    std::function<void(const std::uint64_t*)> raise;
  };

  // Aligned as the driver's memory is.
  class Memory {
   public:
    explicit Memory(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes) + 512, 0x7f) {
      start_ = bytes_.data();
      while (reinterpret_cast<std::uintptr_t>(start_) % 256 != 0) ++start_;
    }
    char* start() const { return start_; }

   private:
    std::vector<char> bytes_;
    char* start_;
  };

  void add_kernels(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      Kernels& made = kernels_[&step];
      if (step.kind == Step::Kind::loop) {
        add_kernels(step.body);
      } else if (step.kind == Step::Kind::group) {
        gpu::GroupKernelPlan plan = gpu::plan_group_step(step, gpu::ChipFacts{});
        made.is_group = true;
        made.workspace_bytes = plan.workspace_bytes, made.ticket_count = plan.ticket_count;
        if (plan.grid[0] != 0) made.launches.push_back(std::move(plan));
      } else if (step.kind == Step::Kind::kernel && step.kernel->plan_text) {
        const auto plan = step.kernel->plan_text(step.call);
        made.launches = plan->launches;
        made.workspace_bytes = plan->workspace_bytes;
        made.raise = plan->raise;
        has_text_kernel_ = true;
      } else if (step.kind == Step::Kind::kernel) {
        library_op_ = step.call.op->name;
      }
    }
  }

  Plan plan_;
  std::map<const Step*, Kernels> kernels_;
  std::string library_op_;
  bool has_text_kernel_ = false;
};

}  // namespace paoding::testing_program
