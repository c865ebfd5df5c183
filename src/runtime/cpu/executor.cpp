// SPDX-License-Identifier: Apache-2.0
// The CPU executor: every launch of a run with its pointers resolved, in one flat list.
#include "runtime/executor.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/cancel_poll.h"
#include "base/check.h"
#include "cpu/arena.h"
#include "cpu/parallel.h"
#include "paoding/interlude.h"
#include "runtime/cpu/kernels.h"
#include "runtime/reuse.h"
#include "runtime/sites.h"
#include "schedule/schedule.h"

namespace paoding {
namespace {

using profile::Recorder;
constexpr int kHost = -1;

class CpuArena : public Arena {
 public:
  explicit CpuArena(std::int64_t bytes) : memory_(bytes) { tell(); }
  std::byte* bytes() const { return memory_.bytes(); }
  std::int64_t size_bytes() const { return memory_.size_bytes(); }
  bool grow(std::int64_t bytes) {
    const bool has_grown = memory_.grow(bytes);
    tell();
    return has_grown;
  }

 private:
  void tell() { held_.set(memory_.size_bytes()); }
  GrowingMemory memory_;
  profile::HeldBytes held_{profile::HeldFor::arenas, kHost, 0};
};

class CpuExecutor : public Executor {
 public:
  CpuExecutor(const Plan& plan, const ExecutorOptions& options)
      : plan_(plan), on_step_(options.on_step), on_print_(options.on_print), watcher_(options.watcher) {
    arena_ = std::dynamic_pointer_cast<CpuArena>(options.arena);
    require_threads();
    if (!arena_ || !arena_->grow(plan.arena_bytes)) arena_ = new_arena(plan.arena_bytes);
    place_slots(options.parameters);
    // Step by step the same kernels run one by one, with the same bits.
    schedule_ = make_schedule(plan, {.execution = options.execution,
                                     .repeats = options.repeats,
                                     .batches_groups = !is_stepwise() && max_threads() > 1});
    kernels_.emplace(plan, far_results(schedule_.launches, plan.target->last_cache_bytes));
    resolve();
  }

  void write(int slot, const Tensor& tensor) override {
    std::memcpy(bases_[static_cast<std::size_t>(slot)], tensor.bytes(), static_cast<std::size_t>(tensor.size_bytes()));
  }

  using Executor::read;
  void read(const Operand& dense, Tensor* to) override {
    std::memcpy(to->bytes(), bases_[static_cast<std::size_t>(dense.slot)] + dense.offset,
                static_cast<std::size_t>(to->size_bytes()));
  }

  std::unique_ptr<LaterRead> read_later(const std::vector<const Operand*>& dense) override {
    class There : public LaterRead {
     public:
      bool is_there() const override { return true; }
      std::vector<Tensor> values() override { return std::move(tensors); }
      std::vector<Tensor> tensors;
    };
    auto there = std::make_unique<There>();
    for (const Operand* operand : dense) there->tensors.push_back(read(*operand));
    return there;
  }

  void run(std::uint32_t) override {
    require_threads();
    reserve_tiles(tile_bytes_);
    if (is_stepwise()) return run_stepwise();
    if (Recorder::active()) {
      if (!has_sites_) add_sites();
      return run_recorded();
    }
    run_each([this](const Prepared& launch) { return run_next(launch); });
  }

  void wait() override {}
  std::shared_ptr<Arena> arena() const override { return arena_; }
  std::int64_t launches() const override { return launch_count_; }
  KernelCost kernel_cost() const override { return kernels_->cost(); }

 private:
  struct Prepared {
    const CpuGroupKernel* group = nullptr;
    const PreparedKernel* kernel = nullptr;
    const CpuGroupBatch* batch = nullptr;
    void* const* operands = nullptr;
    const Launch* launch = nullptr;            // of a print, and of all in a stepwise run: the plan's
    const Prepared* const* targets = nullptr;  // of a select or jump
    std::size_t target_count = 0;
    DType chooser = DType::i32;         // read by a select
    const Prepared* end = nullptr;      // of a select: the launch after all that it chooses among
    std::uint32_t turn = 0, turns = 0;  // the steps that it runs, of turns_
    profile::SiteId site = 0;           // once it has been recorded
    profile::SiteId compute_site = 0;

