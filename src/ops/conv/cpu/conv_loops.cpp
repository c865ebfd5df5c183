// SPDX-License-Identifier: Apache-2.0
// Convolutions as plain loops over any layout: f64, empty extents, and calls that oneDNN has no code for. A row of the
// result is summed in a buffer per thread, so that the inner loop runs along rows.
#include <algorithm>

#include "base/check.h"
#include "cpu/parallel.h"
#include "cpu/tile_stored.h"
#include "ops/all_kernels.h"
#include "ops/conv/conv_shape.h"

namespace paoding {
namespace {

template <class Dtype>  // Stored<..>
class LoopConvolution : public PreparedKernel {
 public:
  using Element = typename Dtype::Type;
  using Sum = typename Dtype::Compute;

  LoopConvolution(ConvShape shape, std::size_t inputs)
      : shape_(std::move(shape)), inputs_(inputs), is_wide_(shape_.w.type.dtype != shape_.x.type.dtype) {
    const bool is_weight = shape_.kind == ConvKind::grad_weight;
    const Layout& result = is_weight ? shape_.w : shape_.kind == ConvKind::forward ? shape_.y : shape_.x;
    const Shape& extents = result.type.shape;
    rows_ = extents[0] * extents[1] * (is_weight ? 1 : extents[2]);
    width_ = is_weight ? extents[2] * extents[3] : extents[3];
    constexpr std::int64_t kWorthThreads = 32768;  // multiplications
    if (shape_.products() >= kWorthThreads) threads_ = max_threads();
    sums_ = std::make_unique<Sum[]>(static_cast<std::size_t>(threads_ * width_));
  }

  void run(const KernelRun& run) const override {
    share_out(threads_, rows_, [&](std::int64_t begin, std::int64_t end, int thread) {
      Sum* sums = sums_.get() + thread * width_;
      for (std::int64_t row = begin; row < end; ++row) {
        std::fill_n(sums, width_, Sum{0});
        switch (shape_.kind) {
          case ConvKind::forward: forward_row(run.operands, row, sums); break;
          case ConvKind::grad_input: grad_input_row(run.operands, row, sums); break;
          case ConvKind::grad_weight: grad_weight_row(run.operands, row, sums); break;
        }
      }
    });
  }

 private:
  static const Element* at(const void* base, const Layout& layout, std::int64_t i, std::int64_t j, std::int64_t k) {
    const auto& s = layout.strides;
    return static_cast<const Element*>(base) + i * s[0] + j * s[1] + k * s[2];
  }

  void forward_row(void* const* operands, std::int64_t row, Sum* sums) const {
    const auto [vertical, horizontal] = shape_.axes;
    const std::int64_t i = row % vertical.outputs, o = row / vertical.outputs % shape_.outputs;
    const std::int64_t n = row / vertical.outputs / shape_.outputs;
    const std::int64_t inputs = shape_.w.type.shape[1], first = o / (shape_.outputs / shape_.groups) * inputs;
    const std::int64_t step = shape_.x.strides[3];
    for (std::int64_t c = 0; c < inputs; ++c) {
      for (std::int64_t k = 0; k < vertical.kernel; ++k) {
        const std::int64_t h = vertical.input(i, k);
        if (h < 0 || h >= vertical.size) continue;
        const Element* from = at(operands[0], shape_.x, n, first + c, h);
        const Element* weights = at(operands[1], shape_.w, o, c, k);
        for (std::int64_t l = 0; l < horizontal.kernel; ++l) {
          const Sum factor = Dtype::load(weights[l * shape_.w.strides[3]]);
          const auto [begin, end] = horizontal.outputs_of(l);
          const Element* tap = from + horizontal.input(begin, l) * step;
          for (std::int64_t j = begin; j < end; ++j) {
            sums[j] += factor * Dtype::load(tap[(j - begin) * horizontal.stride * step]);
          }
        }
      }
    }
    auto* to = const_cast<Element*>(at(operands[inputs_], shape_.y, n, o, i));
    Sum bias{0};
    if (shape_.has_bias) bias = Dtype::load(static_cast<const Element*>(operands[2])[o * shape_.bias.strides[0]]);
    for (std::int64_t j = 0; j < horizontal.outputs; ++j) {
      Sum value = sums[j] + bias;
      if (shape_.has_added) value += Dtype::load(at(operands[3], shape_.added, n, o, i)[j * shape_.added.strides[3]]);
      if (shape_.has_relu) value = value > 0 ? value : Sum{0};
      if (shape_.has_limit) value = value > 6 ? Sum{6} : value;
      to[j * shape_.y.strides[3]] = Dtype::store(value);
    }
  }

