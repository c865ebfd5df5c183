// SPDX-License-Identifier: Apache-2.0
// Makes the graph of Replay from a trace: which threads take turns, which calls are nodes, which edges explain a start.
#pragma once

#include <map>
#include <unordered_map>

#include "findings/replay.h"
#include "findings/steps_builder.h"

namespace paoding::findings {

class ReplayBuilder {
 public:
  ReplayBuilder(const Steps& steps, Replay* replay)
      : steps_(steps), trace_(steps.trace()), made_(*replay), waits_(steps) {}
  void build();

 private:
  using Node = Replay::Node;
  using NodeId = Replay::NodeId;
  using Type = Replay::Type;
  struct Entry {
    std::int64_t key = 0;
    SpanId span = kNone;          // kNone: a beginning or end of a step
    std::uint32_t host = kNone;   // of nodes of a host
    std::uint32_t marks = kNone;  // twice the step, and one for its end
    std::uint32_t burst = kNone;  // of the host that steps: where in bursts_ it begins
    Type type = Type::host;
  };
  struct StreamEnd {
    static constexpr std::size_t kRecent = 16;
    std::vector<NodeId> recent;  // the last works of a stream, the newest last
  };

  void find_window();
  void find_hosts();
  void add_host(std::uint32_t host, const std::vector<TrackId>& tracks);
  void find_bursts(std::uint32_t host, const std::vector<TrackId>& tracks);
  void find_events(TrackId track);
  void add_streams();
  void merge_entries();
  void find_usual();
  void follow_burst(const Entry& entry, Node* node);
  void number_nodes();
  void link_work(NodeId node, SpanId span);
  void link_wait(NodeId node, SpanId span);
  void align_with(const std::vector<NodeId>& first, std::vector<NodeId>* own) const;
  void link_collectives();
  NodeId ended_before(NodeId node, SpanId span, std::int64_t* ns) const;
  bool is_in_window(SpanId i) const { return trace_.start(i) >= from_ && trace_.start(i) < to_; }
  bool has_process(TrackId track) const { return processes_[trace_.tracks()[track].process]; }
  bool fills_queue(SpanId launch) const;
  void measure();
  std::int64_t most_latency() const { return 4 * made_.latency_ + 20'000; }
  std::int64_t most_gap() const { return 4 * made_.gap_ + 20'000; }

  const Steps& steps_;
  const profile::Trace& trace_;
  Replay& made_;
  const WaitFinder waits_;
  std::int64_t from_ = 0, to_ = 0, until_ = 0;  // the steps; until when the work goes on that they launch
  std::vector<bool> processes_;                 // that are replayed
  std::vector<Entry> entries_;
  std::vector<std::size_t> runs_;  // of entries that are in order: where each begins
  // Another thread of the process begins to work when the one that steps has got somewhere.
  struct Burst {
    std::int64_t start = 0, end = 0;
    std::uint32_t host = kNone;
    NodeId node = kNone;  // of the host that steps
    bool is_begun = false;
  };
  std::vector<Burst> bursts_;
  std::uint32_t stepping_host_ = 0;
  std::vector<std::size_t> next_burst_;        // of each host
  std::vector<NodeId> launch_node_;            // of each span
  std::vector<StreamEnd> streams_;             // of each track
  std::unordered_map<SpanId, SpanId> events_;  // of a launch: the work in front of the event that its stream waits for
  std::vector<std::int64_t> launch_times_, work_ends_;  // in order
  std::vector<NodeId> recent_;                          // works of any stream, by the order of nodes
};

}  // namespace paoding::findings
