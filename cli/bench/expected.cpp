// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/expected.h"

#include <algorithm>
#include <cmath>

namespace paoding::cli::bench {

Four extents(const Shape& shape) {
  Four four{1, 1, 1, 1};
  for (int i = 0; i < shape.rank(); ++i) four[static_cast<std::size_t>(4 - shape.rank() + i)] = shape[i];
  return four;
}

Four strides(const Shape& shape) {
  const Four size = extents(shape);
  Four four{};
  std::int64_t stride = 1;
  for (std::size_t i = 4; i-- > 0;) {
    four[i] = size[i] == 1 ? 0 : stride;
    stride *= size[i];
  }
  return four;
}

// Threads take columns.
void add_product(bool transpose_a, std::int64_t m, std::int64_t n, std::int64_t k, const double* a, const double* b,
                 double* c) {
  share_out(max_threads(), n, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = 0; i < m; ++i) {
      double* to = c + i * n;
      for (std::int64_t l = 0; l < k; ++l) {
        const double factor = transpose_a ? a[l * m + i] : a[i * k + l];
        const double* from = b + l * n;
        for (std::int64_t j = begin; j < end; ++j) to[j] += factor * from[j];
      }
    }
  });
}

Doubles transposed(const Doubles& matrix, std::size_t rows, std::size_t columns) {
  Doubles result(matrix.size());
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) result[j * rows + i] = matrix[i * columns + j];
  }
  return result;
}

LstmForward lstm_forward(const LstmLayer& layer) {
  const auto T = static_cast<std::size_t>(layer.steps), B = static_cast<std::size_t>(layer.batch);
  const auto H = static_cast<std::size_t>(layer.hidden);
  const auto sigmoid = [](double a) { return 1 / (1 + std::exp(-a)); };
  LstmForward e;
  e.gates.resize(T * B * 4 * H);
  e.cells.resize(T * B * H);
  e.ys.resize(T * B * H);
  const Doubles zeros(B * H);
  for (std::size_t t = 0; t < T; ++t) {
    double* gate = &e.gates[t * B * 4 * H];
    const double* h = t == 0 ? zeros.data() : &e.ys[(t - 1) * B * H];
    const double* c = t == 0 ? zeros.data() : &e.cells[(t - 1) * B * H];
    for (std::size_t i = 0; i < B * 4 * H; ++i) gate[i] = (*layer.b)[i % (4 * H)];
    add_product(false, layer.batch, 4 * layer.hidden, layer.hidden, &(*layer.xs)[t * B * H], layer.w->data(), gate);
    add_product(false, layer.batch, 4 * layer.hidden, layer.hidden, h, layer.u->data(), gate);
    for (std::size_t r = 0; r < B; ++r) {
      for (std::size_t j = 0; j < H; ++j) {
        double* row = gate + r * 4 * H;
        const double i = row[j] = sigmoid(row[j]), f = row[H + j] = sigmoid(row[H + j]);
        const double g = row[2 * H + j] = std::tanh(row[2 * H + j]), o = row[3 * H + j] = sigmoid(row[3 * H + j]);
        const std::size_t at = t * B * H + r * H + j;
        e.cells[at] = f * c[r * H + j] + i * g;
        e.ys[at] = o * std::tanh(e.cells[at]);
      }
    }
  }
  return e;
}

LstmBackward lstm_backward(const LstmLayer& layer, const LstmForward& forward, const Doubles& dys) {
  const auto T = static_cast<std::size_t>(layer.steps), B = static_cast<std::size_t>(layer.batch);
  const auto H = static_cast<std::size_t>(layer.hidden);
  const std::int64_t b_ = layer.batch, h_ = layer.hidden;
  const Doubles wt = transposed(*layer.w, H, 4 * H), ut = transposed(*layer.u, H, 4 * H);  // [4H, H]
  LstmBackward e{Doubles(T * B * H), Doubles(H * 4 * H), Doubles(H * 4 * H), Doubles(4 * H)};
  Doubles dh(B * H), dc(B * H), dgate(B * 4 * H);
  const Doubles zeros(B * H);
  for (std::size_t t = T; t-- > 0;) {
    const double* gate = &forward.gates[t * B * 4 * H];
    const double* h = t == 0 ? zeros.data() : &forward.ys[(t - 1) * B * H];
    const double* c = t == 0 ? zeros.data() : &forward.cells[(t - 1) * B * H];
    for (std::size_t r = 0; r < B; ++r) {
      for (std::size_t j = 0; j < H; ++j) {
        const double* row = gate + r * 4 * H;
        double* d = &dgate[r * 4 * H];
        const double i = row[j], f = row[H + j], g = row[2 * H + j], o = row[3 * H + j];
        const std::size_t at = r * H + j;
        const double squashed = std::tanh(forward.cells[t * B * H + at]), dy = dh[at] + dys[t * B * H + at];
        const double dcell = dc[at] + dy * o * (1 - squashed * squashed);
        d[j] = dcell * g * i * (1 - i);
        d[H + j] = dcell * c[at] * f * (1 - f);
        d[2 * H + j] = dcell * i * (1 - g * g);
        d[3 * H + j] = dy * squashed * o * (1 - o);
        dc[at] = dcell * f;
      }
    }
    std::fill(dh.begin(), dh.end(), 0);
    add_product(false, b_, h_, 4 * h_, dgate.data(), ut.data(), dh.data());
    add_product(false, b_, h_, 4 * h_, dgate.data(), wt.data(), &e.dxs[t * B * H]);
    add_product(true, h_, 4 * h_, b_, h, dgate.data(), e.du.data());
    add_product(true, h_, 4 * h_, b_, &(*layer.xs)[t * B * H], dgate.data(), e.dw.data());
    for (std::size_t i = 0; i < B * 4 * H; ++i) e.db[i % (4 * H)] += dgate[i];
  }
  return e;
}

}  // namespace paoding::cli::bench
