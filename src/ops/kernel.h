// SPDX-License-Identifier: Apache-2.0
// Kernel ops: an ordered table of implementations per device. The first that accepts wins (ops/decision.h); every
// refusal says why (PAODING_EXPLAIN=1 prints it). Everything is decided when a kernel is prepared; run() only runs. A
// composed op may have such a table too: an implementation that accepts the node claims it as a whole before it is
// taken apart. When it is planned then, results of it that nobody reads have shape [0]: they are not to be written.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/launch_shape.h"
#include "base/layout.h"
#include "base/target.h"
#include "ops/kernel_environment.h"
#include "paoding/op.h"

namespace paoding {

/// One application of a kernel op with its operands' layouts.
struct KernelCall {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<Layout> inputs;
  std::vector<Layout> outputs;
  std::vector<std::int64_t> alignments;  // bytes to which every operand's address is known to be aligned
  bool allow_tf32 = false;               // f32 products may round their operands to TF32
  std::string scope = {};                // of the node, for errors that only a run can find
  TargetPtr target = std::make_shared<const Target>();
  /// On a GPU. Bit i: the launch right before this does not write input i, so it may be read before that has ended.
  std::uint32_t unmodified_by_previous = 0;
  /// On a GPU. So many calls of the op stand side by side, this one and others that do not depend on each other, and
  /// may share a launch.
  std::int64_t together = 1;
  /// On a GPU. So many calls of the op stand one above the other, this one among them: input 0 of one is a matrix's
  /// product with result 0 of the one below, which nothing else reads. They may share a launch, each some steps behind.
  std::int64_t pipelined_layers = 1;
  KernelEnvironmentPtr environment = no_environment();
  /// The timed choice for the call, where the op has a kernel that is timed (KernelImplementation::timing_key).
  std::shared_ptr<const TimedEntry> timed = nullptr;
};

/// The arguments of a kernel's run.
struct KernelRun {
  void* const* operands;  // inputs, then outputs
  void* scratch;          // scratch_bytes() of the device's memory
  void* stream;           // CUstream on a GPU

  // ---- on a GPU ----
  void* tickets = nullptr;  // of kernels with our own source: 32-bit words that are zero
  void* fault = nullptr;    // where faults are possible: two 64-bit words, all ones
  void* failed = nullptr;   // a 32-bit word: not zero when a launch before this one has left a fault
  void* stamp = nullptr;    // the same: a 64-bit word, the time stamp of the first launch
};

struct KernelImplementation;

/// A kernel for fixed layouts.
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;
  const KernelImplementation* made_by = nullptr;  // of those that prepare_kernel() made
  virtual std::int64_t scratch_bytes() const { return 0; }
  virtual void run(const KernelRun& run) const = 0;

  // ---- on a GPU ----

  /// Throws the error that a launch left in KernelRun::fault, when the run is waited for.
  virtual void raise(const std::uint64_t* /*fault*/) const {}
  /// The size of its first launch, where that is of our own kernels.
  virtual LaunchShape launch() const { return {}; }
};

namespace gpu {
struct TextPlan;  // gpu/codegen/text_kernel.h
}

/// The result of preparing a kernel: the kernel, or why there is none after all (a library's heuristics say no).
class Preparation {
 public:
  template <class Kernel>
  Preparation(std::unique_ptr<Kernel> kernel) : kernel_(std::move(kernel)) {}
  static Preparation declined(std::string why) {
    Preparation none{std::unique_ptr<PreparedKernel>()};
    none.why_ = std::move(why);
    return none;
  }
  std::unique_ptr<PreparedKernel> take() { return std::move(kernel_); }
  const std::string& why_not() const { return why_; }

 private:
  std::unique_ptr<PreparedKernel> kernel_;
  std::string why_;
};
/// Whether a run of a kernel may fail: for values that it cannot do, an index out of range, or in a library. On the CPU
/// it throws; a launch on a GPU cannot, and leaves the fault in KernelRun::fault. The planner runs kernels that may
/// fail before the first write of a parameter.
enum class Faults : std::uint8_t { none, possible };

struct KernelImplementation {
  std::string name;  // "onednn", "cublaslt"
  DeviceKind device;
  /// Why this one cannot do the call; empty when it can. It, and all that is asked of a call, looks at the call alone:
  /// neither at variables of the environment nor at choices that are timed meanwhile.
  std::function<std::string(const KernelCall&)> refusal;
  std::function<Preparation(const KernelCall&, const Device&)> prepare = {};
  Faults faults = Faults::none;
  /// On a GPU: the most memory of the device that `prepare` may use beside the operands, while the kernel runs.
  std::function<std::int64_t(const KernelCall&)> workspace_bytes = {};
  /// Bit k: operand k (inputs, then outputs), an image [N, C, H, W], had better lie with its channels
  /// innermost. The planner decides.
  std::uint32_t channels_last = 0;
  /// Bit k: operand k, an image that is a result, is written in any layout as fast: its channels lie innermost where
  /// another kernel that reads it wants that.
  std::uint32_t any_layout = 0;
  /// Results that may lie where an input of the same type does, as (result, input): an element of that is read by none
  /// but the thread that writes the result's there, and before it does.
  std::vector<std::pair<std::size_t, std::size_t>> in_place = {};
  /// Bit i: input i had better be copied first: a matrix in its last two axes, to lie by columns where it lies by rows,
  /// or the other way round, since the copy takes less than it saves; weights of a convolution, to have their channels
  /// innermost, as the kernel would copy them too, and others read them.
  std::function<std::uint32_t(const KernelCall&)> transposed = {};
  /// A product's: it puts weights in an order of its own in every run, so they had better be packed once
  /// (matmul_packed), where they are read again and again.
  bool packs_weights = false;
  /// On a GPU, of a recurrence: whether its weights had better lie by units (packed_weights.h), where they are put so
  /// but once.
  std::function<bool(const KernelCall&)> wants_by_units = {};
  /// Why it is chosen for a call that it accepts, where that is worth a line (PAODING_EXPLAIN=1 prints it).
  std::function<std::string(const KernelCall&)> reason = {};
  /// On a GPU, for a kernel that is paoding's own, in place of `prepare`: its launches. It needs no GPU.
  std::function<std::shared_ptr<const gpu::TextPlan>(const KernelCall&)> plan_text = {};
  /// A kernel that is timed against others of the table, or by its algorithms, has it: the key under which the fastest
  /// for the call is kept (KernelEnvironment::timed); empty where it cannot do the call.
  std::function<std::string(const KernelCall&)> timing_key = {};
};

/// Appends to the table of the op, a kernel op or a composed one.
void register_kernel(std::string op, KernelImplementation implementation);
/// Every implementation for the op on the device, in the order of the table.
std::vector<const KernelImplementation*> kernels_of(const OpDef& op, DeviceKind device);
/// The operands that the op's implementations for the device want so: see KernelImplementation::channels_last.
std::uint32_t wants_channels_last(const OpDef& op, DeviceKind device);
/// The same of KernelImplementation::any_layout.
std::uint32_t writes_any_layout(const OpDef& op, DeviceKind device);

}  // namespace paoding
