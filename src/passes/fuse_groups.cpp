// SPDX-License-Identifier: Apache-2.0
// fuse_groups: elementwise ops and reductions that share an iteration space become one `group` node, one kernel.
//
//   a = sub(1, w);  b = mul(a, g);  dx = sum(b, axes=[1]);  dy = mul(w, g)
// becomes
//   dx, dy = group(w, g) [ a = sub(1, w); b = mul(a, g); fetch sum(b); fetch mul(w, g) ]
//
// Greedy: first along edges from producer to consumer, then between siblings that read one full-size value. A value
// smaller than the space is recomputed at every point, so it is taken in only when nobody else needs it.
//
// A group may read its own reductions where the kernel can run in stages (a softmax: the maximum of each row, then the
// sum, then the quotients). Values with one element per row then belong to it too, and are written once per row.
#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "base/check.h"
#include "graph/keep_names.h"
#include "group/lower.h"
#include "group/staged.h"
#include "ops/group_body.h"
#include "paoding/op.h"
#include "passes/contracted_graph.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

constexpr std::size_t kMaxOperands = 40;  // pointers and live vectors of one kernel
constexpr std::size_t kMaxNodes = 160;    // so that one kernel compiles in well under a second

// A row is read once per stage: a longer one would come from memory each time, and be one thread's work alone.
constexpr std::int64_t kMaxRowElements = 64 << 10;

// On a GPU a row is one CTA's work: fewer rows than this leave most of it idle while long ones run.
constexpr std::int64_t kFewRows = 64, kLongRow = 32 << 10;
// Where something lies between a row's elements (a sum per channel), a CTA has 16 or 32 rows side by side, and so few
// CTAs that a second launch is soon worth it. (On an H200 one took 11 us for 32 rows of 900 elements.)
constexpr std::int64_t kMostSpreadOut = 4 << 10;  // elements of all rows
constexpr std::int64_t kShortRow = 64;            // elements that the threads beside each other have in a step or two

constexpr std::int64_t kLeastOfImage = 64 << 10;  // elements: of fewer it does not matter who makes them
constexpr std::int64_t kNarrowest = 2;            // bytes of an element of a value that is made of an image

class Fusion {
 public:
  Fusion(Graph& graph, PassNotes& notes) : graph_(graph), notes_(notes), size_(graph.size()), units_(graph) {
    is_fetched_.assign(static_cast<std::size_t>(size_), 0);
    users_inside_.assign(static_cast<std::size_t>(size_), 0);
    kernels_.resize(static_cast<std::size_t>(size_));
    inputs_.resize(static_cast<std::size_t>(size_));
    for (const Graph::Fetch& fetch : graph.fetches()) is_fetched_[static_cast<std::size_t>(fetch.ref.node)] = 1;
    for (NodeId id = 0; id < size_; ++id) {
      const Node& node = graph.node(id);
      Kernel& kernel = kernels_[static_cast<std::size_t>(id)];
      kernel.is_group = node.op->kind == OpKind::formula || node.op->kind == OpKind::reduction ||
                        node.op->view == ViewForm::broadcast;
      if (!kernel.is_group) continue;
      kernel.space = space_of(graph, node);
      std::vector<Ref>& inputs = inputs_[static_cast<std::size_t>(id)];
      for (const Ref& ref : node.inputs) {
        if (!is_free(graph.node(ref.node))) inputs.push_back(ref);
      }
      std::sort(inputs.begin(), inputs.end());
      inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
      // No kernel could take it in: another has at most kMaxOperands results, so as many of its inputs would be left.
      kernel.is_too_wide = inputs.size() > 2 * kMaxOperands;
    }
  }

  void run() {
    find_late();
    for (const bool of_late : {false, true}) {
      for (NodeId id = 0; id < size_; ++id) {
        for (const Ref& ref : graph_.node(id).inputs) {
          if (is_put_off(ref, id) == of_late) try_merge(units_.unit_of(ref.node), units_.unit_of(id));
        }
      }
    }
    for (NodeId id = 0; id < size_; ++id) merge_siblings(id);
    note_all_kept_apart();
    std::map<Ref, Ref> replaced;
    for (int unit = 0; unit < size_; ++unit) {
      if (units_.members(unit).size() > 1) build(unit, &replaced);
    }
    graph_.replace(replaced);
    graph_.compact();
  }

 private:
  // The kernel of a unit, if its nodes are of the kind that groups compute.
  struct Kernel {
    bool is_group = false;
    bool is_too_wide = false;  // reads too much to be merged with anything
    Shape space;
    std::uint32_t row_axes = 0;  // axes of the reductions that it reads itself
  };