    bool is_select() const { return end != nullptr; }
    bool is_jump() const { return targets != nullptr && end == nullptr; }
  };

  // A select that is under way.
  struct Open {
    const Prepared* select;
    profile::Ticks start;
  };

  // Where an arena could not grow, one that is half as large again as the last: those of many programs that each need a
  // little more than the one before are three times the largest in all.
  std::shared_ptr<CpuArena> new_arena(std::int64_t bytes) const {
    if (arena_) {
      try {
        return std::make_shared<CpuArena>(std::max(bytes, arena_->size_bytes() / 2 * 3));
      } catch (const Error&) {  // then only the bytes needed
      }
    }
    return std::make_shared<CpuArena>(bytes);
  }

  // Else the launches run one by one in any case.
  bool is_stepwise() const { return on_step_ || watcher_ != nullptr; }

  const Prepared* begin() const { return launches_.data(); }
  const Prepared* end() const { return launches_.data() + launches_.size(); }

  // A run up to its commit, and up to its end. Of several repeats each is a run.
  struct Segment {
    const Prepared* commit;
    const Prepared* end;
  };

  // Runs every launch; `run` returns the next one. Launches that run together may reach over the ends of segments.
  template <class Run>
  void run_each(const Run& run) {
    const CancelPoll poll;
    const Prepared* at = begin();
    std::size_t repeat = 0;
    try {
      for (; repeat < segments_.size(); ++repeat) {
        const Segment& segment = segments_[repeat];
        while (at < segment.commit) {
          Interlude::poll();
          poll();
          at = run(*at);
        }
        if (at <= segment.commit) poll();
        if (on_step_ && at < segment.end) {
          at = commit_seen(at, segment.end, run);
        } else {
          while (at < segment.end) at = run(*at);
        }
      }
    } catch (const Error& error) {
      fail_in_repeat(error, repeat + 1, segments_.size());
    }
  }

  // A commit in which somebody looks on, who may throw: then it has not been.
  template <class Run>
  const Prepared* commit_seen(const Prepared* at, const Prepared* end, const Run& run) {
    std::vector<Tensor> kept;
    for (const auto& [address, bytes] : parameters_) {
      kept.emplace_back(DType::u8, Shape{bytes});
      std::memcpy(kept.back().bytes(), address, static_cast<std::size_t>(bytes));
    }
    try {
      while (at < end) at = run(*at);
    } catch (...) {
      for (std::size_t i = 0; i < kept.size(); ++i) {
        std::memcpy(parameters_[i].first, kept[i].bytes(), static_cast<std::size_t>(parameters_[i].second));
      }
      throw;
    }
    return at;
  }

  // Runs the launch, or those that run together, and returns the next one.
  const Prepared* run_next(const Prepared& launch) const {
    if (launch.batch == nullptr) return run_one(launch);
    launch.batch->run();
    return &launch + 1;
  }

  // Returns the next launch.
  const Prepared* run_one(const Prepared& launch) const {
    if (launch.group != nullptr) {
      launch.group->run(launch.operands);
    } else if (launch.kernel != nullptr) {
      launch.kernel->run({launch.operands, kernels_->scratch(), nullptr});
    } else if (launch.targets != nullptr) {
      if (launch.target_count == 1) return launch.targets[0];
      return launch.targets[chosen(launch.chooser, launch.operands[0], launch.target_count)];
    } else {
      hand_over(*launch.launch);
    }
    return &launch + 1;
  }

  // A select's span ends after the branch that it chose, so that reports nest that; all turns of a loop are one span.
  void run_recorded() {
    const bool has_phases = Recorder::phases_active();
    open_.clear();
    profile::SpanList spans;
    const auto close = [&](const Prepared* at) {
      for (; !open_.empty() && open_.back().select->end == at; open_.pop_back()) {
        Recorder::complete(open_.back().select->site, open_.back().start, spans.now());
      }
    };
    run_each([&](const Prepared& launch) {
      close(&launch);
      const Prepared* next = run_next(launch);
      if (launch.is_jump()) return next;
      const profile::Ticks start = launch.is_select() ? spans.skip() : spans.complete(launch.site);
      if (launch.is_select() && (open_.empty() || open_.back().select != &launch)) open_.push_back({&launch, start});
      if (has_phases) Recorder::complete(launch.compute_site, start, spans.end());
      return next;
    });
    close(end());
  }

