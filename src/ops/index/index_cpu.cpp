// SPDX-License-Identifier: Apache-2.0
// gather, scatter_add and embedding_grad on the CPU. Rows are copied and added whole; every element of a result is
// written by one thread, which adds its updates in their order, so that the number of threads changes no bit.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/half.h"
#include "cpu/parallel.h"
#include "ops/all_kernels.h"
#include "ops/index/index_call.h"
#include "ops/rows.h"

namespace paoding {
namespace {

// The lowest position that any thread found wrong.
class FirstWrong {
 public:
  void note(std::int64_t position) {
    std::int64_t seen = lowest_.load(std::memory_order_relaxed);
    while (position < seen && !lowest_.compare_exchange_weak(seen, position)) {
    }
  }
  bool found() const { return lowest_.load() != kNone; }
  std::int64_t position() const { return lowest_.load(); }

 private:
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> lowest_{kNone};
};

// ---- gather ----

std::string gather_refusal(const KernelCall& call) {
  const int axis = index_axis(call, call.inputs[0].type.shape.rank());
  if (!call.inputs[1].is_dense()) return "indices are not dense";
  if (std::string why = rows_refusal(call.inputs[0], axis, 1, "a"); !why.empty()) return why;
  return rows_refusal(call.outputs[0], axis, call.inputs[1].type.shape.rank(), "the result");
}

template <class Id, std::int64_t kBytes>  // of an inner run; 0: any
class Gather : public PreparedKernel {
 public:
  explicit Gather(const KernelCall& call)
      : axis_(index_axis(call, call.inputs[0].type.shape.rank())),
        indices_(call, 1, axis_, call.inputs[0].type.shape[axis_]),
        from_(*rows_of(call.inputs[0], axis_)),
        to_(*rows_of(call.outputs[0], axis_, call.inputs[1].type.shape.rank())),
        element_(size_bytes(call.inputs[0].type.dtype)),
        count_(call.outputs[0].type.shape.elements() == 0 ? 0 : indices_.count()),
        threads_(threads_for(call.outputs[0].type.shape.elements() * element_)) {}

  void run(const KernelRun& run) const override {
    const auto* from = static_cast<const char*>(run.operands[0]);
    const auto* ids = static_cast<const Id*>(run.operands[1]);
    auto* to = static_cast<char*>(run.operands[2]);
    FirstWrong wrong;
    const std::int64_t run_bytes = kBytes > 0 ? kBytes : to_.inner.extent * element_;
    const std::int64_t from_step = from_.middle.stride * element_, to_step = to_.middle.stride * element_;
    share_out(threads_, to_.outer.extent * count_, [&](std::int64_t begin, std::int64_t end, int) {
      while (begin < end) {
        const std::int64_t outer = begin / count_, first = begin % count_;
        const std::int64_t last = std::min(count_, first + end - begin);
        const char* source = from + outer * from_.outer.stride * element_;
        char* target = to + outer * to_.outer.stride * element_;
        for (std::int64_t i = first; i < last; ++i) {
          if (!indices_.is_legal(ids[i])) {
            wrong.note(i);
            continue;
          }
          std::memcpy(target + i * to_step, source + ids[i] * from_step, static_cast<std::size_t>(run_bytes));
        }
        begin += last - first;
      }
    });
    if (wrong.found()) indices_.fail_at(ids, wrong.position());
  }

