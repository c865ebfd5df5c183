// SPDX-License-Identifier: Apache-2.0
// attention and attention_grad on the CPU, each without a matrix of scores: cpu/attention_forward.cpp and
// cpu/attention_backward.cpp. Threads take items of work as they come, and sums within an item do not depend on
// them.
#include <atomic>
#include <memory>

#include "base/check.h"
#include "base/half.h"
#include "cpu/parallel.h"
#include "ops/all_kernels.h"
#include "ops/attention/cpu/attention_work.h"
#include "ops/kernel.h"

namespace paoding {

float number_of(const AttentionOperand& operand, std::int64_t matrix) {
  switch (operand.dtype) {
    case DType::bf16: return bf16_to_float(*operand.at<std::uint16_t>(matrix));
    case DType::f16: return f16_to_float(*operand.at<std::uint16_t>(matrix));
    default: return *operand.at<float>(matrix);
  }
}

std::int64_t AttentionWork::length_of(std::int64_t matrix) const {
  if (lengths.data == nullptr) return form.keys;
  const std::int64_t length =
      lengths.dtype == DType::i32 ? *lengths.at<std::int32_t>(matrix) : *lengths.at<std::int64_t>(matrix);
  return std::clamp<std::int64_t>(length, 0, form.keys);
}

namespace {

bool are_rows_whole(const Layout& layout) {
  const Shape& shape = layout.type.shape;
  return shape.elements() == 0 || shape[shape.rank() - 1] == 1 ||
         layout.strides[static_cast<std::size_t>(shape.rank() - 1)] == 1;
}

// Whether the last axis has the stride 1 or 0, as kernels read rows, broadcast ones too.
bool has_plain_columns(const Layout& layout) {
  const Shape& shape = layout.type.shape;
  if (shape.rank() == 0 || shape[shape.rank() - 1] == 1) return true;
  const std::int64_t stride = layout.strides[static_cast<std::size_t>(shape.rank() - 1)];
  return stride == 0 || stride == 1;
}

// Small products by the library, many at a time, beat tiles here and there, as measured: where tiles leave nothing out,
// the kernel's gain is the memory that scores do not take.
std::string why_composed(const AttentionForm& form, bool is_gradient, const Target& target) {
  const std::int64_t pairs = form.queries * form.keys;
  const double all = static_cast<double>(form.batch * form.heads) * static_cast<double>(pairs);
  constexpr double kManyScores = 1 << 24;  // more had better not be in memory
  if (all >= kManyScores) return "";
  if (form.queries < (is_gradient ? 64 : 16) || form.keys < (is_gradient ? 64 : 32) || pairs < 64 * 64) {
    return "products of few queries or keys are faster one by one";
  }
  if (is_gradient && !form.is_banded() && (form.queries < 96 || pairs < 96 * 96)) {
    return "products of few queries or keys are faster one by one";
  }
  if (form.dtype == DType::bf16 && target.has_bf16 && (!form.is_banded() || pairs < 256 * 256)) {
    return "the library's products of pairs of bf16 are faster where all keys are seen";
  }
  const bool is_single = form.batch * form.key_heads == 1 && form.keys < 4 * kKeysOfTile;
  if (is_gradient && is_single && target.threads > 1) return "one head's keys are too few to share out";
  return "";
}

std::string why_not_attention(const KernelCall& call, bool is_gradient) {
  const AttentionForm form = attention_form(call, is_gradient);
  if (form.dtype == DType::f64) return "not of f32, bf16 or f16";
  const std::int64_t numbers = form.batch * form.heads * form.queries * form.keys * form.width * form.value_width;
  if (numbers == 0) return "there is nothing to do";
  const std::size_t rows = is_gradient ? kLse : kResult;  // operands that are rows of queries, keys or values
  for (std::size_t i = 0; i < rows; ++i) {
    if (!are_rows_whole(call.inputs[i])) return "rows of an operand are not contiguous";
  }
  for (const Layout& output : call.outputs) {
    if (!are_rows_whole(output)) return "rows of a result are not contiguous";
  }
  if (!is_gradient && !call.outputs[1].is_dense()) return "log-sum-exp is not dense";
  if (is_gradient) {
    for (const int input : {static_cast<int>(kLse), form.dlse}) {
      if (input < 0) continue;
      const Layout& layout = call.inputs[static_cast<std::size_t>(input)];
      if (layout.type.dtype != DType::f32 || !layout.is_dense()) return "log-sum-exp is not dense or not f32";
    }
    if (form.bias >= 0 && call.outputs[3].type.shape.elements() > 0) return "a gradient of the bias is wanted";
  }
  for (const int input : {form.bias, form.mask, form.slopes}) {
    if (input < 0) continue;
    const Layout& layout = call.inputs[static_cast<std::size_t>(input)];
    if (layout.type.dtype == DType::f64) return "bias or slopes are f64";
    if (input != form.slopes && !has_plain_columns(layout)) return "rows of bias or mask are not contiguous";
  }
  return why_composed(form, is_gradient, *call.target);
}

// Operands of a call: their strides, and where each matrix begins.
class Operands {
 public:
  explicit Operands(const KernelCall& call) : call_(call) {
    const Shape& q = call.inputs[kQ].type.shape;
    lead_ = q.with_removed(q.rank() - 1).with_removed(q.rank() - 2);
    const Shape& k = call.inputs[kK].type.shape;
    key_lead_ = k.with_removed(k.rank() - 1).with_removed(k.rank() - 2);
  }

