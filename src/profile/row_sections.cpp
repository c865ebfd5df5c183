// SPDX-License-Identifier: Apache-2.0
// Calls as rows: their sums, their order and their names.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "profile/row_tree.h"

namespace paoding::profile {

void RowTree::count(Row& row, double total, double cpu, double gpu) {
  row.min = row.calls == 0 ? total : std::min(row.min, total);
  row.max = std::max(row.max, total);
  row.calls += 1;
  row.total += total;
  row.cpu += cpu;
  row.gpu += gpu;
}

void RowTree::count_call(const Call& call, double whole, double on_gpu) {
  for (auto t = call.targets_begin; t < call.targets_end; ++t) {
    Node& node = nodes_[targets_[t].node];
    const double share = targets_[t].share;
    count(node.row, share * whole, share * (whole - on_gpu), share * on_gpu);
    if (call.work != kNone) {
      const Work& work = works_[call.work];
      node.row.bytes += share * work.bytes;
      node.row.flops += share * work.flops;
      node.row.floor_ns += share * work.floor_ns;
    }
    if (share != 1.0) node.shared += share * whole;
  }
}

// Removes calls that were opened since, and are not kept.
void RowTree::close_calls(CallId first) {
  for (std::size_t i = calls_.size(); i-- > first;) {
    Call& call = calls_[i];
    if (call.stays) continue;
    const bool on_gpu = call.span != kNone && trace_.on_gpu(call.span);
    if (call.has_pieces) count_call(call, static_cast<double>(call.ns), on_gpu ? static_cast<double>(call.ns) : 0);
    call.has_pieces = false;
    count_lists(call);
    if (i + 1 != calls_.size() || call.targets_end != targets_.size()) continue;
    targets_.resize(call.targets_begin);
    if (call.work != kNone) free_works_.push_back(call.work);
    calls_.pop_back();
  }
}

void RowTree::count_lists(Call& call) {
  if (call.pieces == kNone) return;
  Lists& own = lists_[call.pieces];
  if (own.has_host) own.all.insert(own.all.begin(), own.host);
  unite(own.all);
  unite(own.gpu);
  count_call(call, length(own.all), length(own.gpu));
  for (auto t = call.targets_begin; t < call.targets_end; ++t) {
    if (targets_[t].share != 1.0) continue;
    for (const Interval& interval : own.all) append(nodes_[targets_[t].node].under_way, interval);
  }
  own.has_host = false;
  own.all.clear(), own.gpu.clear();
  free_lists_.push_back(std::exchange(call.pieces, kNone));
}

void RowTree::count_scaled_calls() {
  for (const Call& call : calls_) {
    if (call.work == kNone || works_[call.work].scaled_ns <= 0) continue;
    const Work& work = works_[call.work];
    for (auto t = call.targets_begin; t < call.targets_end; ++t) {
      const double share = targets_[t].share, ns = share * work.scaled_ns;
      Row& row = nodes_[targets_[t].node].row;
      const double each = ns / static_cast<double>(std::max<std::uint64_t>(work.scaled_calls, 1));
      row.min = row.calls == 0 ? each : std::min(row.min, each);
      row.max = std::max(row.max, each);
      row.calls += work.scaled_calls;
      row.total += ns;
      row.gpu += ns;
      row.scaled += ns;
      row.bytes += share * work.bytes;
      row.flops += share * work.flops;
      row.floor_ns += share * work.floor_ns;
    }
  }
}

// Divides the time of an op on a GPU by the phases that its kernels report.
void RowTree::add_phases() {
  std::map<LabelId, std::map<std::string, double>> told;  // by op
  for (const Phase& phase : trace_.phases()) {
    told[labels_of(phase.site).op][phase.name] += static_cast<double>(phase.ns);
  }
  const auto count_now = static_cast<NodeId>(nodes_.size());
  for (NodeId id = 0; id < count_now && !told.empty(); ++id) {
    const auto found = told.find(nodes_[id].label);
    if (found == told.end() || nodes_[id].row.gpu <= 0) continue;
    double sum = 0;
    for (const auto& [name, ns] : found->second) sum += ns;
    for (const auto& [name, ns] : found->second) {
      Row row = nodes_[id].row;
      row.bytes = row.flops = row.floor_ns = row.cpu = 0;
      row.total = row.gpu = row.scaled = row.gpu * ns / sum;
      row.min = row.max = row.average();
      nodes_[child(id, label(nodes_[id].name + "/" + name))].row = row;
    }
  }
}

// Shapes that were inferred when the program was compiled. Ops without a time have no row.
void RowTree::add_compiled_shapes() {
  const auto count_now = static_cast<NodeId>(nodes_.size());
  for (NodeId id = 0; id < count_now; ++id) {
    if (!nodes_[id].has_compute || nodes_[id].has_infer) continue;
    const bool is_instance = options_.detail == Detail::instances;
    const LabelId op = is_instance ? nodes_[nodes_[id].parent].label : nodes_[id].label;
    const auto found = compiled_shapes_.find({op, is_instance ? nodes_[id].label : kNone});
    if (found == compiled_shapes_.end()) continue;
    Node& shapes = nodes_[child(id, 0)];
    shapes.row = found->second;
    shapes.row.at_compile = true;
    shapes.name += " (at compile)";
  }
}

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

// The time of the rows below; the rest is an op's own time.
double RowTree::of_children(const Node& node) const {
  double sum = 0;
  for (const NodeId child : node.children) sum += nodes_[child].row.at_compile ? 0 : nodes_[child].row.total;
  return sum;
}

void RowTree::sort_children(Node& node) const {
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
}

// The rows below it, each in front of those below itself.
void RowTree::emit(NodeId root, double whole, std::vector<Row>& rows) {
  struct Next {
    NodeId id;
    int depth;
  };
  std::vector<Next> next{{root, -1}};  // the last is the next one
  while (!next.empty()) {
    const auto [id, depth] = next.back();
    next.pop_back();
    Node& node = nodes_[id];
    if (depth >= 0) {
      Row row = node.row;
      row.name = node.name;
      row.depth = depth;
      if (!row.at_compile) unite(node.under_way);
      const double under_way = row.at_compile ? 0 : length(node.under_way) + node.shared + node.row.scaled;
      if (merged_of_.empty()) node.under_way = {};
      row.ratio = whole > 0 ? std::min(1.0, under_way / whole) : 0;
      row.self = std::max(0.0, row.total - of_children(node));
      rows.push_back(std::move(row));
    }
    sort_children(node);
    for (auto c = node.children.rbegin(); c != node.children.rend(); ++c) {
      if (nodes_[*c].row.calls > 0) next.push_back({*c, depth + 1});
    }
  }
}

// Nodes are numbered as they appear, those around others first: so are those of all threads together.
void RowTree::merge_sections() {
  const auto of_threads =
      std::ranges::count_if(roots_, [](const SectionRoot& root) { return !root.is_gpu && !root.is_hidden; });
  const bool is_asked =
      options_.threads == Threads::merged || (options_.threads == Threads::automatic && of_threads > 1);
  if (!per_thread_ || !is_asked || !can_merge(trace_, options_)) return;
  const auto count_now = static_cast<NodeId>(nodes_.size());
  merged_.node = count_now;
  nodes_.emplace_back();
  merged_of_.reserve(count_now);
  for (NodeId id = 0; id < count_now; ++id) {
    const bool is_root = nodes_[id].parent == kNone;
    merged_of_.push_back(is_root ? merged_.node : child(merged_of_[nodes_[id].parent], nodes_[id].label));
    const Node& own = nodes_[id];
    Node& all = nodes_[merged_of_.back()];
    all.shared += own.shared;
    const Row& more = own.row;
    Row& sum = all.row;
    if (more.calls == 0) continue;
    sum.min = sum.calls == 0 ? more.min : std::min(sum.min, more.min);
    sum.max = std::max(sum.max, more.max);
    sum.calls += more.calls;
    sum.total += more.total, sum.cpu += more.cpu, sum.gpu += more.gpu;
    sum.bytes += more.bytes, sum.flops += more.flops, sum.floor_ns += more.floor_ns;
  }
}

std::vector<Interval> RowTree::Stretches::take() {
  std::vector<Interval> all = std::move(host), more = std::move(gpu);
  host = gpu = {};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Section RowTree::section_of_root(SectionRoot& root) {
  std::vector<Interval> whole = root.total.take(), covered = root.covered.take();
  // Where each span has rows they are the same, and as many as the spans of a trace.
  const bool is_all_covered = whole == covered;
  unite(whole);
  if (is_all_covered) {
    covered = whole;
  } else {
    unite(covered);
  }
  const std::vector<Interval> between = gaps(whole, covered);
  if (!between.empty()) {
    Node& node = nodes_[child(root.node, label("(between events)"))];
    for (const Interval& gap : between) {
      const auto ns = static_cast<double>(gap.end - gap.start);
      count(node.row, ns, ns, 0);
    }
    node.under_way = between;
  }
  Section section{root.thread, root.is_gpu, length(whole), {}};
  if (!merged_of_.empty() && &root != &merged_) {
    merged_.total.host.insert(merged_.total.host.end(), whole.begin(), whole.end());
    merged_.covered.host.insert(merged_.covered.host.end(), covered.begin(), covered.end());
  }
  emit(root.node, section.total, section.rows);
  return section;
}

std::vector<Section> RowTree::sections() {
  std::vector<Section> result;
  number_groups();
  for (SectionRoot& root : roots_) {
    Section section = section_of_root(root);
    if (!root.is_hidden && !section.rows.empty()) result.push_back(std::move(section));
  }
  std::ranges::stable_partition(result, [](const Section& section) { return !section.is_gpu; });
  return result;
}

std::vector<Section> RowTree::merged() {
  if (merged_of_.empty()) return {};
  for (NodeId id = 0; id < merged_of_.size(); ++id) {
    std::vector<Interval>& all = nodes_[merged_of_[id]].under_way;
    std::vector<Interval> own = std::move(nodes_[id].under_way);
    if (all.empty()) {
      all = std::move(own);
    } else {
      all.insert(all.end(), own.begin(), own.end());
    }
  }
  std::vector<Section> result;
  Section section = section_of_root(merged_);
  if (!section.rows.empty()) result.push_back(std::move(section));
  return result;
}

}  // namespace paoding::profile
