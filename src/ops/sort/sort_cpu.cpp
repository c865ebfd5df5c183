// SPDX-License-Identifier: Apache-2.0
// sort, topk and cumsum on the CPU, rows shared out among threads. Elements are sorted as unsigned integers in the same
// order, with their place after them: that makes any sort stable, and none calls back for a comparison.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "cpu/parallel.h"
#include "ops/all_kernels.h"
#include "ops/rows.h"
#include "ops/sort/along_axis.h"

namespace paoding {
namespace {

// ---- keys: unsigned integers in the order of the elements; NaN above all, -0 the same as 0 ----

std::uint32_t float_key(float value) {
  if (std::isnan(value)) return 0xffffffffu;
  const auto bits = std::bit_cast<std::uint32_t>(value == 0 ? 0.0f : value);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

std::uint64_t double_key(double value) {
  if (std::isnan(value)) return ~std::uint64_t{0};
  const auto bits = std::bit_cast<std::uint64_t>(value == 0 ? 0.0 : value);
  return bits >> 63 ? ~bits : bits | (std::uint64_t{1} << 63);
}

// A key of up to 32 bits and the place, in one integer.
struct Narrow {
  std::uint64_t bits;
  Narrow(std::uint32_t key, std::int64_t place) : bits(std::uint64_t{key} << 32 | static_cast<std::uint32_t>(place)) {}
  std::int64_t place() const { return static_cast<std::int64_t>(bits & 0xffffffffu); }
  friend bool operator<(const Narrow& a, const Narrow& b) { return a.bits < b.bits; }
};

struct Wide {
  std::uint64_t key;
  std::int64_t at;
  Wide(std::uint64_t the_key, std::int64_t place) : key(the_key), at(place) {}
  std::int64_t place() const { return at; }
  friend bool operator<(const Wide& a, const Wide& b) { return a.key != b.key ? a.key < b.key : a.at < b.at; }
};

template <DType>
struct Keyed;
template <>
struct Keyed<DType::f64> {
  using Stored = double;
  using Entry = Wide;
  static std::uint64_t key(double value) { return double_key(value); }
};
template <>
struct Keyed<DType::i64> {
  using Stored = std::int64_t;
  using Entry = Wide;
  static std::uint64_t key(std::int64_t value) { return static_cast<std::uint64_t>(value) ^ (std::uint64_t{1} << 63); }
};
template <>
struct Keyed<DType::f32> {
  using Stored = float;
  using Entry = Narrow;
  static std::uint32_t key(float value) { return float_key(value); }
};
template <>
struct Keyed<DType::f16> {
  using Stored = std::uint16_t;
  using Entry = Narrow;
  static std::uint32_t key(std::uint16_t value) { return float_key(f16_to_float(value)); }
};
template <>
struct Keyed<DType::bf16> {
  using Stored = std::uint16_t;
  using Entry = Narrow;
  static std::uint32_t key(std::uint16_t value) { return float_key(bf16_to_float(value)); }
};
template <>
struct Keyed<DType::i32> {
  using Stored = std::int32_t;
  using Entry = Narrow;
  static std::uint32_t key(std::int32_t value) { return static_cast<std::uint32_t>(value) ^ 0x80000000u; }
};
template <>
struct Keyed<DType::u8> {
  using Stored = std::uint8_t;
  using Entry = Narrow;
  static std::uint32_t key(std::uint8_t value) { return value; }
};

// ---- sort, topk ----

// The first `taken` of every row in order; all of them for sort.
template <class How>
class SortRows : public PreparedKernel {
 public:
  using Stored = typename How::Stored;
  using Entry = typename How::Entry;

  SortRows(const KernelCall& call, bool descending)
      : from_(*rows_of(call.inputs[0], along_axis(call))),
        values_(*rows_of(call.outputs[0], along_axis(call))),
        indices_(*rows_of(call.outputs[1], along_axis(call))),
        descending_(descending),
        rows_(call.outputs[0].type.shape.elements() == 0 ? 0 : from_.outer.extent * from_.inner.extent) {
    constexpr std::int64_t kCost = 64;  // of sorting an element, as bytes that could be moved meanwhile
    threads_ =
        static_cast<int>(std::clamp<std::int64_t>(rows_, 1, threads_for(call.inputs[0].type.shape.elements() * kCost)));
  }

  std::int64_t scratch_bytes() const override { return threads_ * row_bytes(); }

  void run(const KernelRun& run) const override {
    share_out(threads_, rows_, [&](std::int64_t begin, std::int64_t end, int thread) {
      auto* entries = reinterpret_cast<Entry*>(static_cast<char*>(run.scratch) + thread * row_bytes());
      for (std::int64_t row = begin; row < end; ++row) one_row(run, row, entries);
    });
  }

 private:
  std::int64_t row_bytes() const { return (from_.middle.extent * std::int64_t{sizeof(Entry)} + 63) / 64 * 64; }

  void one_row(const KernelRun& run, std::int64_t row, Entry* entries) const {
    const std::int64_t outer = row / from_.inner.extent, inner = row % from_.inner.extent;
    const auto start = [&](const Rows& rows) { return outer * rows.outer.stride + inner; };
    const Stored* from = static_cast<const Stored*>(run.operands[0]) + start(from_);
    Stored* values = static_cast<Stored*>(run.operands[1]) + start(values_);
    auto* indices = static_cast<std::int64_t*>(run.operands[2]) + start(indices_);
    const std::int64_t count = from_.middle.extent, taken = values_.middle.extent;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto key = How::key(from[i * from_.middle.stride]);
      new (entries + i) Entry(descending_ ? static_cast<decltype(key)>(~key) : key, i);
    }
    if (taken < count) std::nth_element(entries, entries + taken, entries + count);
    std::sort(entries, entries + taken);
    for (std::int64_t i = 0; i < taken; ++i) {
      const std::int64_t place = entries[i].place();
      values[i * values_.middle.stride] = from[place * from_.middle.stride];
      indices[i * indices_.middle.stride] = place;
    }
  }

  Rows from_, values_, indices_;
  bool descending_;
  std::int64_t rows_;
  int threads_ = 1;
};

std::unique_ptr<PreparedKernel> prepare_sort(const KernelCall& call, bool descending) {
  switch (call.inputs[0].type.dtype) {
    case DType::f64: return std::make_unique<SortRows<Keyed<DType::f64>>>(call, descending);
    case DType::f32: return std::make_unique<SortRows<Keyed<DType::f32>>>(call, descending);
    case DType::f16: return std::make_unique<SortRows<Keyed<DType::f16>>>(call, descending);
    case DType::bf16: return std::make_unique<SortRows<Keyed<DType::bf16>>>(call, descending);
    case DType::i64: return std::make_unique<SortRows<Keyed<DType::i64>>>(call, descending);
    case DType::i32: return std::make_unique<SortRows<Keyed<DType::i32>>>(call, descending);
    default: return std::make_unique<SortRows<Keyed<DType::u8>>>(call, descending);  // bool too: bytes of 0 and 1
  }
}

// ---- cumsum ----

template <class S, class T>
struct Summed {
  using Stored = S;
  using Sum = T;
  static T load(S value) { return static_cast<T>(value); }
  static S store(T value) { return static_cast<S>(value); }
};
template <float (*Load)(std::uint16_t), std::uint16_t (*Store)(float)>
struct SummedHalf {
  using Stored = std::uint16_t;
  using Sum = double;
  static double load(Stored value) { return Load(value); }
  static Stored store(double value) { return Store(static_cast<float>(value)); }
};

// Column blocks of up to 64, so that rows are read as they lie.
template <class How>
class Cumsum : public PreparedKernel {
 public:
  using Stored = typename How::Stored;
  using Sum = typename How::Sum;