  void run_stepwise() {
    run_each([&](const Prepared& at) {
      if (at.targets != nullptr) return run_one(at);
      const Launch& launch = *at.launch;
      const auto read = [&](std::size_t k) { return read_strided(launch, k); };
      if (watcher_ != nullptr) watcher_->before(launch, read);
      const Prepared* next = run_one(at);
      if (watcher_ != nullptr) watcher_->after(launch, read);
      if (!on_step_) return next;
      StepSeen seen{launch.step->label.op, launch.step->label.scope, launch.instance, {}};
      for (std::size_t k = launch.step->reads; k < launch.step->operands.size(); ++k) {
        seen.results.push_back(read_strided(launch, k));
      }
      on_step_(seen);
      return next;
    });
  }

  void hand_over(const Launch& launch) const {
    if (on_print_)
      on_print_({launch.step->message, launch.step->label.scope, launch.instance, read_strided(launch, 0)});
  }

  // An operand, dense whatever strides it has.
  Tensor read_strided(const Launch& launch, std::size_t k) const;

  void place_slots(const std::vector<void*>& parameters) {
    bases_.resize(plan_.slots.size());
    std::size_t next_parameter = 0;
    std::int64_t input_bytes = 0;
    for (std::size_t i = 0; i < plan_.slots.size(); ++i) {
      const Slot& slot = plan_.slots[i];
      if (slot.kind == SlotKind::parameter) {
        bases_[i] = static_cast<std::byte*>(parameters[next_parameter++]);
        parameters_.emplace_back(bases_[i], slot.bytes);
      } else if (slot.kind == SlotKind::input) {
        inputs_.emplace_back(Type{DType::u8, Shape{slot.bytes}});
        input_bytes += slot.bytes;
        bases_[i] = inputs_.back().bytes();
      } else {
        bases_[i] = arena_->bytes() + slot.offset;
      }
    }
    held_inputs_.set(input_bytes);
  }

  // How many selects may be under way at once.
  static int depth_of(const std::vector<Step>& steps) {
    int deepest = 0;
    for (const Step& step : steps) {
      const bool selects = step.kind == Step::Kind::branch || step.kind == Step::Kind::repeat;
      for (const auto* body : step.bodies()) deepest = std::max(deepest, depth_of(*body) + (selects ? 1 : 0));
    }
    return deepest;
  }

  void resolve() {
    std::size_t addresses = 0, targets = 0, jumps = 0;
    bool has_prints = false;
    for (const LaunchEntry& entry : schedule_.entries) {
      has_prints |= entry.kind == LaunchEntry::Kind::print;
      if (entry.kind == LaunchEntry::Kind::host_choice) addresses += 1;
      for (const std::size_t i : schedule_.members(entry)) addresses += schedule_.launches[i].addresses.size();
    }
    for (const Choice& choice : schedule_.choices) {
      targets += 2 * choice.bodies.size() + 1;  // of the choice, and of the jumps after its bodies
      jumps += choice.bodies.size();
    }
    launch_count_ = static_cast<std::int64_t>(schedule_.launches.size());
    pointers_.reserve(addresses);
    targets_.reserve(targets);
    launches_.reserve(schedule_.entries.size() + jumps);
    turns_.reserve(schedule_.launches.size());
    add_entries(0, schedule_.entries.size());
    find_segments();
    open_.reserve(static_cast<std::size_t>(depth_of(plan_.steps)));
    tile_bytes_ = kernels_->tile_bytes();
    reserve_tiles(tile_bytes_);
    if (!is_stepwise() && !has_prints) schedule_ = {};
  }

  // The entries [first, end), with jumps where bodies end.
  void add_entries(std::size_t first, std::size_t end) {
    const CancelPoll poll;
    for (std::size_t k = first; k < end; ++k) {
      poll();
      const LaunchEntry& entry = schedule_.entries[k];
      if (entry.body_of < 0) {
        const auto members = schedule_.members(entry);
        tops_.push_back({entry.launch, members.empty() ? entry.launch : members.back(), begin() + launches_.size()});
      }
      if (entry.kind == LaunchEntry::Kind::fused) {
        add_batch(entry);
      } else if (entry.kind != LaunchEntry::Kind::host_choice) {
        add_launch(entry.launch);
      } else {
        add_choice(entry);
        k = schedule_.choice_of(entry).end - 1;
      }
    }
  }

