// SPDX-License-Identifier: Apache-2.0
// The rows of a report as they grow: spans become calls (with the GPU work they caused), calls become rows of a tree.
// Calls are opened in row_tree.cpp, for the spans of row_spans.cpp, and counted in row_sections.cpp.
#pragma once

#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "profile/intervals.h"
#include "profile/report.h"

namespace paoding::profile {

/// Walks a trace once and grows the tree of rows, for all threads together or for each.
class RowTree {
 public:
  RowTree(const Trace& trace, const ReportOptions& options, bool per_thread);
  /// Whether a tree for each thread can give the rows of all together. A call of a scope may be of several threads, and
  /// shares of replays are rounded for all together: such rows need a tree of their own.
  static bool can_merge(const Trace& trace, const ReportOptions& options) {
    return options.nesting == Nesting::op && trace.parts().empty();
  }
  std::vector<Section> sections();
  /// Of a tree for each thread, where that can: the rows of all together, none where one thread has all of them and
  /// they were not asked for. Called behind sections().
  std::vector<Section> merged();

  /// Within how many others a call has a row of its own; those further in are part of them.
  static constexpr std::uint32_t kMostDepth = 64;
  /// How many were further in.
  std::uint64_t too_deep = 0;

  /// Intervals that nothing else needs, in any order; some overlap.
  struct ForSummaries {
    std::vector<Interval> total, computation, recording, compiling, unseen;
    std::vector<Interval> copies[2];  // sync, async
    std::uint64_t copy_calls[2] = {0, 0};
  };
  ForSummaries for_summaries;

 private:
  using LabelId = std::uint32_t;
  using NodeId = std::uint32_t;
  using CallId = std::uint32_t;
  static constexpr std::int64_t kNoSelf = std::numeric_limits<std::int64_t>::min();

  struct Node {
    std::string name;
    LabelId label = kNone;
    NodeId parent = kNone;
    bool has_compute = false, has_infer = false;
    Row row;
    double shared = 0;  // ns that came from shared groups
    std::vector<Interval> under_way;
    std::vector<NodeId> children;
  };
  // Stretches of the host and of GPUs come in the order of the host's spans: each kind nearly in the order of its
  // times.
  struct Stretches {
    std::vector<Interval> host, gpu;
    void add(Interval more, bool is_gpu) { append(is_gpu ? gpu : host, more); }
    std::vector<Interval> take();  // all of them
  };
  struct SectionRoot {
    NodeId node;
    std::string thread;
    bool is_gpu;
    bool is_hidden = false;  // has rows in that of all threads only
    Stretches total, covered;
  };
  struct Target {
    NodeId node;
    double share;
  };
  // Where the rows around a call belong, with Nesting::scope.
  struct Scope {
    std::string_view name;  // in the trace
    bool is_backward = false;
  };
  struct Call {
    CallId parent;
    std::uint32_t depth;  // within so many others
    std::uint32_t section;
    std::uint32_t targets_begin, targets_end;
    std::uint32_t scope;  // of scopes_
    SpanId span;          // that opened it
    bool in_op;
    bool has_lists;      // work of GPUs is part of it
    bool stays = false;  // to the end, when it is counted: others are when their span is over
    bool has_pieces = false;
    std::uint32_t work = kNone;    // of works_: none
    std::uint32_t pieces = kNone;  // of lists_: none yet
    std::int64_t ns = 0, end = 0;  // of one without lists: its pieces so far, the end of the last
  };
  // Pieces of a call of which work of GPUs is a part.
  struct Lists {
    Interval host{0, 0};  // the first on the call's own thread, with those that go on where it ends
    bool has_host = false;
    std::vector<Interval> all, gpu;  // all but that
  };
  // What some calls have beside their time: most have none.
  struct Work {
    double bytes = 0, flops = 0, floor_ns = 0;
    double scaled_ns = 0;  // beside its pieces, of calls that nobody saw one by one
    std::uint64_t scaled_calls = 0;
  };
  struct Replays {
    std::uint64_t count = 0;
    double ns = 0;
  };
  // Whether the calls of a host span have lists, and whether more may come when it is over.
  enum class Kept : std::uint8_t { no, with_lists, to_end };
  struct SiteLabels {
    LabelId op = kNone, instance = kNone, name = kNone, kernel = kNone;
  };

  // ---- labels, rows and calls ----

