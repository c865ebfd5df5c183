// SPDX-License-Identifier: Apache-2.0
// The recurrences over time and their gradients on the CPU, each as one region for all steps:
// cpu/recurrence_forward.cpp and cpu/recurrence_backward.cpp.
#include <algorithm>
#include <memory>
#include <type_traits>

#include "base/check.h"
#include "cpu/last_cache.h"
#include "cpu/parallel.h"
#include "cpu/team.h"
#include "ops/all_kernels.h"
#include "ops/kernel.h"
#include "ops/recurrence/packed_weights.h"
#include "ops/recurrence/recurrence_work.h"

namespace paoding {
namespace {

struct CellForm {
  CellKind cell;
  const char* name;
  std::int64_t gates;
};
constexpr CellForm kForms[] = {{CellKind::lstm, "lstm", 4}, {CellKind::gru, "gru", 3}, {CellKind::rnn, "rnn", 1}};

// A matrix whose columns are dense, one after the other.
bool is_by_columns(const Layout& layout) {
  const Shape& shape = layout.type.shape;
  return shape.rank() == 2 && !layout.is_dense() && layout.strides[0] == 1 && layout.strides[1] == shape[0];
}

std::string refusal_of(const KernelCall& call, const CellForm& form, bool is_gradient) {
  const DType dtype = call.inputs[0].type.dtype;
  const Shape& saved = call.inputs[is_gradient ? 1 : 0].type.shape;  // steps, rows, ..
  const Type& u = call.inputs[is_gradient ? 0 : 1].type;
  const std::int64_t hidden = hidden_of(u);
  // Where a step is short, its parallel regions cost more than the library's products gain.
  constexpr std::int64_t kMostByTiles = 1 << 21;  // multiplications of a step by a thread
  const std::int64_t multiplied = saved[1] * hidden * form.gates * hidden;
  if (dtype == bf16 && call.target->has_amx && saved[1] > kFewRows &&
      multiplied > kMostByTiles * std::max(call.target->threads, 1)) {
    return "the library's products of bf16 on tiles are faster where each thread has many";
  }
  if (dtype != f32 && dtype != bf16) return "not of f32 or bf16";
  if (are_packed(u)) {
    const Type plain{dtype, {hidden, form.gates * hidden}};
    if (is_gradient) return "u is packed as recurrences read it, not their gradients";
    if (u.shape[4] != packed_depth(call.op->cell, plain, *call.target)) return "u is packed in another order";
  }
  if (form.cell == CellKind::lstm && call.inputs[is_gradient ? 2 : 3].type.dtype != f32) {
    return "the cell state is not f32";
  }
  if (call.inputs[is_gradient ? 1 : 0].type.shape.elements() == 0) return "there is nothing to do";
  for (const auto* list : {&call.inputs, &call.outputs}) {
    for (const Layout& layout : *list) {
      const bool is_u = &layout == &call.inputs[1] && !is_gradient;
      if (!layout.is_dense() && !(is_u && is_by_columns(layout))) return "an operand is not dense";
    }
  }
  return "";
}

// The number of groups of rows that threads form, each of which reads all of the weights: as many as there are rows
// for, since the threads of one wait for each other every step; but fewer where a thread then finds its part of the
// weights in its second cache, and would not with more groups.
int row_groups_of(int threads, std::int64_t rows, std::int64_t weight_bytes) {
  constexpr std::int64_t kRowsOfGroup = 16;  // so many multiply a panel about as fast as more
  const std::int64_t cache = second_cache_bytes();
  int most = 1, most_in_cache = 0;
  for (int groups = 1; groups <= threads; ++groups) {
    if (threads % groups != 0 || (groups > 1 && rows < kRowsOfGroup * groups)) continue;
    most = groups;
    if (weight_bytes * groups / threads <= cache) most_in_cache = groups;
  }
  return most_in_cache > 0 ? most_in_cache : most;
}

class RecurrenceKernel : public PreparedKernel {
 public:
  // `values` has steps and rows, u is [H, gates * H] or packed; a row of factors has `multiplied` numbers for a unit;
  // `adds_up`: the last result is the gradients' sum.
  RecurrenceKernel(const KernelCall& call, const CellForm& form, std::int64_t steps, std::int64_t rows, const Type& u,
                   std::int64_t multiplied, bool adds_up, bool is_by_columns = false)
      : input_count_(call.inputs.size()), is_given_packed_(are_packed(u)) {
    work_.cell = form.cell;
    work_.is_reverse = call.attrs.get_bool("reverse");
    work_.is_relu = form.cell == CellKind::rnn && call.attrs.get_bool("relu");
    work_.steps = steps, work_.rows = rows, work_.hidden = hidden_of(u);
    const bool has_many = rows > kFewRows, is_packed = has_many || steps >= kManySteps || is_given_packed_;
    const bool has_pairs = call.target->has_bf16 && multiplies_pairs() && is_packed;
    work_.numbers = u.dtype == f32                     ? Numbers::f32
                    : has_many && call.target->has_amx ? Numbers::bf16_in_tiles
                    : has_pairs                        ? Numbers::bf16_in_pairs
                                                       : Numbers::bf16_as_f32;
    work_.is_packed = is_packed, work_.is_by_columns = is_by_columns;
    if (is_given_packed_) work_.blocks_of_panel = blocks_together(form.gates);
    for (const Layout& output : call.outputs) is_read_.push_back(output.type.shape.elements() > 0);

    const std::int64_t units = work_.blocks() * kUnitBlock, all = form.gates * work_.hidden;
    const std::int64_t width = RecurrenceWork::padded(work_.numbers, multiplied * work_.hidden);
    const std::int64_t packed = is_packed && !is_given_packed_ ? units * width * form.gates / multiplied : 0;
    packed_bytes_ = (packed * size_bytes(u.dtype) + 63) / 64 * 64;
    left_ = RecurrenceWork::padded_rows(work_.numbers, rows) *
            RecurrenceWork::stride_of(work_.numbers, multiplied * work_.hidden);
    state_ = rows * work_.hidden;
    sums_ = is_packed ? 0 : rows * all;
    gates_ = all;
    constexpr std::int64_t kWorthThreads = 1 << 15;  // multiplications of a step
    const bool is_worth_it = rows * work_.hidden * all >= kWorthThreads;
    threads_ = is_worth_it ? static_cast<int>(std::min<std::int64_t>(max_threads(), work_.blocks())) : 1;
    if (is_packed && work_.numbers != Numbers::bf16_in_tiles) {
      row_groups_ = row_groups_of(threads_, rows, all * work_.hidden * size_bytes(u.dtype));
    }
    totals_ = adds_up ? 2 * work_.biases() * work_.hidden * row_groups_ : 0;
  }

