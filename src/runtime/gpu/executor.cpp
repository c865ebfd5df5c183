// SPDX-License-Identifier: Apache-2.0
// The GPU executor: a plan's memory, the entries of its schedule, and one of two ways to run them.
#include "runtime/executor.h"

#include <cstring>
#include <optional>

#include "base/check.h"
#include "runtime/gpu/captured_run.h"
#include "runtime/gpu/completion_flag.h"
#include "runtime/gpu/copy_span.h"
#include "runtime/gpu/device_error.h"
#include "runtime/gpu/device_results.h"
#include "runtime/gpu/entries.h"
#include "runtime/gpu/host.h"
#include "runtime/gpu/plan_memory.h"
#include "runtime/gpu/reads.h"
#include "runtime/gpu/stepwise_run.h"
#include "schedule/schedule.h"

namespace paoding {
namespace {

class GpuExecutor : public Executor {
 public:
  GpuExecutor(const Plan& plan, const ExecutorOptions& options)
      : plan_(plan),
        device_(gpu::GpuDevice::get(options.device.index)),
        name_(options.name),
        memory_(plan, device_, options),
        schedule_(make_schedule(plan, {options.execution, options.repeats, options.fuses_launches})),
        host_(plan, schedule_.host, options, memory_.addresses(), &memory_.feeds()),
        behind_(device_) {
    const gpu::Stream& stream = memory_.stream();
    CompletionFlag flag;
    if (schedule_.is_captured) flag = {device_, schedule_.completion, *plan.target, memory_.addresses()};
    entries_.emplace(plan, schedule_, memory_, flag.sources(), options);
    reads_.emplace(device_, stream, memory_.arena()->cancel, entries_->guard());
    kept_.emplace(device_, stream, entries_->guard());
    if (schedule_.is_captured) {
      captured_.emplace(schedule_, memory_, *entries_, host_, std::move(flag), name_, [this] { wait(true); });
    } else {
      stepwise_.emplace(schedule_, memory_, *entries_, host_, name_, options);
    }
  }

  ~GpuExecutor() override {
    try {
      device_.make_current();
      memory_.stream().wait_idle();  // the work that it has enqueued is done with its memory
    } catch (...) {                  // the device is gone, and all enqueued work with it
    }
  }

  void write(int slot, const Tensor& tensor) override {
    device_.make_current();
    if (host_.write(slot, tensor)) return;
    memory_.is_input(slot) ? memory_.feeds().write(slot, tensor) : memory_.write_constant(slot, tensor);
  }

  void write(int slot, const DeviceTensor& tensor, void* stream) override {
    device_.make_current();
    if (host_.reads(slot)) {
      tensor.state().order_before(memory_.stream().get());
      memory_.stream().wait_idle();
      if (host_.write(slot, tensor.to_host())) return;
    }
    memory_.feeds().write(slot, tensor, static_cast<CUstream>(stream));
  }

  void read(const Operand& dense, Tensor* to) override {
    device_.make_current();
    wait();
    const auto bytes = static_cast<std::size_t>(to->size_bytes());
    if (bytes == 0) return;
    const std::byte* const there = captured_ ? captured_->find(dense) : nullptr;
    if (there != nullptr) return void(std::memcpy(to->bytes(), there, bytes));
    const CopySpan seen(profile::Copy::device_to_host, device_);
    PD_CUDA(gpu::required_driver().cuMemcpyDtoH(to->bytes(), memory_.at(dense.slot, dense.offset), bytes));
  }

  std::unique_ptr<LaterRead> read_later(const std::vector<const Operand*>& dense) override {
    device_.make_current();
    std::vector<GpuReads::Source> sources;
    for (const Operand* each : dense) sources.push_back({memory_.at(each->slot, each->offset), each->layout.type});
    return reads_->start(sources);
  }

  DeviceTensor keep(const Operand& dense) override {
    device_.make_current();
    return kept_->start(memory_.at(dense.slot, dense.offset), dense.layout.type);
  }

  void* stream() const override { return memory_.stream().get(); }

  void precede(void* stream) override {
    if (stream == this->stream()) return;
    device_.make_current();
    behind_.record(memory_.stream().get());
    gpu::Stream(static_cast<CUstream>(stream)).wait_for(behind_);
  }
  void follow(StoreUser& other) override { other.precede(stream()); }

  [[gnu::hot]] void run(std::uint32_t run) override {
    device_.make_current();
    memory_.feeds().take_over();
    captured_ ? captured_->run(run) : stepwise_->run(run);
  }

  void wait() override {
    wait(true);
    memory_.feeds().let_go();
  }
  void finish() override { wait(false); }
  bool can_fail() const override { return entries_->guard().can_fail(); }
  std::shared_ptr<Arena> arena() const override { return memory_.arena(); }
  KernelCost kernel_cost() const override {
    KernelCost cost = entries_->cost();
    cost.notes.insert(cost.notes.end(), schedule_.notes.begin(), schedule_.notes.end());
    return cost;
  }
  std::int64_t launches() const override { return schedule_.starts(); }

  std::string kernel_text() const override { return GpuKernels::text(plan_); }

 private:
  void wait(bool again) {
    in_run_of(name_, [&] { captured_ ? captured_->wait_idle() : memory_.arena()->cancel.wait_idle(); });
    CommitGuard& guard = entries_->guard();
    guard.check(guard.last_run(), again);
  }

  const Plan& plan_;
  gpu::GpuDevice& device_;
  const std::string name_;
  PlanMemory memory_;
  const Schedule schedule_;
  GpuHost host_;
  gpu::Event behind_;  // all that it has enqueued, when another comes after it
  std::optional<GpuEntries> entries_;
  std::optional<GpuReads> reads_;
  std::optional<DeviceResults> kept_;
  std::optional<CapturedRun> captured_;  // one of the two
  std::optional<StepwiseRun> stepwise_;
};

}  // namespace

std::unique_ptr<Executor> make_gpu_executor(const Plan& plan, const ExecutorOptions& options) {
  return std::make_unique<GpuExecutor>(plan, options);
}

}  // namespace paoding