  void add_choice(const LaunchEntry& entry) {
    const Choice& choice = schedule_.choice_of(entry);
    const std::size_t select = launches_.size();
    add_launch(entry.launch);
    std::vector<const Prepared*> bodies;
    std::vector<std::size_t> jumps;  // their targets, of targets_
    for (const auto& [first, end] : choice.bodies) {
      bodies.push_back(begin() + launches_.size());
      add_entries(first, end);
      if (!choice.is_loop && bodies.size() == choice.bodies.size()) break;  // goes on behind
      jumps.push_back(targets_.size());
      launches_.push_back({.targets = targets_.data() + targets_.size(), .target_count = 1});
      targets_.push_back(begin() + select);
    }
    const Prepared* const behind = begin() + launches_.size();
    if (choice.is_loop) {
      bodies.insert(bodies.begin(), behind);  // where its condition is false
    } else {
      for (const std::size_t jump : jumps) targets_[jump] = behind;
    }
    Prepared& made = launches_[select];
    made.targets = targets_.data() + targets_.size();
    made.target_count = bodies.size();
    targets_.insert(targets_.end(), bodies.begin(), bodies.end());
    made.chooser = schedule_.launches[entry.launch].step->operands[0].layout.type.dtype;
    made.end = behind;
  }

  void* const* add_operands(const Launch& launch) {
    void* const* const first = pointers_.data() + pointers_.size();
    for (const auto& [slot, offset] : launch.addresses)
      pointers_.push_back(bases_[static_cast<std::size_t>(slot)] + offset);
    return first;
  }

  void add_launch(std::size_t i) {
    const Launch& launch = schedule_.launches[i];
    Prepared prepared;
    prepared.operands = add_operands(launch);
    prepared.launch = &launch;
    if (launch.step->kind == Step::Kind::group) {
      prepared.group = &kernels_->group(launch.step);
    } else if (launch.step->kind == Step::Kind::kernel) {
      prepared.kernel = &kernels_->kernel(launch.step);
    }
    prepared.turn = static_cast<std::uint32_t>(turns_.size());
    prepared.turns = 1;
    turns_.push_back({launch.step, launch.instance});
    launches_.push_back(prepared);
  }

  void add_batch(const LaunchEntry& entry) {
    std::vector<const Step*> steps;
    std::vector<void* const*> operands;
    const auto first = static_cast<std::uint32_t>(turns_.size());
    for (const std::size_t i : schedule_.members(entry)) {
      const Launch& launch = schedule_.launches[i];
      steps.push_back(launch.step);
      operands.push_back(add_operands(launch));
      turns_.push_back({launch.step, launch.instance});
    }
    launches_.push_back({.batch = &kernels_->add_batch(steps, operands),
                         .turn = first,
                         .turns = static_cast<std::uint32_t>(steps.size())});
  }

  // The recorder keeps a site for ever, so only programs that are recorded have some.
  void add_sites() {
    const profile::Ticks began = Recorder::now();
    const auto name_of = [this](const Step& step) { return StepKernel{kernels_->name_of(step)}; };
    const LaunchSites all(turns_, name_of);
    for (Prepared& prepared : launches_) {
      if (prepared.turns == 0) continue;
      const auto turns = std::span(turns_).subspan(prepared.turn, prepared.turns);
      StepSites sites = all.of(turns[0]);
      if (prepared.batch != nullptr) {
        std::vector<const Step*> steps;
        for (const StepTurn& turn : turns) steps.push_back(turn.step);
        sites = sites_of_batch(steps, name_of(*steps[0]));
      }
      prepared.site = sites.op;
      prepared.compute_site = sites.compute;
    }
    has_sites_ = true;
    static const profile::SiteId naming =
        Recorder::add_site({.name = "recorder", .kind = profile::SpanKind::recording});
    Recorder::complete(naming, began, Recorder::now());
  }