  explicit Cumsum(const KernelCall& call)
      : from_(*rows_of(call.inputs[0], along_axis(call))),
        to_(*rows_of(call.outputs[0], along_axis(call))),
        exclusive_(call.attrs.get_bool("exclusive")),
        reverse_(call.attrs.get_bool("reverse")),
        parts_((to_.inner.extent + kWidest - 1) / kWidest),
        blocks_(call.outputs[0].type.shape.elements() == 0 ? 0 : to_.outer.extent * parts_),
        threads_(threads_for(call.outputs[0].type.shape.elements() * std::int64_t{2 * sizeof(Stored)})) {
    threads_ = static_cast<int>(std::clamp<std::int64_t>(blocks_, 1, threads_));
  }

  void run(const KernelRun& run) const override {
    share_out(threads_, blocks_, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t block = begin; block < end; ++block) one_block(run, block);
    });
  }

 private:
  static constexpr std::int64_t kWidest = 64;

  void one_block(const KernelRun& run, std::int64_t block) const {
    const std::int64_t outer = block / parts_, start = block % parts_ * kWidest;
    const std::int64_t width = std::min(kWidest, to_.inner.extent - start), count = to_.middle.extent;
    const Stored* from = static_cast<const Stored*>(run.operands[0]) + outer * from_.outer.stride + start;
    Stored* to = static_cast<Stored*>(run.operands[1]) + outer * to_.outer.stride + start;
    Sum sums[kWidest] = {};
    for (std::int64_t step = 0; step < count; ++step) {
      const std::int64_t i = reverse_ ? count - 1 - step : step;
      const Stored* row = from + i * from_.middle.stride;
      Stored* result = to + i * to_.middle.stride;
      if (exclusive_) {
        for (std::int64_t k = 0; k < width; ++k) {
          const Sum more = How::load(row[k]);
          result[k] = How::store(sums[k]);
          sums[k] += more;
        }
      } else {
        for (std::int64_t k = 0; k < width; ++k) {
          sums[k] += How::load(row[k]);
          result[k] = How::store(sums[k]);
        }
      }
    }
  }

