// SPDX-License-Identifier: Apache-2.0
// The definition of convolutions and pools, in float64: every tap of every window in the order of the formula.
#include <cmath>

#include "tests/reference/reference_ops.h"

namespace paoding::reference {
namespace {

struct Sizes {
  Ints x, w, y;  // shapes; w is {.., KH, KW}
  Ints stride, padding, dilation;

  // Calls visit(n, i, j, k, l, h, m): output (i, j), tap (k, l), pixel (h, m), for all that are within the image.
  template <class Visit>
  void for_each_tap(Visit visit) const {
    for (std::int64_t i = 0; i < y[2]; ++i) {
      for (std::int64_t j = 0; j < y[3]; ++j) {
        for (std::int64_t k = 0; k < w[2]; ++k) {
          for (std::int64_t l = 0; l < w[3]; ++l) {
            const std::int64_t h = i * stride[0] + k * dilation[0] - padding[0];
            const std::int64_t m = j * stride[1] + l * dilation[1] - padding[2];
            if (h >= 0 && h < x[2] && m >= 0 && m < x[3]) visit(i, j, k, l, h, m);
          }
        }
      }
    }
  }
};

// The place of element (a, b, c, d) of a dense array. (offset() of any rank makes a list of its indices first.)
std::size_t place(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d, const Ints& shape) {
  return at(((a * shape[1] + b) * shape[2] + c) * shape[3] + d);
}

Sizes sizes_of(const Call& call, Ints x, Ints w, Ints y) {
  const Attrs& attrs = call.node.attrs;
  return {std::move(x),
          std::move(w),
          std::move(y),
          attrs.get_ints("stride"),
          attrs.get_ints("padding"),
          attrs.get_ints("dilation")};
}

// Calls visit(x offset, w offset, y offset) for every product that a convolution is the sum of.
template <class Visit>
void for_each_product(const Sizes& s, std::int64_t groups, Visit visit) {
  const std::int64_t inputs = s.x[1] / groups, outputs = s.y[1] / groups;
  for (std::int64_t n = 0; n < s.x[0]; ++n) {
    for (std::int64_t o = 0; o < s.y[1]; ++o) {
      for (std::int64_t c = 0; c < inputs; ++c) {
        s.for_each_tap([&](auto i, auto j, auto k, auto l, auto h, auto m) {
          visit(place(n, o / outputs * inputs + c, h, m, s.x), place(o, c, k, l, s.w), place(n, o, i, j, s.y));
        });
      }
    }
  }
}

std::size_t elements(const Ints& shape) {
  std::size_t count = 1;
  for (std::int64_t extent : shape) count *= at(extent);
  return count;
}

std::vector<Dense> conv2d(const Call& call) {
  const Sizes s = sizes_of(call, call.shape(0), call.shape(1), call.result_shape());
  Dense y(elements(s.y), 0.0);
  for_each_product(s, call.node.attrs.get_int("groups"),
                   [&](auto x, auto w, auto to) { y[to] += call.inputs[0][x] * call.inputs[1][w]; });
  return {y};
}

std::vector<Dense> conv2d_bias(const Call& call) {
  Dense y = conv2d(call)[0];
  const Ints shape = call.result_shape();
  const std::string& activation = std::get<std::string>(*call.node.attrs.find("activation"));
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] += call.inputs[2][i / at(shape[2] * shape[3]) % at(shape[1])];
    if (activation != "none") y[i] = std::max(y[i], 0.0);
    if (activation == "relu6") y[i] = std::min(y[i], 6.0);
  }
  return {y};
}

std::vector<Dense> conv2d_grad_input(const Call& call) {
  const Sizes s = sizes_of(call, call.result_shape(), call.shape(1), call.shape(0));
  Dense dx(elements(s.x), 0.0);
  for_each_product(s, call.node.attrs.get_int("groups"),
                   [&](auto x, auto w, auto y) { dx[x] += call.inputs[0][y] * call.inputs[1][w]; });
  return {dx};
}

std::vector<Dense> conv2d_grad_weight(const Call& call) {
  const Sizes s = sizes_of(call, call.shape(0), call.result_shape(), call.shape(1));
  Dense dw(elements(s.w), 0.0);
  for_each_product(s, call.node.attrs.get_int("groups"),
                   [&](auto x, auto w, auto y) { dw[w] += call.inputs[0][x] * call.inputs[1][y]; });
  return {dw};
}

