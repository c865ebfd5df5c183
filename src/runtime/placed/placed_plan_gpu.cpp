// SPDX-License-Identifier: Apache-2.0
// A plan on memory and in a stream of somebody else's, on a GPU: launch by launch, so that the caller may capture it,
// or as a graph, which loops without a length and large branches need.
#include <algorithm>
#include <atomic>
#include <optional>
#include <tuple>

#include "base/check.h"
#include "base/one_line.h"
#include "gpu/driver/write_memory.h"
#include "runtime/gpu/address_graphs.h"
#include "runtime/gpu/choices.h"
#include "runtime/gpu/copy_span.h"
#include "runtime/gpu/entry_capture.h"
#include "runtime/gpu/fault_reads.h"
#include "runtime/gpu/fused_kernels.h"
#include "runtime/gpu/kernels.h"
#include "runtime/gpu/stamps.h"
#include "runtime/gpu/trace.h"
#include "runtime/placed/placed_plan.h"

namespace paoding {
namespace {

class PlacedGpuPlan : public PlacedPlan {
 public:
  PlacedGpuPlan(PlacedSource source, const Device& device, const PlacedOptions& options)
      : PlacedPlan(std::move(source)),
        device_(gpu::GpuDevice::get(device.index)),
        needs_graph_(schedule().needs_graph()),
        behind_(device_),
        choices_(device_, schedule(), *plan().target, GpuChoices::Words::placed) {
    options.reports_faults ? add_faults() : refuse_faults(plan().steps);
    if (fault_bytes() > 0) faults_.emplace(device_, fault_bytes());
    choice_offset_ = add_to_workspace(choices_.word_bytes());
    device_.make_current();
    fused_ = FusedKernels(schedule());
    std::vector<gpu::KernelSource> more = fused_.sources();
    for (gpu::KernelSource& source : choices_.sources()) more.push_back(std::move(source));
    kernels_.prepare(device_, plan(), std::move(more));
    fused_.load(device_);
    choices_.load(device_);
    place_own();
    if (std::ranges::any_of(schedule().choices, &Choice::is_loop)) never_called_off_ = zeros(2 * sizeof(unsigned));
    PD_CUDA(gpu::required_driver().cuCtxSynchronize());
    if (needs_graph_) capture_.emplace(device_, schedule(), 0, schedule().entries.size());
    if (needs_graph_ || options.uses_graph) {
      using Makes = AddressGraphs::Makes;
      graphs_.emplace(device_, needs_graph_ ? Makes::at_once : Makes::when_they_return);
    }
    asks_for_captures_ = graphs_ || has_state() || reads_store();
    stamps_.emplace(device_, nullptr, schedule(), needs_graph_ ? whole_run() : each_entry());
  }

  ~PlacedGpuPlan() override {
    try {
      finish();
    } catch (...) {  // the device is gone
    }
  }

  bool is_captured(void* stream) const override {
    if (stream == nullptr) return false;  // the legacy stream, which cannot be
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    PD_CUDA(gpu::required_driver().cuStreamGetCaptureInfo(static_cast<CUstream>(stream), &status, nullptr, nullptr,
                                                          nullptr, nullptr, nullptr));
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
  }

  void follow_faults(const void* workspace, void* stream) override {
    if (!faults_) return;
    device_.make_current();
    faults_->follow(static_cast<const std::byte*>(workspace) + fault_offset(), static_cast<CUstream>(stream),
                    [this](const std::uint64_t* words) { check(words); });
  }
  void raise_faults(bool waits) override {
    if (faults_) faults_->each_ended(waits, [this](const std::uint64_t* words) { check(words); });
  }

  // ---- of runs that read a store ----