 private:
  int axis_;
  Indices indices_;
  Rows from_, to_;
  std::int64_t element_, count_;
  int threads_;
};

template <class Id>
std::unique_ptr<PreparedKernel> prepare_gather_of(const KernelCall& call) {
  const int axis = index_axis(call, call.inputs[0].type.shape.rank());
  const std::int64_t bytes = rows_of(call.inputs[0], axis)->inner.extent * size_bytes(call.inputs[0].type.dtype);
  switch (bytes) {
    case 1: return std::make_unique<Gather<Id, 1>>(call);
    case 2: return std::make_unique<Gather<Id, 2>>(call);
    case 4: return std::make_unique<Gather<Id, 4>>(call);
    case 8: return std::make_unique<Gather<Id, 8>>(call);
    default: return std::make_unique<Gather<Id, 0>>(call);
  }
}

// ---- gather_elements ----

std::string gather_elements_refusal(const KernelCall& call) {
  const int axis = index_axis(call, call.inputs[0].type.shape.rank());
  if (!call.inputs[1].is_dense()) return "indices are not dense";
  if (std::string why = rows_refusal(call.inputs[0], axis, 1, "a"); !why.empty()) return why;
  return rows_refusal(call.outputs[0], axis, 1, "the result");
}

template <class Id, class Stored>
class GatherElements : public PreparedKernel {
 public:
  explicit GatherElements(const KernelCall& call)
      : axis_(index_axis(call, call.inputs[0].type.shape.rank())),
        indices_(call, 1, axis_, call.inputs[0].type.shape[axis_]),
        from_(*rows_of(call.inputs[0], axis_)),
        to_(*rows_of(call.outputs[0], axis_)),
        rows_(indices_.count() == 0 ? 0 : to_.outer.extent * to_.middle.extent),
        threads_(threads_for(indices_.count() * std::int64_t{sizeof(Stored) + sizeof(Id)})) {}

  void run(const KernelRun& run) const override {
    const auto* from = static_cast<const Stored*>(run.operands[0]);
    const auto* ids = static_cast<const Id*>(run.operands[1]);
    auto* to = static_cast<Stored*>(run.operands[2]);
    FirstWrong wrong;
    const std::int64_t inner = to_.inner.extent;
    share_out(threads_, rows_, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t outer = row / to_.middle.extent, middle = row % to_.middle.extent;
        const Stored* source = from + outer * from_.outer.stride;
        Stored* target = to + outer * to_.outer.stride + middle * to_.middle.stride;
        const Id* row_ids = ids + row * inner;
        for (std::int64_t i = 0; i < inner; ++i) {
          if (indices_.is_legal(row_ids[i])) {
            target[i] = source[row_ids[i] * from_.middle.stride + i];
          } else {
            wrong.note(row * inner + i);
          }
        }
      }
    });
    if (wrong.found()) indices_.fail_at(ids, wrong.position());
  }

 private:
  int axis_;
  Indices indices_;
  Rows from_, to_;
  std::int64_t rows_;
  int threads_;
};

template <class Id>
std::unique_ptr<PreparedKernel> prepare_gather_elements_of(const KernelCall& call) {
  switch (size_bytes(call.inputs[0].type.dtype)) {
    case 1: return std::make_unique<GatherElements<Id, std::uint8_t>>(call);
    case 2: return std::make_unique<GatherElements<Id, std::uint16_t>>(call);
    case 4: return std::make_unique<GatherElements<Id, std::uint32_t>>(call);
    default: return std::make_unique<GatherElements<Id, std::uint64_t>>(call);
  }
}

// ---- check_indices ----

template <class Id>
class CheckIndices : public PreparedKernel {
 public:
  explicit CheckIndices(const KernelCall& call) : indices_(call) {}

  void run(const KernelRun& run) const override {
    const auto* ids = static_cast<const Id*>(run.operands[0]);
    auto* to = static_cast<Id*>(run.operands[1]);
    for (std::int64_t i = 0; i < indices_.count(); ++i) {
      if (!indices_.is_legal(ids[i])) indices_.fail(i, ids[i]);
      to[i] = ids[i];
    }
  }

 private:
  CheckedIndices indices_;
};

// ---- scatter_add ----

// How a dtype is added up: `Sum` is the type of the sum meanwhile.
template <class S, class T, T (*Load)(S), S (*Store)(T)>
struct Added {
  using Stored = S;
  using Sum = T;
  static T load(S value) { return Load(value); }
  static S store(T value) { return Store(value); }
};
template <class S>
struct Plain {  // integers wrap
  using Stored = S;
  using Sum = S;
  static S load(S value) { return value; }
  static S store(S value) { return value; }
};
using AddedF16 = Added<std::uint16_t, float, f16_to_float, float_to_f16>;
using AddedBf16 = Added<std::uint16_t, float, bf16_to_float, float_to_bf16>;

