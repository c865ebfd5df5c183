// SPDX-License-Identifier: Apache-2.0
// The recurrences over time share these: their extents, which steps count, where states lie.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ops/recurrence/cell.h"
#include "paoding/graph.h"
#include "paoding/op.h"

namespace paoding {

/// One recurrence: xw [T, B, gates * H], the part of all steps that does not depend on the state, or the saved values
/// of every step.
struct RecurrenceShape {
  std::int64_t steps, rows, hidden;
  DType dtype;  // of everything but cell states
  DType wide;   // that it is computed in

  /// Error (shape, dtype), with the op's name: `value` is no [T, B, gates * H] of floats, u no [H, u_gates * H].
  RecurrenceShape(std::string_view op, std::string_view name, const Value& value, int gates, const Value& u,
                  int u_gates);

  /// Error (shape, dtype) where `value` is not of the type.
  void check(std::string_view name, const Value& value, const Shape& shape, DType needed) const;
  /// Error (shape, dtype) where `lengths`, unless absent, are not i32[B].
  void check_lengths(const Value& lengths) const;
  /// Error (shape, dtype) where `bias`, unless absent, has not so many elements, of dtype or wide.
  void check_bias(const Value& bias, std::int64_t size) const;
  /// [T, B, 1]: whether the step counts for the row. Invalid where all do.
  Value counted(const Value& lengths) const;

  std::string op;
};

/// The last inputs of a recurrence, each of which may be absent: lengths, then, where the attribute `bias` says so, the
/// bias that is added to every step's xw.
struct OptionalInputs {
  Value lengths, bias;
  /// Reads them from input `first` on. Error (argument) when the bias is missing or there is one more.
  OptionalInputs(std::string_view op, std::span<const Value> inputs, const Attrs& attrs, std::size_t first);
};
/// xw of a step, wide, with the bias where there is one.
Value with_bias(const Value& xw, const Value& bias, DType wide);

/// Columns part * hidden .. (part + 1) * hidden of the last axis.
Value gate_of(const Value& gates, int part, std::int64_t hidden);
/// `a` where `counts`, which may be absent, says so, else `otherwise`.
Value where_counted(const Value& counts, const Value& a, const Value& otherwise);
/// The same with 0.
Value zero_unless_counted(const Value& counts, const Value& a);
/// [T + 1, ..]: `start` in front of the states of all steps, or after them where steps go backwards.
Value with_start(const Value& start, const Value& made, bool is_reverse);
/// The T entries of such a value before the steps, or after them.
Value before_steps(const Value& states, bool is_reverse);
Value behind_steps(const Value& states, bool is_reverse);
/// The entry of the start.
Value start_of(const Value& states, bool is_reverse);
/// The h that each step began with, where the step counts: of `states` those before the steps; after the end of a row,
/// where the reverse direction begins and states are 0, `start`.
Value states_before(const Value& states, const Value& start, const Value& lengths, bool is_reverse);
/// The gradient for u of products h u of all steps: `before` [T, B, H] and the products' gradients [T, B, N].
Value gradient_of_weights(const Value& before, const Value& gradients);
/// A gradient's results and, where the attribute `sums` says so, the sum of `summed` [T, B, N] over steps and rows.
Values with_sums(Values results, const Value& summed, const Attrs& attrs, DType wide);
/// 0 of the type, seen everywhere.
Value zeros_of(Graph& graph, DType dtype, const Shape& shape);
/// The derivatives of sigmoid and tanh where they give y.
Value slope_of_sigmoid(const Value& y);
Value slope_of_tanh(const Value& y);

/// The gradient of a recurrence: an op over time, and a product for the weights after it.
Values gradient_over_time(const CellDescriptor& cell, const GradCall& call);
/// A call of a recurrence without a bias; lengths may be absent.
Values call_over_time(const CellDescriptor& cell, Values inputs, const Value& lengths, bool reverse, bool relu = false);

/// The last inputs of a gradient op, each of which may be absent: gradients, of which attributes say so, then lengths.
class GivenGradients {
 public:
  GivenGradients(const RecurrenceShape& shape, std::span<const Value> inputs, const Attrs& attrs, std::size_t first)
      : shape_(shape), inputs_(inputs), attrs_(attrs), next_(first) {}
  /// The gradient for the result that the attribute names; invalid where it is absent. Error (argument) when it is
  /// not there although the attribute says so, (shape, dtype) when it is another.
  Value take(const char* attr, const Shape& shape, DType dtype);
  /// Error (argument) when something follows.
  Value take_lengths();

 private:
  const RecurrenceShape& shape_;
  std::span<const Value> inputs_;
  const Attrs& attrs_;
  std::size_t next_;
};

}  // namespace paoding