  void use_stream(void* stream) override { stream_ = stream; }
  void follow(StoreUser& other) override { other.precede(stream_); }
  // The runs so far, of which the caller may have ended the stream.
  void precede(void* stream) override {
    if (stream == stream_ || !has_run_) return;
    device_.make_current();
    gpu::Stream(static_cast<CUstream>(stream)).wait_for(behind_);
  }
  void finish() override {
    if (!has_run_) return;
    device_.make_current();
    behind_.wait_done();
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

  // For recordings: every entry by itself.
  GpuStamps::Segment each_entry() {
    const LaunchSites sites(schedule().launches, kernels_.names());
    return {0, schedule().entries.size(), GpuStamps::by(schedule()),
            std::make_shared<const GpuTrace::Sites>(GpuTrace::sites_of(sites, schedule(), fused_)),
            [this](std::size_t k, CUstream stream, CUgraphConditionalHandle, void* stamp) {
              start(schedule().entries[k], stream, 0, stamp);
            }};
  }

  // Where the run is a graph whatever its addresses, as one kernel: a graph with stamps would be one more for each set
  // of addresses.
  GpuStamps::Segment whole_run() {
    GpuTrace::add_source();
    static const profile::SiteId site = profile::Recorder::add_site(
        {.name = "graph of a run", .op = "graph of a run", .kind = profile::SpanKind::kernel});
    return {0,
            1,
            {GpuStamps::By::kernel},
            std::make_shared<const GpuTrace::Sites>(1, site),
            [this](std::size_t, CUstream stream, CUgraphConditionalHandle, void*) { launch(stream); }};
  }

  gpu::DeviceMemory zeros(std::size_t bytes) const {
    gpu::DeviceMemory memory(device_, bytes, profile::HeldFor::kernels);
    PD_CUDA(gpu::required_driver().cuMemsetD8Async(memory.address(), 0, bytes, nullptr));
    PD_CUDA(gpu::required_driver().cuStreamSynchronize(nullptr));
    return memory;
  }

  void* own_memory(const Slot& slot, const Tensor* constant) override {
    own_.push_back(zeros(static_cast<std::size_t>(std::max<std::int64_t>(slot.bytes, 1))));
    if (constant != nullptr && constant->size_bytes() > 0) {
      gpu::write_memory(own_.back().address(), constant->bytes(), static_cast<std::size_t>(constant->size_bytes()));
    }
    return own_.back().pointer();
  }

  void start(const LaunchEntry& entry, CUstream stream, CUgraphConditionalHandle node, void* stamp = nullptr) const {
    const auto run_of = [&](std::size_t launch) {
      const Memory memory = memory_of(launch);
      KernelRun run{memory.operands, memory.workspace, stream};
      run.tickets = memory.state;
      run.fault = memory.fault;
      run.failed = choices_.word_of(launch);
      run.stamp = stamp;
      return run;
    };
    switch (entry.kind) {
      case LaunchEntry::Kind::fused: return fused_.start(entry, stream, run_of);
      case LaunchEntry::Kind::choice:
      case LaunchEntry::Kind::again:
        return choices_.start(
            entry, [&](std::size_t select) { return asked(select, node); }, stream);
      default: return kernels_.at(schedule().launches[entry.launch].step).run(run_of(entry.launch));
    }
  }

  // Nobody can call a run in a caller's stream off, so a loop's words that say so stay zero.
  GpuChoices::Asked asked(std::size_t select, CUgraphConditionalHandle node) const {
    constexpr std::int64_t kMostFaultWords = 4096;
    GpuChoices::Asked asked{memory_of(select).operands[0], choices_.word_of(select), node};
    const Launch& launch = schedule().launches[select];
    if (launch.step->kind != Step::Kind::repeat) return asked;
    std::tie(asked.faults, asked.fault_words) = faults_before(launch.end, kMostFaultWords);
    asked.flag = never_called_off_.pointer();
    asked.cancelled = static_cast<unsigned*>(asked.flag) + 1;
    return asked;
  }

  void start_entries(CUstream stream) {
    if (!capture_) {
      for (const LaunchEntry& entry : schedule().entries) start(entry, stream, 0);
      return;
    }
    capture_->run(stream, [this](std::size_t k, CUstream of, CUgraphConditionalHandle node) {
      start(schedule().entries[k], of, node);
    });
  }

  void enqueue(CUstream stream, bool is_beside) {
    begin(stream, is_beside);
    start_entries(stream);
    end(stream);
  }

  void launch(CUstream stream) {
    const auto all = [this](CUstream of) { enqueue(of, false); };
    if (!graphs_ || !graphs_->launch(given(), all, stream)) all(stream);
  }

  // A run that the caller captures repeats whenever its graph does: no stamps would be read, and it may be beside other
  // runs. While a recording is under way a run that need not be a graph is launched one by one, so that its kernels are
  // seen.
  void start(std::uint32_t number, void* given_stream) override {
    device_.make_current();
    choices_.place(in_workspace(choice_offset_));
    const auto stream = static_cast<CUstream>(given_stream);
    if (!asks_for_captures_ && !GpuTrace::is_wanted()) return enqueue(stream, false);
    if (is_captured(stream)) {
      if (GpuTrace::is_wanted()) {
        profile::Recorder::add_note("runs on memory of the caller's that were captured: what their graphs do", 1);
      }
      return enqueue(stream, true);
    }
    start_now(number, stream);
    if (!reads_store()) return;
    behind_.record(stream);
    has_run_ = true;
  }

  void start_now(std::uint32_t number, CUstream stream) {
    if (!GpuTrace::is_wanted()) return launch(stream);
    if (needs_graph_)
      return GpuTrace::launch(
          number, [this](CUstream of) { launch(of); }, *stamps_, stream);
    begin(stream, false);
    GpuTrace::launch(
        number, [this](CUstream of) { start_entries(of); }, *stamps_, stream);
    end(stream);
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

  gpu::GpuDevice& device_;
  const bool needs_graph_;
  void* stream_ = nullptr;            // of the run under way, or the last
  bool asks_for_captures_ = false;    // a run that the caller captures is another than one that he does not
  gpu::Event behind_;                 // all runs so far that read a store
  std::atomic<bool> has_run_{false};  // there were such
  GpuKernels kernels_;
  FusedKernels fused_;
  GpuChoices choices_;
  std::int64_t choice_offset_ = 0;      // of the workspace, where choices have their words
  gpu::DeviceMemory never_called_off_;  // zeros, where there are loops without a length
  std::vector<gpu::DeviceMemory> own_;
  std::optional<EntryCapture> capture_;  // where there are conditional nodes
  std::optional<AddressGraphs> graphs_;
  std::optional<GpuStamps> stamps_;
  std::optional<FaultReads> faults_;  // where a run may have one
};

}  // namespace

std::unique_ptr<PlacedPlan> make_placed_gpu_plan(PlacedSource source, const Device& device,
                                                 const PlacedOptions& options) {
  return std::make_unique<PlacedGpuPlan>(std::move(source), device, options);
}

void clear_gpu_memory(const Device& device, void* address, std::int64_t bytes, void* stream) {
  gpu::GpuDevice::get(device.index).make_current();
  PD_CUDA(gpu::required_driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(address), 0,
                                                 static_cast<std::size_t>(bytes), static_cast<CUstream>(stream)));
}

}  // namespace paoding
