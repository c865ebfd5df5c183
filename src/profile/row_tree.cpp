// SPDX-License-Identifier: Apache-2.0
// Labels, scopes and calls.
#include "profile/row_tree.h"

#include <algorithm>

#include "base/check.h"
#include "base/huge_pages.h"
#include "profile/row_names.h"

namespace paoding::profile {

namespace {
// The longest name or scope, which every row of it repeats.
constexpr std::size_t kLongestRowText = 2000;
}  // namespace

RowTree::RowTree(const Trace& trace, const ReportOptions& options, bool per_thread)
    : trace_(trace), options_(options), per_thread_(per_thread), limit_(trace.common_limit()) {
  for (SpanKind phase : {SpanKind::infer_shape, SpanKind::prepare, SpanKind::compute}) {
    label("/" + std::string(to_string(phase)));
  }
  section_of_track_.assign(trace.tracks().size(), kNone);
  std::map<std::pair<ProcessId, int>, TrackId> gpus;
  for (TrackId track = 0; track < trace.tracks().size(); ++track) {
    const Track& own = trace.tracks()[track];
    const bool is_gpu = own.kind != TrackKind::thread;
    first_of_gpu_.push_back(is_gpu ? gpus.try_emplace({own.process, own.device}, track).first->second : track);
  }
  labels_of_site_.resize(trace.sites().size());
  SpanId behind = 0;  // all host spans
  std::size_t hosts = 0;
  runs_programs_.assign(trace.tracks().size(), false);
  spans_of_track_.assign(trace.tracks().size(), 0);
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (!trace.on_gpu(i)) behind = i + 1, ++hosts;
    if (trace.kind(i) == SpanKind::run) runs_programs_[trace.track_id(i)] = true;
    ++spans_of_track_[per_thread ? trace.track_id(i) : 0];
  }
  // Room for as many as there may be: growing would copy them several times.
  reserve_large(total_.host, hosts);
  reserve_large(computation_.host, hosts);
  reserve_large(total_.gpu, trace.size() - hosts);
  reserve_large(computation_.gpu, trace.size() - hosts);
  reserve_large(call_of_, behind), reserve_large(inner_of_, behind);
  call_of_.assign(behind, kNone);
  inner_of_ = call_of_;
  in_compile_.assign(behind, false);
  kept_.assign(behind, Kept::no);
  has_parts_.assign(trace.sites().size(), false);
  for (const ReplayPart& part : trace.parts()) {
    if (part.site != kNone && part.ns > 0) has_parts_[part.replay] = true;
  }
  find_what_is_kept();
  find_ops_without_phases();
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.on_gpu(i)) continue;
    end_spans_outside(trace.parent(i));
    span_ = i;
    open_.push_back({i, static_cast<CallId>(calls_.size())});
    add_host_span(i);
    add_gpu_spans_of(i);
  }
  end_spans_outside(kNone);
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.on_gpu(i) && trace.cause(i) == kNone) add_gpu_span(i);
  }
  for_summaries.total = total_.take();
  for_summaries.computation = computation_.take();
  span_ = kNone;
  add_replays();
  for (Call& call : calls_) count_lists(call);
  count_scaled_calls();
  merge_sections();
  add_phases();
  if (options.detail != Detail::op) add_compiled_shapes();
}

RowTree::LabelId RowTree::label(const std::string& text) {
  const auto [found, is_new] = label_ids_.try_emplace(text, static_cast<LabelId>(labels_.size()));
  if (is_new) labels_.push_back(text);
  return found->second;
}

// Two groups with different ops may share a shortened name but not a row; the key goes after a NUL.
const RowTree::SiteLabels& RowTree::labels_of(SiteId id) {
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
  if (site.kernel != 0) labels.kernel = label(fmt::format("kernel {}", trace_.text(site.kernel)));
  return labels;
}

// "matmul12 @encoder/l0", as plans have it, where no row around it names the scope.
std::string RowTree::instance_name(const Site& site) const {
  std::string name(trace_.text(site.instance));
  if (options_.nesting == Nesting::op && site.scope != 0) name += fmt::format(" @{}", trace_.text(site.scope));
  return name;
}

