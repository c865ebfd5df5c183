// SPDX-License-Identifier: Apache-2.0
// A plan on memory and in a stream of somebody else's, on a GPU: launch by launch, so that the caller may capture it.
#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/one_line.h"
#include "runtime/gpu/copy_span.h"
#include "runtime/gpu/fused_kernels.h"
#include "runtime/gpu/kernels.h"
#include "runtime/gpu/stamps.h"
#include "runtime/gpu/trace.h"
#include "runtime/placed/placed_plan.h"

namespace paoding {
namespace {

class PlacedGpuPlan : public PlacedPlan {
 public:
  PlacedGpuPlan(const char* name, CompiledPlan compiled, const Device& device, bool reports_faults)
      : PlacedPlan(name, std::move(compiled)), device_(gpu::GpuDevice::get(device.index)) {
    reports_faults ? add_faults() : refuse_faults(plan().steps);
    device_.make_current();
    fused_ = FusedKernels(schedule());
    kernels_.prepare(device_, plan(), fused_.sources());
    fused_.load(device_);
    place_own();
    PD_CUDA(gpu::required_driver().cuCtxSynchronize());
    const LaunchSites sites(schedule().launches, kernels_.names());
    stamps_.emplace(
        device_, nullptr, schedule(),
        GpuStamps::Segment{0, schedule().entries.size(), GpuStamps::by(schedule()),
                           std::make_shared<const GpuTrace::Sites>(GpuTrace::sites_of(sites, schedule(), fused_)),
                           [this](std::size_t k, CUstream stream, CUgraphConditionalHandle, void* stamp) {
                             start(schedule().entries[k], stream, stamp);
                           }});
  }

 private:
  // Nobody waits for a run here: where the caller does not ask for faults, steps that may have one are refused. A check
  // is allowed, since it only compares, and its faults are dropped.
  static void refuse_faults(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::kernel && step.kernel->faults == Faults::possible &&
          !step.call.op->is(OpRole::check)) {
        fail(ErrorKind::unsupported,
             "{}: its positions are checked while it runs, which a plan on memory of the "
             "caller's cannot tell{}",
             step.call.op->name, in_scope(step.call.scope));
      }
      for (const auto* body : step.bodies()) refuse_faults(*body);
    }
  }

  void* own_memory(const Slot& slot, const Tensor* constant) override {
    const gpu::Driver& driver = gpu::required_driver();
    const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(slot.bytes, 1));
    own_.emplace_back(device_, bytes, profile::HeldFor::kernels);
    PD_CUDA(driver.cuMemsetD8Async(own_.back().address(), 0, bytes, nullptr));
    PD_CUDA(driver.cuStreamSynchronize(nullptr));
    if (constant != nullptr && constant->size_bytes() > 0) {
      PD_CUDA(driver.cuMemcpyHtoD(own_.back().address(), constant->bytes(),
                                  static_cast<std::size_t>(constant->size_bytes())));
    }
    return own_.back().pointer();
  }

  void begin_run() override { device_.make_current(); }

  void start(const LaunchEntry& entry, CUstream stream, void* stamp = nullptr) {
    const auto run_of = [&](std::size_t launch) {
      const Memory memory = memory_of(launch);
      KernelRun run{memory.operands, memory.workspace, stream};
      run.tickets = memory.state;
      run.fault = memory.fault;
      run.stamp = stamp;
      return run;
    };
    if (entry.kind == LaunchEntry::Kind::fused) return fused_.start(entry, stream, run_of);
    kernels_.at(schedule().launches[entry.launch].step).run(run_of(entry.launch));
  }

  // A captured run repeats whenever its graph does, which is the caller's: no stamps would be read.
  void start_all(std::uint32_t number, void* stream) override {
    const auto plain = [this](CUstream of) {
      for (const LaunchEntry& entry : schedule().entries) start(entry, of);
    };
    const auto on = static_cast<CUstream>(stream);
    if (!GpuTrace::is_wanted()) return plain(on);
    if (!is_captured(stream)) return GpuTrace::launch(number, plain, *stamps_, on);
    profile::Recorder::add_note("runs on memory of the caller's that were captured: what their graphs do", 1);
    plain(on);
  }

  void copy(void* to, const void* from, std::int64_t bytes, void* stream) override {
    std::optional<CopySpan> seen;
    if (profile::Recorder::active() && !is_captured(stream)) {
      seen.emplace(profile::Copy::same_device, device_, static_cast<CUstream>(stream));
    }
    PD_CUDA(gpu::required_driver().cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(to),
                                                     reinterpret_cast<CUdeviceptr>(from),
                                                     static_cast<std::size_t>(bytes), static_cast<CUstream>(stream)));
  }

  void clear(void* address, std::int64_t bytes, void* stream) override {
    PD_CUDA(gpu::required_driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(address), 0,
                                                   static_cast<std::size_t>(bytes), static_cast<CUstream>(stream)));
  }

  void clear_faults(void* words, std::int64_t bytes, void* stream) override {
    PD_CUDA(gpu::required_driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(words), 0xff,
                                                   static_cast<std::size_t>(bytes), static_cast<CUstream>(stream)));
  }

  void check(const std::uint64_t* words) const override {
    const std::vector<char>& may_fault = schedule().guards.may_fault;
    const auto is_none = [](std::uint64_t word) { return word == ~std::uint64_t{0}; };
    for (std::size_t i = 0; fault_bytes() > 0 && i < may_fault.size(); ++i) {
      if (may_fault[i] == 0) continue;
      if (!std::all_of(words, words + kFaultWords, is_none)) kernels_.at(schedule().launches[i].step).raise(words);
      words += kFaultWords;
    }
  }

  bool is_captured(void* stream) const override {
    if (stream == nullptr) return false;  // the legacy stream, which cannot be
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    PD_CUDA(gpu::required_driver().cuStreamGetCaptureInfo(static_cast<CUstream>(stream), &status, nullptr, nullptr,
                                                          nullptr, nullptr, nullptr));
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
  }

  gpu::GpuDevice& device_;
  GpuKernels kernels_;
  FusedKernels fused_;
  std::vector<gpu::DeviceMemory> own_;
  std::optional<GpuStamps> stamps_;
};

}  // namespace

std::unique_ptr<PlacedPlan> make_placed_gpu_plan(const char* name, CompiledPlan compiled, const Device& device,
                                                 bool reports_faults) {
  return std::make_unique<PlacedGpuPlan>(name, std::move(compiled), device, reports_faults);
}

void clear_gpu_memory(const Device& device, void* address, std::int64_t bytes, void* stream) {
  gpu::GpuDevice::get(device.index).make_current();
  PD_CUDA(gpu::required_driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(address), 0,
                                                 static_cast<std::size_t>(bytes), static_cast<CUstream>(stream)));
}

}  // namespace paoding
