// SPDX-License-Identifier: Apache-2.0
// Pooling on the CPU, element by element over any layout and dtype. Gradients are gathered: every element adds up those
// of the windows that it is in, in a fixed order, so that threads never write to the same place.
#include <cmath>

#include "base/check.h"
#include "cpu/parallel.h"
#include "cpu/tile_stored.h"
#include "ops/all_kernels.h"
#include "ops/conv/conv_shape.h"
#include "ops/pool/pool_shape.h"

namespace paoding {
namespace {

template <class Dtype>  // Stored<..>
class LoopPool : public PreparedKernel {
 public:
  using Element = typename Dtype::Type;
  using Sum = typename Dtype::Compute;

  explicit LoopPool(PoolShape shape) : shape_(std::move(shape)), channels_last_(is_channels_last(shape_.to)) {
    const Shape& result = shape_.to.type.shape;
    // Threads share rows of the result, in the order in which they lie.
    rows_ = result.elements() == 0 ? 0 : result[0] * (channels_last_ ? result[2] : result[1]);
    constexpr std::int64_t kWorthThreads = 8192;  // elements
    if (result.elements() >= kWorthThreads) threads_ = max_threads();
  }

  void run(const KernelRun& run) const override {
    share_out(threads_, rows_, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t row = begin; row < end; ++row) run_row(run.operands, row);
    });
  }

 private:
  void run_row(void* const* operands, std::int64_t row) const {
    const Shape& result = shape_.to.type.shape;
    if (channels_last_) {
      const std::int64_t n = row / result[2], h = row % result[2];
      const PoolTaps rows = shape_.axes[0].of(h);
      for (std::int64_t w = 0; w < result[3]; ++w) {
        const PoolTaps columns = shape_.axes[1].of(w);
        for (std::int64_t c = 0; c < result[1]; ++c) element(operands, n, c, h, w, rows, columns);
      }
    } else {
      const std::int64_t n = row / result[1], c = row % result[1];
      for (std::int64_t h = 0; h < result[2]; ++h) {
        const PoolTaps rows = shape_.axes[0].of(h);
        for (std::int64_t w = 0; w < result[3]; ++w) element(operands, n, c, h, w, rows, shape_.axes[1].of(w));
      }
    }
  }

  static std::int64_t offset(const Layout& layout, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
    const auto& s = layout.strides;
    return n * s[0] + c * s[1] + h * s[2] + w * s[3];
  }

  Sum read(void* const* operands, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    return Dtype::load(static_cast<const Element*>(operands[0])[offset(shape_.from, n, c, h, w)]);
  }
  std::int64_t index_at(const void* index, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    const std::int64_t at = offset(shape_.index, n, c, h, w);
    return shape_.index.type.dtype == DType::u8 ? static_cast<const std::uint8_t*>(index)[at]
                                                : static_cast<const std::int32_t*>(index)[at];
  }

  void element(void* const* operands, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w,
               const PoolTaps& rows, const PoolTaps& columns) const {
    Sum value{0};
    switch (shape_.kind) {
      case PoolKind::max_forward: {
        std::int64_t best = -1;
        for (const PoolTap& row : rows) {
          for (const PoolTap& column : columns) {
            const Sum candidate = read(operands, n, c, row.other, column.other);
            if (best >= 0 && !(candidate > value) && !(std::isnan(candidate) && !std::isnan(value))) continue;
            value = candidate;
            best = row.tap * shape_.kernel_width + column.tap;
          }
        }
        const std::int64_t at = offset(shape_.index, n, c, h, w);
        if (shape_.index.type.dtype == DType::u8) {
          static_cast<std::uint8_t*>(operands[2])[at] = static_cast<std::uint8_t>(best);
        } else {
          static_cast<std::int32_t*>(operands[2])[at] = static_cast<std::int32_t>(best);
        }
        static_cast<Element*>(operands[1])[offset(shape_.to, n, c, h, w)] = Dtype::store(value);
        return;
      }
      case PoolKind::max_grad:
        for (const PoolTap& row : rows) {
          for (const PoolTap& column : columns) {
            if (index_at(operands[1], n, c, row.other, column.other) == row.tap * shape_.kernel_width + column.tap) {
              value += read(operands, n, c, row.other, column.other);
            }
          }
        }
        break;
      case PoolKind::max_pick: {
        const std::int64_t wanted = index_at(operands[1], n, c, h, w);
        for (const PoolTap& row : rows) {
          for (const PoolTap& column : columns) {
            if (row.tap * shape_.kernel_width + column.tap == wanted) {
              value = read(operands, n, c, row.other, column.other);
            }
          }
        }
        break;
      }
      case PoolKind::avg_forward:
        for (const PoolTap& row : rows) {
          for (const PoolTap& column : columns) value += read(operands, n, c, row.other, column.other);
        }
        value *= share(h, w);
        break;
      case PoolKind::avg_grad:
        for (const PoolTap& row : rows) {
          for (const PoolTap& column : columns) {
            value += read(operands, n, c, row.other, column.other) * share(row.other, column.other);
          }
        }
        break;
    }
    static_cast<Element*>(operands[shape_.has_index() ? 2 : 1])[offset(shape_.to, n, c, h, w)] = Dtype::store(value);
  }

  // The share of an element in the window at (i, j): 1 / the elements that count.
  Sum share(std::int64_t i, std::int64_t j) const {
    return Sum{1} / static_cast<Sum>(shape_.axes[0].count(i) * shape_.axes[1].count(j));
  }

  PoolShape shape_;
  bool channels_last_;
  std::int64_t rows_ = 0;
  int threads_ = 1;
};

std::unique_ptr<PreparedKernel> prepare_loops(const KernelCall& call, const Device&) {
  PoolShape shape(call);
  return visit_stored_float(shape.dtype, [&](auto dtype) -> std::unique_ptr<PreparedKernel> {
    return std::make_unique<LoopPool<Stored<dtype.value>>>(std::move(shape));
  });
}

}  // namespace

void register_pooling_cpu() {
  for (const char* op : {"max_pool2d", "max_pool2d_grad", "max_pool2d_pick", "avg_pool2d", "avg_pool2d_grad"}) {
    register_kernel(op, {.name = "simd",
                         .device = DeviceKind::cpu,
                         .refusal = simd_pool_refusal,
                         .prepare = prepare_simd_pool,
                         .channels_last = ~0u});
    register_kernel(op, {.name = "loops",
                         .device = DeviceKind::cpu,
                         .refusal = [](const KernelCall&) { return std::string(); },
                         .prepare = prepare_loops});
  }
}

}  // namespace paoding
