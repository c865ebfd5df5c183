// SPDX-License-Identifier: Apache-2.0
// The numbers of a report: spans become calls (with the GPU work they caused), calls become rows of a tree.
#include "profile/report.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "base/check.h"
#include "profile/intervals.h"

namespace paoding::profile {

namespace {

void count(Row& row, double total, double cpu, double gpu) {
  row.min = row.calls == 0 ? total : std::min(row.min, total);
  row.max = std::max(row.max, total);
  row.calls += 1;
  row.total += total;
  row.cpu += cpu;
  row.gpu += gpu;
}

using LabelId = std::uint32_t;
using NodeId = std::uint32_t;
using CallId = std::uint32_t;

// Walks a trace once and grows the tree of rows, for all threads together or for each.
class RowTree {
 public:
  RowTree(const Trace& trace, const ReportOptions& options, bool per_thread)
      : trace_(trace), options_(options), per_thread_(per_thread) {
    for (SpanKind phase : {SpanKind::infer_shape, SpanKind::prepare, SpanKind::compute}) {
      label("/" + std::string(to_string(phase)));
    }
    section_of_track_.assign(trace.tracks().size(), kNone);
    labels_of_site_.resize(trace.sites().size());
    call_of_.assign(trace.size(), kNone);
    inner_of_ = call_of_;
    in_compile_.assign(trace.size(), false);
    self_cursor_.assign(trace.size(), kNoSelf);
    find_ops_without_phases();
    for (SpanId i = 0; i < trace.size(); ++i) {
      if (!trace.on_gpu(i)) add_host_span(i);
    }
    for (SpanId i = 0; i < trace.size(); ++i) {
      if (self_cursor_[i] != kNoSelf) add_self_time(i, trace.end(i));
    }
    for (SpanId i = 0; i < trace.size(); ++i) {
      if (trace.on_gpu(i)) add_gpu_span(i);
    }
    count_calls();
    if (options.detail != Detail::op) add_phases_not_run();
  }

  std::vector<Section> sections();

  // For the summaries: intervals that nothing else needs.
  std::vector<Interval> total, computation, compiling;
  std::vector<Interval> copies[2];  // sync, async
  std::uint64_t copy_calls[2] = {0, 0};

 private:
  static constexpr std::int64_t kNoSelf = std::numeric_limits<std::int64_t>::min();

  struct Node {
    std::string name;
    LabelId label = kNone;
    NodeId parent = kNone;
    bool has_compute = false, has_infer = false, has_prepare = false;
    Row row;
    double shared = 0;  // ns that came from shared groups
    std::vector<Interval> under_way;
    std::vector<NodeId> children;
  };
  struct SectionRoot {
    NodeId node;
    std::string thread;
    std::vector<Interval> total, covered;
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
    std::uint32_t section;
    std::uint32_t targets_begin, targets_end;
    bool in_op;
    Scope scope;
  };
  struct Piece {
    CallId call;
    bool gpu;
    Interval interval;
  };
  struct SiteLabels {
    LabelId op = kNone, instance = kNone, name = kNone;
  };

  LabelId label(const std::string& text) {
    const auto [found, is_new] = label_ids_.try_emplace(text, static_cast<LabelId>(labels_.size()));
    if (is_new) labels_.push_back(text);
    return found->second;
  }

  // Two groups with different ops may share a shortened name but not a row; the key goes after a NUL.
  const SiteLabels& labels_of(SiteId id) {
    SiteLabels& labels = labels_of_site_[id];
    if (labels.name != kNone) return labels;
    const Site& site = trace_.sites()[id];
    const std::string op(trace_.text(site.op));
    std::string name(trace_.text(site.name));
    if (name.empty()) name = op.empty() ? std::string(to_string(site.kind)) : op;
    if (site.kind == SpanKind::memcpy && site.copy != Copy::none) {
      const bool gpu = site.copy != Copy::host_to_host;
      name = fmt::format("{}Memcpy{}{}:{}", gpu ? "Gpu" : "", site.async ? "Async" : "Sync",
                         site.copy == Copy::same_device ? "(same_gpu)" : "", to_string(site.copy));
    }
    labels.name = label(name);
    if (site.members_end - site.members_begin > 1) {
      std::string key = group_name(trace_, site) + '\0';
      for (auto m = site.members_begin; m < site.members_end; ++m) {
        key += fmt::format("{}{}", trace_.members()[m].op, kGroupKeyEnd);
      }
      labels.op = label(key);
    } else if (site.members_end > site.members_begin && op.empty()) {
      labels.op = label(std::string(trace_.text(trace_.members()[site.members_begin].op)));
    } else if (!op.empty() || site.kind == SpanKind::op) {
      labels.op = op.empty() ? labels.name : label(op);
    }
    labels.instance = site.instance == 0 ? labels.op : label(instance_name(site));
    return labels;
  }