std::string scatter_refusal(const KernelCall& call) {
  const int axis = index_axis(call, call.outputs[0].type.shape.rank());
  if (!call.inputs[0].is_dense()) return "indices are not dense";
  if (std::string why = rows_refusal(call.inputs[1], axis, call.inputs[0].type.shape.rank(), "updates"); !why.empty()) {
    return why;
  }
  return rows_refusal(call.outputs[0], axis, 1, "the result");
}

// The positions of the indices are sorted by index first (a counting sort, stable), so that each row of the
// result is summed at once, in f32 for f16 and bf16, and rows that no index names are written as zeros on the way.
template <class Id, class How>
class ScatterAdd : public PreparedKernel {
 public:
  using Stored = typename How::Stored;
  using Sum = typename How::Sum;

  explicit ScatterAdd(const KernelCall& call)
      : axis_(index_axis(call, call.outputs[0].type.shape.rank())),
        indices_(call, 0, axis_, call.outputs[0].type.shape[axis_]),
        padding_(padding_row(call)),
        from_(*rows_of(call.inputs[1], axis_, call.inputs[0].type.shape.rank())),
        to_(*rows_of(call.outputs[0], axis_)),
        rows_(call.outputs[0].type.shape.elements() == 0 ? 0 : to_.outer.extent * to_.middle.extent),
        threads_(threads_for((call.outputs[0].type.shape.elements() + call.inputs[1].type.shape.elements()) *
                             std::int64_t{sizeof(Stored)})) {}

  std::int64_t scratch_bytes() const override {
    return (to_.middle.extent + 1 + indices_.count()) * std::int64_t{sizeof(std::int64_t)} + threads_ * sum_bytes();
  }

  void run(const KernelRun& run) const override {
    const auto* ids = static_cast<const Id*>(run.operands[0]);
    const auto* from = static_cast<const Stored*>(run.operands[1]);
    auto* to = static_cast<Stored*>(run.operands[2]);
    const std::int64_t range = to_.middle.extent, count = indices_.count();
    auto* ends = static_cast<std::int64_t*>(run.scratch);  // of each index's positions in `order`
    std::int64_t* order = ends + range + 1;
    char* sums = reinterpret_cast<char*>(order + count);
    std::fill_n(ends, range + 1, std::int64_t{0});
    for (std::int64_t i = 0; i < count; ++i) {
      if (!indices_.is_legal(ids[i])) indices_.fail_at(ids, i);
      if (ids[i] != padding_) ++ends[ids[i] + 1];
    }
    for (std::int64_t id = 0; id < range; ++id) ends[id + 1] += ends[id];
    for (std::int64_t i = 0; i < count; ++i) {
      if (ids[i] != padding_) order[ends[ids[i]]++] = i;
    }
    // Now ends[id] is past the positions of id, and ends[id - 1] where they begin.
    const std::int64_t inner = to_.inner.extent;
    share_out(threads_, rows_, [&](std::int64_t begin, std::int64_t end, int thread) {
      Sum* buffer = reinterpret_cast<Sum*>(sums + thread * sum_bytes());
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t outer = row / range, id = row % range;
        const std::int64_t first = id == 0 ? 0 : ends[id - 1], last = ends[id];
        const Stored* source = from + outer * from_.outer.stride;
        Stored* target = to + outer * to_.outer.stride + id * to_.middle.stride;
        if (first == last) {
          std::memset(target, 0, static_cast<std::size_t>(inner) * sizeof(Stored));
        } else if (last - first == 1) {
          std::memcpy(target, source + order[first] * from_.middle.stride,
                      static_cast<std::size_t>(inner) * sizeof(Stored));
        } else {
          Sum* sum = kInPlace ? reinterpret_cast<Sum*>(target) : buffer;
          for (std::int64_t k = first; k < last; ++k) {
            const Stored* update = source + order[k] * from_.middle.stride;
            if (k == first) {
              for (std::int64_t i = 0; i < inner; ++i) sum[i] = How::load(update[i]);
            } else {
              for (std::int64_t i = 0; i < inner; ++i) sum[i] = static_cast<Sum>(sum[i] + How::load(update[i]));
            }
          }
          if (!kInPlace) {
            for (std::int64_t i = 0; i < inner; ++i) target[i] = How::store(sum[i]);
          }
        }
      }
    });
  }

 private:
  static constexpr bool kInPlace = std::is_same_v<Stored, Sum>;
  std::int64_t sum_bytes() const {
    return kInPlace ? 0 : (to_.inner.extent * std::int64_t{sizeof(Sum)} + 63) / 64 * 64;
  }

  int axis_;
  Indices indices_;
  std::int64_t padding_;
  Rows from_, to_;
  std::int64_t rows_;
  int threads_;
};

