// SPDX-License-Identifier: Apache-2.0
// The GPU executor: every launch of a run captured once into a CUDA graph; a run is one graph launch. One that prints
// and writes is two: between them the host hands over the printed values.
#include "runtime/executor.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "base/cancel_poll.h"
#include "base/check.h"
#include "base/one_line.h"
#include "gpu/driver/write_memory.h"
#include "runtime/gpu/arena.h"
#include "runtime/gpu/choices.h"
#include "runtime/gpu/commit_guard.h"
#include "runtime/gpu/completion_flag.h"
#include "runtime/gpu/copy_span.h"
#include "runtime/gpu/device_results.h"
#include "runtime/gpu/feeds.h"
#include "runtime/gpu/fused_kernels.h"
#include "runtime/gpu/host.h"
#include "runtime/gpu/kernels.h"
#include "runtime/gpu/memory_check.h"
#include "runtime/gpu/phases.h"
#include "runtime/gpu/profiled_graph.h"
#include "runtime/gpu/readback.h"
#include "runtime/gpu/reads.h"
#include "runtime/gpu/results.h"
#include "runtime/gpu/trace.h"
#include "runtime/sites.h"
#include "schedule/schedule.h"

namespace paoding {
namespace {

using gpu::DeviceMemory;
using gpu::GpuDevice;

class GpuExecutor : public Executor {
 public:
  GpuExecutor(const Plan& plan, const ExecutorOptions& options)
      : plan_(plan),
        device_(GpuDevice::get(options.device.index)),
        driver_(gpu::required_driver()),
        arena_(arena_for(options)),
        stream_(arena_->stream),
        is_captured_(options.execution == Execution::captured),
        feeds_(device_, stream_, plan),
        name_(options.name),
        on_step_(options.on_step),
        watcher_(options.watcher),
        schedule_(make_schedule(plan, {options.execution, options.repeats, options.fuses_launches})),
        behind_(device_) {
    place_slots(options.parameters);
    clear_state();
    resolve();
    host_.emplace(plan_, schedule_.host, options, bases_, &feeds_);
    if (is_captured_) {
      fused_ = FusedKernels(schedule_);
      results_ = GpuResults(device_, schedule_.results, *plan_.target, bases_);
      choices_ = GpuChoices(device_, schedule_, *plan_.target);
      end_ = CompletionFlag(device_, schedule_.completion, *plan_.target, bases_);
    }
    prepare_kernels();
    prints_ = GpuPrints(device_, launches_, options.on_print);
    place_guard(options);
    if (is_captured_) {
      capture(std::make_shared<const GpuTrace::Sites>(GpuTrace::sites_of(launch_sites(), schedule_, fused_)));
    } else {
      GpuTrace::add_source();
      step_sites_.emplace(launch_sites());
    }
    add_phases();
  }

  ~GpuExecutor() override {
    try {
      device_.make_current();
      stream_.wait_idle();  // the work that it has enqueued is done with its memory
    } catch (...) {         // the device is gone, and all enqueued work with it
    }
  }

  void write(int slot, const Tensor& tensor) override {
    device_.make_current();
    if (host_->write(slot, tensor)) return;
    if (is_input_[static_cast<std::size_t>(slot)]) return feeds_.write(slot, tensor);
    if (tensor.size_bytes() == 0) return;  // a constant, before the first run
    gpu::write_memory(bases_[static_cast<std::size_t>(slot)], tensor.bytes(),
                      static_cast<std::size_t>(tensor.size_bytes()));
  }

  void write(int slot, const DeviceTensor& tensor, void* stream) override {
    device_.make_current();
    if (host_->reads(slot)) {
      tensor.state().order_before(stream_.get());
      stream_.wait_idle();
      if (host_->write(slot, tensor.to_host())) return;
    }
    feeds_.write(slot, tensor, static_cast<CUstream>(stream));
  }

  void read(const Operand& dense, Tensor* to) override {
    device_.make_current();
    wait();
    const auto bytes = static_cast<std::size_t>(to->size_bytes());
    if (bytes == 0) return;
    const std::byte* there = results_.find(dense);
    if (there == nullptr) there = end_.find(dense);
    if (there != nullptr) return void(std::memcpy(to->bytes(), there, bytes));
    const CopySpan seen(profile::Copy::device_to_host, device_);
    PD_CUDA(driver_.cuMemcpyDtoH(to->bytes(), address_of(dense), bytes));
  }