  // Where no row around it says in what scope it stands, "matmul12 @encoder/l0", as plans have it.
  std::string instance_name(const Site& site) const {
    std::string name(trace_.text(site.instance));
    if (options_.nesting == Nesting::op && site.scope != 0) name += fmt::format(" @{}", trace_.text(site.scope));
    return name;
  }

  std::uint32_t section_of(TrackId track) {
    const TrackId key = per_thread_ ? track : 0;
    if (section_of_track_[key] == kNone) {
      section_of_track_[key] = static_cast<std::uint32_t>(roots_.size());
      nodes_.emplace_back();
      roots_.push_back({static_cast<NodeId>(nodes_.size() - 1),
                        per_thread_ ? std::string(trace_.text(trace_.tracks()[track].name)) : "",
                        {},
                        {}});
    }
    return section_of_track_[key];
  }

  NodeId child(NodeId parent, LabelId id) {
    const std::uint64_t key = (std::uint64_t{parent} << 32) | id;
    const auto [found, is_new] = node_ids_.try_emplace(key, static_cast<NodeId>(nodes_.size()));
    if (!is_new) return found->second;
    const std::string text = labels_[id].substr(0, labels_[id].find('\0'));
    Node node;
    node.name = id <= kComputeLabel ? nodes_[parent].name + text : text;
    node.label = id;
    node.parent = parent;
    nodes_[parent].children.push_back(found->second);
    if (id == 0) nodes_[parent].has_infer = true;
    if (id == 1) nodes_[parent].has_prepare = true;
    if (id == 2) nodes_[parent].has_compute = true;
    nodes_.push_back(std::move(node));
    return found->second;
  }

  CallId open(CallId parent, std::uint32_t section, LabelId id, bool is_op = false) {
    Call call{parent, section, static_cast<std::uint32_t>(targets_.size()), 0, is_op, scope_of(parent)};
    if (parent == kNone) {
      targets_.push_back({child(roots_[section].node, id), 1.0});
    } else {
      call.in_op = is_op || calls_[parent].in_op;
      for (auto t = calls_[parent].targets_begin; t < calls_[parent].targets_end; ++t) {
        targets_.push_back({child(targets_[t].node, id), targets_[t].share});
      }
    }
    call.targets_end = static_cast<std::uint32_t>(targets_.size());
    calls_.push_back(call);
    return static_cast<CallId>(calls_.size() - 1);
  }

  // A call of an op: of its row and, with Detail::instances, of its instance's row (which is returned).
  CallId open_op(CallId parent, std::uint32_t section, SiteId site_id, std::uint32_t run) {
    if (options_.nesting == Nesting::scope) parent = open_scopes(parent, section, site_id, run);
    SiteLabels labels = labels_of(site_id);
    if (labels.op == kNone) labels.op = labels.name;  // a phase that says of no op
    if (labels.instance == kNone) labels.instance = labels.op;
    const Site& site = trace_.sites()[site_id];
    CallId call = kNone;
    if (options_.share_groups && site.members_end - site.members_begin > 1) {
      call = open_members(parent, section, site);
    } else {
      call = open(parent, section, labels.op, true);
    }
    if (options_.detail == Detail::instances) call = open(call, section, labels.instance, true);
    return call;
  }

  Scope scope_of(CallId call) const { return call == kNone ? Scope{} : calls_[call].scope; }

