// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <thread>

#include "base/cancel_poll.h"
#include "base/check.h"
#include "gpu/commit_gate.h"
#include "runtime/gpu_gate.h"

namespace paoding {
namespace {

constexpr std::int64_t kFaultWords = 2;  // of a launch
constexpr std::uint64_t kNoFault = ~std::uint64_t{0};
constexpr std::size_t kFailed = 0, kBehind = 1, kFaults = 2;  // in the report
constexpr std::size_t kMostFailures = 16;                     // that are kept for fetches nobody has looked at yet

bool is_fault(const std::uint64_t* words) {
  return std::any_of(words, words + kFaultWords, [](std::uint64_t word) { return word != kNoFault; });
}

}  // namespace

GatePlan plan_gates(const Plan& plan, const std::vector<Launch>& launches, int repeats, Execution execution) {
  GatePlan made;
  bool can_fail = false, all_are_text = true;
  for (const Launch& launch : launches) {
    const Step& step = *launch.step;
    const bool may_fault = step.kind == Step::Kind::kernel && step.kernel->faults == Faults::possible;
    const bool writes = writes_parameter(plan, step);
    made.may_fault.push_back(may_fault);
    made.writes.push_back(writes);
    can_fail |= may_fault;
    all_are_text &= !writes || step.text != nullptr;
  }
  if (execution == Execution::stepwise) return made;
  made.can_cancel = launches.size() > kCancelledLaunches && all_are_text;
  if (!can_fail && !made.can_cancel) return made;
  const std::size_t size = launches.size() / static_cast<std::size_t>(repeats);
  for (std::size_t begin = 0; begin < launches.size(); begin += size) {
    std::size_t commit = begin;
    while (commit < begin + size && !launches[commit].is_commit) ++commit;
    if (commit != begin) made.gates.push_back(commit - 1);
  }
  return made;
}

std::vector<Started> GatePlan::order() const {
  std::vector<Started> all;
  all.reserve(may_fault.size() + gates.size());
  auto gate = gates.begin();
  for (std::size_t i = 0; i < may_fault.size(); ++i) {
    all.push_back({Started::Kind::launch, i});
    if (gate == gates.end() || *gate != i) continue;
    all.push_back({Started::Kind::gate, i});
    ++gate;
  }
  return all;
}

std::vector<int> GatePlan::kinds(const std::vector<Launch>& launches) const {
  std::vector<int> all;
  all.reserve(launches.size());
  int passed = 0;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    all.push_back(passed * 4 + (launches[i].is_commit ? 2 : 0) + (writes[i] != 0 ? 1 : 0));
    passed += static_cast<std::size_t>(passed) < gates.size() && gates[static_cast<std::size_t>(passed)] == i ? 1 : 0;
  }
  return all;
}

// ---- GpuFailure ----

GpuFailure::GpuFailure(const gpu::GpuDevice& device) : device_(device), word_(device, sizeof(unsigned)) {
  const unsigned none = 0;
  PD_CUDA(gpu::required_driver().cuMemcpyHtoD(word_.address(), &none, sizeof(none)));
}

void GpuFailure::settle() {
  const std::lock_guard lock(mutex_);
  device_.make_current();
  for (const GpuGate* gate : gates_) gate->stream_.wait_idle();
  std::exception_ptr error;
  for (const GpuGate* gate : gates_) {
    if (!error) error = gate->own_error();
  }
  if (!error) return;  // another thread was here
  const auto told = std::make_shared<GpuGate::Told>(error);
  for (GpuGate* gate : gates_) gate->reopen(told);
  const unsigned none = 0;
  PD_CUDA(gpu::required_driver().cuMemcpyHtoD(word_.address(), &none, sizeof(none)));
}

// ---- GpuGate ----

GpuGate::GpuGate(const gpu::GpuDevice& device, const gpu::Stream& stream, GatePlan plan,
                 std::vector<const PreparedKernel*> kernels, int repeats, std::shared_ptr<GpuFailure> failure,
                 std::function<void()> on_close)
    : device_(device),
      stream_(stream),
      plan_(std::move(plan)),
      kernels_(std::move(kernels)),
      repeats_(repeats),
      failure_(std::move(failure)),
      on_close_(std::move(on_close)) {
  for (const char may_fault : plan_.may_fault) {
    first_.push_back(fault_words_);
    if (may_fault != 0) fault_words_ += kFaultWords;
  }
  if (!plan_.has_gate() && fault_words_ == 0) return;
  words_ = gpu::DeviceMemory(device, static_cast<std::size_t>(1 + fault_words_) * sizeof(std::uint64_t));
  const std::uint64_t no_runs = 0;
  PD_CUDA(gpu::required_driver().cuMemcpyHtoD(words_.address(), &no_runs, sizeof(no_runs)));
  clear();
  if (!plan_.has_gate()) return;
  report_ = gpu::PinnedMemory(device, (kFaults + static_cast<std::size_t>(fault_words_)) * sizeof(std::uint64_t));
  std::memset(report_.bytes(), 0, report_.size_bytes());
  cancelled_ = gpu::DeviceMemory(device, sizeof(unsigned));
  const unsigned none = 0;
  PD_CUDA(gpu::required_driver().cuMemcpyHtoD(cancelled_.address(), &none, sizeof(none)));
  text_ = gpu::plan_commit_gate(fault_words_);
  kernel_ = std::make_unique<gpu::LoadedKernel>(device, text_, 4);
  if (plan_.can_cancel) {
    aside_ = gpu::Stream(device);
    done_ = gpu::Event(device);
  }
  const std::lock_guard lock(failure_->mutex_);
  failure_->gates_.push_back(this);
}