  std::unique_ptr<LaterRead> read_later(const std::vector<const Operand*>& dense) override {
    device_.make_current();
    std::vector<GpuReads::Source> sources;
    for (const Operand* operand : dense) sources.push_back({address_of(*operand), operand->layout.type});
    return reads_->start(sources);
  }

  DeviceTensor keep(const Operand& dense) override {
    device_.make_current();
    return kept_->start(address_of(dense), dense.layout.type);
  }

  void* stream() const override { return stream_.get(); }

  void precede(void* stream) override {
    if (stream == stream_.get()) return;
    device_.make_current();
    behind_.record(stream_.get());
    gpu::Stream(static_cast<CUstream>(stream)).wait_for(behind_);
  }
  void follow(StoreUser& other) override { other.precede(stream_.get()); }

  [[gnu::hot]] void run(std::uint32_t run) override {
    device_.make_current();
    feeds_.take_over();
    if (!is_captured_) return run_stepwise(run);
    arena_->cancel.pace(schedule_.guards.expected_us);
    const CompletionFlag::Signals signals = end_.begin_run();
    try {
      bool is_first = true;
      for (std::size_t s = 0; s < segments_.size(); is_first = false) {
        s = run_segment(segments_[s], run, is_first, signals);
      }
    } catch (...) {
      guard_->leave_run();
      throw;
    }
  }

  void wait() override {
    wait(true);
    feeds_.let_go();
  }
  void finish() override { wait(false); }
  bool can_fail() const override { return guard_->can_fail(); }
  std::shared_ptr<Arena> arena() const override { return arena_; }
  KernelCost kernel_cost() const override {
    KernelCost cost = kernels_.cost();
    cost.notes.insert(cost.notes.end(), schedule_.notes.begin(), schedule_.notes.end());
    return cost;
  }
  std::int64_t launches() const override { return schedule_.starts(); }

  std::string kernel_text() const override { return GpuKernels::text(plan_); }

 private:
  void wait(bool again) {
    if (!end_.has_come()) named([&] { arena_->cancel.wait_idle(); });
    end_.was_waited_for();
    guard_->check(guard_->last_run(), again);
  }

  // An error of the device says in whose run it came.
  template <class Call>
  void named(const Call& call) const {
    try {
      call();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::device) throw;
      fail(ErrorKind::device, "{}: {}", name_, error.what());
    }
  }

  void add_phases() {
    std::set<const Step*> seen;
    std::optional<LaunchSites> sites;
    for (const Launch& launch : launches_) {
      const gpu::TextPlan* const text = launch.step->text.get();
      if (text == nullptr || text->launches.size() != 1 || text->launches[0].phases.empty()) continue;
      if (!seen.insert(launch.step).second) continue;
      if (!sites) sites.emplace(launch_sites());
      const auto at = reinterpret_cast<CUdeviceptr>(slot_pointer(launch.step->state)) +
                      static_cast<CUdeviceptr>(4 * text->launches[0].phases_at);
      phases_.add(at, text->launches[0].phases, sites->of(launch).kernel);
    }
  }

  LaunchSites launch_sites() const { return {launches_, kernels_.names()}; }

  void capture(const std::shared_ptr<const GpuTrace::Sites>& sites) {
    const std::vector<GpuStamps::By> by = GpuStamps::by(schedule_);
    for (const Segment& segment : schedule_.segments) {
      CapturedSegment& captured = segments_.emplace_back(CapturedSegment{segment});
      if (captured.segment.kind != Segment::Kind::graph) continue;
      capture_with_flag(captured.segment);
      const auto [first, end] = std::pair(captured.segment.first, captured.segment.end);
      captured.graph = std::make_unique<ProfiledGraph>(
          device_, arena_->graphs, schedule_,
          GpuStamps::Segment{first, end, by, sites, [this](auto... of) { capture(of...); }});
    }
  }

