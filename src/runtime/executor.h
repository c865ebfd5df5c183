// SPDX-License-Identifier: Apache-2.0
// Executor: a plan with kernels and memory on one device.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "paoding/program.h"
#include "plan/plan.h"

namespace paoding {

/// Memory that several programs of one model share; it grows with the largest.
class Arena {
 public:
  virtual ~Arena() = default;

  std::atomic<bool> is_in_use{false};  // by a run, or by a reader of its results
  std::uint64_t holder = 0;  // the program whose results are in it; 0 while they are made, or of a run that threw
};

/// The cost of compiling kernels.
struct KernelCost {
  int compiled = 0;
  double milliseconds = 0;
  std::vector<std::string> notes = {};  // kernels that declined when they were prepared; which run together
};

/// Values on their way to the host.
class LaterRead {
 public:
  virtual ~LaterRead() = default;
  virtual bool is_there() const = 0;
  /// Waits for them; called once. Errors: of the run that made them.
  virtual std::vector<Tensor> values() = 0;
};

/// Somebody whose work on a device uses the memory of a store, in some order with the others'.
class StoreUser {
 public:
  virtual ~StoreUser() = default;
  /// Orders all that is enqueued in the stream from here on after all that this has enqueued.
  virtual void precede(void* /*stream*/) {}
  /// Orders all that this enqueues from here on after all that the other has enqueued.
  virtual void follow(StoreUser& /*other*/) {}
  /// Waits for all of it: throws only errors that have not been thrown yet.
  virtual void finish() = 0;
  /// Whether waiting may find that a run has failed, on a GPU, where run() does not wait.
  virtual bool can_fail() const { return false; }
};

class Executor : public StoreUser {
 public:
  virtual void write(int slot, const Tensor& tensor) = 0;
  /// Reads a value on the executor's GPU; `stream` is the caller's and goes on when it has been read.
  virtual void write(int /*slot*/, const DeviceTensor& /*tensor*/, void* /*stream*/) { no_device_memory(); }
  /// Into a tensor of the operand's type; takes no memory.
  virtual void read(const Operand& dense, Tensor* to) = 0;
  Tensor read(const Operand& dense) {
    Tensor tensor(dense.layout.type);
    read(dense, &tensor);
    return tensor;
  }
  /// Reads results of the last run later, unchanged by any run after it.
  virtual std::unique_ptr<LaterRead> read_later(const std::vector<const Operand*>& dense) = 0;
  /// The same in memory of its own on the executor's GPU.
  virtual DeviceTensor keep(const Operand& /*dense*/) { no_device_memory(); }
  /// On a GPU the CUstream that everything is enqueued in.
  virtual void* stream() const { return nullptr; }
  /// `run` numbers the execution for a recording under way, 0 when there is none.
  virtual void run(std::uint32_t run) = 0;
  virtual void wait() = 0;
  void finish() override { wait(); }
  virtual std::shared_ptr<Arena> arena() const = 0;
  virtual KernelCost kernel_cost() const { return {}; }
  virtual std::int64_t launches() const = 0;
  virtual std::string kernel_text() const { return ""; }

 private:
  [[noreturn]] static void no_device_memory() {
    fail(ErrorKind::argument, "program: it is on the CPU, whose memory is the host's");
  }
};

/// Called in the catch of an error of one of the runs that one run() makes: throws it on.
[[noreturn]] inline void fail_in_repeat(const Error& error, std::uint64_t repeat, std::uint64_t repeats) {
  if (repeats == 1) throw;
  fail(error.kind(), "{}\n(in repeat {} of {}: what was written before it stays)", error.what(), repeat, repeats);
}

/// Looks at a stepwise run from inside: every launch of a step, with its operands, just before and just after it.
class LaunchWatcher {
 public:
  /// The value of an operand of the launch, by its position in Step::operands, made dense.
  using Read = std::function<Tensor(std::size_t operand)>;
  virtual ~LaunchWatcher() = default;
  virtual void before(const Launch& launch, const Read& read) = 0;
  virtual void after(const Launch& launch, const Read& read) = 0;
};

/// The state that the programs of one store share on a device: whether one of their runs has failed, so that those
/// enqueued after it do nothing.
class SharedFailure {
 public:
  virtual ~SharedFailure() = default;
};

struct ExecutorOptions {
  Device device;
  std::string name = "program";  // in errors of the device
  Execution execution = Execution::captured;
  int repeats = 1;             // times that one run() runs the plan
  bool fuses_launches = true;  // on a GPU: see CompileOptions
  std::function<void(const StepSeen&)> on_step = {};
  std::function<void(Printed&&)> on_print = {};
  std::shared_ptr<Arena> arena = {};            // to share when it is large enough
  std::vector<void*> parameters = {};           // device address per Plan::parameters
  void* stream = nullptr;                       // on a GPU: the caller's
  std::int64_t graph_bytes = 0;                 // on a GPU: see CompileOptions
  std::shared_ptr<SharedFailure> failure = {};  // of the store, on a GPU
  LaunchWatcher* watcher = nullptr;             // of a stepwise run; must outlive the executor
};

/// `plan` must outlive the executor.
std::unique_ptr<Executor> make_cpu_executor(const Plan& plan, const ExecutorOptions& options);
std::unique_ptr<Executor> make_gpu_executor(const Plan& plan, const ExecutorOptions& options);

/// Memory for the parameters of a store.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual void* address() const = 0;
  virtual void write(const Tensor& tensor) = 0;
  virtual Tensor read(const Type& type) const = 0;
};
std::unique_ptr<DeviceBuffer> make_cpu_buffer(std::int64_t bytes);
std::unique_ptr<DeviceBuffer> make_gpu_buffer(std::int64_t bytes, const Device& device);
std::shared_ptr<SharedFailure> make_gpu_failure(const Device& device);

}  // namespace paoding