std::string scatter_elements_refusal(const KernelCall& call) {
  const int axis = index_axis(call, call.outputs[0].type.shape.rank());
  if (!call.inputs[0].is_dense()) return "indices are not dense";
  if (std::string why = rows_refusal(call.inputs[1], axis, 1, "updates"); !why.empty()) return why;
  return rows_refusal(call.outputs[0], axis, 1, "the result");
}

// Each thread sums whole [axis, some inner] blocks.
template <class Id, class How>
class ScatterAddElements : public PreparedKernel {
 public:
  using Stored = typename How::Stored;
  using Sum = typename How::Sum;

  explicit ScatterAddElements(const KernelCall& call)
      : axis_(index_axis(call, call.outputs[0].type.shape.rank())),
        indices_(call, 0, axis_, call.outputs[0].type.shape[axis_]),
        from_(*rows_of(call.inputs[1], axis_)),
        to_(*rows_of(call.outputs[0], axis_)),
        width_(std::clamp<std::int64_t>(to_.inner.extent, 1, kWidest)),
        parts_((to_.inner.extent + width_ - 1) / width_),
        blocks_(call.outputs[0].type.shape.elements() == 0 ? 0 : to_.outer.extent * parts_),
        threads_(
            threads_for((call.outputs[0].type.shape.elements() + indices_.count()) * std::int64_t{sizeof(Stored)})) {}

  std::int64_t scratch_bytes() const override { return threads_ * sum_bytes(); }

  void run(const KernelRun& run) const override {
    const auto* ids = static_cast<const Id*>(run.operands[0]);
    const auto* from = static_cast<const Stored*>(run.operands[1]);
    auto* to = static_cast<Stored*>(run.operands[2]);
    auto* sums = static_cast<char*>(run.scratch);
    if (blocks_ == 0 && indices_.count() > 0) indices_.fail_at(ids, 0);  // an axis of extent 0 has no legal index
    FirstWrong wrong;
    share_out(threads_, blocks_, [&](std::int64_t begin, std::int64_t end, int thread) {
      Sum* buffer = reinterpret_cast<Sum*>(sums + thread * sum_bytes());
      for (std::int64_t block = begin; block < end; ++block) {
        const std::int64_t outer = block / parts_, start = block % parts_ * width_;
        const std::int64_t width = std::min(width_, to_.inner.extent - start);
        Stored* target = to + outer * to_.outer.stride + start;
        Sum* sum = kInPlace ? reinterpret_cast<Sum*>(target) : buffer;
        const std::int64_t pitch = kInPlace ? to_.middle.stride : width;
        for (std::int64_t id = 0; id < to_.middle.extent; ++id) std::fill_n(sum + id * pitch, width, Sum{0});
        for (std::int64_t j = 0; j < from_.middle.extent; ++j) {
          const std::int64_t position = (outer * from_.middle.extent + j) * to_.inner.extent + start;
          const Stored* update = from + outer * from_.outer.stride + j * from_.middle.stride + start;
          for (std::int64_t i = 0; i < width; ++i) {
            const std::int64_t id = ids[position + i];
            if (!indices_.is_legal(id)) {
              wrong.note(position + i);
              continue;
            }
            sum[id * pitch + i] = static_cast<Sum>(sum[id * pitch + i] + How::load(update[i]));
          }
        }
        if (kInPlace) continue;
        for (std::int64_t id = 0; id < to_.middle.extent; ++id) {
          for (std::int64_t i = 0; i < width; ++i) {
            target[id * to_.middle.stride + i] = How::store(sum[id * pitch + i]);
          }
        }
      }
    });
    if (wrong.found()) indices_.fail_at(ids, wrong.position());
  }

