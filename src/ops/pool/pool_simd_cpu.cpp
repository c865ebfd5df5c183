// SPDX-License-Identifier: Apache-2.0
// Pooling of f32 images with their channels last: a vector of channels at a time. Indices are computed as 32-bit lanes
// and stored as bytes.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pool/pool_simd_cpu.cpp"
#include "hwy/foreach_target.h"
//
#include "base/check.h"
#include "cpu/parallel.h"
#include "hwy/highway.h"
#include "ops/conv/conv_shape.h"
#include "ops/pool/pool_shape.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One pixel of the result, for `n` channels, a multiple of the vector or the rest that is less. D may be a partial
// vector: the same code for whole vectors and, lane by lane, for what is left.
template <class D>
struct Pixel {
  D d;
  const PoolShape& shape;
  PoolTaps rows, columns;
  std::int64_t row_stride, column_stride;  // of what is read, in elements; the index has the same
  std::int64_t kernel_width;

  HWY_INLINE void max_forward(const float* from, float* to, std::uint8_t* index) const {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<std::uint8_t, D> bytes;
    auto best = hn::Zero(d);
    auto best_tap = hn::Zero(di);
    bool is_first = true;
    for (const PoolTap& row : rows) {
      for (const PoolTap& column : columns) {
        const auto candidate = hn::LoadU(d, from + row.other * row_stride + column.other * column_stride);
        const auto tap = hn::Set(di, static_cast<std::int32_t>(row.tap * kernel_width + column.tap));
        if (is_first) {
          best = candidate;
          best_tap = tap;
          is_first = false;
          continue;
        }
        // A NaN is larger than any number, and no other NaN is larger than it.
        const auto is_nan = hn::And(hn::Ne(candidate, candidate), hn::Eq(best, best));
        const auto is_better = hn::Or(hn::Gt(candidate, best), is_nan);
        best = hn::IfThenElse(is_better, candidate, best);
        best_tap = hn::IfThenElse(hn::RebindMask(di, is_better), tap, best_tap);
      }
    }
    hn::StoreU(best, d, to);
    hn::StoreU(hn::DemoteTo(bytes, best_tap), bytes, index);
  }

  HWY_INLINE void max_grad(const float* from, const std::uint8_t* index, float* to) const {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<std::uint8_t, D> bytes;
    auto sum = hn::Zero(d);
    for (const PoolTap& row : rows) {
      for (const PoolTap& column : columns) {
        const std::int64_t at = row.other * row_stride + column.other * column_stride;
        const auto tap = hn::Set(di, static_cast<std::int32_t>(row.tap * kernel_width + column.tap));
        const auto mine = hn::RebindMask(d, hn::Eq(hn::PromoteTo(di, hn::LoadU(bytes, index + at)), tap));
        sum = hn::Add(sum, hn::IfThenElseZero(mine, hn::LoadU(d, from + at)));
      }
    }
    hn::StoreU(sum, d, to);
  }

  HWY_INLINE void avg_forward(const float* from, float* to, float share) const {
    auto sum = hn::Zero(d);
    for (const PoolTap& row : rows) {
      for (const PoolTap& column : columns) {
        sum = hn::Add(sum, hn::LoadU(d, from + row.other * row_stride + column.other * column_stride));
      }
    }
    hn::StoreU(hn::Mul(sum, hn::Set(d, share)), d, to);
  }

  HWY_INLINE void avg_grad(const float* from, float* to) const {
    auto sum = hn::Zero(d);
    for (const PoolTap& row : rows) {
      for (const PoolTap& column : columns) {
        const float share =
            1.0f / static_cast<float>(shape.axes[0].count(row.other) * shape.axes[1].count(column.other));
        const auto value = hn::LoadU(d, from + row.other * row_stride + column.other * column_stride);
        sum = hn::Add(sum, hn::Mul(value, hn::Set(d, share)));
      }
    }
    hn::StoreU(sum, d, to);
  }
};