  // The one graph of a run, with its end: now, since the run that is the first to tell it is waited for. In front of
  // the graph without, which is used first.
  void capture_with_flag(const Segment& segment) {
    if (end_.can(CompletionFlag::Signals::completion)) end_.prepare();
    for (const auto signals : {CompletionFlag::Signals::results, CompletionFlag::Signals::completion}) {
      if (!end_.can(signals)) continue;
      signalled_[CompletionFlag::kind(signals)] = std::make_unique<CapturedGraph>(
          device_, arena_->graphs, schedule_, segment.first, segment.end,
          [this](std::size_t k, CUstream stream, CUgraphConditionalHandle node) {
            if (end_.leaves(k)) capture(k, stream, node, nullptr);
          },
          [this, signals](CUstream stream) { end_.start(signals, stream); });
    }
  }

  void capture(std::size_t k, CUstream stream, CUgraphConditionalHandle node, void* stamp) const {
    try {
      start(k, stream, node, stamp);
    } catch (const Error& error) {
      fail(error.kind(), "{} cannot be captured: {}", who(schedule_.entries[k].launch), error.what());
    }
  }

  // Which launch, in errors.
  std::string who(std::size_t i) const {
    const StepLabel& label = launches_[i].step->label;
    return fmt::format("step {} ({}{}, turn {})", i, one_line(label.op),
                       label.scope.empty() ? "" : " in " + one_line(label.scope), launches_[i].instance);
  }

  struct CapturedSegment {
    Segment segment;
    std::unique_ptr<ProfiledGraph> graph = {};
  };

  // Runs a segment and returns the index of the next one.
  std::size_t run_segment(CapturedSegment& captured, std::uint32_t run, bool is_first,
                          CompletionFlag::Signals signals) {
    const Segment& segment = captured.segment;
    {
      const auto lock = guard_->lock();
      if (is_first) guard_->begin_run();
      if (segment.prints) prints_.clear();
      if (segment.kind == Segment::Kind::graph) {
        CapturedGraph* const instead =
            signals == CompletionFlag::Signals::nothing ? nullptr : signalled_[CompletionFlag::kind(signals)].get();
        named([&] {
          const bool is_it = captured.graph->launch(run, stream_.get(), instead);
          end_.launched(is_it ? signals : CompletionFlag::Signals::nothing);
        });
      }
    }
    if (segment.kind == Segment::Kind::host) {
      run_on_host(schedule_.entries[segment.first], run, [this] { wait(true); });
    } else if (segment.kind == Segment::Kind::choice) {
      return segment.targets[asked(schedule_.entries[segment.first])];
    } else if (segment.prints) {
      hand_over();
    }
    return segment.next;
  }

  // Makes a choice on the host. A loop ends where a kernel has left a fault: its condition may follow from that.
  std::size_t asked(const LaunchEntry& choice) {
    wait(true);
    CancelScope::poll();
    if (schedule_.choice_of(choice).is_loop && guard_->has_fault_before(launches_[choice.launch].end)) return 0;
    return taken_by(choice.launch).value_or(0);
  }

  void hand_over() {
    wait(true);
    std::size_t i = 0;
    try {
      prints_.hand_over(&i);
    } catch (const Error& error) {
      const auto repeats = static_cast<std::size_t>(schedule_.repeats);
      fail_in_repeat(error, i / (launches_.size() / repeats) + 1, repeats);
    }
  }

  // Takes an arena that earlier programs have, where it can grow to the size that this one needs.
  std::shared_ptr<GpuArena> arena_for(const ExecutorOptions& options) const {
    auto arena = std::dynamic_pointer_cast<GpuArena>(options.arena);
    check_memory(plan_, device_, arena ? static_cast<std::int64_t>(arena->memory.size_bytes()) : 0);
    if (arena && arena->memory.grow(static_cast<std::size_t>(plan_.arena_bytes))) return arena;
    return std::make_shared<GpuArena>(device_, plan_.arena_bytes, options);
  }

