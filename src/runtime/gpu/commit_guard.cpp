// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/commit_guard.h"

#include <algorithm>
#include <cstring>

#include "base/cancel_poll.h"
#include "base/check.h"
#include "gpu/driver/write_memory.h"
#include "runtime/gpu/commit_guard.h"

namespace paoding {
namespace {

constexpr std::int64_t kFaultWords = 2;  // per launch
constexpr std::uint64_t kNoFault = ~std::uint64_t{0};
constexpr std::size_t kFailed = 0, kBehind = 1, kFaults = 2;  // words of the guard kernel's report
constexpr std::size_t kMostFailures = 16;                     // failed runs whose errors wait for a later fetch

bool is_fault(const std::uint64_t* words) {
  return std::any_of(words, words + kFaultWords, [](std::uint64_t word) { return word != kNoFault; });
}

}  // namespace

// ---- GpuFailure ----

GpuFailure::GpuFailure(const gpu::GpuDevice& device) : device_(device), word_(device, sizeof(unsigned)) {
  const unsigned none = 0;
  gpu::write_memory(word_.address(), &none, sizeof(none));
}

void GpuFailure::recover() {
  const std::lock_guard lock(mutex_);
  device_.make_current();
  for (const CommitGuard* guard : guards_) guard->stream_.wait_idle();
  std::exception_ptr error;
  for (const CommitGuard* guard : guards_) {
    if (!error) error = guard->own_error();
  }
  if (!error) return;  // another thread has recovered
  const auto told = std::make_shared<CommitGuard::Told>(error);
  for (CommitGuard* guard : guards_) guard->reopen(told);
  const unsigned none = 0;
  gpu::write_memory(word_.address(), &none, sizeof(none));
}

// ---- CommitGuard ----

CommitGuard::CommitGuard(const gpu::GpuDevice& device, const gpu::Stream& stream, GpuCancel& cancel, GuardPlan plan,
                         std::vector<const PreparedKernel*> kernels, std::shared_ptr<GpuFailure> failure,
                         std::function<void()> on_close)
    : has_guard_(plan.has_guard()),
      device_(device),
      stream_(stream),
      cancel_(cancel),
      plan_(std::move(plan)),
      kernels_(std::move(kernels)),
      failure_(std::move(failure)),
      on_close_(std::move(on_close)) {
  for (const char may_fault : plan_.may_fault) {
    first_.push_back(fault_words_);
    if (may_fault != 0) fault_words_ += kFaultWords;
  }
  if (!has_guard_ && fault_words_ == 0) return;
  words_ = gpu::DeviceMemory(device, static_cast<std::size_t>(1 + fault_words_) * sizeof(std::uint64_t));
  const std::uint64_t no_runs = 0;
  gpu::write_memory(words_.address(), &no_runs, sizeof(no_runs));
  clear();
  if (!has_guard_) return;
  report_ = gpu::PinnedMemory(device, (kFaults + static_cast<std::size_t>(fault_words_)) * sizeof(std::uint64_t));
  std::memset(report_.bytes(), 0, report_.size_bytes());
  cancel_.prepare();
  if (plan_.has_loop || !plan_.polls.empty()) cancel_.prepare_polls();
  text_ = gpu::plan_commit_guard(fault_words_);
  kernel_ = std::make_unique<gpu::LoadedKernel>(device, text_, 4);
  const std::lock_guard lock(failure_->mutex_);
  failure_->guards_.push_back(this);
}

CommitGuard::~CommitGuard() {
  try {
    if (has_guard_) stream_.wait_idle(), check(0);  // later runs may be enqueued after one that nobody waited for
  } catch (...) {                                   // the device is gone, and so are their runs
  }
  const std::lock_guard lock(failure_->mutex_);
  std::erase(failure_->guards_, this);
}

// Resets the fault words; the first word, which counts runs, stays.
void CommitGuard::clear() const {
  if (fault_words_ == 0) return;
  const std::vector<std::uint64_t> none(static_cast<std::size_t>(fault_words_), kNoFault);
  gpu::write_memory(words_.address() + sizeof(std::uint64_t), none.data(), none.size() * sizeof(std::uint64_t));
}

void* CommitGuard::fault_of(std::size_t launch) const {
  if (plan_.may_fault[launch] == 0) return nullptr;
  return static_cast<std::uint64_t*>(words_.pointer()) + 1 + first_[launch];
}

void* CommitGuard::called_off(std::size_t launch) const {
  if (!has_guard_) return nullptr;
  if (plan_.writes[launch] != 0) return failure_->word_.pointer();
  return plan_.asks[launch] != 0 ? cancel_.word() : nullptr;
}

std::pair<void*, std::int64_t> CommitGuard::faults_before(std::size_t end) const {
  constexpr std::int64_t kMost = 4096;
  const std::int64_t words = end < first_.size() ? first_[end] : fault_words_, count = std::min(words, kMost);
  if (count == 0) return {nullptr, 0};
  return {static_cast<std::uint64_t*>(words_.pointer()) + 1 + words - count, count};
}

bool CommitGuard::has_fault_before(std::size_t end) const {
  const auto [at, count] = faults_before(end);
  if (count == 0) return false;
  std::vector<std::uint64_t> found(static_cast<std::size_t>(count));
  PD_CUDA(gpu::required_driver().cuMemcpyDtoH(found.data(), reinterpret_cast<CUdeviceptr>(at),
                                              found.size() * sizeof(std::uint64_t)));
  return std::ranges::any_of(found, [](std::uint64_t word) { return word != kNoFault; });
}

void CommitGuard::start(CUstream stream) const {
  void* operands[] = {failure_->word_.pointer(), cancel_.word(), words_.pointer(), report_.bytes()};
  kernel_->start(stream, operands, {});
}

// Sets the run counter, because the guard kernel numbers the next run by it.
void CommitGuard::leave_run() const {
  if (!has_guard_) return;
  try {
    stream_.wait_idle();
    const std::uint64_t passes = runs_ * plan_.guards.size();
    gpu::write_memory(words_.address(), &passes, sizeof(passes));
  } catch (const Error&) {  // the device is lost, so no run follows
  }
}

void CommitGuard::check_launch(std::size_t launch) const {
  if (plan_.may_fault[launch] == 0) return;
  std::uint64_t found[kFaultWords];
  PD_CUDA(gpu::required_driver().cuMemcpyDtoH(found, reinterpret_cast<CUdeviceptr>(fault_of(launch)), sizeof(found)));
  if (!is_fault(found)) return;
  clear();
  on_close_();
  kernels_[launch]->raise(found);
}

bool CommitGuard::is_closed() const {
  const auto* report = reinterpret_cast<const std::uint64_t*>(report_.bytes());
  return report[kFailed] != 0 || report[kBehind] != 0;
}

void CommitGuard::check(std::uint64_t run, bool again) {
  if (!has_guard_) return;
  std::unique_lock held = lock();
  if (is_closed()) {
    held.unlock();
    failure_->recover();
    held.lock();
  }
  for (const Failed& failed : failed_) {
    if (run < failed.first || run > failed.last) continue;
    if (std::exchange(failed.error->is_told, true) && !again) continue;
    std::rethrow_exception(failed.error->error);
  }
}

// The error of this program's own failed run; nullptr where there is none.
std::exception_ptr CommitGuard::own_error() const {
  const auto* report = reinterpret_cast<const std::uint64_t*>(report_.bytes());
  if (report[kFailed] == 0) return nullptr;
  const auto repeat = (report[kFailed] - 1) % plan_.guards.size() + 1;
  try {
    try {
      for (std::size_t i = 0; i < first_.size(); ++i) {
        if (plan_.may_fault[i] == 0) continue;
        const std::uint64_t* found = report + kFaults + first_[i];
        if (is_fault(found)) kernels_[i]->raise(found);
      }
      fail_cancelled();
    } catch (const Error& error) {
      fail_in_repeat(error, repeat, plan_.guards.size());
    }
  } catch (...) {
    return std::current_exception();
  }
}

// Called when every run has ended: notes the error for the failed runs, and clears the report and the fault words.
void CommitGuard::reopen(const std::shared_ptr<Told>& error) {
  auto* report = reinterpret_cast<std::uint64_t*>(report_.bytes());
  const std::uint64_t first = report[kFailed] != 0 ? report[kFailed] : report[kBehind];
  if (first == 0) return;
  if (failed_.size() == kMostFailures) failed_.erase(failed_.begin());
  failed_.push_back({(first - 1) / plan_.guards.size() + 1, runs_, error});
  std::memset(report_.bytes(), 0, report_.size_bytes());
  clear();
  on_close_();
}

}  // namespace paoding