  const Node& node(NodeId id) const { return graph_.node(id); }
  /// Its inputs, each value once, except for those that cost nothing.
  const std::vector<Ref>& inputs(NodeId id) const { return inputs_[static_cast<std::size_t>(id)]; }
  Kernel& kernel(int unit) { return kernels_[static_cast<std::size_t>(unit)]; }
  bool is_reduction(NodeId id) const { return node(id).op->kind == OpKind::reduction; }
  bool is_fetched(NodeId id) const { return is_fetched_[static_cast<std::size_t>(id)] != 0; }
  static bool is_free(const Node& node) { return is_generated(node); }  // copied into every group that reads it

  // ---- values that go to their readers ----

  // Marks values made of one image (and of less) for ops alone that have to wait for sums or a kernel after the image:
  // made where the image is made they would be written beside it. The derivative of an activation, for one, is made of
  // the activation's argument by the kernel that multiplies with it.
  void find_late() {
    const std::vector<Ref> origins = origins_of_images();
    std::vector<int> waits(static_cast<std::size_t>(size_), 0);  // for how many of those, one after the other
    for (NodeId id = 0; id < size_; ++id) {
      for (const Ref& ref : node(id).inputs) {
        const bool is_awaited = is_reduction(ref.node) || node(ref.node).op->is_run_by_kernel();
        auto& mine = waits[static_cast<std::size_t>(id)];
        mine = std::max(mine, waits[static_cast<std::size_t>(ref.node)] + (is_awaited ? 1 : 0));
      }
    }
    const auto waits_longer = [&](NodeId user, NodeId id) {
      return waits[static_cast<std::size_t>(user)] > waits[static_cast<std::size_t>(id)];
    };
    is_late_.assign(static_cast<std::size_t>(size_), 0), is_stored_.assign(static_cast<std::size_t>(size_), 0);
    for (NodeId id = size_; id-- > 0;) {
      const auto at = static_cast<std::size_t>(id);
      const auto& users = units_.users(id);
      // Who else reads it from memory; where several are late, one image is there in place of theirs.
      std::ptrdiff_t late = 0;
      bool is_read = false;
      for (const NodeId user : users) {
        const auto reader = static_cast<std::size_t>(user);
        late += is_late_[reader];
        is_read |= is_late_[reader] == 0 && (!kernels_[reader].is_group || waits_longer(user, id));
      }
      is_read |= late * kNarrowest > size_bytes(node(id).types[0].dtype);
      is_stored_[at] = !kernel(id).is_group || is_fetched(id) || is_read;
      const bool is_formula = node(id).op->kind == OpKind::formula && !is_fetched(id);
      if (!is_formula || users.empty() || node(id).types[0].shape.elements() < kLeastOfImage) continue;
      const bool is_for_those_who_wait = std::ranges::all_of(users, [&](NodeId user) {
        const auto reader = static_cast<std::size_t>(user);
        return kernels_[reader].is_group && (waits_longer(user, id) || is_late_[reader] != 0);
      });
      is_late_[at] = is_for_those_who_wait && (large_inputs(id) == 1 || origins[at].valid());
    }
  }

  // Per node: the one value as large that formulas make it of, if there is just one; one made of several is such a
  // value for its readers.
  std::vector<Ref> origins_of_images() const {
    std::vector<Ref> origins(static_cast<std::size_t>(size_));
    for (NodeId id = 0; id < size_; ++id) {
      if (node(id).op->kind != OpKind::formula) continue;
      bool is_one = true;
      Ref& mine = origins[static_cast<std::size_t>(id)];
      for (const Ref& ref : inputs(id)) {
        if (graph_.type(ref).shape.elements() != node(id).types[0].shape.elements()) continue;
        const Ref made_of = origins[static_cast<std::size_t>(ref.node)];
        const Ref origin = made_of.valid() ? made_of : ref;
        is_one = is_one && (!mine.valid() || mine == origin);
        mine = origin;
      }
      if (!is_one) mine = {};
    }
    return origins;
  }
  std::ptrdiff_t large_inputs(NodeId id) const {
    return std::ranges::count_if(inputs(id), [&](const Ref& ref) {
      return graph_.type(ref).shape.elements() == node(id).types[0].shape.elements();
    });
  }
  bool is_put_off(const Ref& read, NodeId id) const {
    const auto from = static_cast<std::size_t>(read.node);
    return is_late_[static_cast<std::size_t>(id)] != 0 && is_late_[from] == 0 && is_stored_[from] != 0 &&
           graph_.type(read).shape.elements() == node(id).types[0].shape.elements();
  }

