// SPDX-License-Identifier: Apache-2.0
// Other frameworks keep weights transposed, gates as rows, in an order of their own.
#include "paoding/recurrent_weights.h"

#include "base/check.h"

namespace paoding {
namespace {

using Doubles = std::vector<double>;

int gates_of(RecurrentKind kind) { return kind == RecurrentKind::lstm ? 4 : kind == RecurrentKind::gru ? 3 : 1; }

bool is_empty(const Tensor& tensor) { return tensor.shape().elements() == 0; }

[[noreturn]] void wrong(const char* from, const char* name, const Tensor& tensor, const std::string& needed) {
  fail(ErrorKind::shape, "{}: {} has shape {}, needed is {}", from, name, to_string(tensor.shape()), needed);
}

// Rows [gates H, columns], block k of the result being block order[k] of the rows, transposed: [columns, gates H].
Tensor transposed(const Tensor& like, const Doubles& rows, std::int64_t hidden, std::int64_t columns,
                  const std::vector<int>& order) {
  const std::int64_t width = static_cast<std::int64_t>(order.size()) * hidden;
  Doubles result(static_cast<std::size_t>(width * columns));
  for (std::size_t k = 0; k < order.size(); ++k) {
    for (std::int64_t j = 0; j < hidden; ++j) {
      const std::int64_t from = order[k] * hidden + j, to = static_cast<std::int64_t>(k) * hidden + j;
      for (std::int64_t c = 0; c < columns; ++c) {
        result[static_cast<std::size_t>(c * width + to)] = rows[static_cast<std::size_t>(from * columns + c)];
      }
    }
  }
  return Tensor::from(like.dtype(), Shape{columns, width}, result);
}

// The sum of two biases in our order; the last gate's stay apart where `splits_last`.
Tensor joined_bias(const Tensor& like, const Doubles& of_x, const Doubles& of_h, std::int64_t hidden,
                   const std::vector<int>& order, bool splits_last) {
  Doubles result;
  const auto append = [&](int gate, bool x, bool h) {
    for (std::int64_t j = 0; j < hidden; ++j) {
      const auto at = static_cast<std::size_t>(gate * hidden + j);
      result.push_back((x ? of_x[at] : 0) + (h ? of_h[at] : 0));
    }
  };
  for (std::size_t k = 0; k < order.size(); ++k) append(order[k], true, !splits_last || k + 1 < order.size());
  if (splits_last) append(order.back(), false, true);
  return Tensor::from(like.dtype(), Shape{static_cast<std::int64_t>(result.size())}, result);
}

std::vector<int> plain_order(RecurrentKind kind) {
  return kind == RecurrentKind::lstm  ? std::vector{0, 1, 2, 3}
         : kind == RecurrentKind::gru ? std::vector{0, 1, 2}
                                      : std::vector{0};
}

// Where our i, f, g, o and r, z, n stand in ONNX's i, o, f, c and z, r, h.
std::vector<int> onnx_order(RecurrentKind kind) {
  return kind == RecurrentKind::lstm  ? std::vector{0, 2, 3, 1}
         : kind == RecurrentKind::gru ? std::vector{1, 0, 2}
                                      : std::vector{0};
}

}  // namespace

RecurrentWeights from_pytorch(RecurrentKind kind, const Tensor& weight_ih, const Tensor& weight_hh,
                              const Tensor& bias_ih, const Tensor& bias_hh, const Tensor& weight_hr) {
  const char* from = "from_pytorch";
  const std::int64_t gates = gates_of(kind);
  const Shape& ih = weight_ih.shape();
  if (ih.rank() != 2 || ih[0] % gates != 0) wrong(from, "weight_ih", weight_ih, fmt::format("[{} H, I]", gates));
  const std::int64_t hidden = ih[0] / gates;
  const bool has_projection = !is_empty(weight_hr);
  if (has_projection &&
      (kind != RecurrentKind::lstm || weight_hr.shape().rank() != 2 || weight_hr.shape()[1] != hidden)) {
    wrong(from, "weight_hr", weight_hr, fmt::format("[P, {}], of an LSTM", hidden));
  }
  const std::int64_t width = has_projection ? weight_hr.shape()[0] : hidden;
  if (!(weight_hh.shape() == Shape{ih[0], width}))
    wrong(from, "weight_hh", weight_hh, fmt::format("[{}, {}]", ih[0], width));
  for (const auto& [name, bias] : {std::pair{"bias_ih", &bias_ih}, std::pair{"bias_hh", &bias_hh}}) {
    if (!is_empty(*bias) && !(bias->shape() == Shape{ih[0]})) wrong(from, name, *bias, fmt::format("[{}]", ih[0]));
  }
  const std::vector<int> order = plain_order(kind);
  const Doubles none(static_cast<std::size_t>(ih[0]), 0.0);
  RecurrentWeights made;
  made.w = transposed(weight_ih, weight_ih.to_doubles(), hidden, ih[1], order);
  made.u = transposed(weight_ih, weight_hh.to_doubles(), hidden, width, order);
  made.b = joined_bias(weight_ih, is_empty(bias_ih) ? none : bias_ih.to_doubles(),
                       is_empty(bias_hh) ? none : bias_hh.to_doubles(), hidden, order, kind == RecurrentKind::gru);
  if (has_projection) made.projection = transposed(weight_ih, weight_hr.to_doubles(), width, hidden, {0});
  return made;
}

std::vector<RecurrentWeights> from_onnx(RecurrentKind kind, const Tensor& w, const Tensor& r, const Tensor& b,
                                        bool linear_before_reset) {
  const char* from = "from_onnx";
  const std::int64_t gates = gates_of(kind);
  if (w.shape().rank() != 3 || w.shape()[1] % gates != 0) wrong(from, "W", w, fmt::format("[D, {} H, I]", gates));
  const std::int64_t directions = w.shape()[0], rows = w.shape()[1], hidden = rows / gates, inputs = w.shape()[2];
  if (!(r.shape() == Shape{directions, rows, hidden}))
    wrong(from, "R", r, fmt::format("[{}, {}, {}]", directions, rows, hidden));
  if (!is_empty(b) && !(b.shape() == Shape{directions, 2 * rows}))
    wrong(from, "B", b, fmt::format("[{}, {}]", directions, 2 * rows));
  const Doubles all_w = w.to_doubles(), all_r = r.to_doubles();
  const Doubles all_b = is_empty(b) ? Doubles(static_cast<std::size_t>(directions * 2 * rows), 0.0) : b.to_doubles();
  const auto part = [](const Doubles& all, std::int64_t begin, std::int64_t count) {
    return Doubles(all.begin() + begin, all.begin() + begin + count);
  };
  const std::vector<int> order = onnx_order(kind);
  std::vector<RecurrentWeights> made;
  for (std::int64_t d = 0; d < directions; ++d) {
    RecurrentWeights weights;
    weights.w = transposed(w, part(all_w, d * rows * inputs, rows * inputs), hidden, inputs, order);
    weights.u = transposed(w, part(all_r, d * rows * hidden, rows * hidden), hidden, hidden, order);
    weights.b = joined_bias(w, part(all_b, d * 2 * rows, rows), part(all_b, d * 2 * rows + rows, rows), hidden, order,
                            kind == RecurrentKind::gru && linear_before_reset);
    made.push_back(std::move(weights));
  }
  return made;
}

}  // namespace paoding
