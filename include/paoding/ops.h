// SPDX-License-Identifier: Apache-2.0
// Every op as a function: formula, shapes, errors. Inputs of elementwise ops broadcast together (NumPy's rule) and are
// promoted to one dtype; every error names the op, the input, its value, what was needed, and the scope.
#pragma once

#include <functional>
#include <utility>

#include "paoding/graph.h"

namespace paoding {

// ---- elementwise ----

/// a + b. Numbers.
Value add(const Value& a, const Value& b);
/// a - b. Numbers.
Value sub(const Value& a, const Value& b);
/// a * b. Numbers.
Value mul(const Value& a, const Value& b);
/// a / b. Floats; error (dtype) otherwise.
Value div(const Value& a, const Value& b);
/// -a. Numbers.
Value neg(const Value& a);
/// |a|; the gradient at 0 is 0. Numbers.
Value abs(const Value& a);
/// The smaller of a and b, NaN if either is. On a tie the gradient goes to a.
Value minimum(const Value& a, const Value& b);
/// The larger of a and b, NaN if either is. On a tie the gradient goes to a.
Value maximum(const Value& a, const Value& b);
/// e^a. Floats.
Value exp(const Value& a);
/// Natural logarithm. Floats.
Value log(const Value& a);
/// Square root. Floats.
Value sqrt(const Value& a);
/// 1 / sqrt(a). Floats.
Value rsqrt(const Value& a);
/// Hyperbolic tangent. Floats.
Value tanh(const Value& a);
/// 1 / (1 + e^-a). Floats.
Value sigmoid(const Value& a);
/// log(1 + e^a), without overflow for large a; its gradient is sigmoid(a). Floats.
Value softplus(const Value& a);
/// a < b, a bool. Numbers.
Value less(const Value& a, const Value& b);
/// a <= b, a bool. Numbers.
Value less_equal(const Value& a, const Value& b);
/// a == b, a bool. Numbers.
Value equal(const Value& a, const Value& b);
/// condition ? a : b. `condition` is bool, a and b of one dtype after promotion.
Value select(const Value& condition, const Value& a, const Value& b);
/// Straight line from a to b: a + t * (b - a), exactly b at t = 1. Floats.
Value lerp(const Value& a, const Value& b, const Value& t);
/// The sum of all inputs. Numbers; at least one input.
Value add_n(std::span<const Value> inputs);
/// a converted to `dtype`; float to integer truncates, to f16 and bf16 rounds to nearest even.
Value cast(const Value& a, DType dtype);

Value operator+(const Value& a, const Value& b);
Value operator-(const Value& a, const Value& b);
Value operator*(const Value& a, const Value& b);
Value operator/(const Value& a, const Value& b);
Value operator-(const Value& a);
/// A number beside a value becomes a constant of the value's dtype.
Value operator+(const Value& a, double b);
Value operator-(const Value& a, double b);
Value operator*(const Value& a, double b);
Value operator/(const Value& a, double b);
Value operator+(double a, const Value& b);
Value operator-(double a, const Value& b);
Value operator*(double a, const Value& b);
Value operator/(double a, const Value& b);

// ---- constants, shape ----

/// `shape` filled with `value`.
Value full(Graph& graph, const Shape& shape, double value, DType dtype = DType::f32);
/// Same elements in the same order under another shape. One extent may be -1: it is computed.
/// Error (shape) when the element counts differ.
Value reshape(const Value& a, std::span<const std::int64_t> shape);
Value reshape(const Value& a, const Shape& shape);
/// a stretched to `shape`, to which it must broadcast.
Value expand(const Value& a, const Shape& shape);
/// Elements start <= index < end along every axis; result extents are end - start.
/// Error (shape) unless 0 <= start <= end <= extent.
Value slice(const Value& a, std::span<const std::int64_t> start, std::span<const std::int64_t> end);
/// The same along one axis only.
Value slice(const Value& a, int axis, std::int64_t start, std::int64_t end);
/// Zeros around a: `before` and `after` many along every axis.
Value pad(const Value& a, std::span<const std::int64_t> before, std::span<const std::int64_t> after);
/// The inputs one after the other along `axis` (negative counts from the end). All other extents equal.
Value concat(std::span<const Value> inputs, int axis);

// ---- reductions, products ----

/// Sum over `axes` (negative counts from the end; empty means all); with `keepdims` they stay as extent 1. Numbers.
Value sum(const Value& a, std::span<const std::int64_t> axes = {}, bool keepdims = false);
/// Product of matrices in the last two axes; the axes before them broadcast. a [.., M, K], b [.., K, N] give
/// [.., M, N]; `transpose_a` means a is [.., K, M], `transpose_b` that b is [.., N, K]. Floats of one dtype after
/// promotion, rank at least 2; f16 and bf16 accumulate in f32.
Value matmul(const Value& a, const Value& b, bool transpose_a = false, bool transpose_b = false);

// ---- recurrence ----

/// What one step of a scan gives: the carried values for the next step, and values to stack over time.
struct StepResult {
  Values carries;
  Values outputs;
};
/// step({h, c}, {h}).
inline StepResult step(Values carries, Values outputs) { return {std::move(carries), std::move(outputs)}; }

/// Runs `body` for t = 0 .. T-1 (T-1 .. 0 when `reverse`): it gets the carried values and element t of each sequence
/// ([T, ...] gives [...]), and may use any value of the enclosing graph. Returns the last carried values, and every
/// output stacked to [T, ...]. Error (shape) when sequences differ in T, there is none, or a carry changes its type.
StepResult scan(const Values& initial, const Values& sequences,
                const std::function<StepResult(const Values& carries, const Values& elements)>& body,
                bool reverse = false);

/// One LSTM step. x [B, I], h and c [B, H], w [I, 4H] for x, u [H, 4H] for h, b [4H]; gates in the order i, f, g, o:
/// i, f, o = sigmoid, g = tanh of their quarter of x w + h u + b; c' = f c + i g; h' = o tanh(c'). Returns {h', c'}.
/// (Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000; PyTorch's gate order.)
std::pair<Value, Value> lstm_cell(const Value& x, const Value& h, const Value& c, const Value& w, const Value& u,
                                  const Value& b);

}  // namespace paoding
