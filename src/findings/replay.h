// SPDX-License-Identifier: Apache-2.0
// The steps of a trace as a graph that can be run again. Nodes: calls of the host that launch or wait, beginnings and
// ends of steps, and work of GPUs. Edges: the order of a thread with the time it measured in between; launch to work;
// the order of a stream, in which dependent launches may overlap; work on another stream that ended just before, where
// nothing else explains a start; a wait's end behind the work it waited for; collectives behind the last of their
// ranks. Delays of launches, streams and waits are kept as measured up to the usual ones of this trace, and cut to that
// where they are longer: stalls that no edge explains are not reproduced, so that the error of the unchanged replay
// tells how far the graph can be trusted.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "findings/candidate.h"
#include "findings/steps.h"

namespace paoding::findings {

/// The average of whole ns; 0 of none.
double mean(const std::vector<std::int64_t>& ns);

class Replay {
 public:
  explicit Replay(const Steps& steps);

  /// The steps of one run of the graph.
  struct Outcome {
    std::int64_t all_ns = 0;               // until the work of each has ended, but not beyond the start of the next
    std::vector<std::int64_t> steps = {};  // lengths_of() them
    // In each how long the thread that steps, and those that take turns with it, are at work, without waiting; and how
    // long any GPU is.
    std::vector<std::int64_t> host = {}, gpu = {};
    std::int64_t step_ns() const { return steps.empty() ? 0 : all_ns / static_cast<std::int64_t>(steps.size()); }
    /// The side that is at work for nearly all of the average step; of the median one.
    Side limit() const;
    Side limit_of_median() const;
  };

  /// A step on average, as it was measured: until its work of GPUs has ended, but not beyond the start of the next.
  std::int64_t measured_step_ns() const;
  /// The same with changes; of several lists all. Several threads may ask at once.
  Outcome outcome(std::initializer_list<std::span<const Edit>> edits = {}) const;
  std::int64_t step_ns(std::initializer_list<std::span<const Edit>> edits = {}) const {
    return outcome(edits).step_ns();
  }
  std::int64_t step_ns(std::span<const Edit> edits) const { return step_ns({edits}); }
  /// |replayed - measured| / measured, of the unchanged steps.
  double error() const { return error_; }
  std::size_t size() const { return nodes_.size(); }
  /// Between a launch and the start of its work on an idle GPU, and between works of a stream, as usual.
  std::int64_t usual_latency() const { return latency_; }
  std::int64_t usual_gap() const { return gap_; }

 private:
  friend class ReplayBuilder;
  using NodeId = std::uint32_t;
  enum class Type : std::uint8_t { host, resume, work };
  // In the order of their measured times, so that edges lead forward.
  struct Node {
    std::int64_t first_ns = 0;             // host, resume: behind `first`; work: behind the launch
    std::int64_t second_ns = 0;            // work: behind the end of `second`
    NodeId first = kNone;                  // host, resume: the node of the host before it; work: of its launch
    NodeId second = kNone;                 // work: of the stream before it
    std::uint32_t more = 0, more_end = 0;  // into more_: further work that it follows
    std::uint32_t step = kNone;            // work: that launched it
    std::uint32_t group = kNone;           // work: of collectives
    Type type = Type::host;
    bool is_behind_unseen =
        false;  // work: behind work of before the window that nobody recorded: no earlier than it was
  };
  struct More {
    NodeId work = kNone;
    std::int64_t ns = 0;  // behind its end
  };
  struct Group {
    NodeId last = kNone;  // the member that is met last
    std::int64_t ns = 0;  // from the last start to the end
    std::vector<NodeId> members;
  };
  // One thread, or several that take turns.
  struct Host {
    std::vector<NodeId> nodes;
    std::vector<std::int64_t> times;
  };
  struct Cut {
    std::uint32_t host = 0;
    std::int64_t start = 0, end = 0;
    double kept = 0;  // of the time
  };
  struct Run;
  void apply(std::span<const Edit> edits, Run* run) const;
  void apply_cuts(Run* run) const;
  void add_cut(TrackId track, std::int64_t start, std::int64_t end, std::int64_t ns, Run* run) const;
  void start_sooner(SpanId call, std::int64_t ns, Run* run) const;
  void move_host(TrackId track, std::int64_t start, std::int64_t end, Run* run) const;
  Outcome simulate(Run* run) const;

  const Steps& steps_;
  std::vector<Node> nodes_;
  std::vector<std::int64_t> durations_;  // of each node; 0 of those of the host
  std::vector<std::int64_t> fixed_;      // the moment of nodes that nothing is known to be in front of
  std::vector<More> more_;
  std::vector<Group> groups_;
  std::vector<Host> hosts_;
  std::vector<std::uint32_t> host_of_;     // of each track; kNone
  std::vector<NodeId> node_of_;            // of each span: its work, or the end of its wait
  std::vector<NodeId> begin_of_, end_of_;  // of each step
  std::int64_t origin_ = 0, latency_ = 0, gap_ = 0, wake_ = 0, measured_ns_ = 0;
  double error_ = 0;
};

}  // namespace paoding::findings
