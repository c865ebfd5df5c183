// SPDX-License-Identifier: Apache-2.0
// Where a NaN or an infinity came from: a run that gave one is run again step by step, and the values that its result
// was made of are followed back to the first non-finite one.
//
//   if (!std::isfinite(loss)) {
//     const auto found = find_nonfinite(graph, parameters, feeds, options, {.rewind_random = 1});
//     if (found) log(to_text(*found));
//   }
//
// The search starts from the first of these that exists: non-finite fetches, in their order; parameters that the run
// would leave non-finite though they were finite; the gradients, where the update was skipped for them
// (MinimizeOptions::skip_nonfinite). Infinities that do no harm (a mask of -inf in front of a softmax) are not on the
// way from there, and a value that only has the infinities of such a constant is named only where nothing else is.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "paoding/graph.h"
#include "paoding/program.h"
#include "paoding/tensor.h"

namespace paoding {

/// Something that a step read.
struct ValueRead {
  std::string name;  // "input 'x'", "parameter 'w'", or the op that made it: "lstm_cell/matmul"
  Type type;
  std::int64_t nans = 0, infinities = 0;
  double min = 0, max = 0;   // of the finite elements; NaN where there are none
  std::optional<double> at;  // the element that goes with the one that is non-finite, where it is one
};

/// A non-finite value.
struct NonfiniteValue {
  enum class Kind { input, parameter, step };  // fed, in the store, or made by a step of the run
  Kind kind = Kind::step;
  std::string name;                       // of the input or parameter; of a step its op: "log", "lstm_cell/matmul"
  std::string scope;                      // of a step
  std::vector<std::string> members = {};  // the ops of a fused group, in order
  std::int64_t time_step = -1;            // in the innermost loop around the step; -1 outside of loops
  std::int64_t time_steps = 0;            // that the loop has; 0 where it has no fixed length
  int result = 0;                         // which of the step's, 0 the first
  int results = 1;                        // that the step has
  Type type;
  std::int64_t nans = 0, infinities = 0;  // elements
  std::vector<std::int64_t> index;        // of the first of them
  double value = 0;                       // there
  std::vector<ValueRead> reads = {};      // of a step
};

struct NonfiniteReport {
  std::string followed;  // the value that was followed back: "fetch 'loss'"
  NonfiniteValue first;  // with the kernels of the run; a fed or stored one, else a step that read only finite values
  /// Where an infinity `first` became the NaN that was followed.
  std::optional<NonfiniteValue> became_nan;
  /// `first` is several ops in one kernel: the finding of a run in which each has a kernel of its own. Absent where
  /// that run gave finite results.
  std::optional<NonfiniteValue> unfused;
  bool was_unfused = false;  // whether there was such a run
  /// Inputs and parameters besides `first` that are non-finite to begin with.
  std::vector<NonfiniteValue> others;
};

struct FindNonfiniteOptions {
  /// How many runs the store has counted since the values that it holds were those of the run in question: its random
  /// numbers are drawn again. 1 right after a run whose update was skipped, 0 where all values were put back.
  std::int64_t rewind_random = 0;
};

/// Runs `graph` once more on the values that `parameters` holds now, step by step and on the same device, on a copy of
/// them: they stay unchanged. `compile`: the options that the run was compiled with; execution, repeats and callbacks
/// do not matter. Returns nothing when every fetch is finite, and every parameter after the run. It takes two
/// compilations, the memory of another set of parameters, and some times as long as a run.
/// CompileOptions::after_pass and on_step are called as ever, so that one that throws ends it; on_print is not.
/// Error (argument) when an input is not fed or there is none of a name, or rewind_random is negative, (shape, dtype)
/// when a feed's type is another, and the errors of compiling.
std::optional<NonfiniteReport> find_nonfinite(const Graph& graph, const Parameters& parameters,
                                              const std::map<std::string, Tensor>& feeds,
                                              const CompileOptions& compile = {},
                                              const FindNonfiniteOptions& options = {});

/// Some lines for a person: "the first non-finite value: log in decoder/attention, time step 3 of 10, element
/// [2, 17] = -inf ...". Time steps count from 0.
std::string to_text(const NonfiniteReport& report);

}  // namespace paoding