  void place_slots(const std::vector<void*>& parameters) {
    std::size_t next_parameter = 0;
    const auto own = [&](const Slot& slot) {
      const auto what = slot.kind == SlotKind::input ? profile::HeldFor::inputs : profile::HeldFor::kernels;
      own_.emplace_back(device_, static_cast<std::size_t>(std::max<std::int64_t>(slot.bytes, 1)), what);
      return own_.back().address();
    };
    for (const Slot& slot : plan_.slots) {
      const CUdeviceptr packed = feeds_.packed_address(static_cast<int>(bases_.size()));
      if (slot.kind == SlotKind::parameter) {
        bases_.push_back(reinterpret_cast<CUdeviceptr>(parameters[next_parameter++]));
      } else if (packed != 0) {
        bases_.push_back(packed);
      } else if (slot.kind == SlotKind::input || slot.kind == SlotKind::state) {
        bases_.push_back(own(slot));
      } else {
        bases_.push_back(arena_->memory.address() + static_cast<CUdeviceptr>(slot.offset));
      }
    }
    is_input_.assign(plan_.slots.size(), false);
    for (const auto& [name, slot] : plan_.inputs) {
      const auto at = static_cast<std::size_t>(slot);
      is_input_[at] = true;
      feeds_.add(slot, bases_[at], plan_.slots[at].bytes);
    }
  }

  CUdeviceptr address_of(const Operand& dense) const {
    return bases_[static_cast<std::size_t>(dense.slot)] + static_cast<CUdeviceptr>(dense.offset);
  }

  void prepare_kernels() {
    std::vector<gpu::KernelSource> more;
    for (const auto& texts : {fused_.sources(), choices_.sources(), results_.sources(), end_.sources()}) {
      more.insert(more.end(), texts.begin(), texts.end());
    }
    kernels_.prepare(device_, plan_, std::move(more));
    fused_.load(device_);
    choices_.load(device_);
    results_.load(device_);
    stream_.wait_idle();
  }

  void resolve() {
    std::size_t count = 0;
    for (const Launch& launch : launches_) count += launch.addresses.size();
    pointers_.reserve(count);
    for (const Launch& launch : launches_) {
      first_pointer_.push_back(pointers_.size());
      for (const auto& [slot, offset] : launch.addresses) {
        pointers_.push_back(
            reinterpret_cast<void*>(bases_[static_cast<std::size_t>(slot)] + static_cast<CUdeviceptr>(offset)));
      }
    }
  }

  void place_guard(const ExecutorOptions& options) {
    std::vector<const PreparedKernel*> kernels;
    for (std::size_t i = 0; i < launches_.size(); ++i) {
      kernels.push_back(schedule_.guards.may_fault[i] != 0 ? &kernels_.at(launches_[i].step) : nullptr);
    }
    auto failure = std::dynamic_pointer_cast<GpuFailure>(options.failure);
    if (!failure) failure = std::make_shared<GpuFailure>(device_);
    guard_.emplace(device_, stream_, arena_->cancel, schedule_.guards, std::move(kernels), std::move(failure),
                   [this] { clear_state(); });
    reads_.emplace(device_, stream_, arena_->cancel, *guard_);
    kept_.emplace(device_, stream_, *guard_);
  }

  // Clears the state that kernels keep from run to run; after a failed run it is as good as lost.
  void clear_state() const {
    for (std::size_t i = 0; i < plan_.slots.size(); ++i) {
      const Slot& slot = plan_.slots[i];
      if (slot.kind != SlotKind::state) continue;
      PD_CUDA(driver_.cuMemsetD8Async(bases_[i], 0, static_cast<std::size_t>(slot.bytes), stream_.get()));
    }
  }

  void start(std::size_t k, CUstream stream, CUgraphConditionalHandle node, void* stamp) const {
    using Kind = LaunchEntry::Kind;
    const LaunchEntry& entry = schedule_.entries[k];
    switch (entry.kind) {
      case Kind::launch:
      case Kind::print: return start_launch(entry.launch, stream, stamp);
      case Kind::fused:
        return fused_.start(entry, stream, [&](std::size_t member) { return run_of(member, stream, stamp); });
      case Kind::guard: return guard_->start(stream);
      case Kind::poll: return arena_->cancel.start_poll(stream);
      case Kind::host:
      case Kind::host_choice: return;  // never among others
      case Kind::results: return results_.start(stream);
      case Kind::choice:
      case Kind::again: {
        const auto asked = [&](std::size_t select) -> GpuChoices::Asked {
          const auto [faults, words] = guard_->faults_before(launches_[select].end);
          return {pointers_[first_pointer_[select]],
                  asked_by(select),
                  node,
                  faults,
                  words,
                  arena_->cancel.flag(),
                  arena_->cancel.word()};
        };
        return choices_.start(entry, asked, stream);
      }
    }
  }

