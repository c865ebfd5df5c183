// SPDX-License-Identifier: Apache-2.0
// Ops whose lists are written in braces: sum(a, {0, 1}), transpose(a, {2, 0, 1}), concat({a, b}, 0). They are the
// functions of the other headers, which take spans and document meaning and errors.
#pragma once

#include <concepts>
#include <initializer_list>
#include <span>
#include <vector>

#include "paoding/autodiff.h"
#include "paoding/ops.h"

namespace paoding {

using IntList = std::initializer_list<std::int64_t>;
using ValueList = std::initializer_list<Value>;

template <class T>
std::span<const T> span_of(std::initializer_list<T> list) {
  return {list.begin(), list.size()};
}

// ---- reductions ----
inline Value sum(const Value& a, IntList axes, bool keepdims = false) { return sum(a, span_of(axes), keepdims); }
inline Value max(const Value& a, IntList axes, bool keepdims = false) { return max(a, span_of(axes), keepdims); }
inline Value min(const Value& a, IntList axes, bool keepdims = false) { return min(a, span_of(axes), keepdims); }
inline Value prod(const Value& a, IntList axes, bool keepdims = false) { return prod(a, span_of(axes), keepdims); }
inline Value mean(const Value& a, IntList axes, bool keepdims = false) { return mean(a, span_of(axes), keepdims); }
inline Value any(const Value& a, IntList axes, bool keepdims = false) { return any(a, span_of(axes), keepdims); }
inline Value all(const Value& a, IntList axes, bool keepdims = false) { return all(a, span_of(axes), keepdims); }
inline Value var(const Value& a, IntList axes, bool keepdims = false, std::int64_t correction = 0) {
  return var(a, span_of(axes), keepdims, correction);
}
inline Value logsumexp(const Value& a, IntList axes, bool keepdims = false) {
  return logsumexp(a, span_of(axes), keepdims);
}
inline Value layer_norm(const Value& x, const Value& gamma, const Value& beta, IntList axes, double epsilon = 1e-5) {
  return layer_norm(x, gamma, beta, span_of(axes), epsilon);
}

// ---- views: one extent of reshape may be -1 ----
inline Value reshape(const Value& a, IntList shape) { return reshape(a, span_of(shape)); }
inline Value squeeze(const Value& a, IntList axes) { return squeeze(a, span_of(axes)); }
inline Value unsqueeze(const Value& a, IntList axes) { return unsqueeze(a, span_of(axes)); }
inline Value transpose(const Value& a, IntList permutation) { return transpose(a, span_of(permutation)); }
inline Value slice(const Value& a, IntList start, IntList end, IntList step = {}) {
  return slice(a, span_of(start), span_of(end), span_of(step));
}
inline Value crop(const Value& a, IntList before, IntList after) { return crop(a, span_of(before), span_of(after)); }
inline Value flip(const Value& a, IntList axes) { return flip(a, span_of(axes)); }
/// Parts of these extents: split(a, {4}) is one part of 4, split(a, 4) are 4 parts.
inline Values split(const Value& a, IntList sizes, int axis = 0) { return split(a, span_of(sizes), axis); }

// ---- constants ----
/// constant(graph, {2, 2}, {1.0, 2.0, 3.0, 4.0}) is an f32[2,2], constant(graph, {2}, {0, 2}) an i64[2], unless `dtype`
/// says otherwise.
template <std::floating_point T>
Value constant(Graph& graph, const Shape& shape, std::initializer_list<T> values, DType dtype = DType::f32) {
  const std::vector<double> all(values.begin(), values.end());
  return constant(graph, shape, std::span<const double>(all), dtype);
}
template <std::integral T>
Value constant(Graph& graph, const Shape& shape, std::initializer_list<T> values, DType dtype = DType::i64) {
  const std::vector<std::int64_t> all(values.begin(), values.end());
  return constant(graph, shape, std::span<const std::int64_t>(all), dtype);
}

// ---- concatenations ----
inline Value pad(const Value& a, IntList before, IntList after, double value = 0, IntList interior = {}) {
  return pad(a, span_of(before), span_of(after), value, span_of(interior));
}
inline Value tile(const Value& a, IntList times) { return tile(a, span_of(times)); }
inline Value concat(ValueList inputs, int axis) { return concat(span_of(inputs), axis); }
inline Value stack(ValueList inputs, int axis = 0) { return stack(span_of(inputs), axis); }
inline Value add_n(ValueList inputs) { return add_n(span_of(inputs)); }

// ---- gradients ----
/// The gradients of one output, for inputs that are a list already: gradients(loss, parameters).
inline Values gradients(const Value& output, std::span<const Value> inputs) {
  return gradients(std::span<const Value>(&output, 1), inputs);
}
inline Values gradients(ValueList outputs, ValueList inputs, ValueList seeds = {}) {
  return gradients(span_of(outputs), span_of(inputs), span_of(seeds));
}

}  // namespace paoding
