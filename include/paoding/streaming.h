// SPDX-License-Identifier: Apache-2.0
// Serving recurrent models: many independent sequences, of which some get a step or a chunk of steps in a call. Their
// states stay on the device between calls; sequences join and leave without a word to the others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "paoding/ops/control.h"
#include "paoding/program.h"
#include "paoding/programs.h"

namespace paoding {

struct StreamingOptions {
  std::int64_t capacity = 1;      // sequences that there may be at a time
  Type input;                     // of one step of one sequence: {f32, {512}}
  std::vector<Type> states = {};  // of one sequence: for each layer {f32, {hidden}}, of an LSTM twice
  CompileOptions compile = {};    // device, precision, stream ..
  ParametersOptions parameters = {};
};

/// Like a Program, it is used by one thread at a time.
class Streaming {
 public:
  /// The model for T steps of all sequences: xs [T, capacity, ..], lengths i32[capacity] (how many of the steps count
  /// for a sequence, 0 for one that has none in this call), states [capacity, ..]. Gives the states after that as
  /// carries, those of sequences without a step unchanged, and results [T, capacity, ..] as outputs. The recurrences do
  /// so when they are given lengths and initial states:
  ///
  ///   [](Graph& g, const Value& xs, const Value& lengths, const Values& states) {
  ///     const nn::Lstm lstm(g, "lstm", 512, 512);
  ///     const auto made = lstm(xs, {.lengths = lengths, .initial_h = {states[0]}, .initial_c = {states[1]}});
  ///     return step({made.last_h[0], made.last_c[0]}, {made.outputs});
  ///   }
  using Build = std::function<StepResult(Graph& graph, const Value& xs, const Value& lengths, const Values& states)>;

  /// Errors: as Program's; (argument) no capacity, (shape, dtype) the model gives states of other types.
  Streaming(StreamingOptions options, Build build);
  Streaming(const Streaming&) = delete;
  Streaming& operator=(const Streaming&) = delete;

  /// The model's weights, beside the states.
  Parameters& parameters() { return *parameters_; }
  /// Compiles for calls of so many steps; else the first of them does.
  void prepare(std::int64_t steps) { program_for(steps); }

  /// A sequence that begins: its number, below the capacity, and the smallest that is free. Its states are 0. Error
  /// (argument) when there are as many as there may be.
  int join();
  /// Its number is free. Error (argument) when there is no such sequence.
  void leave(int sequence);
  std::int64_t sequences() const;

  /// Takes the first lengths[s] of the steps xs[.., s] further for every sequence s. On a GPU it returns when the run
  /// is under way. Errors: (shape, dtype) xs is not [T, capacity, ..] of the input's type with T > 0; (argument) a
  /// length is not in 0 .. T, or not 0 for a number that no sequence has; as Program::run.
  void run(const Tensor& xs, std::span<const std::int32_t> lengths);
  /// Waits for the last run and gives the model's output, [T, capacity, ..]. Steps that do not count hold whatever the
  /// model gives for them. Error (argument) when nothing has run, or for an index out of range.
  Tensor output(int index);
  /// The same without waiting.
  Fetched output_later(int index);

 private:
  Program& program_for(std::int64_t steps);
  std::unique_ptr<Graph> graph_for(std::int64_t steps) const;
  Program& last() const;
  void check(const Tensor& xs, std::span<const std::int32_t> lengths) const;

  const StreamingOptions options_;
  const Build build_;
  std::unique_ptr<Parameters> parameters_;
  std::unique_ptr<Programs> programs_;  // by steps
  std::vector<bool> is_there_, is_new_;
  Program* last_ = nullptr;
};

}  // namespace paoding