  // The calls of the scopes that an op is in, outermost first, and of "(backward)" if it belongs to a gradient; below
  // an op that runs it, those which that is not in. A scope is called once a run.
  CallId open_scopes(CallId parent, std::uint32_t section, SiteId site_id, std::uint32_t run) {
    const Site& site = trace_.sites()[site_id];
    const Scope outer = scope_of(parent);
    const std::string_view around = outer.name, name = trace_.text(site.scope);
    const bool is_inside =
        name.starts_with(around) && (around.empty() || name.size() == around.size() || name[around.size()] == '/');
    const bool is_around = around.starts_with(name) && !is_inside;  // what runs it lies further in
    std::size_t at = is_around ? name.size() : is_inside ? around.size() : 0;
    CallId call = parent;
    while (at < name.size()) {
      const std::size_t slash = name.find('/', at + 1);
      at = slash == name.npos ? name.size() : slash;
      call = open_scope(call, section, std::string(name.substr(0, at)), run);
      calls_[call].scope = {name.substr(0, at), outer.is_backward};
    }
    if (!is_backward(site) || outer.is_backward) return call;
    call = open_scope(call, section, name.empty() ? "(backward)" : fmt::format("{} (backward)", name), run);
    calls_[call].scope = {is_around ? around : name, true};
    return call;
  }

  CallId open_scope(CallId parent, std::uint32_t section, const std::string& name, std::uint32_t run) {
    const LabelId id = label(name + '\0' + "scope");  // an op may have the name of a scope
    const auto [found, is_new] = scope_calls_.try_emplace({parent, section, id, run}, kNone);
    if (is_new) found->second = open(parent, section, id);
    return found->second;
  }

  // Whether the op, or most ops of the group, came from a gradient.
  bool is_backward(const Site& site) const {
    const auto is_gradient = [&](StringId op) {
      const std::string_view title = trace_.text(op);
      return title.substr(0, title.find('/')).ends_with("_grad");
    };
    if (is_gradient(site.op)) return true;
    std::uint32_t gradients = 0;
    for (auto m = site.members_begin; m < site.members_end; ++m) gradients += is_gradient(trace_.members()[m].op);
    return 2 * gradients > site.members_end - site.members_begin;
  }

  CallId open_members(CallId parent, std::uint32_t section, const Site& site) {
    std::map<LabelId, double> bytes;
    double sum = 0;
    for (auto m = site.members_begin; m < site.members_end; ++m) sum += static_cast<double>(trace_.members()[m].bytes);
    const double even = 1.0 / (site.members_end - site.members_begin);
    for (auto m = site.members_begin; m < site.members_end; ++m) {
      const Member& member = trace_.members()[m];
      bytes[label(std::string(trace_.text(member.op)))] += sum > 0 ? static_cast<double>(member.bytes) / sum : even;
    }
    std::vector<Target> outer{{roots_[section].node, 1.0}};
    if (parent != kNone) {
      outer.assign(targets_.begin() + calls_[parent].targets_begin, targets_.begin() + calls_[parent].targets_end);
    }
    Call call{parent, section, static_cast<std::uint32_t>(targets_.size()), 0, true, scope_of(parent)};
    for (const Target& target : outer) {
      for (const auto& [id, share] : bytes) targets_.push_back({child(target.node, id), target.share * share});
    }
    call.targets_end = static_cast<std::uint32_t>(targets_.size());
    calls_.push_back(call);
    return static_cast<CallId>(calls_.size() - 1);
  }

  // To the call and all calls around it.
  void add_piece(CallId call, Interval interval, bool gpu) {
    if (gpu ? options_.state == State::cpu : options_.state == State::gpu) return;
    for (; call != kNone; call = calls_[call].parent) {
      pieces_.push_back({call, gpu, interval});
      if (calls_[call].parent == kNone) roots_[calls_[call].section].covered.push_back(interval);
    }
  }

  // An op's own time is its computation when no phase or inner op says otherwise.
  void find_ops_without_phases() {
    for (SpanId i = 0; i < trace_.size(); ++i) {
      if (trace_.on_gpu(i)) continue;
      const SpanKind kind = trace_.kind(i);
      if (kind == SpanKind::op) self_cursor_[i] = trace_.start(i);
      const SpanId p = trace_.parent(i);
      if (p != kNone && (kind == SpanKind::op || kind == SpanKind::compute)) self_cursor_[p] = kNoSelf;
    }
  }

  void add_self_time(SpanId op, std::int64_t until) {
    const Interval self{self_cursor_[op], until};
    if (self.end <= self.start || in_compile_[op]) return;
    if (options_.state != State::gpu) computation.push_back(self);
    if (inner_of_[op] != call_of_[op]) add_piece(inner_of_[op], self, false);
  }

  void add_host_span(SpanId i);
  void add_gpu_span(SpanId i);
  void count_calls();
  void add_phases_not_run();
  void number_groups();
  void emit(NodeId node, int depth, double total, std::vector<Row>& rows);

