// SPDX-License-Identifier: Apache-2.0
// Kernel ops: an ordered table of implementations per device. The first that accepts wins; every refusal says why
// (PAODING_EXPLAIN=1 prints it). Everything is decided when a kernel is prepared; run() only runs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/layout.h"
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
};

/// What a kernel gets when it runs.
struct KernelRun {
  void* const* operands;  // inputs, then outputs
  void* scratch;          // scratch_bytes() of the device's memory
  void* stream;           // CUstream on a GPU
  void* fault = nullptr;  // on a GPU, where may_fault(): two 64-bit words of the device, all ones
};

/// A kernel for fixed layouts.
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;
  virtual std::int64_t scratch_bytes() const { return 0; }
  virtual void run(const KernelRun& run) const = 0;

  // ---- on a GPU ----

  /// Whether a run may meet values that it cannot do, an index out of range. On the CPU run() throws; a launch cannot,
  /// and leaves in KernelRun::fault what it met. When the run is waited for, raise() throws the error of that.
  virtual bool may_fault() const { return false; }
  virtual void raise(const std::uint64_t* /*fault*/) const {}
  /// The CUDA texts that it was compiled from, where they are paoding's own.
  virtual std::vector<std::string> texts() const { return {}; }
};

namespace gpu {
struct TextPlan;  // gpu/text_kernel.h
}

struct KernelImplementation {
  std::string name;  // "onednn", "cublaslt"
  DeviceKind device;
  /// Why this one cannot do the call; empty when it can.
  std::function<std::string(const KernelCall&)> refusal;
  std::function<std::unique_ptr<PreparedKernel>(const KernelCall&, const Device&)> prepare;
  /// Bit k: operand k (inputs, then outputs), an image [N, C, H, W], had better lie with its channels innermost. The
  /// planner decides.
  std::uint32_t channels_last = 0;
  /// On a GPU, of a kernel that is paoding's own: its launches, so that all texts of a program are compiled at once,
  /// and in tests without a GPU.
  std::function<std::shared_ptr<const gpu::TextPlan>(const KernelCall&)> plan_text = {};
};

/// Appends to the table of the op.
void register_kernel(std::string op, KernelImplementation implementation);
/// The first implementation that accepts; nullptr when none does. `refusals` gets a line per refusal.
const KernelImplementation* choose_kernel(const KernelCall& call, DeviceKind device,
                                          std::vector<std::string>* refusals);
/// The operands that the op's implementations for the device want so: see KernelImplementation::channels_last.
std::uint32_t wants_channels_last(const OpDef& op, DeviceKind device);

}  // namespace paoding