  void grad_input_row(void* const* operands, std::int64_t row, Sum* sums) const {
    const auto [vertical, horizontal] = shape_.axes;
    const std::int64_t h = row % vertical.size, c = row / vertical.size % shape_.channels;
    const std::int64_t n = row / vertical.size / shape_.channels;
    const std::int64_t inputs = shape_.w.type.shape[1], outputs = shape_.outputs / shape_.groups;
    const std::int64_t group = c / inputs, step = shape_.y.strides[3];
    for (std::int64_t o = group * outputs; o < (group + 1) * outputs; ++o) {
      for (std::int64_t k = 0; k < vertical.kernel; ++k) {
        const std::int64_t moved = h + vertical.before - k * vertical.dilation;  // i * stride
        const std::int64_t i = moved / vertical.stride;
        if (moved < 0 || moved % vertical.stride != 0 || i >= vertical.outputs) continue;
        const Element* from = at(operands[0], shape_.y, n, o, i);
        const Element* weights = at(operands[1], shape_.w, o, c - group * inputs, k);
        for (std::int64_t l = 0; l < horizontal.kernel; ++l) {
          const Sum factor = Dtype::load(weights[l * shape_.w.strides[3]]);
          const auto [begin, end] = horizontal.outputs_of(l);
          for (std::int64_t j = begin; j < end; ++j)
            sums[horizontal.input(j, l)] += factor * Dtype::load(from[j * step]);
        }
      }
    }
    auto* to = const_cast<Element*>(at(operands[2], shape_.x, n, c, h));
    for (std::int64_t j = 0; j < horizontal.size; ++j) to[j * shape_.x.strides[3]] = Dtype::store(sums[j]);
  }

  void grad_weight_row(void* const* operands, std::int64_t row, Sum* sums) const {
    const auto [vertical, horizontal] = shape_.axes;
    const std::int64_t inputs = shape_.w.type.shape[1], o = row / inputs, c = row % inputs;
    const std::int64_t channel = o / (shape_.outputs / shape_.groups) * inputs + c;
    for (std::int64_t n = 0; n < shape_.batch; ++n) {
      for (std::int64_t k = 0; k < vertical.kernel; ++k) {
        const auto [first, last] = vertical.outputs_of(k);
        for (std::int64_t i = first; i < last; ++i) {
          const Element* from = at(operands[0], shape_.x, n, channel, vertical.input(i, k));
          const Element* dy = at(operands[1], shape_.y, n, o, i);
          for (std::int64_t l = 0; l < horizontal.kernel; ++l) {
            const auto [begin, end] = horizontal.outputs_of(l);
            Sum sum{0};
            for (std::int64_t j = begin; j < end; ++j) {
              sum += Dtype::load(from[horizontal.input(j, l) * shape_.x.strides[3]]) *
                     Dtype::load(dy[j * shape_.y.strides[3]]);
            }
            sums[k * horizontal.kernel + l] += sum;
          }
        }
      }
    }
    for (std::int64_t k = 0; k < vertical.kernel; ++k) {
      const auto& s = shape_.w.strides;
      for (std::int64_t l = 0; l < horizontal.kernel; ++l) {
        const std::int64_t to = o * s[0] + c * s[1] + k * s[2] + l * s[3];
        const Sum sum = sums[k * horizontal.kernel + l];
        if (is_wide_) {
          static_cast<Sum*>(operands[2])[to] = sum;
        } else {
          static_cast<Element*>(operands[2])[to] = Dtype::store(sum);
        }
      }
    }
  }

  ConvShape shape_;
  std::size_t inputs_;                 // operands before the result
  bool is_wide_;                       // a gradient for weights is f32, as its sums are
  std::int64_t rows_ = 0, width_ = 0;  // of the result: rows that are summed at once
  int threads_ = 1;
  std::unique_ptr<Sum[]> sums_;  // a row per thread
};

std::unique_ptr<PreparedKernel> prepare(const KernelCall& call, const Device&) {
  ConvShape shape(call);
  return visit_stored_float(shape.dtype, [&](auto dtype) -> std::unique_ptr<PreparedKernel> {
    return std::make_unique<LoopConvolution<Stored<dtype.value>>>(std::move(shape), call.inputs.size());
  });
}

}  // namespace

void register_convolution_loops(const char* op) {
  register_kernel(op, {.name = "loops",
                       .device = DeviceKind::cpu,
                       .refusal = [](const KernelCall&) { return std::string(); },
                       .prepare = prepare});
}

}  // namespace paoding