  LabelId label(const std::string& text);
  const SiteLabels& labels_of(SiteId id);
  std::string instance_name(const Site& site) const;
  std::uint32_t section_of(TrackId track);
  std::uint32_t hidden_section();
  bool is_in_call(SpanId i) const;
  bool is_gpus_own(SpanId i);
  NodeId child(NodeId parent, LabelId id);
  CallId open(CallId parent, std::uint32_t section, LabelId id, bool is_op = false);
  CallId open_op(CallId parent, std::uint32_t section, SiteId site_id, std::uint32_t run);
  CallId open_kernel(CallId parent, std::uint32_t section, SiteId site_id);
  bool is_deepest(CallId call) const { return call != kNone && calls_[call].depth + 1 >= kMostDepth; }
  // Those of GPU spans have the one piece; those of replays none.
  Kept kept_now() const { return span_ == kNone ? Kept::to_end : trace_.on_gpu(span_) ? Kept::no : kept_[span_]; }
  std::uint32_t scope_of(CallId call) const { return call == kNone ? 0 : calls_[call].scope; }
  Work& work_of(CallId call);
  CallId open_scopes(CallId parent, std::uint32_t section, SiteId site_id, std::uint32_t run);
  CallId open_scope(CallId parent, std::uint32_t section, const std::string& name, std::uint32_t run);
  bool is_backward(const Site& site) const;
  CallId open_members(CallId parent, std::uint32_t section, const Site& site);

  // ---- spans ----

  void add_piece(CallId call, Interval interval, bool gpu);
  void add_now(Call& call, Interval interval);
  void add_to_lists(Call& call, Interval interval, bool gpu);
  void add_work(CallId call, SpanId span);
  double floor_ns(const Site& site, double bytes, double flops) const;
  void find_what_is_kept();
  void find_ops_without_phases();
  void end_spans_outside(SpanId parent);
  bool has_self_time(SpanId i) const { return !self_cursor_.empty() && self_cursor_[i] != kNoSelf; }
  void add_self_time(SpanId op, std::int64_t until);
  void leave_out(SpanId op, SpanKind kind, Interval interval);
  bool is_users_stretch(SpanId i) const;
  void add_host_span(SpanId i);
  void add_gpu_span(SpanId i);
  void add_calls_of_gpu_span(SpanId i);
  void add_gpu_spans_of(SpanId host);
  void add_replays();

  // ---- sections ----

  static void count(Row& row, double total, double cpu, double gpu);  // one more call
  void count_call(const Call& call, double whole, double on_gpu);
  void close_calls(CallId first);
  void count_lists(Call& call);
  void count_scaled_calls();
  void add_phases();
  void add_compiled_shapes();
  void merge_sections();
  Section section_of_root(SectionRoot& root);
  void number_groups();
  double of_children(const Node& node) const;
  void emit(NodeId root, double total, std::vector<Row>& rows);
  void sort_children(Node& node) const;

  static constexpr LabelId kComputeLabel = 2;  // labels 0, 1, 2 are the phases
  static constexpr char kGroupKeyEnd = '\1';   // no name ends in it

  const Trace& trace_;
  const ReportOptions& options_;
  const bool per_thread_;
  const Limit limit_;
  std::vector<std::string> labels_;
  std::map<std::string, LabelId> label_ids_;
  std::vector<SiteLabels> labels_of_site_;
  std::vector<std::uint32_t> section_of_track_;
  std::vector<TrackId> first_of_gpu_;        // of each track; of a thread itself
  std::vector<std::size_t> spans_of_track_;  // of all in the first, where threads are not apart
  std::vector<SectionRoot> roots_;
  std::uint32_t hidden_ = kNone;   // of roots_
  std::vector<NodeId> merged_of_;  // of every node, the one of all threads; empty where those are not merged
  SectionRoot merged_{.node = kNone, .thread = "", .is_gpu = false, .total = {}, .covered = {}};
  std::vector<Node> nodes_;
  std::unordered_map<std::uint64_t, NodeId> node_ids_;
  std::vector<Call> calls_;
  std::vector<Scope> scopes_{{}};  // the first: none
  std::vector<Work> works_;
  std::vector<std::uint32_t> free_works_;
  std::vector<Target> targets_;
  std::vector<Lists> lists_;
  std::vector<std::uint32_t> free_lists_;
  std::vector<SpanId> launched_;   // GPU spans that a host span launched, by that
  std::size_t next_launched_ = 0;  // whose turn it is
  Stretches total_, computation_;
  struct Open {
    SpanId span;
    CallId first;  // of its calls
  };
  SpanId span_ = kNone;                                                                      // at hand
  std::vector<Open> open_;                                                                   // host spans around it
  std::vector<Kept> kept_;                                                                   // per host span
  std::map<std::tuple<CallId, std::uint32_t, LabelId, std::uint32_t>, CallId> scope_calls_;  // by the call around, run
  std::vector<bool> has_parts_;                                                              // per site
  std::map<std::pair<std::uint32_t, SiteId>, Replays> replays_;                              // by section
  std::vector<CallId> call_of_;      // per host span: the call that spans inside it belong to
  std::vector<CallId> inner_of_;     // per host span: the call for launches and kernels (a compute row's if any)
  std::vector<bool> in_compile_;     // per span
  std::vector<bool> runs_programs_;  // per track
  // Per host span: of an op without phases its time before this is dealt with; else kNoSelf. Empty where none computes.
  std::vector<std::int64_t> self_cursor_;
  std::map<std::pair<LabelId, LabelId>, Row> compiled_shapes_;  // by op and instance (kNone: all of them)
};

}  // namespace paoding::profile