  void run_on_host(const LaunchEntry& entry, std::uint32_t run, const std::function<void()>& wait) {
    host_->run(*schedule_.host.find(entry.launch), run, wait);
  }

  void start_launch(std::size_t i, CUstream stream, void* stamp = nullptr) const {
    const Step* step = launches_[i].step;
    void* const* operands = pointers_.data() + first_pointer_[i];
    if (step->kind == Step::Kind::print) {
      prints_.start(i, reinterpret_cast<CUdeviceptr>(operands[0]), asked_by(i), stream);
    } else {
      kernels_.at(step).run(run_of(i, stream, stamp));
    }
  }

  KernelRun run_of(std::size_t i, CUstream stream, void* stamp) const {
    const Step& step = *launches_[i].step;
    return {pointers_.data() + first_pointer_[i],
            slot_pointer(step.workspace),
            stream,
            slot_pointer(step.state),
            guard_->fault_of(i),
            asked_by(i),
            stamp};
  }

  // The branch that a select chooses, once its index is there; nothing where it is not to choose.
  std::optional<std::size_t> taken_by(std::size_t i) const {
    stream_.wait_idle();
    const Launch& select = launches_[i];
    const DType dtype = select.step->operands[0].layout.type.dtype;
    unsigned is_off = 0;
    std::int64_t index = 0;
    const void* const asked = asked_by(i);
    const CopySpan seen(profile::Copy::device_to_host, device_);
    if (asked != nullptr) PD_CUDA(driver_.cuMemcpyDtoH(&is_off, reinterpret_cast<CUdeviceptr>(asked), sizeof(is_off)));
    if (is_off != 0) return std::nullopt;
    PD_CUDA(driver_.cuMemcpyDtoH(&index, reinterpret_cast<CUdeviceptr>(pointers_[first_pointer_[i]]),
                                 static_cast<std::size_t>(size_bytes(dtype))));
    return chosen(dtype, &index, select.targets.size());
  }

  // The word that the launch asks before it writes.
  void* asked_by(std::size_t i) const {
    void* const of_branch = choices_.word_of(i);
    return of_branch != nullptr ? of_branch : guard_->called_off(i);
  }

  void* slot_pointer(int slot) const {
    return slot < 0 ? nullptr : reinterpret_cast<void*>(bases_[static_cast<std::size_t>(slot)]);
  }

  // An error in the commit, where only somebody who looks on may throw, leaves parameters unchanged.
  void run_stepwise(std::uint32_t run) {
    prints_.clear();
    named([&] { stream_.wait_idle(); });  // feeds are there: who looks on reads them before the first step
    const CancelPoll poll;
    std::vector<std::vector<std::byte>> kept;
    bool is_commit = false;
    try {
      for (std::size_t s = 0; s < schedule_.segments.size();) {
        const Segment& segment = schedule_.segments[s];
        s = segment.next;
        for (std::size_t k = segment.first; k < segment.end; ++k) {
          const LaunchEntry& entry = schedule_.entries[k];
          const bool commits = launches_[entry.launch].is_commit;
          if (!commits) poll();
          if (commits && !is_commit && on_step_) kept = parameters();
          is_commit = commits;
          if (segment.kind == Segment::Kind::host) {
            run_on_host(entry, 0, [this] { stream_.wait_idle(); });
          } else if (segment.kind == Segment::Kind::choice) {
            s = segment.targets[*taken_by(entry.launch)];
          } else {
            run_step(entry.launch, run);
          }
        }
      }
    } catch (...) {
      if (is_commit && on_step_) set_parameters(kept);
      throw;
    }
  }