  std::int64_t scratch_bytes() const override {
    return packed_bytes_ + barrier_bytes() + (2 * left_ + 2 * state_ + sums_ + gates_ + totals_) * 4;
  }

 protected:
  bool is_given_packed() const { return is_given_packed_; }

  RecurrenceWork work_of(const KernelRun& run) const {
    RecurrenceWork w = work_;
    auto* floats = reinterpret_cast<float*>(static_cast<std::byte*>(run.scratch) + packed_bytes_ + barrier_bytes());
    w.barriers = reinterpret_cast<TeamBarrier*>(static_cast<std::byte*>(run.scratch) + packed_bytes_);
    w.packed = packed_bytes_ > 0 ? run.scratch : nullptr;
    w.panels = w.packed;
    w.left[0] = floats, w.left[1] = floats + left_;
    w.c = floats + 2 * left_, w.d_h = w.c + state_, w.sums = w.d_h + state_;
    w.from_bias = w.sums + sums_, w.totals = w.from_bias + gates_;
    return w;
  }

  // The operands, one after the other; results that nobody reads are null.
  class Operands {
   public:
    Operands(const RecurrenceKernel& kernel, const KernelRun& run) : kernel_(kernel), run_(run) {}
    const void* input() { return run_.operands[next_++]; }
    const float* floats() { return static_cast<const float*>(input()); }
    // Unless only `behind` inputs are left.
    const std::int32_t* lengths(std::size_t behind = 0) {
      return next_ + behind < kernel_.input_count_ ? static_cast<const std::int32_t*>(input()) : nullptr;
    }
    void* result() {
      const std::size_t k = result_++;
      return kernel_.is_read_[k] ? run_.operands[kernel_.input_count_ + k] : nullptr;
    }
    float* float_result() { return static_cast<float*>(result()); }

   private:
    const RecurrenceKernel& kernel_;
    const KernelRun& run_;
    std::size_t next_ = 0, result_ = 0;
  };

  template <void (*kPart)(const RecurrenceWork&, int, int)>
  void run_parts(RecurrenceWork* w) const {
    w->row_groups = w->lengths == nullptr ? row_groups_ : 1;  // rows that end early are others' to wait for
    std::uninitialized_value_construct_n(w->barriers, row_groups_ + 1);
    const auto body = [](int thread, int team, void* work) noexcept {
      kPart(*static_cast<const RecurrenceWork*>(work), thread, team);
    };
    run_team(threads_, body, w);
  }

 private:
  static_assert(std::is_trivially_destructible_v<TeamBarrier>);
  std::int64_t barrier_bytes() const { return (row_groups_ + 1) * static_cast<std::int64_t>(sizeof(TeamBarrier)); }