  void merge_siblings(NodeId id) {
    const auto& users = units_.users(id);
    for (std::size_t k = 1; k < users.size(); ++k) {
      const int a = units_.unit_of(users[0]), b = units_.unit_of(users[k]);
      if (!kernel(a).is_group || !kernel(b).is_group || a == b) continue;
      // A merge saves something only when the shared values are as large as the iteration space.
      const Shape& space = kernel(a).space;
      bool is_shared_whole = false;
      for (const Type& type : node(id).types) is_shared_whole |= type.shape == space;
      if (is_shared_whole && space == kernel(b).space) try_merge(a, b);
    }
  }

  // Merges two units if one kernel can compute both.
  void try_merge(int a, int b) {
    if (a == b || !kernel(a).is_group || !kernel(b).is_group) return;
    if (node(units_.members(a)[0]).placement != node(units_.members(b)[0]).placement) return;
    if (units_.members(a).size() + units_.members(b).size() > kMaxNodes) return note_size(a, b);
    Kernel merged{true, false, {}, 0};
    const Shape &first = kernel(a).space, &second = kernel(b).space;
    if (!broadcast(first, second, &merged.space) || !(merged.space == first || merged.space == second)) return;
    if (kernel(a).is_too_wide || kernel(b).is_too_wide) return note_size(a, b);
    if (!find_row_axes(a, b, &merged)) return;
    count_users_inside(a, b, 1);
    const bool fits = all_fit(a, b, merged), is_too_wide = operand_count(a, b) > kMaxOperands;
    count_users_inside(a, b, -1);
    if (!fits) return;
    if (is_too_wide) return note_size(a, b);
    switch (units_.merge(a, b)) {
      case ContractedGraph::Answer::merged: kernel(b) = merged; break;
      case ContractedGraph::Answer::too_far: ++too_far_; break;
      case ContractedGraph::Answer::cycle: break;
    }
  }

  void note_size(int a, int b) {
    ++kept_apart_[{node(units_.members(a)[0]).label(), node(units_.members(b)[0]).label()}];
  }

  void note_all_kept_apart() {
    for (const auto& [labels, count] : kept_apart_) {
      notes_.add(fmt::format("kept {} and {} apart{}: one kernel would have too many operands or nodes", labels.first,
                             labels.second, count == 1 ? "" : fmt::format(" {} times", count)));
    }
    if (too_far_ > 0) {
      notes_.add(fmt::format("{} pairs of ops were kept apart: more than {} steps stand between them", too_far_,
                             ContractedGraph::kMostVisited));
    }
  }

  bool is_inside(NodeId id, int a, int b) const { return units_.unit_of(id) == a || units_.unit_of(id) == b; }

  template <class Visit>
  bool for_all(int a, int b, Visit visit) const {
    for (const int unit : {a, b}) {
      for (const NodeId id : units_.members(unit)) {
        if (!visit(id)) return false;
      }
    }
    return true;
  }

  // Finds the axes of the reductions that the merged unit reads itself; false when no kernel can do that.
  bool find_row_axes(int a, int b, Kernel* merged) {
    NodeId example = -1;
    const bool fits = for_all(a, b, [&](NodeId id) {
      for (const Ref& ref : inputs(id)) {
        if (!is_reduction(ref.node) || !is_inside(ref.node, a, b)) continue;
        const std::uint32_t axes = row_axes_of(graph_, node(ref.node), merged->space);
        if (axes == 0 || (merged->row_axes != 0 && merged->row_axes != axes)) return false;
        merged->row_axes = axes;
        example = ref.node;
      }
      return true;
    });
    return fits && (merged->row_axes == 0 || can_run_in_stages(*merged, example, a, b));
  }