  struct Place {
    std::size_t operand;  // of a run
    AttentionOperand described;
    std::vector<std::int64_t> starts;
    bool is_there = false;
  };

  Place input(int i, bool is_of_keys = false) const {
    if (i < 0) return {};
    return place(call_.inputs[static_cast<std::size_t>(i)], static_cast<std::size_t>(i), is_of_keys ? key_lead_ : lead_,
                 2);
  }
  Place number(int i) const {
    return i < 0 ? Place{} : place(call_.inputs[static_cast<std::size_t>(i)], static_cast<std::size_t>(i), lead_, 0);
  }
  Place output(std::size_t i, bool is_of_keys = false) const {
    const Layout& layout = call_.outputs[i];
    if (layout.type.shape.elements() == 0) return {};  // nobody reads it
    return place(layout, call_.inputs.size() + i, is_of_keys ? key_lead_ : lead_, 2);
  }

 private:
  static Place place(const Layout& layout, std::size_t operand, const Shape& lead, int own_axes) {
    const Shape& shape = layout.type.shape;
    Place made{.operand = operand, .described = {}, .starts = {}, .is_there = true};
    const auto stride = [&](int axis) {
      return axis < 0 || shape[axis] == 1 ? 0 : layout.strides[static_cast<std::size_t>(axis)];
    };
    made.described.dtype = layout.type.dtype;
    if (own_axes == 2) {
      made.described.row = stride(shape.rank() - 2), made.described.column = stride(shape.rank() - 1);
    }
    const int behind = shape.rank() - own_axes - lead.rank();  // of the operand's axes, before those of `lead`
    for (std::int64_t matrix = 0; matrix < lead.elements(); ++matrix) {
      std::int64_t left = matrix, start = 0;
      for (int axis = lead.rank() - 1; axis >= 0; --axis) {
        start += left % lead[axis] * stride(axis + behind);
        left /= lead[axis];
      }
      made.starts.push_back(start);
    }
    return made;
  }

  const KernelCall& call_;
  Shape lead_, key_lead_;
};

AttentionOperand at_run(const Operands::Place& place, const KernelRun& run) {
  AttentionOperand made = place.described;
  if (!place.is_there) return made;
  made.data = run.operands[place.operand];
  made.starts = place.starts.data();
  return made;
}

// Calls item(number, thread) for 0 .. count - 1, each once, as threads come.
template <class Item>
void take_items(int threads, std::int64_t count, const Item& item) {
  struct State {
    std::atomic<std::int64_t> next{0};
    std::int64_t count;
    const Item* item;
  } state{.count = count, .item = &item};
  parallel(
      threads,
      [](int thread, void* raw) {
        State& s = *static_cast<State*>(raw);
        for (std::int64_t i = s.next++; i < s.count; i = s.next++) (*s.item)(i, thread);
      },
      &state);
}

constexpr double kWorthThreads = 1 << 21;  // multiplications of a call

double multiplications(const AttentionForm& form) {
  return static_cast<double>(form.batch * form.heads) * static_cast<double>(form.queries) *
         static_cast<double>(form.keys) * static_cast<double>(form.width + form.value_width);
}

class AttentionKernel : public PreparedKernel {
 public:
  AttentionKernel(const KernelCall& call, bool is_gradient) {
    const Operands operands(call);
    work_.form = attention_form(call, is_gradient);
    const AttentionForm& form = work_.form;
    q_ = operands.input(kQ), k_ = operands.input(kK, true), v_ = operands.input(kV, true);
    bias_ = operands.input(form.bias), mask_ = operands.input(form.mask);
    lengths_ = operands.number(form.lengths), slopes_ = operands.number(form.slopes);
    threads_ = multiplications(form) >= kWorthThreads ? max_threads() : 1;
  }

 protected:
  AttentionWork work_of(const KernelRun& run) const {
    AttentionWork w = work_;
    w.q = at_run(q_, run), w.k = at_run(k_, run), w.v = at_run(v_, run);
    w.bias = at_run(bias_, run), w.mask = at_run(mask_, run);
    w.lengths = at_run(lengths_, run), w.slopes = at_run(slopes_, run);
    if (w.form.random >= 0) {
      const auto number = [&](int i) { return *static_cast<const std::int64_t*>(run.operands[w.form.random + i]); };
      w.random_first = number(0), w.random_run = number(1), w.random_seed = number(2);
    }
    return w;
  }
  std::int64_t matrices() const { return work_.form.batch * work_.form.heads; }

