// SPDX-License-Identifier: Apache-2.0
// Pooling of images of f32, bf16 and f16 with their channels last: a vector of channels at a time, in f32. Indices are
// computed as 32-bit lanes and stored as bytes.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pool/pool_simd_cpu.cpp"
#include "hwy/foreach_target.h"
//
#include <algorithm>

#include "base/check.h"
#include "cpu/parallel.h"
#include "hwy/highway.h"
#include "ops/conv/conv_shape.h"
#include "ops/elements-inl.h"
#include "ops/pool/pool_shape.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One pixel of the result, for `n` channels, a multiple of the vector or the rest that is less. D may be a partial
// vector: the same code for whole vectors and, lane by lane, for the rest.
template <DType dtype, class D>
struct Pixel {
  using Lies = LiesAs<dtype>;
  using T = typename Lies::Type;

  D d;
  const PoolShape& shape;
  PoolTaps rows, columns;
  std::int64_t row_stride, column_stride;  // of the operand, in elements; the index has the same
  std::int64_t kernel_width;

  HWY_INLINE void max_forward(const T* from, T* to, std::uint8_t* index) const {
    const hn::RebindToSigned<D> di;
    auto best = hn::Zero(d);
    auto best_tap = hn::Zero(di);
    bool is_first = true;
    for (const PoolTap& row : rows) {
      for (const PoolTap& column : columns) {
        const auto candidate = Lies::load(d, from + row.other * row_stride + column.other * column_stride);
        const auto tap = hn::Set(di, static_cast<std::int32_t>(row.tap * kernel_width + column.tap));
        if (is_first) {
          best = candidate;
          best_tap = tap;
          is_first = false;
          continue;
        }
        take_larger(candidate, tap, best, best_tap);
      }
    }
    store_largest(best, best_tap, to, index);
  }

  // The same of windows side by side, none of which ends outside of the image: `from` is the first element.
  HWY_INLINE void tile_max(const T* from, T* to, std::uint8_t* index) const {
    const hn::RebindToSigned<D> di;
    auto best = Lies::load(d, from);
    auto best_tap = hn::Zero(di), tap = hn::Zero(di);
    for (std::int64_t row = 0; row < shape.axes[0].kernel(); ++row) {
      for (std::int64_t column = row == 0 ? 1 : 0; column < kernel_width; ++column) {
        tap = hn::Add(tap, hn::Set(di, 1));
        take_larger(Lies::load(d, from + row * row_stride + column * column_stride), tap, best, best_tap);
      }
    }
    store_largest(best, best_tap, to, index);
  }

  // Gives a window's gradient to its elements in one row, the first of which is element `tap`.
  HWY_INLINE void tile_grad(const T* from, const std::uint8_t* index, std::int64_t tap, T* to) const {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<std::uint8_t, D> bytes;
    const auto chosen = hn::PromoteTo(di, hn::LoadU(bytes, index));
    const auto dy = Lies::load(d, from);
    for (std::int64_t column = 0; column < kernel_width; ++column) {
      const auto mine = hn::RebindMask(d, hn::Eq(chosen, hn::Set(di, static_cast<std::int32_t>(tap + column))));
      Lies::store(d, hn::IfThenElseZero(mine, dy), to + column * column_stride);
    }
  }

  // A NaN is larger than any number, and no other NaN is larger than it.
  template <class V, class I>
  HWY_INLINE void take_larger(V candidate, I tap, V& best, I& best_tap) const {
    const hn::RebindToSigned<D> di;
    const auto is_better = hn::AndNot(hn::Le(candidate, best), hn::Eq(best, best));
    best = hn::IfThenElse(is_better, candidate, best);
    best_tap = hn::IfThenElse(hn::RebindMask(di, is_better), tap, best_tap);
  }

  template <class V, class I>
  HWY_INLINE void store_largest(V best, I best_tap, T* to, std::uint8_t* index) const {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<std::uint8_t, D> bytes;
    Lies::store(d, best, to);
    if (index == nullptr) return;
    if (shape.hides_zero) {
      best_tap = hn::IfThenElse(hn::RebindMask(di, hn::Le(best, hn::Zero(d))), hn::Set(di, kNoPoolTap), best_tap);
    }
    hn::StoreU(hn::DemoteTo(bytes, best_tap), bytes, index);
  }

  HWY_INLINE void max_grad(const T* from, const std::uint8_t* index, T* to) const {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<std::uint8_t, D> bytes;
    auto sum = hn::Zero(d);
    for (const PoolTap& row : rows) {
      for (const PoolTap& column : columns) {
        const std::int64_t at = row.other * row_stride + column.other * column_stride;
        const auto tap = hn::Set(di, static_cast<std::int32_t>(row.tap * kernel_width + column.tap));
        const auto mine = hn::RebindMask(d, hn::Eq(hn::PromoteTo(di, hn::LoadU(bytes, index + at)), tap));
        sum = hn::Add(sum, hn::IfThenElseZero(mine, Lies::load(d, from + at)));
      }
    }
    Lies::store(d, sum, to);
  }