std::uint32_t RowTree::section_of(TrackId track) {
  const TrackId key = per_thread_ ? first_of_gpu_[track] : 0;
  if (section_of_track_[key] == kNone) {
    section_of_track_[key] = static_cast<std::uint32_t>(roots_.size());
    nodes_.emplace_back();
    const Track& of = trace_.tracks()[track];
    const bool is_gpu = per_thread_ && of.kind != TrackKind::thread;
    std::string thread = per_thread_ ? trace_.track_name(track) : "";
    if (is_gpu) thread = gpu_name(trace_, of.process, of.device);
    roots_.push_back({.node = static_cast<NodeId>(nodes_.size() - 1),
                      .thread = std::string(head(thread, kLongestRowText)),
                      .is_gpu = is_gpu,
                      .total = {},
                      .covered = {}});
    for (Stretches* one : {&roots_.back().total, &roots_.back().covered}) {
      (is_gpu ? one->gpu : one->host).reserve(spans_of_track_[key]);
    }
  }
  return section_of_track_[key];
}

// For the recorder's work on threads that have nothing else to show.
std::uint32_t RowTree::hidden_section() {
  if (hidden_ == kNone) {
    hidden_ = static_cast<std::uint32_t>(roots_.size());
    nodes_.emplace_back();
    roots_.push_back({.node = static_cast<NodeId>(nodes_.size() - 1),
                      .thread = "",
                      .is_gpu = false,
                      .is_hidden = true,
                      .total = {},
                      .covered = {}});
  }
  return hidden_;
}

RowTree::NodeId RowTree::child(NodeId parent, LabelId id) {
  const std::uint64_t key = (std::uint64_t{parent} << 32) | id;
  const auto [found, is_new] = node_ids_.try_emplace(key, static_cast<NodeId>(nodes_.size()));
  if (!is_new) return found->second;
  std::string text = labels_[id].substr(0, labels_[id].find('\0'));
  if (text.size() > kLongestRowText) text = fmt::format("{}... #{}", head(text, kLongestRowText), id);
  Node node;
  node.name = id <= kComputeLabel ? nodes_[parent].name + text : text;
  node.label = id;
  node.parent = parent;
  nodes_[parent].children.push_back(found->second);
  if (id == 0) nodes_[parent].has_infer = true;
  if (id == 2) nodes_[parent].has_compute = true;
  nodes_.push_back(std::move(node));
  return found->second;
}