  static constexpr LabelId kComputeLabel = 2;  // labels 0, 1, 2 are the phases
  static constexpr char kGroupKeyEnd = '\1';   // no name ends in it

  const Trace& trace_;
  const ReportOptions& options_;
  const bool per_thread_;
  std::vector<std::string> labels_;
  std::map<std::string, LabelId> label_ids_;
  std::vector<SiteLabels> labels_of_site_;
  std::vector<std::uint32_t> section_of_track_;
  std::vector<SectionRoot> roots_;
  std::vector<Node> nodes_;
  std::unordered_map<std::uint64_t, NodeId> node_ids_;
  std::vector<Call> calls_;
  std::vector<Target> targets_;
  std::vector<Piece> pieces_;
  std::map<std::tuple<CallId, std::uint32_t, LabelId, std::uint32_t>, CallId> scope_calls_;  // by what is around, run
  std::vector<CallId> call_of_;            // per host span: the call that spans inside it belong to
  std::vector<CallId> inner_of_;           // per host span: the call for launches and kernels (a compute row's if any)
  std::vector<bool> in_compile_;           // per span
  std::vector<std::int64_t> self_cursor_;  // per op without phases: its time before this is dealt with; else kNoSelf
  std::map<std::pair<LabelId, LabelId>, Row> compiled_shapes_;  // by op and instance (kNone: all of them)
};

void RowTree::add_host_span(SpanId i) {
  const SpanKind kind = trace_.kind(i);
  const SpanId p = trace_.parent(i);
  const Interval interval{trace_.start(i), trace_.end(i)};
  if (kind == SpanKind::compile || (p != kNone && in_compile_[p])) {
    in_compile_[i] = true;
    if (p == kNone || !in_compile_[p]) compiling.push_back(interval);
    if (kind != SpanKind::infer_shape) return;
    const SiteLabels labels = labels_of(trace_.site_id(i));
    if (labels.op == kNone) return;
    const auto ns = static_cast<double>(trace_.duration(i));
    count(compiled_shapes_[{labels.op, kNone}], ns, ns, 0);
    count(compiled_shapes_[{labels.op, labels.instance}], ns, ns, 0);
    return;
  }
  const std::uint32_t section = section_of(trace_.track_id(i));
  if (options_.state != State::gpu) {
    total.push_back(interval);
    roots_[section].total.push_back(interval);
  }
  const CallId outer = p == kNone ? kNone : call_of_[p];
  CallId call = outer;
  CallId inner = p == kNone ? kNone : inner_of_[p];
  const bool in_op = outer != kNone && calls_[outer].in_op;

  const bool computes = kind == SpanKind::compute || kind == SpanKind::launch || kind == SpanKind::kernel;
  if (p != kNone && self_cursor_[p] != kNoSelf && !computes && kind != SpanKind::host) {
    add_self_time(p, interval.start);
    self_cursor_[p] = std::max(self_cursor_[p], interval.end);
  }
  switch (kind) {
    case SpanKind::run:
    case SpanKind::compile: break;
    case SpanKind::op:
      call = inner = open_op(outer, section, trace_.site_id(i), trace_.run(i));
      if (options_.detail != Detail::op && self_cursor_[i] != kNoSelf) inner = open(call, section, kComputeLabel);
      break;
    case SpanKind::infer_shape:
    case SpanKind::prepare:
    case SpanKind::compute:
      if (!in_op) call = open_op(outer, section, trace_.site_id(i), trace_.run(i));
      if (options_.detail != Detail::op) {
        call = open(call, section, static_cast<LabelId>(kind) - static_cast<LabelId>(SpanKind::infer_shape));
      }
      inner = call;
      if (kind == SpanKind::compute && options_.state != State::gpu) computation.push_back(interval);
      break;
    case SpanKind::memcpy:
      if (p != kNone && trace_.kind(p) == SpanKind::memcpy) break;
      call = inner = open(outer, section, labels_of(trace_.site_id(i)).name);
      if (const Copy copy = trace_.site(i).copy; copy != Copy::none && copy != Copy::host_to_host) {
        const int is_async = trace_.site(i).async;
        if (options_.state != State::gpu) {
          copies[is_async].push_back(interval);
          copy_calls[is_async] += 1;
        }
      }
      break;
    case SpanKind::memset:
    case SpanKind::launch:
    case SpanKind::kernel:
      if (kind == SpanKind::kernel && options_.state != State::gpu) computation.push_back(interval);
      if (!in_op) call = inner = open(outer, section, labels_of(trace_.site_id(i)).name);
      break;
    case SpanKind::wait:
    case SpanKind::feed:
    case SpanKind::fetch:
    case SpanKind::host: call = inner = open(outer, section, labels_of(trace_.site_id(i)).name); break;
  }
  call_of_[i] = call;
  inner_of_[i] = inner;
  // A synthesised compute row gets its pieces from add_self_time. Calls around this one contain this span already,
  // except those opened with it.
  if (call != outer) add_piece(call, interval, false);
}

void RowTree::add_gpu_span(SpanId i) {
  const SpanKind kind = trace_.kind(i);
  const SpanId cause = trace_.cause(i);
  if (options_.state == State::cpu || (cause != kNone && in_compile_[cause])) return;
  const Interval interval{trace_.start(i), trace_.end(i)};
  const std::uint32_t section = section_of(trace_.track_id(cause == kNone ? i : cause));
  total.push_back(interval);
  roots_[section].total.push_back(interval);
  if (kind == SpanKind::run) return;
  const SiteId site_id = trace_.site_id(i);
  const Site& site = trace_.site(i);
  const bool is_copy = kind == SpanKind::memcpy;
  const bool from_copy = cause != kNone && trace_.kind(cause) == SpanKind::memcpy;
  if (is_copy && site.copy != Copy::host_to_host) {
    const int is_async = from_copy ? trace_.site(cause).async : site.async;
    copies[is_async].push_back(interval);
    if (!from_copy || options_.state == State::gpu) copy_calls[is_async] += 1;
  } else if (!is_copy && kind != SpanKind::memset && !from_copy) {
    computation.push_back(interval);
  }

  CallId call = kNone;
  if (cause != kNone && call_of_[cause] != kNone &&
      (calls_[call_of_[cause]].in_op || trace_.kind(cause) != SpanKind::launch)) {
    call = is_copy ? call_of_[cause] : inner_of_[cause];
    if (is_copy && !from_copy) call = open(call, section, labels_of(site_id).name);
  } else if (labels_of(site_id).op != kNone) {  // launched with a whole graph, or unknown: speaks for itself
    call = open_op(kNone, section, site_id, trace_.run(i));
    if (is_copy) {
      call = open(call, section, labels_of(site_id).name);
    } else if (options_.detail != Detail::op) {
      call = open(call, section, kComputeLabel);
    }
  } else {
    call = open(kNone, section, labels_of(site_id).name);
  }
  add_piece(call, interval, true);
}

void RowTree::count_calls() {
  std::stable_sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.call < b.call; });
  std::vector<Interval> all, gpu;
  for (std::size_t first = 0, last = 0; first < pieces_.size(); first = last) {
    all.clear();
    gpu.clear();
    const Call& call = calls_[pieces_[first].call];
    for (last = first; last < pieces_.size() && pieces_[last].call == pieces_[first].call; ++last) {
      all.push_back(pieces_[last].interval);
      if (pieces_[last].gpu) gpu.push_back(pieces_[last].interval);
    }
    unite(all);
    unite(gpu);
    const double whole = length(all), on_gpu = length(gpu);
    for (auto t = call.targets_begin; t < call.targets_end; ++t) {
      Node& node = nodes_[targets_[t].node];
      const double share = targets_[t].share;
      count(node.row, share * whole, share * (whole - on_gpu), share * on_gpu);
      if (share == 1.0) {
        node.under_way.insert(node.under_way.end(), all.begin(), all.end());
      } else {
        node.shared += share * whole;
      }
    }
  }
}