  bool can_run_in_stages(const Kernel& kernel, NodeId example, int a, int b) {
    if (kernel.space.elements() == 0) return false;
    const auto decline = [&](const std::string& why) {
      if (declined_.insert(example).second) {
        notes_.add(fmt::format("{} of {} is not read by the kernel that makes it: {}", node(example).label(),
                               to_string(graph_.type(node(example).inputs[0])), why));
      }
      return false;
    };
    std::int64_t row = 1;
    int innermost = -1;
    bool is_spread_out = false;
    for (int axis = 0; axis < kernel.space.rank(); ++axis) {
      if (kernel.space[axis] == 1) continue;
      const bool is_of_row = ((kernel.row_axes >> axis) & 1u) != 0;
      is_spread_out |= row > 1 && !is_of_row;
      if (is_of_row) row *= kernel.space[axis];
      innermost = axis;
    }
    const bool is_gpu = notes_.target().is_gpu();
    if (!is_gpu && row > kMaxRowElements) {
      return decline(
          fmt::format("rows of {} elements, more than {}, would be read again from memory", row, kMaxRowElements));
    }
    const std::int64_t rows = kernel.space.elements() / row;
    if (is_gpu && rows < kFewRows && row > kLongRow) {
      return decline(fmt::format("{} rows of {} elements: separate kernels share out such rows", rows, row));
    }
    if (is_gpu && is_spread_out && row > kShortRow && kernel.space.elements() > kMostSpreadOut) {
      return decline(
          fmt::format("{} rows of {} elements that do not lie side by side: separate kernels share out such "
                      "rows",
                      rows, row));
    }
    const bool is_contiguous = innermost < 0 || ((kernel.row_axes >> innermost) & 1u);
    if (!is_gpu && !is_contiguous) return decline("its rows are not contiguous");
    if (is_gpu && !reduces_rows(kernel, a, b, is_contiguous)) {
      return decline("another reduction of the kernel is neither over its rows nor over all of them");
    }
    return true;
  }

  // On a GPU a row is the work of one warp or CTA: results are one per row, one for all rows, or one per place in the
  // row for all rows, which are then contiguous.
  bool reduces_rows(const Kernel& kernel, int a, int b, bool is_contiguous) const {
    std::uint32_t long_axes = 0;
    for (int axis = 0; axis < kernel.space.rank(); ++axis) long_axes |= (kernel.space[axis] != 1 ? 1u : 0u) << axis;
    const std::uint32_t row = kernel.row_axes & long_axes, rows = long_axes & ~row;
    return for_all(a, b, [&](NodeId id) {
      if (!is_reduction(id)) return true;
      const std::uint32_t axes = row_axes_of(graph_, node(id), kernel.space) & long_axes;
      return axes == row || axes == long_axes || (axes == rows && is_contiguous);
    });
  }

  // Everything is as large as the space, or has one element per row, or is smaller and nobody else's business: then it
  // is computed anew at every point of the larger space.
  bool all_fit(int a, int b, const Kernel& merged) const {
    return for_all(a, b, [&](NodeId id) {
      const Shape& shape = space_of(graph_, node(id));
      if (shape == merged.space) return true;
      if (is_reduction(id)) return false;
      if (merged.row_axes != 0 && is_row_shape(shape, merged.space, merged.row_axes)) return true;
      return !is_needed_outside(id);
    });
  }

  // Adds `one` to every node's count of users in the two units: looking at all users of a node that many read would
  // cost as much for each of them.
  void count_users_inside(int a, int b, int one) {
    for_all(a, b, [&](NodeId id) {
      const std::vector<Ref>& mine = inputs(id);
      for (std::size_t i = 0; i < mine.size(); ++i) {
        if (i == 0 || mine[i].node != mine[i - 1].node) users_inside_[static_cast<std::size_t>(mine[i].node)] += one;
      }
      return true;
    });
  }

  // Whether others need a node of the two units whose users are counted.
  bool is_needed_outside(NodeId id) const {
    return is_fetched(id) || users_inside_[static_cast<std::size_t>(id)] < static_cast<int>(units_.users(id).size());
  }

  std::size_t operand_count(int a, int b) const {
    std::vector<Ref> operands;
    for_all(a, b, [&](NodeId id) {
      for (const Ref& ref : inputs(id)) {
        if (!is_inside(ref.node, a, b)) operands.push_back(ref);
      }
      if (is_needed_outside(id)) operands.push_back({id, 0});
      return true;
    });
    std::sort(operands.begin(), operands.end());
    return static_cast<std::size_t>(std::unique(operands.begin(), operands.end()) - operands.begin());
  }