// Channels [c, c + Lanes(d)) of one pixel.
template <class D>
HWY_INLINE void run_pixel(const Pixel<D>& pixel, void* const* operands, std::int64_t from, std::int64_t to,
                          float share) {
  const float* source = static_cast<const float*>(operands[0]) + from;
  switch (pixel.shape.kind) {
    case PoolKind::max_forward:
      return pixel.max_forward(source, static_cast<float*>(operands[1]) + to,
                               static_cast<std::uint8_t*>(operands[2]) + to);
    case PoolKind::max_grad:
      return pixel.max_grad(source, static_cast<const std::uint8_t*>(operands[1]) + from,
                            static_cast<float*>(operands[2]) + to);
    case PoolKind::avg_forward: return pixel.avg_forward(source, static_cast<float*>(operands[1]) + to, share);
    case PoolKind::avg_grad: return pixel.avg_grad(source, static_cast<float*>(operands[1]) + to);
    case PoolKind::max_pick: return;  // not here: see the refusal
  }
}

// Rows of the result from `begin` to `end`, counted over all images.
void pool_rows(const PoolShape& shape, void* const* operands, std::int64_t begin, std::int64_t end) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 4> quarter;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d)), few = static_cast<std::int64_t>(hn::Lanes(quarter));
  const std::int64_t channels = shape.channels;
  const std::int64_t height = shape.to.type.shape[2], width = shape.to.type.shape[3];
  const std::int64_t column_stride = channels, row_stride = shape.from.type.shape[3] * channels;
  const std::int64_t image = shape.from.type.shape[2] * row_stride;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t n = row / height, h = row % height;
    const auto rows = shape.axes[0].of(h);
    for (std::int64_t w = 0; w < width; ++w) {
      const auto columns = shape.axes[1].of(w);
      float share = 0;
      if (shape.kind == PoolKind::avg_forward) {
        share = 1.0f / static_cast<float>(shape.axes[0].count(h) * shape.axes[1].count(w));
      }
      const std::int64_t to = (row * width + w) * channels;
      std::int64_t c = 0;
      const auto run = [&](auto tag, std::int64_t step) {
        const Pixel<decltype(tag)> pixel{tag, shape, rows, columns, row_stride, column_stride, shape.kernel_width};
        for (; c + step <= channels; c += step) run_pixel(pixel, operands, n * image + c, to + c, share);
      };
      run(d, lanes);
      run(quarter, few);
      run(one, 1);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace paoding {
namespace {

HWY_EXPORT(pool_rows);

class SimdPool : public PreparedKernel {
 public:
  explicit SimdPool(const KernelCall& call) : shape_(call) {
    const Shape& result = shape_.to.type.shape;
    if (result.elements() != 0) rows_ = result[0] * result[2];
    constexpr std::int64_t kWorthThreads = 1 << 16;  // elements read and written: about 10 us
    const std::int64_t elements = shape_.from.type.shape.elements() + result.elements();
    if (elements >= kWorthThreads) threads_ = max_threads();
  }

  void run(const KernelRun& run) const override {
    share_out(threads_, rows_, [&](std::int64_t begin, std::int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(pool_rows)(shape_, run.operands, begin, end);
    });
  }

 private:
  PoolShape shape_;
  std::int64_t rows_ = 0;
  int threads_ = 1;
};

}  // namespace

std::string simd_pool_refusal(const KernelCall& call) {
  if (call.op->name == "max_pool2d_pick") return "it has no code for picking elements";
  for (const auto* list : {&call.inputs, &call.outputs}) {
    for (const Layout& layout : *list) {
      const DType dtype = layout.type.dtype;
      if (dtype != DType::f32 && dtype != DType::u8) {
        return fmt::format("an operand is {}, it takes f32 and indices in u8", to_string(dtype));
      }
      if (!is_channels_last(layout)) return "an operand's channels do not lie last";
    }
  }
  return "";
}

std::unique_ptr<PreparedKernel> prepare_simd_pool(const KernelCall& call, const Device&) {
  return std::make_unique<SimdPool>(call);
}

}  // namespace paoding
#endif  // HWY_ONCE