// So that every op answers for all three phases: shapes are inferred when a program is compiled, and most ops need
// nothing prepared.
void RowTree::add_phases_not_run() {
  const auto count_now = static_cast<NodeId>(nodes_.size());
  for (NodeId id = 0; id < count_now; ++id) {
    if (!nodes_[id].has_compute) continue;
    if (!nodes_[id].has_prepare) child(id, 1);
    if (nodes_[id].has_infer) continue;
    const bool is_instance = options_.detail == Detail::instances;
    const LabelId op = is_instance ? nodes_[nodes_[id].parent].label : nodes_[id].label;
    Node& shapes = nodes_[child(id, 0)];
    const auto found = compiled_shapes_.find({op, is_instance ? nodes_[id].label : kNone});
    if (found != compiled_shapes_.end()) shapes.row = found->second;
    shapes.row.at_compile = true;
    shapes.name += " (at compile)";
  }
}

// Groups of different ops whose shortened names are one get numbers, in the order of their first appearance.
void RowTree::number_groups() {
  std::map<std::string_view, std::vector<LabelId>> groups;
  for (LabelId id = 0; id < labels_.size(); ++id) {
    const std::string_view text = labels_[id];
    if (text.ends_with(kGroupKeyEnd)) groups[text.substr(0, text.find('\0'))].push_back(id);
  }
  std::map<LabelId, std::size_t> numbers;
  for (const auto& [name, same] : groups) {
    for (std::size_t i = 0; i < same.size() && same.size() > 1; ++i) numbers[same[i]] = i + 1;
  }
  for (Node& node : nodes_) {
    if (const auto found = numbers.find(node.label); found != numbers.end()) {
      node.name += fmt::format(" #{}", found->second);
    }
  }
}

