// SPDX-License-Identifier: Apache-2.0
// The definitions of softmax, cross entropy and normalisation, in double: written from formulas, not from the ops that
// they are composed of.
#include <algorithm>
#include <cmath>
#include <map>

#include "tests/reference/reference_ops.h"

namespace paoding::reference {
namespace {

// The elements of each row: those that differ only along `axes`, by the offset of the row with these axes at 0.
std::map<std::int64_t, std::vector<std::size_t>> rows_of(const Ints& shape, const std::vector<std::size_t>& axes) {
  std::map<std::int64_t, std::vector<std::size_t>> rows;
  for_each_index(shape, [&](const Ints& index) {
    Ints row = index;
    for (std::size_t axis : axes) row[axis] = 0;
    rows[offset(row, shape)].push_back(at(offset(index, shape)));
  });
  return rows;
}

std::vector<Dense> softmax_of(const Call& call, bool is_log) {
  const Ints shape = call.shape(0);
  const Dense& a = call.inputs[0];
  Dense result(a.size());
  for (const auto& [row, elements] : rows_of(shape, {plain(call.node.attrs.get_int("axis"), shape.size())})) {
    double most = a[elements[0]], total = 0;
    for (std::size_t i : elements) most = std::max(most, a[i]);
    for (std::size_t i : elements) total += std::exp(a[i] - most);
    for (std::size_t i : elements) result[i] = is_log ? a[i] - most - std::log(total) : std::exp(a[i] - most) / total;
  }
  return {result};
}

std::vector<Dense> cross_entropy_of(const Call& call) {
  const Dense &logits = call.inputs[0], &labels = call.inputs[1];
  const double smoothing = call.node.attrs.get_float("label_smoothing");
  const std::size_t classes = at(call.shape(0).back());
  Dense losses, totals;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const double* a = &logits[row * classes];
    const double most = *std::max_element(a, a + classes);
    double total = 0, all = 0;
    for (std::size_t k = 0; k < classes; ++k) total += std::exp(a[k] - most), all += a[k];
    const double log_total = most + std::log(total), label = labels[row];
    double loss = NAN;
    if (label < 0) {
      loss = 0;
    } else if (label < static_cast<double>(classes)) {
      loss = (1 - smoothing) * (log_total - a[at(static_cast<std::int64_t>(label))]) +
             smoothing * (log_total - all / static_cast<double>(classes));
    }
    losses.push_back(loss);
    totals.push_back(log_total);
  }
  return {losses, totals};
}

Dense stretched(const Call& call, std::size_t input) {
  Dense result;
  for_each_index(call.shape(0), [&](const Ints& index) {
    result.push_back(call.inputs[input][at(broadcast_offset(index, call.shape(input)))]);
  });
  return result;
}

std::vector<Dense> normalized(const Call& call) {
  const Ints shape = call.shape(0);
  std::vector<std::size_t> axes;
  for (std::int64_t axis : call.node.attrs.get_ints("axes")) axes.push_back(plain(axis, shape.size()));
  const Dense &x = call.inputs[0], gamma = stretched(call, 1), beta = stretched(call, 2);
  Dense y(x.size()), means, variances;
  for (const auto& [row, elements] : rows_of(shape, axes)) {
    const auto count = static_cast<double>(elements.size());
    double mean = 0, variance = 0;
    for (std::size_t i : elements) mean += x[i] / count;
    for (std::size_t i : elements) variance += (x[i] - mean) * (x[i] - mean) / count;
    const double deviation = std::sqrt(variance + call.node.attrs.get_float("epsilon"));
    for (std::size_t i : elements) y[i] = (x[i] - mean) / deviation * gamma[i] + beta[i];
    means.push_back(mean);
    variances.push_back(variance);
  }
  return {y, means, variances};
}

std::vector<Dense> rms_normalized(const Call& call) {
  const Ints shape = call.shape(0);
  const Dense &x = call.inputs[0], gamma = stretched(call, 1);
  Dense y(x.size()), squares;
  for (const auto& [row, elements] : rows_of(shape, {shape.size() - 1})) {
    double square = 0;
    for (std::size_t i : elements) square += x[i] * x[i] / static_cast<double>(elements.size());
    for (std::size_t i : elements) y[i] = x[i] / std::sqrt(square + call.node.attrs.get_float("epsilon")) * gamma[i];
    squares.push_back(square);
  }
  return {y, squares};
}

[[maybe_unused]] const bool added[] = {
    add("softmax", [](const Call& call) { return softmax_of(call, false); }),
    add("log_softmax", [](const Call& call) { return softmax_of(call, true); }),
    add("cross_entropy", cross_entropy_of),
    add("layer_norm", normalized),
    add("batch_norm", normalized),
    add("rms_norm", rms_normalized),
};

}  // namespace
}  // namespace paoding::reference