RowTree::CallId RowTree::open(CallId parent, std::uint32_t section, LabelId id, bool is_op) {
  if (is_deepest(parent)) {
    ++too_deep;
    return parent;
  }
  Call call{.parent = parent,
            .depth = parent == kNone ? 0 : calls_[parent].depth + 1,
            .section = section,
            .targets_begin = static_cast<std::uint32_t>(targets_.size()),
            .targets_end = 0,
            .scope = scope_of(parent),
            .span = span_,
            .in_op = is_op,
            .has_lists = kept_now() != Kept::no,
            .stays = kept_now() == Kept::to_end};
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
RowTree::CallId RowTree::open_op(CallId parent, std::uint32_t section, SiteId site_id, std::uint32_t run) {
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
  return open_kernel(call, section, site_id);
}

// Opens a row below its op's for a kernel that is known to have run, where that is asked for.
RowTree::CallId RowTree::open_kernel(CallId parent, std::uint32_t section, SiteId site_id) {
  const LabelId kernel = labels_of(site_id).kernel;
  return options_.kernels && kernel != kNone ? open(parent, section, kernel, true) : parent;
}

// The calls of the scopes that an op is in, outermost first, and of "(backward)" if it belongs to a gradient; below
// an op that runs it, those which that is not in. A scope is called once a run.
RowTree::CallId RowTree::open_scopes(CallId parent, std::uint32_t section, SiteId site_id, std::uint32_t run) {
  const Site& site = trace_.sites()[site_id];
  const Scope outer = scopes_[scope_of(parent)];
  const std::string_view around = outer.name, name = head(trace_.text(site.scope), kLongestRowText);
  const bool is_inside =
      name.starts_with(around) && (around.empty() || name.size() == around.size() || name[around.size()] == '/');
  const bool is_around = around.starts_with(name) && !is_inside;  // its caller lies further in
  std::size_t at = is_around ? name.size() : is_inside ? around.size() : 0;
  CallId call = parent;
  while (at < name.size() && !is_deepest(call)) {
    const std::size_t slash = name.find('/', at + 1);
    at = slash == name.npos ? name.size() : slash;
    call = open_scope(call, section, std::string(name.substr(0, at)), run);
    calls_[call].scope = static_cast<std::uint32_t>(scopes_.size());
    scopes_.push_back({name.substr(0, at), outer.is_backward});
  }
  if (!is_backward(site) || outer.is_backward || is_deepest(call)) return call;
  call = open_scope(call, section, name.empty() ? "(backward)" : fmt::format("{} (backward)", name), run);
  calls_[call].scope = static_cast<std::uint32_t>(scopes_.size());
  scopes_.push_back({is_around ? around : name, true});
  return call;
}

RowTree::CallId RowTree::open_scope(CallId parent, std::uint32_t section, const std::string& name, std::uint32_t run) {
  const LabelId id = label(name + '\0' + "scope");  // an op may have the name of a scope
  const auto [found, is_new] = scope_calls_.try_emplace({parent, section, id, run}, kNone);
  if (is_new) {
    found->second = open(parent, section, id);
    calls_[found->second].has_lists = calls_[found->second].stays = true;
  }
  return found->second;
}

// Whether the op, or most ops of the group, came from a gradient.
bool RowTree::is_backward(const Site& site) const {
  const auto is_gradient = [&](StringId op) {
    const std::string_view title = trace_.text(op);
    return title.substr(0, title.find('/')).ends_with("_grad");
  };
  if (is_gradient(site.op)) return true;
  std::uint32_t gradients = 0;
  for (auto m = site.members_begin; m < site.members_end; ++m) gradients += is_gradient(trace_.members()[m].op);
  return 2 * gradients > site.members_end - site.members_begin;
}

RowTree::CallId RowTree::open_members(CallId parent, std::uint32_t section, const Site& site) {
  std::map<LabelId, double> bytes;
  double sum = 0;
  for (auto m = site.members_begin; m < site.members_end; ++m) sum += static_cast<double>(trace_.members()[m].bytes);
  const double even = 1.0 / (site.members_end - site.members_begin);
  for (auto m = site.members_begin; m < site.members_end; ++m) {
    const Member& member = trace_.members()[m];
    bytes[label(std::string(trace_.text(member.op)))] += sum > 0 ? static_cast<double>(member.bytes) / sum : even;
  }
  constexpr std::size_t kMostTargets = 1 << 12;  // shares of groups within groups
  const std::size_t around = parent == kNone ? 1 : calls_[parent].targets_end - calls_[parent].targets_begin;
  if (is_deepest(parent) || around * bytes.size() > kMostTargets) {
    ++too_deep;
    return parent == kNone ? open(parent, section, bytes.begin()->first, true) : parent;
  }
  std::vector<Target> outer{{roots_[section].node, 1.0}};
  if (parent != kNone) {
    outer.assign(targets_.begin() + calls_[parent].targets_begin, targets_.begin() + calls_[parent].targets_end);
  }
  Call call{.parent = parent,
            .depth = parent == kNone ? 0 : calls_[parent].depth + 1,
            .section = section,
            .targets_begin = static_cast<std::uint32_t>(targets_.size()),
            .targets_end = 0,
            .scope = scope_of(parent),
            .span = span_,
            .in_op = true,
            .has_lists = kept_now() != Kept::no,
            .stays = kept_now() == Kept::to_end};
  for (const Target& target : outer) {
    for (const auto& [id, share] : bytes) targets_.push_back({child(target.node, id), target.share * share});
  }
  call.targets_end = static_cast<std::uint32_t>(targets_.size());
  calls_.push_back(call);
  return static_cast<CallId>(calls_.size() - 1);
}

}  // namespace paoding::profile