  // Launches that start as one may reach over the end of a repeat, and, as the first of a commit, over its begin.
  void find_segments() {
    const std::vector<Launch>& launches = schedule_.launches;
    const std::size_t size = launches.size() / static_cast<std::size_t>(schedule_.repeats);
    const auto first_from = [&](std::size_t launch) {
      return std::ranges::lower_bound(tops_, launch, {}, &Top::first);
    };
    const auto place_of = [&](auto top) { return top == tops_.end() ? end() : top->place; };
    for (std::size_t begins = 0; begins < launches.size(); begins += size) {
      std::size_t commit = begins;
      while (commit < begins + size && !launches[commit].is_commit) ++commit;
      auto top = first_from(commit);
      if (top != tops_.begin() && std::prev(top)->last >= commit) --top;
      segments_.push_back({place_of(top), place_of(first_from(begins + size))});
    }
    tops_ = {};
  }

  const Plan& plan_;
  std::function<void(const StepSeen&)> on_step_;
  std::function<void(Printed&&)> on_print_;
  LaunchWatcher* watcher_;
  std::shared_ptr<CpuArena> arena_;
  std::vector<Tensor> inputs_;
  profile::HeldBytes held_inputs_{profile::HeldFor::inputs, kHost, 0};
  std::vector<std::byte*> bases_;  // per slot
  std::vector<std::pair<std::byte*, std::int64_t>> parameters_;
  std::optional<CpuKernels> kernels_;
  std::int64_t tile_bytes_ = 0;  // of a thread, for any of the groups
  std::int64_t launch_count_ = 0;
  std::vector<void*> pointers_;  // operands of all launches
  std::vector<Prepared> launches_;
  std::vector<const Prepared*> targets_;  // of all selects and jumps
  std::vector<Segment> segments_;         // per repeat
  std::vector<StepTurn> turns_;           // of the launches
  bool has_sites_ = false;                // the launches' sites are known
  std::vector<Open> open_;                // while recording
  // While it is made: where the entries that are in no body are in launches_.
  struct Top {
    std::size_t first, last;  // launches
    const Prepared* place;
  };
  std::vector<Top> tops_;
  Schedule schedule_;  // kept for the debug execution and for prints
};

Tensor CpuExecutor::read_strided(const Launch& launch, std::size_t k) const {
  const Layout& layout = launch.step->operands[k].layout;
  const auto& [slot, offset] = launch.addresses[k];
  const std::byte* start = bases_[static_cast<std::size_t>(slot)] + offset;
  Tensor tensor(layout.type);
  if (layout.is_dense()) {
    std::memcpy(tensor.bytes(), start, static_cast<std::size_t>(tensor.size_bytes()));
    return tensor;
  }
  const Shape& shape = layout.type.shape;
  const std::int64_t size = size_bytes(layout.type.dtype), elements = shape.elements();
  for (std::int64_t i = 0; i < elements; ++i) {
    std::int64_t rest = i, at = 0;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      at += rest % shape[axis] * layout.strides[static_cast<std::size_t>(axis)];
      rest /= shape[axis];
    }
    std::memcpy(tensor.bytes() + i * size, start + at * size, static_cast<std::size_t>(size));
  }
  return tensor;
}

class CpuBuffer : public DeviceBuffer {
 public:
  explicit CpuBuffer(std::int64_t bytes)
      : memory_(Type{DType::u8, Shape{bytes}}), held_(profile::HeldFor::parameters, kHost, bytes) {
    std::memset(memory_.bytes(), 0, static_cast<std::size_t>(bytes));
  }
  void* address() const override { return const_cast<std::byte*>(memory_.bytes()); }
  void write(const Tensor& tensor) override {
    std::memcpy(memory_.bytes(), tensor.bytes(), static_cast<std::size_t>(tensor.size_bytes()));
  }
  Tensor read(const Type& type) const override {
    Tensor tensor(type);
    std::memcpy(tensor.bytes(), memory_.bytes(), static_cast<std::size_t>(tensor.size_bytes()));
    return tensor;
  }

 private:
  Tensor memory_;
  profile::HeldBytes held_;
};

}  // namespace

std::unique_ptr<Executor> make_cpu_executor(const Plan& plan, const ExecutorOptions& options) {
  return std::make_unique<CpuExecutor>(plan, options);
}

std::unique_ptr<DeviceBuffer> make_cpu_buffer(std::int64_t bytes) { return std::make_unique<CpuBuffer>(bytes); }

}  // namespace paoding