  const std::size_t input_count_;
  const bool is_given_packed_;
  RecurrenceWork work_{};
  int threads_ = 1;
  int row_groups_ = 1;
  std::vector<bool> is_read_;
  std::int64_t packed_bytes_, left_, state_, sums_, gates_, totals_;
};

class RecurrenceForward : public RecurrenceKernel {
 public:
  RecurrenceForward(const KernelCall& call, const CellForm& form)
      : RecurrenceKernel(call, form, call.inputs[0].type.shape[0], call.inputs[0].type.shape[1], call.inputs[1].type, 1,
                         false, is_by_columns(call.inputs[1])),
        has_bias_(call.attrs.get_bool("bias")),
        is_bias_wide_(call.inputs.back().type.dtype == f32) {}

  void run(const KernelRun& run) const override {
    RecurrenceWork w = work_of(run);
    Operands next(*this, run);
    w.xw = next.input(), w.u = next.input();
    if (is_given_packed()) w.panels = w.u;
    if (w.cell == CellKind::gru) w.bm = next.input();
    w.h0 = next.input();
    if (w.cell == CellKind::lstm) w.c0 = next.floats();
    w.lengths = next.lengths(has_bias_ ? 1 : 0);
    if (has_bias_) w.bias = next.input(), w.is_bias_wide = is_bias_wide_;
    w.states = next.result();
    if (w.cell == CellKind::lstm) w.cells = next.float_result();
    if (w.cell != CellKind::rnn) w.saved = next.result();
    w.last_h = next.result();
    if (w.cell == CellKind::lstm) w.last_c = next.float_result();
    run_parts<run_recurrence_forward>(&w);
  }

 private:
  const bool has_bias_, is_bias_wide_;
};

class RecurrenceBackward : public RecurrenceKernel {
 public:
  RecurrenceBackward(const KernelCall& call, const CellForm& form)
      : RecurrenceKernel(call, form, call.inputs[1].type.shape[0] - (form.cell == CellKind::rnn ? 1 : 0),
                         call.inputs[1].type.shape[1], call.inputs[0].type, form.gates, call.attrs.get_bool("sums")),
        has_states_(call.attrs.get_bool("states")),
        has_last_h_(call.attrs.get_bool("last_h")),
        has_last_c_(form.cell == CellKind::lstm && call.attrs.get_bool("last_c")),
        adds_up_(call.attrs.get_bool("sums")),
        is_dbias_wide_(call.outputs.back().type.dtype == f32) {}

  void run(const KernelRun& run) const override {
    RecurrenceWork w = work_of(run);
    Operands next(*this, run);
    w.u = next.input();
    if (w.cell != CellKind::rnn) w.given_saved = next.input();
    if (w.cell == CellKind::lstm) {
      w.given_cells = next.floats();
    } else {
      w.given_states = next.input();
    }
    if (has_states_) w.dstates = next.input();
    if (has_last_h_) w.dlast_h = next.input();
    if (has_last_c_) w.dlast_c = next.floats();
    w.lengths = next.lengths();
    w.dxw = next.result();
    if (w.cell == CellKind::gru) w.dhu = next.result();
    w.dh0 = next.result();
    if (w.cell == CellKind::lstm) w.dc0 = next.float_result();
    w.dbias = adds_up_ ? next.result() : nullptr, w.is_dbias_wide = is_dbias_wide_;
    if (w.dbias == nullptr) w.totals = nullptr;
    run_parts<run_recurrence_backward>(&w);
  }

 private:
  const bool has_states_, has_last_h_, has_last_c_, adds_up_, is_dbias_wide_;
};

}  // namespace

void register_recurrence_cpu() {
  for (const CellForm& form : kForms) {
    const std::string op = std::string(form.name) + "_recurrence";
    // An LSTM's saved values may lie where xw does, and the gradient of xw where the saved values do.
    using InPlace = decltype(KernelImplementation::in_place);
    const bool is_lstm = form.cell == CellKind::lstm;
    register_kernel(op, {.name = "team",
                         .device = DeviceKind::cpu,
                         .refusal = [&form](const KernelCall& call) { return refusal_of(call, form, false); },
                         .prepare = [&form](const KernelCall& call,
                                            const Device&) { return std::make_unique<RecurrenceForward>(call, form); },
                         .in_place = is_lstm ? InPlace{{2, 0}} : InPlace{}});
    register_kernel(op + "_grad",
                    {.name = "team",
                     .device = DeviceKind::cpu,
                     .refusal = [&form](const KernelCall& call) { return refusal_of(call, form, true); },
                     .prepare = [&form](const KernelCall& call,
                                        const Device&) { return std::make_unique<RecurrenceBackward>(call, form); },
                     .in_place = is_lstm ? InPlace{{0, 1}} : InPlace{}});
  }
}

}  // namespace paoding