 private:
  static constexpr bool kInPlace = std::is_same_v<Stored, Sum>;
  static constexpr std::int64_t kWidest = 64;  // inner elements of a block
  std::int64_t sum_bytes() const {
    return kInPlace ? 0 : (to_.middle.extent * width_ * std::int64_t{sizeof(Sum)} + 63) / 64 * 64;
  }

  int axis_;
  Indices indices_;
  Rows from_, to_;
  std::int64_t width_, parts_, blocks_;
  int threads_;
};

template <template <class, class> class Kernel, class Id>
std::unique_ptr<PreparedKernel> prepare_added(const KernelCall& call) {
  switch (call.inputs[1].type.dtype) {
    case DType::f64: return std::make_unique<Kernel<Id, Plain<double>>>(call);
    case DType::f32: return std::make_unique<Kernel<Id, Plain<float>>>(call);
    case DType::f16: return std::make_unique<Kernel<Id, AddedF16>>(call);
    case DType::bf16: return std::make_unique<Kernel<Id, AddedBf16>>(call);
    case DType::i64: return std::make_unique<Kernel<Id, Plain<std::uint64_t>>>(call);
    case DType::i32: return std::make_unique<Kernel<Id, Plain<std::uint32_t>>>(call);
    default: return std::make_unique<Kernel<Id, Plain<std::uint8_t>>>(call);
  }
}

bool is_wide(const KernelCall& call, std::size_t input) { return call.inputs[input].type.dtype == DType::i64; }

}  // namespace

void register_index_cpu() {
  register_kernel("gather", {"rows", DeviceKind::cpu, gather_refusal,
                             [](const KernelCall& call, const Device&) {
                               return is_wide(call, 1) ? prepare_gather_of<std::int64_t>(call)
                                                       : prepare_gather_of<std::int32_t>(call);
                             },
                             Faults::possible});
  register_kernel("gather_elements", {"elements", DeviceKind::cpu, gather_elements_refusal,
                                      [](const KernelCall& call, const Device&) {
                                        return is_wide(call, 1) ? prepare_gather_elements_of<std::int64_t>(call)
                                                                : prepare_gather_elements_of<std::int32_t>(call);
                                      },
                                      Faults::possible});
  register_kernel("check_indices", {.name = "elements",
                                    .device = DeviceKind::cpu,
                                    .refusal = checked_refusal,
                                    .prepare = [](const KernelCall& call, const Device&) -> Preparation {
                                      if (is_wide(call, 0)) return std::make_unique<CheckIndices<std::int64_t>>(call);
                                      return std::make_unique<CheckIndices<std::int32_t>>(call);
                                    },
                                    .faults = Faults::possible,
                                    .in_place = {{0, 0}}});
  for (const char* op : {"scatter_add", "embedding_grad"}) {
    register_kernel(op, {"rows", DeviceKind::cpu, scatter_refusal,
                         [](const KernelCall& call, const Device&) {
                           return is_wide(call, 0) ? prepare_added<ScatterAdd, std::int64_t>(call)
                                                   : prepare_added<ScatterAdd, std::int32_t>(call);
                         },
                         Faults::possible});
  }
  register_kernel("scatter_add_elements", {"elements", DeviceKind::cpu, scatter_elements_refusal,
                                           [](const KernelCall& call, const Device&) {
                                             return is_wide(call, 0)
                                                        ? prepare_added<ScatterAddElements, std::int64_t>(call)
                                                        : prepare_added<ScatterAddElements, std::int32_t>(call);
                                           },
                                           Faults::possible});
}

}  // namespace paoding
