// SPDX-License-Identifier: Apache-2.0
// A plan on memory of somebody else's, on the CPU.
#include <algorithm>
#include <cstring>

#include "base/cancel_poll.h"
#include "cpu/arena.h"
#include "cpu/parallel.h"
#include "runtime/cpu/kernels.h"
#include "runtime/placed/placed_plan.h"
#include "runtime/sites.h"

namespace paoding {
namespace {

using profile::Recorder;

class PlacedCpuPlan : public PlacedPlan {
 public:
  explicit PlacedCpuPlan(PlacedSource source) : PlacedPlan(std::move(source), max_threads() > 1), kernels_(plan()) {
    require_threads();
    place_own();
    for (const LaunchEntry& entry : schedule().entries) {
      starts_.push_back(entry.kind == Kind::fused ? batch(entry) : alone(entry));
    }
    tile_bytes_ = kernels_.tile_bytes();
  }

 private:
  using Kind = LaunchEntry::Kind;

  // An entry of the schedule.
  struct Start {
    const CpuGroupBatch* batch = nullptr;
    const CpuGroupKernel* group = nullptr;
    const PreparedKernel* kernel = nullptr;
    void* const* operands = nullptr;  // of a batch those that it knows
    const Choice* choice = nullptr;   // whose index is the first operand
    DType index = DType::i32;
  };

  Start alone(const LaunchEntry& entry) {
    const Launch& launch = schedule().launches[entry.launch];
    Start start;
    if (entry.kind == Kind::host_choice) {
      start.choice = &schedule().choice_of(entry);
      start.index = launch.step->operands[0].layout.type.dtype;
    } else if (launch.step->kind == Step::Kind::group) {
      start.group = &kernels_.group(launch.step);
    } else {
      start.kernel = &kernels_.kernel(launch.step);
    }
    start.operands = memory_of(entry.launch).operands;
    return start;
  }

  Start batch(const LaunchEntry& entry) {
    std::vector<const Step*> steps;
    std::vector<void* const*> operands;
    for (const std::size_t i : schedule().members(entry)) {
      steps.push_back(schedule().launches[i].step);
      operands.push_back(memory_of(i).operands);
    }
    Start start;
    start.batch = &kernels_.add_batch(steps, operands);
    return start;
  }

  // The recorder keeps a site for ever, so only plans that are recorded have some.
  void add_sites() {
    const auto name_of = [this](const Step& step) { return StepKernel{kernels_.name_of(step)}; };
    const LaunchSites all(schedule().launches, name_of);
    for (const LaunchEntry& entry : schedule().entries) {
      if (entry.kind != Kind::fused) {
        sites_.push_back(all.of(schedule().launches[entry.launch]));
        continue;
      }
      std::vector<const Step*> steps;
      for (const std::size_t i : schedule().members(entry)) steps.push_back(schedule().launches[i].step);
      sites_.push_back(sites_of_batch(steps, name_of(*steps[0])));
    }
  }

  void* own_memory(const Slot& slot, const Tensor* constant) override {
    own_.emplace_back(u8, Shape{slot.bytes});
    std::fill_n(own_.back().bytes(), slot.bytes, std::byte{});
    if (constant != nullptr) std::copy_n(constant->bytes(), constant->size_bytes(), own_.back().bytes());
    return own_.back().bytes();
  }

  void run_one(const Start& start) const {
    if (start.batch != nullptr) return start.batch->run();
    if (start.group != nullptr) return start.group->run(start.operands);
    start.kernel->run({start.operands, kernels_.scratch(), nullptr});
  }

  // Starts the entries [first, end), and of choices the bodies that are chosen; `on` is told of each.
  template <class On>
  void start_entries(std::size_t first, std::size_t end, On& on) const {
    for (std::size_t k = first; k < end; ++k) {
      const Start& start = starts_[k];
      if (start.choice == nullptr) {
        run_one(start);
        on.started(start);
        continue;
      }
      const auto since = on.chooses();
      choose(start, on);
      on.chose(start, since);
      k = start.choice->end - 1;
    }
  }

  template <class On>
  void choose(const Start& start, On& on) const {
    const auto& bodies = start.choice->bodies;
    const auto run = [&](const auto& body) { start_entries(body.first, body.second, on); };
    if (!start.choice->is_loop) return run(bodies[chosen(start.index, start.operands[0], bodies.size())]);
    const CancelPoll poll;
    while (chosen(start.index, start.operands[0], 2) == 1) {
      poll();
      run(bodies[0]);
    }
  }

  struct Unseen {
    void started(const Start&) const {}
    bool chooses() const { return true; }
    void chose(const Start&, bool) const {}
  };

  // A choice's span ends after the body that it chose, so that reports nest that; all turns of a loop are one span.
  struct Seen {
    const Start* first;
    const StepSites* sites;  // of the starts from the first on
    const bool has_phases = Recorder::phases_active();
    profile::SpanList spans = {};
    void started(const Start& start) {
      const profile::Ticks began = spans.complete(of(start).op);
      if (has_phases) Recorder::complete(of(start).compute, began, spans.end());
    }
    profile::Ticks chooses() { return spans.skip(); }
    void chose(const Start& start, profile::Ticks since) { Recorder::complete(of(start).op, since, spans.now()); }
    const StepSites& of(const Start& start) const { return sites[&start - first]; }
  };

  void start(std::uint32_t, void* stream) override {
    reserve_tiles(tile_bytes_);  // of the thread that runs it
    begin(stream, false);
    if (Recorder::active()) {
      if (sites_.empty()) add_sites();
      Seen seen{starts_.data(), sites_.data()};
      start_entries(0, starts_.size(), seen);
    } else {
      Unseen unseen;
      start_entries(0, starts_.size(), unseen);
    }
    end(stream);
  }

  void copy(void* to, const void* from, std::int64_t bytes, void*) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  void clear(void* address, std::int64_t bytes, void*) override {
    std::memset(address, 0, static_cast<std::size_t>(bytes));
  }

  CpuKernels kernels_;
  std::vector<Start> starts_;     // per entry
  std::vector<StepSites> sites_;  // of those, once they have been recorded
  std::vector<Tensor> own_;
  std::int64_t tile_bytes_ = 0;  // of a thread, for any of the groups
};

}  // namespace

std::unique_ptr<PlacedPlan> make_placed_cpu_plan(PlacedSource source) {
  return std::make_unique<PlacedCpuPlan>(std::move(source));
}

}  // namespace paoding