// ---- pools ----

// A pool between images of shape x and windows of shape y. visit(x offset, y offset, tap) for every tap, window by
// window in the order of the taps.
template <class Visit>
void for_each_pooled(const Call& call, const Ints& x, const Ints& y, Visit visit) {
  const Ints kernel = call.node.attrs.get_ints("kernel");
  const Sizes s = sizes_of(call, x, {1, 1, kernel[0], kernel[1]}, y);
  for (std::int64_t n = 0; n < x[0]; ++n) {
    for (std::int64_t c = 0; c < x[1]; ++c) {
      s.for_each_tap([&](auto i, auto j, auto k, auto l, auto h, auto m) {
        visit(place(n, c, h, m, x), place(n, c, i, j, y), k * kernel[1] + l);
      });
    }
  }
}

std::vector<Dense> max_pool2d(const Call& call) {
  Dense y(elements(call.result_shape()), -INFINITY), index(y.size(), -1.0);
  for_each_pooled(call, call.shape(0), call.result_shape(), [&](auto x, auto to, auto tap) {
    const double value = call.inputs[0][x];
    if (index[to] >= 0 && !(value > y[to]) && !(std::isnan(value) && !std::isnan(y[to]))) return;
    y[to] = value;
    index[to] = static_cast<double>(tap);
  });
  return {y, index};
}

std::vector<Dense> max_pool2d_grad(const Call& call) {
  Dense dx(elements(call.result_shape()), 0.0);
  for_each_pooled(call, call.result_shape(), call.shape(0), [&](auto x, auto y, auto tap) {
    if (call.inputs[1][y] == static_cast<double>(tap)) dx[x] += call.inputs[0][y];
  });
  return {dx};
}

std::vector<Dense> max_pool2d_pick(const Call& call) {
  Dense picked(elements(call.result_shape()), 0.0);
  for_each_pooled(call, call.shape(0), call.result_shape(), [&](auto x, auto y, auto tap) {
    if (call.inputs[1][y] == static_cast<double>(tap)) picked[y] = call.inputs[0][x];
  });
  return {picked};
}

// 1 / the elements that count in every window.
Dense shares(const Call& call, const Ints& x, const Ints& y) {
  const Ints kernel = call.node.attrs.get_ints("kernel");
  Dense count(elements(y), 0.0);
  for_each_pooled(call, x, y, [&](auto, auto to, auto) { count[to] += 1; });
  const double all = static_cast<double>(kernel[0] * kernel[1]);
  for (double& c : count) c = 1 / (call.node.attrs.get_bool("count_padding") ? all : c);
  return count;
}

std::vector<Dense> avg_pool2d(const Call& call) {
  Dense y(elements(call.result_shape()), 0.0);
  const Dense share = shares(call, call.shape(0), call.result_shape());
  for_each_pooled(call, call.shape(0), call.result_shape(),
                  [&](auto x, auto to, auto) { y[to] += call.inputs[0][x] * share[to]; });
  return {y};
}

std::vector<Dense> avg_pool2d_grad(const Call& call) {
  Dense dx(elements(call.result_shape()), 0.0);
  const Dense share = shares(call, call.result_shape(), call.shape(0));
  for_each_pooled(call, call.result_shape(), call.shape(0),
                  [&](auto x, auto y, auto) { dx[x] += call.inputs[0][y] * share[y]; });
  return {dx};
}

[[maybe_unused]] const bool added =
    add("conv2d", conv2d) && add("conv2d_bias", conv2d_bias) && add("conv2d_grad_input", conv2d_grad_input) &&
    add("conv2d_grad_weight", conv2d_grad_weight) && add("conv2d_grad_weight_wide", conv2d_grad_weight) &&
    add("max_pool2d", max_pool2d) && add("max_pool2d_grad", max_pool2d_grad) &&
    add("max_pool2d_pick", max_pool2d_pick) && add("avg_pool2d", avg_pool2d) && add("avg_pool2d_grad", avg_pool2d_grad);

}  // namespace
}  // namespace paoding::reference