  Rows from_, to_;
  bool exclusive_, reverse_;
  std::int64_t parts_, blocks_;
  int threads_;
};

std::unique_ptr<PreparedKernel> prepare_cumsum(const KernelCall& call, const Device&) {
  switch (call.inputs[0].type.dtype) {
    case DType::f64: return std::make_unique<Cumsum<Summed<double, double>>>(call);
    case DType::f32: return std::make_unique<Cumsum<Summed<float, double>>>(call);
    case DType::f16: return std::make_unique<Cumsum<SummedHalf<f16_to_float, float_to_f16>>>(call);
    case DType::bf16: return std::make_unique<Cumsum<SummedHalf<bf16_to_float, float_to_bf16>>>(call);
    case DType::i64: return std::make_unique<Cumsum<Summed<std::uint64_t, std::uint64_t>>>(call);
    case DType::i32: return std::make_unique<Cumsum<Summed<std::uint32_t, std::uint64_t>>>(call);
    default: return std::make_unique<Cumsum<Summed<std::uint8_t, std::uint64_t>>>(call);
  }
}

}  // namespace

void register_sort_cpu() {
  register_kernel("sort", {"rows", DeviceKind::cpu, sort_refusal, [](const KernelCall& call, const Device&) {
                             return prepare_sort(call, call.attrs.get_bool("descending"));
                           }});
  register_kernel("topk", {"rows", DeviceKind::cpu, sort_refusal, [](const KernelCall& call, const Device&) {
                             return prepare_sort(call, call.attrs.get_bool("largest"));
                           }});
  register_kernel("cumsum", {"rows", DeviceKind::cpu, along_axis_refusal, prepare_cumsum});
}

}  // namespace paoding
