// SPDX-License-Identifier: Apache-2.0
// What runs, how often, and what stays: recurrence, and values kept between runs.
#pragma once

#include <functional>
#include <utility>

#include "paoding/graph.h"

namespace paoding {

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

/// In the body of a scan: the number of the step, i64, which is the position of its elements in the sequences (a
/// reverse scan begins with T - 1). `body` is the graph of a carry or element.
/// Error (argument) elsewhere.
Value step_index(Graph& body);

/// `parameter` takes `value` at the end of every run; reads within the run see the value at its start. One assignment
/// per parameter, of exactly its type. See Graph::assign for the errors.
void assign(const Value& parameter, const Value& value);

}  // namespace paoding
