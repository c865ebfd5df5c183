// SPDX-License-Identifier: Apache-2.0
// Parts that the references of the cases share: float64 arithmetic on all threads, written to be obviously right.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cpu/parallel.h"
#include "paoding/types.h"

namespace paoding::cli::bench {

using Doubles = std::vector<double>;

/// Calls work(i) for 0 .. count - 1, shared out over all threads.
template <class Work>
void for_each_row(std::int64_t count, const Work& work) {
  share_out(max_threads(), count, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) work(i);
  });
}

/// Extents of a shape of at most four axes, and the strides of a dense value of it, 0 where it is broadcast; padded in
/// front to four axes.
using Four = std::array<std::int64_t, 4>;
Four extents(const Shape& shape);
Four strides(const Shape& shape);

/// For every element of a value of shape `to`: the sum over the axes that `out` has and it has not of
/// term(index of out, index of w). At most four axes.
template <class Term>
Doubles sum_to(const Shape& to, const Shape& out, const Shape& w, const Term& term) {
  const Four size = extents(out), kept = extents(to), out_strides = strides(out), w_strides = strides(w);
  Doubles sums(static_cast<std::size_t>(to.elements()));
  for_each_row(to.elements(), [&](std::int64_t i) {
    Four first{}, last{}, at{};
    std::int64_t rest = i;
    for (std::size_t axis = 4; axis-- > 0;) {
      const bool is_summed = kept[axis] == 1;
      first[axis] = is_summed ? 0 : rest % kept[axis];
      last[axis] = is_summed ? size[axis] : first[axis] + 1;
      rest /= kept[axis];
    }
    double sum = 0;
    for (at[0] = first[0]; at[0] < last[0]; ++at[0])
      for (at[1] = first[1]; at[1] < last[1]; ++at[1])
        for (at[2] = first[2]; at[2] < last[2]; ++at[2])
          for (at[3] = first[3]; at[3] < last[3]; ++at[3]) {
            std::int64_t in_out = 0, in_w = 0;
            for (std::size_t axis = 0; axis < 4; ++axis) {
              in_out += at[axis] * out_strides[axis];
              in_w += at[axis] * w_strides[axis];
            }
            sum += term(in_out, in_w);
          }
    sums[static_cast<std::size_t>(i)] = sum;
  });
  return sums;
}

/// c [m, n] += op(a) b, row-major; a is [k, m] when transposed.
void add_product(bool transpose_a, std::int64_t m, std::int64_t n, std::int64_t k, const double* a, const double* b,
                 double* c);
Doubles transposed(const Doubles& matrix, std::size_t rows, std::size_t columns);

/// One LSTM layer over time from zero states, and with `dys` its gradients, as the textbook has them (Graves 2012,
/// section 4.6, without peepholes). xs [T, B, H], w and u [H, 4H], b [4H].
struct LstmLayer {
  std::int64_t steps, batch, hidden;
  const Doubles *xs, *w, *u, *b;
};
struct LstmForward {
  Doubles ys, cells, gates;  // gates after their nonlinearity
};
struct LstmBackward {
  Doubles dxs, dw, du, db;
};
LstmForward lstm_forward(const LstmLayer& layer);
LstmBackward lstm_backward(const LstmLayer& layer, const LstmForward& forward, const Doubles& dys);

}  // namespace paoding::cli::bench