  HWY_INLINE void avg_forward(const T* from, T* to, float share) const {
    auto sum = hn::Zero(d);
    for (const PoolTap& row : rows) {
      for (const PoolTap& column : columns) {
        sum = hn::Add(sum, Lies::load(d, from + row.other * row_stride + column.other * column_stride));
      }
    }
    Lies::store(d, hn::Mul(sum, hn::Set(d, share)), to);
  }

  HWY_INLINE void avg_grad(const T* from, T* to) const {
    auto sum = hn::Zero(d);
    for (const PoolTap& row : rows) {
      for (const PoolTap& column : columns) {
        const float share =
            1.0f / static_cast<float>(shape.axes[0].count(row.other) * shape.axes[1].count(column.other));
        const auto value = Lies::load(d, from + row.other * row_stride + column.other * column_stride);
        sum = hn::Add(sum, hn::Mul(value, hn::Set(d, share)));
      }
    }
    Lies::store(d, sum, to);
  }
};

// Channels [c, c + Lanes(d)) of one pixel.
template <DType dtype, class D>
HWY_INLINE void run_pixel(const Pixel<dtype, D>& pixel, void* const* operands, std::int64_t from, std::int64_t to,
                          float share) {
  using T = typename LiesAs<dtype>::Type;
  const T* source = static_cast<const T*>(operands[0]) + from;
  switch (pixel.shape.kind) {
    case PoolKind::max_forward: {
      auto* index = static_cast<std::uint8_t*>(operands[2]);
      return pixel.max_forward(source, static_cast<T*>(operands[1]) + to, index == nullptr ? nullptr : index + to);
    }
    case PoolKind::max_grad:
      return pixel.max_grad(source, static_cast<const std::uint8_t*>(operands[1]) + from,
                            static_cast<T*>(operands[2]) + to);
    case PoolKind::avg_forward: return pixel.avg_forward(source, static_cast<T*>(operands[1]) + to, share);
    case PoolKind::avg_grad: return pixel.avg_grad(source, static_cast<T*>(operands[1]) + to);
    case PoolKind::max_pick: return;  // not here: see the refusal
  }
}

// Calls use(tag, c) for the channels [c, c + Lanes(tag)), in vectors as wide as there are that many left.
template <class Use>
HWY_INLINE void for_each_vector(std::int64_t channels, const Use& use) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 4> quarter;
  const hn::CappedTag<float, 1> one;
  std::int64_t c = 0;
  const auto run = [&](auto tag) {
    const auto step = static_cast<std::int64_t>(hn::Lanes(tag));
    for (; c + step <= channels; c += step) use(tag, c);
  };
  run(d);
  run(quarter);
  run(one);
}

// A row of windows side by side.
template <DType dtype>
void tile_max_row(const PoolShape& shape, void* const* operands, std::int64_t row) {
  using T = typename LiesAs<dtype>::Type;
  const std::int64_t channels = shape.channels, height = shape.to.type.shape[2], width = shape.to.type.shape[3];
  const std::int64_t row_stride = shape.from.type.shape[3] * channels, tall = shape.axes[0].kernel();
  const T* from =
      static_cast<const T*>(operands[0]) + (row / height * shape.from.type.shape[2] + row % height * tall) * row_stride;
  T* to = static_cast<T*>(operands[1]) + row * width * channels;
  auto* index = static_cast<std::uint8_t*>(operands[2]);
  if (index != nullptr) index += row * width * channels;
  for (std::int64_t w = 0; w < width; ++w) {
    for_each_vector(channels, [&](auto tag, std::int64_t c) {
      const Pixel<dtype, decltype(tag)> pixel{tag, shape, {}, {}, row_stride, channels, shape.kernel_width};
      pixel.tile_max(from + w * shape.kernel_width * channels + c, to + w * channels + c,
                     index == nullptr ? nullptr : index + w * channels + c);
    });
  }
}

// A row of elements, of windows side by side; those that are in no window get 0.
template <DType dtype>
void tile_grad_row(const PoolShape& shape, void* const* operands, std::int64_t row) {
  using T = typename LiesAs<dtype>::Type;
  const std::int64_t channels = shape.channels, height = shape.to.type.shape[2], width = shape.to.type.shape[3];
  const std::int64_t windows = shape.from.type.shape[3], tall = shape.axes[0].kernel(), h = row % height;
  T* to = static_cast<T*>(operands[2]) + row * width * channels;
  std::int64_t covered = 0;
  if (const std::int64_t above = h / tall; above < shape.from.type.shape[2]) {
    covered = windows * shape.kernel_width;
    const std::int64_t first = (row / height * shape.from.type.shape[2] + above) * windows * channels;
    const T* from = static_cast<const T*>(operands[0]) + first;
    const auto* index = static_cast<const std::uint8_t*>(operands[1]) + first;
    const std::int64_t tap = h % tall * shape.kernel_width;
    for (std::int64_t w = 0; w < windows; ++w) {
      for_each_vector(channels, [&](auto tag, std::int64_t c) {
        const Pixel<dtype, decltype(tag)> pixel{tag, shape, {}, {}, 0, channels, shape.kernel_width};
        const std::int64_t at = w * channels + c;
        pixel.tile_grad(from + at, index + at, tap, to + w * shape.kernel_width * channels + c);
      });
    }
  }
  std::fill(to + covered * channels, to + width * channels, T{0});
}

