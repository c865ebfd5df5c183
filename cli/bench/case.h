// SPDX-License-Identifier: Apache-2.0
// Case: one benchmark. It builds and feeds the work, and holds its least memory traffic and operations, its target
// time and the reference that results are compared with.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cli/bench/timing.h"
#include "paoding/graph.h"
#include "paoding/program.h"

namespace paoding::cli::bench {

/// The least traffic and arithmetic of a piece of work: bytes, with each input read once and each result written
/// once, and operations of its products, two per multiplication.
struct Need {
  double read = 0, written = 0;
  double updated = 0;   // bytes that are in both: read, and written back in their place
  double flops = 0;     // in the case's dtype
  double floor_us = 0;  // on one H200, counted by hand where steps wait for each other; 0: bytes and operations decide

  double bytes() const { return read + written; }
  double footprint() const { return read + written - updated; }
};

/// Target time of a row, in us on one H200; 0 where there is no target.
struct Goal {
  double cold = 0, hot = 0;  // of the GPU's time
  double wall = 0;           // time that a caller waits
};

/// Target of a row on a CPU.
struct CpuGoal {
  double faster_2 = 0, faster_16 = 0;  // times faster than the best other, with 2 and 16 threads
  double copies = 0;                   // times a pass over the same bytes
};

using Feeds = std::map<std::string, Tensor>;  // by name, of inputs and parameters
using Expected = std::map<std::string, std::vector<double>>;

/// Settings that a case gets whose work is not a program.
struct Setting {
  CompileOptions compile;
  Effort effort;
};

struct Case {
  std::string name;   // "lerp_grad/1"
  char section = 0;   // of the workloads
  std::string what;   // "[16,102400] f32, w [1]"
  std::string kind;   // name of the work in benchmarks/peers: "lerp_grad"
  std::string sizes;  // JSON that they do the same work from
  DType dtype = DType::f32;
  bool tf32 = false;
  DType precision = DType::f32;  // bf16 and f16: mixed, of a graph of f32
  Need need;
  Goal goal;
  CpuGoal cpu_goal;
  bool on_cpu = true, on_gpu = true;  // which devices its row is about
  std::string waits_for;              // the missing part of a case that cannot run yet; the fields below are empty then

  /// Builds the work into a graph. All names end in `suffix`, so that the work may stand beside itself. `dtype` is the
  /// case's, or f64 when the reference is built.
  std::function<void(Graph&, DType dtype, const std::string& suffix)> build;
  bool is_served = false;  // somebody waits for every call: p99 is shown
  bool rotates = true;     // may stand beside itself in one graph
  /// The value of an input or parameter, by its name without a suffix; without it, or where it gives an empty tensor,
  /// inputs are random and parameters as the graph says.
  std::function<Tensor(const std::string& name, const Type& type)> feed;
  /// The results in float64 by a formula of its own; without it the graph in f64 with every pass off, on the CPU.
  std::function<Expected(const Feeds&)> expected;
  /// The same work of another size, where comparing the whole takes too long; `checked_as` says which.
  std::function<void(Graph&, DType dtype, const std::string& suffix)> build_small;
  std::string checked_as;
  double tolerance = 0;  // largest error over the largest expected value; 0: that of its dtype
  /// Results jump where two elements are nearly equal, as a max pool takes one or the other: rounded products may move
  /// a result a few times as far as rounded feeds move it in float64.
  bool has_choices = false;

  /// Work that is no program by itself; used instead of all from `build` on.
  std::function<Samples(const Setting&)> measure;
};
using Cases = std::vector<Case>;

// One function a section, each in a file of its own.
Cases seq2seq_cases();
Cases recurrent_cases();
Cases streaming_cases();
Cases lerp_cases();
Cases sum_cases();
Cases conv_net_cases();
Cases kernel_cases();
Cases embedding_cases();
Cases profiler_cases();
Cases recorder_cases();
Cases control_cases();
Cases encoder_decoder_cases();
Cases gpt_cases();
Cases transformer_cases();
Cases attention_cases();
Cases image_net_cases();

/// All of them, in the order of the workloads. No name comes twice.
Cases all_cases();

/// A case of f32 in mixed precision; its name ends in "mixed_bf16" or "mixed_f16".
Case in_mixed_precision(Case work, DType precision);

/// "f32", or "tf32" where products may round to it, or "mixed_bf16".
std::string type_text(const Case& work);

}  // namespace paoding::cli::bench