void RowTree::emit(NodeId id, int depth, double whole, std::vector<Row>& rows) {
  Node& node = nodes_[id];
  if (depth >= 0) {
    Row row = node.row;
    row.name = node.name;
    row.depth = depth;
    const double under_way = row.at_compile ? 0 : united_length(std::move(node.under_way)) + node.shared;
    row.ratio = whole > 0 ? std::min(1.0, under_way / whole) : 0;
    rows.push_back(std::move(row));
  }
  const auto key = [&](NodeId n) {
    const Row& row = nodes_[n].row;
    switch (options_.sort) {
      case SortBy::none: return 0.0;
      case SortBy::calls: return static_cast<double>(row.calls);
      case SortBy::total: return row.total;
      case SortBy::max: return row.max;
      case SortBy::min: return row.min;
      case SortBy::average: return row.average();
    }
    return 0.0;
  };
  std::stable_sort(node.children.begin(), node.children.end(), [&](NodeId a, NodeId b) { return key(a) > key(b); });
  for (NodeId c : std::vector<NodeId>(node.children)) {
    const bool expected = nodes_[c].label <= kComputeLabel;  // phases are listed even when nothing happened in them
    if (nodes_[c].row.calls > 0 || expected) emit(c, depth + 1, whole, rows);
  }
}

std::vector<Section> RowTree::sections() {
  std::vector<Section> result;
  number_groups();
  for (SectionRoot& root : roots_) {
    unite(root.total);
    unite(root.covered);
    const std::vector<Interval> between = gaps(root.total, root.covered);
    if (!between.empty()) {
      Node& node = nodes_[child(root.node, label("(between events)"))];
      for (const Interval& gap : between) {
        const auto ns = static_cast<double>(gap.end - gap.start);
        count(node.row, ns, ns, 0);
      }
      node.under_way = between;
    }
    Section section{root.thread, length(root.total), {}};
    emit(root.node, -1, section.total, section.rows);
    if (!section.rows.empty()) result.push_back(std::move(section));
  }
  return result;
}

}  // namespace

Measures measure(const Trace& trace, const ReportOptions& options) {
  RowTree threads(trace, options, true);
  Measures m;
  m.total = united_length(threads.total);
  m.computation = united_length(std::move(threads.computation));
  m.framework = m.total - m.computation;
  PD_ASSERT(m.framework >= 0, "computation outside of the total time");
  m.compile = united_length(std::move(threads.compiling));
  m.runs = trace.runs().size();
  for (SpanId i = 0; i < trace.size() && !m.has_gpu; ++i) m.has_gpu = trace.on_gpu(i);
  m.async_copies = {threads.copy_calls[1], united_length(threads.copies[1])};
  m.sync_copies = {threads.copy_calls[0], united_length(threads.copies[0])};
  std::vector<Interval> copies = threads.copies[0];
  copies.insert(copies.end(), threads.copies[1].begin(), threads.copies[1].end());
  m.copies = {threads.copy_calls[0] + threads.copy_calls[1], united_length(std::move(copies))};
  m.notes = trace.notes();

  m.per_thread = threads.sections();
  const bool both = options.threads == Threads::automatic && m.per_thread.size() > 1;
  if (both || options.threads == Threads::merged) m.merged = RowTree(trace, options, false).sections();
  if (options.threads == Threads::merged) m.per_thread.clear();
  return m;
}

std::string report(const Trace& trace, const ReportOptions& options) {
  return to_text(measure(trace, options), options);
}

}  // namespace paoding::profile