  AttentionWork work_{};
  int threads_ = 1;

 private:
  Operands::Place q_, k_, v_, bias_, mask_, lengths_, slopes_;
};

class AttentionForward : public AttentionKernel {
 public:
  explicit AttentionForward(const KernelCall& call) : AttentionKernel(call, false) {
    const Operands operands(call);
    result_ = operands.output(0);
    if (call.outputs[1].type.shape.elements() > 0) logs_ = call.inputs.size() + 1;
    // Items enough that threads end together.
    constexpr std::int64_t kItemsOfThread = 8, kLeastRows = 32;
    while (work_.item_rows > kLeastRows && matrices() * work_.items_of_head() < kItemsOfThread * threads_) {
      work_.item_rows /= 2;
    }
  }

  std::int64_t scratch_bytes() const override { return threads_ * work_.forward_scratch() * 4; }

  void run(const KernelRun& run) const override {
    AttentionWork w = work_of(run);
    w.result = at_run(result_, run);
    w.logs = logs_ > 0 ? static_cast<float*>(run.operands[logs_]) : nullptr;
    const std::int64_t of_head = w.items_of_head(), count = matrices() * of_head;
    take_items(threads_, count, [&](std::int64_t number, int thread) {
      AttentionWork mine = w;
      mine.scratch = static_cast<float*>(run.scratch) + thread * w.forward_scratch();
      // The last queries see the most keys where they are causal, and come first.
      run_attention_item(mine, number % matrices(), of_head - 1 - number / matrices());
    });
  }

 private:
  Operands::Place result_;
  std::size_t logs_ = 0;
};

class AttentionBackward : public AttentionKernel {
 public:
  explicit AttentionBackward(const KernelCall& call) : AttentionKernel(call, true) {
    const Operands operands(call);
    result_ = operands.input(kResult), dresult_ = operands.input(kDResult);
    dq_ = operands.output(0), dk_ = operands.output(1, true), dv_ = operands.output(2, true);
    // Parts do not depend on the threads, since their number decides how dq is summed.
    constexpr std::int64_t kItems = 24, kTilesOfPart = 2;
    const std::int64_t tiles = (work_.form.keys + work_.tile - 1) / work_.tile;
    const std::int64_t heads = work_.form.batch * work_.form.key_heads;
    work_.parts = std::clamp<std::int64_t>(kItems / heads, 1, std::max<std::int64_t>(tiles / kTilesOfPart, 1));
  }

  std::int64_t scratch_bytes() const override {
    return (threads_ * work_.backward_scratch() + rows() * work_.parts * (1 + work_.padded_width())) * 4;
  }

  void run(const KernelRun& run) const override {
    AttentionWork w = work_of(run);
    w.result = at_run(result_, run), w.dresult = at_run(dresult_, run);
    w.dq = at_run(dq_, run), w.dk = at_run(dk_, run), w.dv = at_run(dv_, run);
    w.given_logs = static_cast<const float*>(run.operands[kLse]);
    if (w.form.dlse >= 0) w.dlogs = static_cast<const float*>(run.operands[w.form.dlse]);
    auto* scratch = static_cast<float*>(run.scratch);
    w.parts_of_dq = scratch + threads_ * w.backward_scratch();
    w.shared = w.parts_of_dq + rows() * w.parts * w.padded_width();
    const std::int64_t key_matrices = w.form.batch * w.form.key_heads;
    take_items(threads_, key_matrices * w.parts, [&](std::int64_t number, int thread) {
      AttentionWork mine = w;
      mine.scratch = scratch + thread * w.backward_scratch();
      run_attention_grad_item(mine, number % key_matrices, number / key_matrices);
    });
    if (w.parts == 1 || w.dq.data == nullptr) return;
    share_out(threads_, rows(), [&](std::int64_t begin, std::int64_t end, int thread) {
      AttentionWork mine = w;
      mine.scratch = scratch + thread * w.backward_scratch();
      run_attention_dq(mine, begin, end);
    });
  }

 private:
  std::int64_t rows() const { return matrices() * work_.form.queries; }

  Operands::Place result_, dresult_, dq_, dk_, dv_;
};

}  // namespace

void register_attention_cpu() {
  register_kernel("attention", {.name = "tiles",
                                .device = DeviceKind::cpu,
                                .refusal = [](const KernelCall& call) { return why_not_attention(call, false); },
                                .prepare = [](const KernelCall& call,
                                              const Device&) { return std::make_unique<AttentionForward>(call); }});
  register_kernel(
      "attention_grad",
      {.name = "tiles",
       .device = DeviceKind::cpu,
       .refusal = [](const KernelCall& call) { return why_not_attention(call, true); },
       .prepare = [](const KernelCall& call, const Device&) { return std::make_unique<AttentionBackward>(call); }});
}

}  // namespace paoding