GpuGate::~GpuGate() {
  try {
    if (plan_.has_gate()) stream_.wait_idle(), check(0);  // others may be behind a run that nobody has waited for
  } catch (...) {                                         // the device is gone, and so are their runs
  }
  const std::lock_guard lock(failure_->mutex_);
  std::erase(failure_->gates_, this);
}

// The first word counts runs.
void GpuGate::clear() const {
  if (fault_words_ == 0) return;
  const std::vector<std::uint64_t> none(static_cast<std::size_t>(fault_words_), kNoFault);
  PD_CUDA(gpu::required_driver().cuMemcpyHtoD(words_.address() + sizeof(std::uint64_t), none.data(),
                                              none.size() * sizeof(std::uint64_t)));
}

void* GpuGate::fault_of(std::size_t launch) const {
  if (plan_.may_fault[launch] == 0) return nullptr;
  return static_cast<std::uint64_t*>(words_.pointer()) + 1 + first_[launch];
}

void* GpuGate::called_off(std::size_t launch) const {
  if (!plan_.has_gate()) return nullptr;
  if (plan_.writes[launch] != 0) return failure_->word_.pointer();
  return plan_.can_cancel ? cancelled_.pointer() : nullptr;
}

void GpuGate::start(CUstream stream) const {
  void* operands[] = {failure_->word_.pointer(), cancelled_.pointer(), words_.pointer(), report_.bytes()};
  kernel_->start(stream, operands, {});
}

// What runs next is numbered by the passes through its gate.
void GpuGate::leave_run() const {
  if (!plan_.has_gate()) return;
  try {
    stream_.wait_idle();
    const std::uint64_t passes = runs_ * static_cast<std::uint64_t>(repeats_);
    PD_CUDA(gpu::required_driver().cuMemcpyHtoD(words_.address(), &passes, sizeof(passes)));
  } catch (const Error&) {  // the device is gone, and with it whatever could run next
  }
}

void GpuGate::check_launch(std::size_t launch) const {
  if (plan_.may_fault[launch] == 0) return;
  std::uint64_t found[kFaultWords];
  PD_CUDA(gpu::required_driver().cuMemcpyDtoH(found, reinterpret_cast<CUdeviceptr>(fault_of(launch)), sizeof(found)));
  if (!is_fault(found)) return;
  clear();
  on_close_();
  kernels_[launch]->raise(found);
}

void GpuGate::wait_idle() {
  if (!plan_.can_cancel) return stream_.wait_idle();
  done_.record(stream_.get());
  wait_done(done_);
}

void GpuGate::wait_done(const gpu::Event& event) {
  const CancelPoll poll;
  if (!plan_.can_cancel || !poll.is_watching()) return event.wait_done();
  while (!event.is_done()) {
    if (poll.is_cancelled()) return call_off();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

// A run that has come by its gate goes on to its end; every launch of the others returns at once. The copy goes beside
// the run, on an engine of its own.
void GpuGate::call_off() {
  const gpu::Driver& driver = gpu::required_driver();
  const gpu::PinnedMemory one(device_, sizeof(unsigned));
  *reinterpret_cast<unsigned*>(one.bytes()) = 1;
  PD_CUDA(driver.cuMemcpyHtoDAsync(cancelled_.address(), one.bytes(), sizeof(unsigned), aside_.get()));
  aside_.wait_idle();
  stream_.wait_idle();
  const unsigned none = 0;
  PD_CUDA(driver.cuMemcpyHtoD(cancelled_.address(), &none, sizeof(none)));
}

bool GpuGate::is_closed() const {
  const auto* report = reinterpret_cast<const std::uint64_t*>(report_.bytes());
  return report[kFailed] != 0 || report[kBehind] != 0;
}

void GpuGate::check(std::uint64_t run, bool again) {
  if (!plan_.has_gate()) return;
  std::unique_lock held = lock();
  if (is_closed()) {
    held.unlock();
    failure_->settle();
    held.lock();
  }
  for (const Failed& failed : failed_) {
    if (run < failed.first || run > failed.last) continue;
    if (std::exchange(failed.error->is_told, true) && !again) continue;
    std::rethrow_exception(failed.error->error);
  }
}

// nullptr where none of this program's runs has failed by itself.
std::exception_ptr GpuGate::own_error() const {
  const auto* report = reinterpret_cast<const std::uint64_t*>(report_.bytes());
  if (report[kFailed] == 0) return nullptr;
  const auto repeat = (report[kFailed] - 1) % static_cast<std::uint64_t>(repeats_) + 1;
  try {
    try {
      for (std::size_t i = 0; i < first_.size(); ++i) {
        if (plan_.may_fault[i] == 0) continue;
        const std::uint64_t* found = report + kFaults + first_[i];
        if (is_fault(found)) kernels_[i]->raise(found);
      }
      fail_cancelled();
    } catch (const Error& error) {
      fail_in_repeat(error, repeat, static_cast<std::uint64_t>(repeats_));
    }
  } catch (...) {
    return std::current_exception();
  }
}

// Everything has ended.
void GpuGate::reopen(const std::shared_ptr<Told>& error) {
  auto* report = reinterpret_cast<std::uint64_t*>(report_.bytes());
  const std::uint64_t first = report[kFailed] != 0 ? report[kFailed] : report[kBehind];
  if (first == 0) return;
  if (failed_.size() == kMostFailures) failed_.erase(failed_.begin());
  failed_.push_back({(first - 1) / static_cast<std::uint64_t>(repeats_) + 1, runs_, error});
  std::memset(report_.bytes(), 0, report_.size_bytes());
  clear();
  on_close_();
}

}  // namespace paoding
