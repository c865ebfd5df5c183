// SPDX-License-Identifier: Apache-2.0
// Findings: where the steps of a finished trace lose time, how much of it a change would save, and the change to make.
// A gain is the difference between two replays of the trace, never a sum of local estimates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <future>
#include <string>
#include <string_view>
#include <vector>

#include "profile/budget.h"
#include "profile/trace.h"

namespace paoding::findings {

using profile::kNone;
using profile::SpanId;
using profile::TrackId;

/// The kinds of findings. Their words in JSON are those of to_string().
enum class Kind : std::uint8_t {
  late_data = 1,        // the step waits for its input
  late_launches,        // a GPU waits for the host to launch
  sync_in_step,         // the host waits for a GPU in the middle of a step, and then launches late
  pageable_copies,      // copies from or to memory that the driver has to stage
  exposed_copies,       // copies while no kernel is under way
  pointwise_chain,      // small elementwise kernels in a row
  layout_kernels,       // kernels that only transpose, cast or copy
  gradient_fills,       // fills and sums of gradients beside products
  small_grid,           // too few CTAs for the GPU
  exact_f32_product,    // products in f32 without tensor cores
  odd_dimensions,       // extents that tensor cores do not like
  far_from_bandwidth,   // a kernel that only moves bytes, slowly
  slow_product,         // a product that takes longer than its size explains
  exposed_collectives,  // collectives while no other kernel is under way
  straggler_rank,       // a rank that the others wait for
  allocation_in_step,   // memory of a GPU is allocated or freed
  late_compile,         // something is compiled or loaded behind the first steps
  rare_slow_steps,      // few steps that take far longer than the others
  sinking_clocks,       // the same kernels get slower
  rebuilt_graph,        // a CUDA graph is made anew in every step
};
inline constexpr int kKinds = static_cast<int>(Kind::rebuilt_graph);
/// "late_data", ...
std::string_view to_string(Kind kind);
/// The same for people: "the step waits for its input".
std::string_view title_of(Kind kind);

/// The error of replays, as factors of the replayed gains: at least four of five gains that were measured beside the
/// seeded faults of tests/findings lie between them (benchmarks/results/findings.json).
inline constexpr double kGainBelow = 0.75, kGainAbove = 1.15;

/// The side that the steps wait for: it is at work for nearly all of their time.
enum class Side : std::uint8_t { neither, host, gpu };
/// "", "host", "GPU"
std::string_view to_string(Side side);

/// A span that a finding is about.
struct Example {
  SpanId span = kNone;
  std::size_t kind = 0;  // of Examples::kinds
  std::int64_t ns = 0;   // lost at it
  std::size_t step = 0;  // counted from 1; 0: in none
};

/// All spans of one name that a finding is about.
struct ExampleKind {
  std::string name;  // short
  std::size_t count = 0;
  std::int64_t ns = 0;  // lost at all of them
  std::string is = {};  // that time, in words: "idle time of the GPU after it"
};

struct Examples {
  std::vector<ExampleKind> kinds = {};
  std::vector<Example> spans = {};  // the worst first, then one of every kind
};

/// The steps that a change makes shorter, when it is made alone.
struct Effect {
  std::vector<std::size_t> in_steps = {};    // their numbers, counted from 1
  std::int64_t before_ns = 0, after_ns = 0;  // one of those, on average
  std::int64_t most_ns = 0;                  // that a step can get shorter at most: the work of each side stays
  Side limit = Side::neither;                // of all steps, with the change
  std::string bound = {};                    // a sentence, where that limit keeps the gain down or is a new one
};

/// A finding that is the same event as another one, since both are about the same few steps.
struct Part {
  Kind kind = Kind::late_data;
  std::string title = {}, text = {};
  std::int64_t replayed_high_ns = 0;  // within that of the other
};

struct Finding {
  Kind kind = Kind::late_data;
  int number = 0;                     // from 1 on in the order of printing, the largest gain first
  std::string title = {}, text = {};  // a line; sentences with the numbers that are the evidence
  std::int64_t replayed_low_ns = 0,
               replayed_high_ns = 0;               // saved in a step by replays of a cautious change and a whole one
  std::int64_t gain_low_ns = 0, gain_high_ns = 0;  // the same with the error of replays, kGainBelow and kGainAbove
  double share = 0, share_low = 0,
         share_high = 0;        // of Findings::base_ns: replayed_high_ns, which is the prediction, and the gain
  std::int64_t claimed_ns = 0;  // that the change would save too if it were made alone: it is another finding's
  std::string op = {}, scope = {}, line = {};  // the user's; empty where the trace does not say
  std::string operands = {};                   // of the call at which most is lost; empty where the trace does not say
  Examples evidence = {};
  Effect effect = {};
  std::string change = {};       // in the words of the framework that was recorded
  std::string verify = {};       // the switch that `paoding verify` flips; "": none
  std::vector<Part> parts = {};  // others that show the same event; their gain and evidence are this one's too
};

/// A rule that could not look, and why.
struct Silence {
  Kind kind = Kind::late_data;
  std::string why = {};
  bool operator==(const Silence&) const = default;
};

struct Findings {
  std::vector<Finding> found = {};
  std::string abstained = {};  // why nothing is said at all; empty otherwise
  std::vector<Silence> silent = {};
  std::int64_t step_ns = 0;       // the median step, until its work on GPUs has ended
  std::int64_t host_ns = 0;       // the median step on the host alone
  std::int64_t base_ns = 0;       // the average step, until its work on GPUs has ended: gains and shares are of it
  std::int64_t host_mean_ns = 0;  // the average step on the host alone
  int steps = 0;                  // that were looked at
  int first_step = 1;             // the number of the first of them, counted from 1
  int warm_up_steps = 0;          // in front of those
  int recorded_steps = 0;         // with those that are left out
  std::vector<std::int64_t> step_lengths = {};  // of those that were looked at
  bool have_gpus = false;                       // the steps, work on them
  Side limit = Side::neither;                   // of the unchanged steps, on average
  Side limit_of_median = Side::neither;         // of the median of them
  std::string no_lines = {};                    // how to record lines of the user's code, where no finding has one
  std::string no_shapes = {};                   // the same of shapes
  std::string stepped_by = {};                  // how steps were told apart: "steps as they are marked"
  double replay_error = 0;                      // of the unchanged trace's replay, as a share of the measured time
};

struct FindOptions {
  std::size_t least_steps = 5;      // that a median is made of
  double least_share = 0.01;        // of the average step that a finding has to gain at most
  double most_replay_error = 0.02;  // beyond which nothing is said
  double most_recording = 0.02;     // the share of the steps that recording may take
  std::size_t most = 20;            // findings
  bool two_threads = true;
  profile::SharedThreadTimes thread_times = {};  // of the trace, where they are known already
  std::shared_future<void> other_work = {};      // the second of the two threads begins when it is done
};

/// The trace is finished.
Findings find(const profile::Trace& trace, const FindOptions& options = {});

}  // namespace paoding::findings
