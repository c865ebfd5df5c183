// SPDX-License-Identifier: Apache-2.0
// Control flow and state: recurrence, branches, loops, and values kept between runs.
#pragma once

#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "paoding/graph.h"

namespace paoding {

/// The results of one step of a scan: the carried values for the next step, and values to stack over time.
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

/// Runs `body` for steps 0 .. count - 1 (count - 1 .. 0 when `reverse`): it gets the carried values and the number of
/// the step, an i64. The rest as above. Error (argument) when there is no initial value, (shape) when count is
/// negative.
StepResult scan(const Values& initial, std::int64_t count,
                const std::function<StepResult(const Values& carries, const Value& number)>& body,
                bool reverse = false);
/// The same where the number does not matter.
StepResult scan(const Values& initial, std::int64_t count,
                const std::function<StepResult(const Values& carries)>& body);

/// In the body of a scan: the number of the step, i64, which is the position of its elements in the sequences (a
/// reverse scan begins with T - 1). `body` is the graph of a carry or element.
/// Error (argument) elsewhere.
Value step_index(Graph& body);

// ---- branches ----
// One of several functions runs, chosen when the program runs. Each may use any value of the enclosing graphs. A
// predicate is a bool, an index an i32 or i64, of shape [] or [1]. A GPU decides by itself, without the host.

/// then() where `predicate` is true, else otherwise(); both must give values of the same types. Error (shape, dtype)
/// when they do not, or when the predicate is no single bool.
Values cond(const Value& predicate, const std::function<Values()>& then, const std::function<Values()>& otherwise);
Value cond(const Value& predicate, const std::function<Value()>& then, const std::function<Value()>& otherwise);

/// branches[index](); the last one when the index is not in 0 .. n-1. Errors as cond.
Values switch_case(const Value& index, const std::vector<std::function<Values()>>& branches);

/// A predicate and the body that runs when it is the first that is true.
struct Case {
  Value predicate;
  std::function<Values()> branch;
};
/// The branch of the first case whose predicate is true; otherwise() when none is, or the last case's branch when there
/// is no `otherwise`. Errors as cond.
Values case_of(const std::vector<Case>& cases, const std::function<Values()>& otherwise = {});

/// The same where the branches differ in shape, dtype or number of results.
Variant switch_variant(const Value& index, const std::vector<std::function<Values()>>& branches);
Variant case_variant(const std::vector<Case>& cases, const std::function<Values()>& otherwise = {});

/// f(the alternative that exists), which must give the same types for each: f is called once per alternative while the
/// graph is built. Errors as switch_case.
Values visit(const Variant& variant, const std::function<Values(const Values&)>& f);
Variant visit_variant(const Variant& variant, const std::function<Values(const Values&)>& f);

// ---- loops ----

/// Repeats body(values) as long as condition(values), a bool of shape [] or [1], is true, beginning with `initial`;
/// returns the last values. Their types stay. Not differentiable: see the other form. Error (shape, dtype) when a value
/// changes its type, (unsupported) when a gradient is asked for. A loop whose condition stays true ends
/// when it is called off: see CancelScope.
Values while_loop(const Values& initial, const std::function<Value(const Values&)>& condition,
                  const std::function<Values(const Values&)>& body);

struct LoopResult {
  Values values;
  Value iterations;  // i64[]: how often the body ran
};
/// The same, at most `max_iterations` times, and differentiable: a scan over branches, whose gradient keeps the values
/// of each turn that the body's gradient needs. Turns that are not taken cost the condition and a copy of the values.
LoopResult while_loop(const Values& initial, const std::function<Value(const Values&)>& condition,
                      const std::function<Values(const Values&)>& body, std::int64_t max_iterations);

// ---- looking, keeping, recomputing ----

/// `value` itself; every run hands it to CompileOptions::on_print (or Program::printed()) with `message`, also when
/// nobody uses the result, and before the run writes a parameter. Not fused away. On a GPU every value is copied where
/// the run comes by, and all are handed over at its end, in their order; a program that prints waits for each of its
/// runs.
Value print(const Value& value, std::string_view message = "");

/// f(inputs), where the backward pass keeps only the inputs (and other values that f uses): the values inside f are
/// computed again there. Less memory for one more run of f.
Values checkpoint(const std::function<Values(const Values&)>& f, const Values& inputs);

/// `parameter` takes `value` at the end of every run; reads within the run see the value at its start. One assignment
/// per parameter, of exactly its type. See Graph::assign for the errors.
void assign(const Value& parameter, const Value& value);

}  // namespace paoding
