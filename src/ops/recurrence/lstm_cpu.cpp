// SPDX-License-Identifier: Apache-2.0
// lstm_recurrence and its gradient on the CPU, each as one region for all steps: lstm_forward_cpu.cpp and
// lstm_backward_cpu.cpp.
#include "base/check.h"
#include "cpu/parallel.h"
#include "cpu/team.h"
#include "ops/all_kernels.h"
#include "ops/kernel.h"
#include "ops/recurrence/lstm_work.h"

namespace paoding {
namespace {

struct RecurrenceExtents {
  std::int64_t steps, rows, hidden;
};

std::string refusal_of(const KernelCall& call, const Type& gates, const Type& cells) {
  if (gates.dtype == bf16 && call.target->has_bf16) return "the library's products of bf16 are twice as fast";
  if (gates.dtype != f32 && gates.dtype != bf16) return "not of f32 or bf16";
  if (cells.dtype != f32) return "the cell state is not f32";
  if (gates.shape.elements() == 0) return "there is nothing to do";
  for (const auto* list : {&call.inputs, &call.outputs}) {
    for (const Layout& layout : *list) {
      if (!layout.is_dense()) return "an operand is not dense";
    }
  }
  return "";
}

class LstmKernel : public PreparedKernel {
 public:
  LstmKernel(const KernelCall& call, const Type& gates, std::int64_t state_width)
      : extents_{gates.shape[0], gates.shape[1], gates.shape[2] / 4},
        is_half_(gates.dtype == bf16),
        is_reverse_(call.attrs.get_bool("reverse")),
        input_count_(call.inputs.size()) {
    for (const Layout& output : call.outputs) is_read_.push_back(output.type.shape.elements() > 0);
    const std::int64_t padded = (extents_.hidden + kUnitBlock - 1) / kUnitBlock * kUnitBlock;
    const std::int64_t packed = extents_.rows <= kFewRows ? 0 : padded * 4 * extents_.hidden;
    packed_bytes_ = (packed * size_bytes(gates.dtype) + 63) / 64 * 64;
    sums_ = extents_.rows <= kFewRows ? extents_.rows * 4 * extents_.hidden : 0;
    wide_ = extents_.rows * extents_.hidden * state_width;
    constexpr std::int64_t kWorthThreads = 1 << 15;  // multiplications of a step
    const std::int64_t work = extents_.rows * extents_.hidden * 4 * extents_.hidden;
    threads_ = work < kWorthThreads ? 1 : static_cast<int>(std::min<std::int64_t>(max_threads(), padded / kUnitBlock));
  }

  std::int64_t scratch_bytes() const override {
    return packed_bytes_ + (2 * wide_ + 2 * extents_.rows * extents_.hidden + sums_) * 4;
  }

 protected:
  LstmWork work_of(const KernelRun& run, TeamBarrier* barrier) const {
    LstmWork w{};
    w.steps = extents_.steps, w.rows = extents_.rows, w.hidden = extents_.hidden;
    w.is_reverse = is_reverse_, w.is_half = is_half_;
    auto* floats = reinterpret_cast<float*>(static_cast<std::byte*>(run.scratch) + packed_bytes_);
    w.packed = packed_bytes_ > 0 ? run.scratch : nullptr;
    w.h[0] = floats, w.h[1] = floats + wide_;
    w.c = floats + 2 * wide_, w.d_h = w.c + extents_.rows * extents_.hidden;
    w.sums = w.d_h + extents_.rows * extents_.hidden;
    w.barrier = barrier;
    return w;
  }
  template <class T = void>
  T* result(const KernelRun& run, std::size_t k) const {
    return is_read_[k] ? static_cast<T*>(run.operands[input_count_ + k]) : nullptr;
  }

  const RecurrenceExtents extents_;
  const bool is_half_, is_reverse_;
  const std::size_t input_count_;
  int threads_ = 1;

 private:
  std::vector<bool> is_read_;
  std::int64_t packed_bytes_, sums_, wide_;
};

class LstmForward : public LstmKernel {
 public:
  explicit LstmForward(const KernelCall& call) : LstmKernel(call, call.inputs[0].type, 1) {}

  void run(const KernelRun& run) const override {
    TeamBarrier barrier;
    LstmWork w = work_of(run, &barrier);
    w.xw = run.operands[0], w.u = run.operands[1], w.h0 = run.operands[2];
    w.c0 = static_cast<const float*>(run.operands[3]);
    w.lengths = input_count_ > 4 ? static_cast<const std::int32_t*>(run.operands[4]) : nullptr;
    w.states = result(run, 0), w.cells = result<float>(run, 1), w.gates = result(run, 2);
    w.last_h = result(run, 3), w.last_c = result<float>(run, 4);
    const auto body = [](int thread, int team, void* work) noexcept {
      run_lstm_forward(*static_cast<const LstmWork*>(work), thread, team);
    };
    run_team(threads_, body, &w);
  }
};

class LstmBackward : public LstmKernel {
 public:
  explicit LstmBackward(const KernelCall& call) : LstmKernel(call, call.inputs[1].type, 4) {
    for (const char* attr : {"states", "last_h", "last_c"}) is_given_.push_back(call.attrs.get_bool(attr));
  }

  void run(const KernelRun& run) const override {
    TeamBarrier barrier;
    LstmWork w = work_of(run, &barrier);
    w.u = run.operands[0], w.saved_gates = run.operands[1];
    w.saved_cells = static_cast<const float*>(run.operands[2]);
    std::size_t next = 3;
    const auto take = [&](std::size_t k) -> const void* { return is_given_[k] ? run.operands[next++] : nullptr; };
    w.dstates = take(0), w.dlast_h = take(1), w.dlast_c = static_cast<const float*>(take(2));
    w.lengths = next < input_count_ ? static_cast<const std::int32_t*>(run.operands[next]) : nullptr;
    w.dxw = result(run, 0), w.dh0 = result(run, 1), w.dc0 = result<float>(run, 2);
    const auto body = [](int thread, int team, void* work) noexcept {
      run_lstm_backward(*static_cast<const LstmWork*>(work), thread, team);
    };
    run_team(threads_, body, &w);
  }

 private:
  std::vector<bool> is_given_;
};

}  // namespace

void register_lstm_cpu() {
  register_kernel(
      "lstm_recurrence",
      {.name = "team",
       .device = DeviceKind::cpu,
       .refusal = [](const KernelCall& call) { return refusal_of(call, call.inputs[0].type, call.inputs[3].type); },
       .prepare = [](const KernelCall& call, const Device&) { return std::make_unique<LstmForward>(call); }});
  register_kernel(
      "lstm_recurrence_grad",
      {.name = "team",
       .device = DeviceKind::cpu,
       .refusal = [](const KernelCall& call) { return refusal_of(call, call.inputs[1].type, call.inputs[2].type); },
       .prepare = [](const KernelCall& call, const Device&) { return std::make_unique<LstmBackward>(call); }});
}

}  // namespace paoding