  std::vector<std::vector<std::byte>> parameters() const {
    std::vector<std::vector<std::byte>> kept;
    for (const auto& [name, slot] : plan_.parameters) {
      kept.emplace_back(static_cast<std::size_t>(plan_.slots[static_cast<std::size_t>(slot)].bytes));
      const CUdeviceptr at = bases_[static_cast<std::size_t>(slot)];
      if (!kept.back().empty()) PD_CUDA(driver_.cuMemcpyDtoH(kept.back().data(), at, kept.back().size()));
    }
    return kept;
  }
  void set_parameters(const std::vector<std::vector<std::byte>>& kept) const {
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const CUdeviceptr at = bases_[static_cast<std::size_t>(plan_.parameters[i].second)];
      if (!kept[i].empty()) gpu::write_memory(at, kept[i].data(), kept[i].size());
    }
  }

  void run_step(std::size_t i, std::uint32_t run) {
    const Launch& launch = launches_[i];
    const auto read = [&](std::size_t k) { return read_strided(launch, k); };
    if (watcher_ != nullptr) watcher_->before(launch, read);
    try {
      const StepSites sites = step_sites_->of(launch);
      const profile::SpanScope op(sites.op, run);
      GpuTrace::Step seen(device_, stream_.get());
      {
        const profile::SpanScope compute(sites.compute, run);
        start_launch(i, stream_.get());
      }
      seen.launched();
      stream_.wait_idle();
      seen.ended(sites.kernel, run);
    } catch (const Error& error) {
      fail(ErrorKind::device, "{} failed: {}", who(i), error.what());
    }
    guard_->check_launch(i);
    if (launch.step->kind == Step::Kind::print) prints_.hand_over(&i);
    if (watcher_ != nullptr) watcher_->after(launch, read);
    if (!on_step_) return;
    StepSeen step{launch.step->label.op, launch.step->label.scope, launch.instance, {}};
    for (std::size_t k = launch.step->reads; k < launch.step->operands.size(); ++k) {
      step.results.push_back(read_strided(launch, k));
    }
    on_step_(step);
  }

  // Copies the range of memory that the value spans, and picks its elements on the host.
  Tensor read_strided(const Launch& launch, std::size_t k) const {
    const Layout& layout = launch.step->operands[k].layout;
    const ByteRange range = byte_range_of(layout);
    if (range.bytes == 0) return Tensor(layout.type);
    std::vector<std::byte> copied(static_cast<std::size_t>(range.bytes));
    const auto& [slot, offset] = launch.addresses[k];
    const CUdeviceptr at = bases_[static_cast<std::size_t>(slot)] + static_cast<CUdeviceptr>(offset);
    PD_CUDA(driver_.cuMemcpyDtoH(copied.data(), at - static_cast<CUdeviceptr>(range.before), copied.size()));
    return picked(layout, copied.data());
  }

  // The members that run() reads are together, here and at the end: after a long run caches are cold.
  const Plan& plan_;
  GpuDevice& device_;
  const gpu::Driver& driver_;
  const std::shared_ptr<GpuArena> arena_;
  const gpu::Stream& stream_;  // the arena's
  const bool is_captured_;
  GpuFeeds feeds_;
  const std::string name_;
  std::function<void(const StepSeen&)> on_step_;
  LaunchWatcher* watcher_;
  Schedule schedule_;
  const std::vector<Launch>& launches_ = schedule_.launches;
  gpu::Event behind_;               // all that it has enqueued, when another comes after it
  std::vector<DeviceMemory> own_;   // of slots outside the arena
  std::vector<CUdeviceptr> bases_;  // per slot
  std::vector<bool> is_input_;      // per slot
  GpuKernels kernels_;
  std::vector<void*> pointers_;
  std::vector<std::size_t> first_pointer_;  // per launch
  std::optional<GpuHost> host_;
  FusedKernels fused_;
  GpuChoices choices_;
  GpuResults results_;
  GpuPhases phases_{device_};
  std::optional<LaunchSites> step_sites_;  // of a run step by step
  GpuPrints prints_;
  std::optional<CommitGuard> guard_;
  std::optional<GpuReads> reads_;
  std::optional<DeviceResults> kept_;
  std::vector<CapturedSegment> segments_;  // of a captured run
  CompletionFlag end_;
  std::unique_ptr<CapturedGraph> signalled_[CompletionFlag::kKinds];  // launched in runs that signal something
};

}  // namespace

std::unique_ptr<Executor> make_gpu_executor(const Plan& plan, const ExecutorOptions& options) {
  return std::make_unique<GpuExecutor>(plan, options);
}

}  // namespace paoding
