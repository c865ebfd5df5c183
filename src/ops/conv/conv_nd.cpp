// SPDX-License-Identifier: Apache-2.0
// Convolutions over volumes and transposed ones, by those over images.
#include <algorithm>

#include "base/check.h"
#include "base/one_line.h"
#include "base/product.h"
#include "paoding/ops.h"
#include "paoding/ops/convolution_nd.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;
constexpr std::int64_t kMostExtent = std::int64_t{1} << 30;  // products and sums of two of them fit

void check_rank(const char* op, const char* name, const Value& value, int rank) {
  if (value.shape().rank() == rank) return;
  fail(ErrorKind::shape, "{}: {} has shape {}; its rank must be {}{}", op, name, to_string(value.shape()), rank,
       in_scope(value.graph().scope.str()));
}

template <std::size_t kCount>
void check_range(const char* op, const char* name, const Value& at, const std::array<std::int64_t, kCount>& values,
                 std::int64_t least) {
  const auto [first, last] = std::minmax_element(values.begin(), values.end());
  if (*first >= least && *last <= kMostExtent) return;
  fail(ErrorKind::argument, "{}: {} is [{}]; every number must be from {} to {}{}", op, name, fmt::join(values, ", "),
       least, kMostExtent, in_scope(at.graph().scope.str()));
}

}  // namespace

Value conv3d(const Value& x, const Value& w, const Value& bias, const Conv3dOptions& options) {
  const char* op = "conv3d";
  check_rank(op, "x", x, 5), check_rank(op, "w", w, 5);
  check_range(op, "stride", x, options.stride, 1), check_range(op, "padding", x, options.padding, 0);
  check_range(op, "dilation", x, options.dilation, 1);
  const Shape &volume = x.shape(), &window = w.shape();
  const std::int64_t taps = window[2], step = options.stride[0], apart = options.dilation[0];
  const std::int64_t span = taps < 1 || taps > kMostExtent / apart ? kMostExtent : apart * (taps - 1) + 1;
  const std::int64_t slices = volume[2] + options.padding[0] + options.padding[1];
  if (taps < 1 || span > slices) {
    fail(ErrorKind::shape,
         "conv3d: {} slices, padding included, are fewer than the {} that {} taps of dilation {} span{}", slices, span,
         taps, apart, in_scope(x.graph().scope.str()));
  }
  const std::int64_t depth = (slices - span) / step + 1;  // of the result
  // [N, C, KD, OD, H, W], then an image for every slice of the result.
  const Value padded = pad(x, Ints{0, 0, options.padding[0], 0, 0}, Ints{0, 0, options.padding[1], 0, 0});
  Values seen;
  for (std::int64_t k = 0; k < taps; ++k) {
    seen.push_back(slice(padded, 2, k * apart, k * apart + (depth - 1) * step + 1, step));
  }
  const Value images = transpose(stack(seen, 2), Ints{0, 3, 1, 2, 4, 5});
  const Value as_image = reshape(images, Shape{volume[0] * depth, volume[1] * taps, volume[3], volume[4]});
  const Value weights = reshape(w, Shape{window[0], window[1] * taps, window[3], window[4]});
  const auto& [front, back, top, bottom, left, right] = options.padding;
  const Conv2dOptions flat{{options.stride[1], options.stride[2]},
                           {top, bottom, left, right},
                           {options.dilation[1], options.dilation[2]},
                           options.groups,
                           options.activation};
  const Value y = bias.valid() ? conv2d(as_image, weights, bias, flat) : conv2d(as_image, weights, flat);
  const Shape& made = y.shape();
  return swap_axes(reshape(y, Shape{volume[0], depth, made[1], made[2], made[3]}), 1, 2);
}

Value conv_transpose2d(const Value& x, const Value& w, const Value& bias, const ConvTranspose2dOptions& options) {
  const char* op = "conv_transpose2d";
  check_rank(op, "x", x, 4), check_rank(op, "w", w, 4);
  check_range(op, "stride", x, options.stride, 1), check_range(op, "padding", x, options.padding, 0);
  check_range(op, "dilation", x, options.dilation, 1), check_range(op, "output_padding", x, options.output_padding, 0);
  // The convolution whose gradient this is reads up to stride - 1 rows after its last window, no more: the other rows
  // of output_padding come out of the padding at the end, and where that is used up, rows of zeros do it.
  std::array<std::int64_t, 2> size{}, more{}, above{};
  std::array<std::int64_t, 4> padding = options.padding;
  for (std::size_t i = 0; i < 2; ++i) {
    const int axis = 2 + static_cast<int>(i);
    if (options.output_padding[i] >= std::max(options.stride[i], options.dilation[i])) {
      fail(ErrorKind::argument,
           "conv_transpose2d: output_padding is {}, stride {} and dilation {}; it must be less than one of these{}",
           options.output_padding[i], options.stride[i], options.dilation[i], in_scope(x.graph().scope.str()));
    }
    const auto reach = [](std::int64_t count, std::int64_t apart) {
      return std::min(capped_product({std::max<std::int64_t>(count - 1, 0), apart}), kMostExtent);
    };
    const std::int64_t spread = reach(x.shape()[axis], options.stride[i]) + reach(w.shape()[axis], options.dilation[i]);
    const std::int64_t added = options.output_padding[i], at_end = options.padding[2 * i + 1];
    if (added >= options.stride[i]) {
      padding[2 * i + 1] = std::max<std::int64_t>(at_end - added, 0);
      more[i] = std::max<std::int64_t>(added - at_end - (options.stride[i] - 1), 0);
    }
    size[i] = spread + 1 + added - more[i] - options.padding[2 * i] - at_end;
    if (size[i] + more[i] < 1) {
      fail(ErrorKind::shape,
           "conv_transpose2d: the result's {} would be {}, of {} in x, a window of {}, stride {}, dilation {}, padding "
           "[{}, "
           "{}] and output_padding {}; it must be 1 at least{}",
           i == 0 ? "height" : "width", size[i] + more[i], x.shape()[axis], w.shape()[axis], options.stride[i],
           options.dilation[i], options.padding[2 * i], at_end, added, in_scope(x.graph().scope.str()));
    }
    above[i] = std::max<std::int64_t>(1 - size[i], 0);  // all of it is zeros: a row in front of them is made too
    size[i] += above[i], padding[2 * i] -= above[i];
  }
  const Value spread = conv2d_grad_input(
      x, w, size,
      {.stride = options.stride, .padding = padding, .dilation = options.dilation, .groups = options.groups});
  Value y = spread;
  if (more[0] + more[1] > 0) y = pad(y, Ints{0, 0, 0, 0}, Ints{0, 0, more[0], more[1]});
  for (int i = 0; i < 2; ++i) {
    if (const std::int64_t rows = above[static_cast<std::size_t>(i)]; rows > 0)
      y = slice(y, 2 + i, rows, y.shape()[2 + i]);
  }
  if (!bias.valid()) return y;
  const std::int64_t outputs = y.shape()[1];
  if (!(bias.shape() == Shape{outputs})) {
    fail(ErrorKind::shape, "conv_transpose2d: bias has shape {}; it must be [{}]{}", to_string(bias.shape()), outputs,
         in_scope(x.graph().scope.str()));
  }
  return y + reshape(bias, Shape{outputs, 1, 1});
}

}  // namespace paoding