// Rows of the result from `begin` to `end`, counted over all images.
template <DType dtype>
void pool_rows_of(const PoolShape& shape, void* const* operands, std::int64_t begin, std::int64_t end) {
  if (shape.is_side_by_side && (shape.kind == PoolKind::max_forward || shape.kind == PoolKind::max_grad)) {
    for (std::int64_t row = begin; row < end; ++row) {
      shape.kind == PoolKind::max_forward ? tile_max_row<dtype>(shape, operands, row)
                                          : tile_grad_row<dtype>(shape, operands, row);
    }
    return;
  }
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
      for_each_vector(channels, [&](auto tag, std::int64_t c) {
        const Pixel<dtype, decltype(tag)> pixel{
            tag, shape, rows, columns, row_stride, column_stride, shape.kernel_width};
        run_pixel(pixel, operands, n * image + c, to + c, share);
      });
    }
  }
}

void pool_rows(const PoolShape& shape, void* const* operands, std::int64_t begin, std::int64_t end) {
  if (shape.dtype == DType::bf16) return pool_rows_of<DType::bf16>(shape, operands, begin, end);
  if (shape.dtype == DType::f16) return pool_rows_of<DType::f16>(shape, operands, begin, end);
  pool_rows_of<DType::f32>(shape, operands, begin, end);
}

// Channels [c, c + Lanes(d)) of all pixels.
template <DType dtype, class D>
HWY_INLINE void sum_channels(D d, const typename LiesAs<dtype>::Type* dy, const std::uint8_t* index,
                             std::int64_t pixels, std::int64_t channels, float* sums) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<std::uint8_t, D> bytes;
  const auto none = hn::Set(di, kNoPoolTap);
  auto sum = hn::Zero(d);
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
    const auto is_hidden =
        hn::RebindMask(d, hn::Eq(hn::PromoteTo(di, hn::LoadU(bytes, index + pixel * channels)), none));
    sum = hn::Add(sum, hn::IfThenZeroElse(is_hidden, LiesAs<dtype>::load(d, dy + pixel * channels)));
  }
  hn::StoreU(sum, d, sums);
}

template <DType dtype>
void pool_sums_of(const void* dy, const std::uint8_t* index, std::int64_t pixels, std::int64_t channels, float* sums) {
  const auto* from = static_cast<const typename LiesAs<dtype>::Type*>(dy);
  for_each_vector(channels, [&](auto tag, std::int64_t c) {
    sum_channels<dtype>(tag, from + c, index + c, pixels, channels, sums + c);
  });
}

void pool_sums(DType dtype, const void* dy, const std::uint8_t* index, std::int64_t pixels, std::int64_t channels,
               float* sums) {
  if (dtype == DType::bf16) return pool_sums_of<DType::bf16>(dy, index, pixels, channels, sums);
  if (dtype == DType::f16) return pool_sums_of<DType::f16>(dy, index, pixels, channels, sums);
  pool_sums_of<DType::f32>(dy, index, pixels, channels, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace paoding {
namespace {

HWY_EXPORT(pool_rows);
HWY_EXPORT(pool_sums);

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
    share_out(threads_, rows_,
              [&](std::int64_t begin, std::int64_t end, int) { run_simd_pool_rows(shape_, run.operands, begin, end); });
  }

 private:
  PoolShape shape_;
  std::int64_t rows_ = 0;
  int threads_ = 1;
};

}  // namespace

void run_simd_pool_rows(const PoolShape& shape, void* const* operands, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(pool_rows)(shape, operands, begin, end);
}

void run_simd_pool_sums(DType dtype, const void* dy, const std::uint8_t* index, std::int64_t pixels,
                        std::int64_t channels, float* sums) {
  HWY_DYNAMIC_DISPATCH(pool_sums)(dtype, dy, index, pixels, channels, sums);
}

std::string simd_pool_refusal(const KernelCall& call) {
  if (call.op->name == "max_pool2d_pick") return "it has no code for picking elements";
  for (const auto* list : {&call.inputs, &call.outputs}) {
    for (const Layout& layout : *list) {
      const DType dtype = layout.type.dtype;
      if (dtype == DType::f64 || dtype == DType::i32) {
        return fmt::format("an operand is {}, it takes f32, bf16 and f16, and indices in u8", to_string(dtype));
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