  void build(int unit, std::map<Ref, Ref>* replaced) {
    auto body = std::make_shared<Graph>();
    std::map<Ref, Ref> inside;
    Values inputs;
    const std::vector<NodeId>& nodes = units_.members(unit);
    for (NodeId id : nodes) {
      for (const Ref& ref : node(id).inputs) {
        if (units_.unit_of(ref.node) == unit || is_free(node(ref.node)) || inside.contains(ref)) continue;
        const Type& type = graph_.type(ref);
        inside[ref] = body->input(fmt::format("in{}", inputs.size()), type.dtype, type.shape).ref();
        inputs.push_back(graph_.value(ref));
      }
    }
    std::vector<Ref> outputs;
    for (NodeId id : nodes) {
      Node copy = node(id);
      for (Ref& ref : copy.inputs) {
        if (!inside.contains(ref)) inside[ref] = {body->add(Node(node(ref.node))), 0};  // a free one
        ref = inside.at(ref);
      }
      inside[{id, 0}] = {body->add(std::move(copy)), 0};
      bool is_output = is_fetched(id);
      for (NodeId user : units_.users(id)) is_output |= units_.unit_of(user) != unit;
      if (is_output) {
        outputs.push_back({id, 0});
        body->fetch(fmt::format("out{}", outputs.size() - 1), body->value(inside.at({id, 0})));
      }
    }
    if (inputs.empty() || outputs.empty()) return;  // only constants, or read by nobody: left as they are
    const KeepNames keep(graph_);
    graph_.placement = node(nodes[0]).placement;
    graph_.scope = common_scope(nodes);
    graph_.origin = common_origin(nodes);
    const Values made = call(*find_op("group"), inputs, {}, {body}, &graph_);
    if (const std::string why = gpu_refusal(made[0].ref().node); !why.empty()) {
      notes_.add(fmt::format("{} ops of {} stay apart: {}", nodes.size(), node(nodes[0]).label(), why));
      return;  // nobody uses the group: it goes
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) (*replaced)[outputs[i]] = made[i].ref();
  }

  // Why the group as a whole, lowered, is no GPU kernel, which merging step by step could not see.
  std::string gpu_refusal(NodeId group) const {
    if (!notes_.target().is_gpu()) return "";
    std::vector<Layout> inputs, outputs;
    for (const Ref& ref : node(group).inputs) inputs.push_back(Layout::dense(graph_.type(ref)));
    for (const Type& type : node(group).types) outputs.push_back(Layout::dense(type));
    return staged_refusal(canonical(lower(graph_, node(group), inputs, outputs).group));
  }

  Name common_origin(const std::vector<NodeId>& nodes) const {
    const Name first = node(nodes[0]).origin;
    for (NodeId id : nodes) {
      if (!(node(id).origin == first)) return {};
    }
    return first;
  }

  // The longest scope that encloses every node.
  Name common_scope(const std::vector<NodeId>& nodes) const {
    std::string common = node(nodes[0]).scope.str();
    for (NodeId id : nodes) {
      const std::string& scope = node(id).scope.str();
      while (!common.empty() && scope != common && !scope.starts_with(common + "/")) {
        const auto slash = common.rfind('/');
        common.resize(slash == std::string::npos ? 0 : slash);
      }
    }
    return common;
  }

  Graph& graph_;
  PassNotes& notes_;
  const NodeId size_;
  ContractedGraph units_;
  std::vector<Kernel> kernels_;  // per unit
  std::vector<char> is_fetched_;
  std::vector<char> is_late_, is_stored_;                          // per node: find_late
  std::vector<std::vector<Ref>> inputs_;                           // of nodes that groups compute
  std::vector<int> users_inside_;                                  // per node, while two units are looked at
  std::map<std::pair<std::string, std::string>, int> kept_apart_;  // by their labels
  std::set<NodeId> declined_;                                      // reductions, so that each is noted once
  int too_far_ = 0;
};

// A sum of thousands becomes a sum of sums: making a kernel takes longer than its operands are more, and it has places
// for fewer than 2^16.
void split_sums(Graph& graph, PassNotes& notes) {
  constexpr std::size_t kMostTerms = 256;
  const auto is_long = [](const Node& node) { return node.op->is(OpRole::sum) && node.inputs.size() > kMostTerms; };
  const NodeId size = graph.size();
  NodeId first_long = 0;
  while (first_long < size && !is_long(graph.node(first_long))) ++first_long;
  if (first_long == size) return;
  Rewriter rewriter(graph);
  for (NodeId id = 0; id < size; ++id) {
    const Node& node = rewriter.enter(id);
    if (!is_long(node)) continue;
    notes.add(fmt::format("a sum of {} became sums of {}", node.inputs.size(), kMostTerms));
    const OpDef& sum = *node.op;
    Values terms;
    for (const Ref& ref : node.inputs) terms.push_back(graph.value(ref));
    while (terms.size() > 1) {
      Values sums;
      for (std::size_t first = 0; first < terms.size(); first += kMostTerms) {
        const std::size_t count = std::min(kMostTerms, terms.size() - first);
        sums.push_back(call(sum, std::span(terms).subspan(first, count))[0]);
      }
      terms = std::move(sums);
    }
    rewriter.replace({id, 0}, terms[0].ref());
  }
  rewriter.finish();
}

}  // namespace

void fuse_groups(Graph& graph, PassNotes& notes) {
  for_each_graph(graph, [&](Graph& each) {
    split_sums(each, notes);
    Fusion(each, notes).run();
  });
}

}  // namespace paoding
