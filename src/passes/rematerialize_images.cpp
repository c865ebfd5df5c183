// SPDX-License-Identifier: Apache-2.0
// rematerialize_images: a value that a kernel makes with few ops of one image in memory, only for other kernels, is not
// stored; its readers read the image and make the value again.
//
//   x, y, d = group(a, b) [ x = add(a, b); d = sub(x, m); fetch x; fetch .. d ..; fetch d ];  g = group(d, ..) [ .. d
//   .. ]
// becomes
//   x, y, m = group(a, b) [ x = add(a, b); m = mean of x; fetch x; fetch ..; fetch m ];
//   g = group(x, m, ..) [ d = sub(x, m); .. d .. ]
//
// so that a norm leaves its gradient the mean of each row, not the differences from it, and a product that an
// activation reads with a bias added is read by the gradient as well. The image, which was in memory for others, has no
// more bytes than the value.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "graph/keep_names.h"
#include "group/lower.h"
#include "ops/group_body.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/pass.h"

namespace paoding {
namespace {

constexpr std::size_t kMostRemadeOps = 8;               // that are made again
constexpr std::int64_t kLeastOfRemadeImage = 64 << 10;  // of fewer it does not matter who makes them
constexpr std::int64_t kLeastThatShare = 64;            // elements of the image for one of a value that they share
constexpr std::size_t kMostOperandsOfReader = 40;       // as fuse_groups has them

/// The ops of a group's body that make one of its results, and the values that they start from.
struct ImageRecipe {
  NodeId group = -1;
  Ref result;                 // in the body
  std::vector<NodeId> nodes;  // in an order that stands
  std::vector<Ref> leaves;    // in the body: inputs, results, and values of one element per row
};

class ImageRematerialization {
 public:
  explicit ImageRematerialization(Graph& graph) : graph_(graph), size_(graph.size()) {}

  int run() {
    for (const Graph::Fetch& fetch : graph_.fetches()) fetched_.insert(fetch.ref);
    for (NodeId id = 0; id < size_; ++id) {
      for (const Ref& ref : graph_.node(id).inputs) readers_[ref].insert(id);
    }
    for (NodeId id = 0; id < size_; ++id) {
      if (is_group(id)) choose(id);
    }
    if (recipes_.empty()) return 0;
    for (NodeId id = 0; id < size_; ++id) {
      if (is_group(id) && has_changed(id)) rebuild(id);
    }
    graph_.replace(moved_);
    graph_.compact();
    return static_cast<int>(recipes_.size());
  }

 private:
  bool is_group(NodeId id) const { return graph_.node(id).op->is_fusion_group(); }
  const Graph& body(NodeId id) const { return *graph_.node(id).bodies[0]; }

  // ---- which values ----

  void choose(NodeId id) {
    const GroupBody facts = read_body(body(id), [](ErrorKind, const std::string&) {});
    for (std::int32_t k = 0; k < static_cast<std::int32_t>(graph_.node(id).types.size()); ++k) {
      const Ref value{id, k};
      if (fetched_.contains(value) || sources_.contains(value) || !has_room_in_readers(value)) continue;
      if (const auto recipe = recipe_of(value, facts)) {
        for (const Ref& leaf : recipe->leaves) {
          if (const Ref outer = outer_of(id, leaf); outer.valid()) sources_.insert(outer);
        }
        recipes_.emplace(value, *recipe);
      }
    }
  }

  bool has_room_in_readers(Ref value) const {
    const auto readers = readers_.find(value);
    if (readers == readers_.end()) return false;
    return std::ranges::all_of(readers->second, [&](NodeId id) {
      return is_group(id) &&
             graph_.node(id).inputs.size() + graph_.node(id).types.size() + kMostRemadeOps <= kMostOperandsOfReader;
    });
  }

  std::optional<ImageRecipe> recipe_of(Ref value, const GroupBody& facts) const {
    const Graph& from = body(value.node);
    const Type& type = graph_.type(value);
    ImageRecipe recipe{value.node, from.fetches()[static_cast<std::size_t>(value.output)].ref, {}, {}};
    if (type.shape.elements() < kLeastOfRemadeImage || !(type.shape == facts.space)) return std::nullopt;
    if (!collect(value, recipe.result, facts, &recipe) || recipe.nodes.empty()) return std::nullopt;
    int images = 0;
    for (const Ref& leaf : recipe.leaves) {
      const Type& read = from.type(leaf);
      const Ref outer = outer_of(value.node, leaf);
      if (outer.valid() && recipes_.contains(outer)) return std::nullopt;  // it is stored no more
      if (read.shape.elements() * kLeastThatShare <= type.shape.elements()) continue;
      if (!(read.shape == type.shape) || size_bytes(read.dtype) > size_bytes(type.dtype)) return std::nullopt;
      ++images;
    }
    return images == 1 ? std::optional(recipe) : std::nullopt;
  }

  // Collects the ops behind `ref`, inputs first; false when there are too many, or one is no formula.
  bool collect(Ref value, Ref ref, const GroupBody& facts, ImageRecipe* recipe) const {
    const Graph& from = body(value.node);
    const Node& node = from.node(ref.node);
    if (std::ranges::find(recipe->nodes, ref.node) != recipe->nodes.end()) return true;
    const bool is_leaf = node.op->is(OpRole::source) || facts.is_per_row(from, ref) ||
                         (!(ref == recipe->result) && outer_of(value.node, ref).valid());
    if (is_leaf) {
      if (std::ranges::find(recipe->leaves, ref) == recipe->leaves.end()) recipe->leaves.push_back(ref);
      return !(ref == recipe->result);
    }
    if (node.op->kind != OpKind::formula && node.op->view != ViewForm::broadcast && !is_generated(node)) return false;
    for (const Ref& input : node.inputs) {
      if (!collect(value, input, facts, recipe)) return false;
    }
    recipe->nodes.push_back(ref.node);
    const auto made = std::ranges::count_if(recipe->nodes, [&](NodeId id) { return !is_generated(from.node(id)); });
    return static_cast<std::size_t>(made) <= kMostRemadeOps;
  }

  // The value outside that an input of the body is, or the result that a node of it is; invalid for others.
  Ref outer_of(NodeId id, Ref inside) const {
    const Graph& from = body(id);
    const auto input = std::ranges::find(from.inputs(), inside.node);
    if (input != from.inputs().end()) {
      return graph_.node(id).inputs[static_cast<std::size_t>(input - from.inputs().begin())];
    }
    for (std::size_t k = 0; k < from.fetches().size(); ++k) {
      const Ref result{id, static_cast<std::int32_t>(k)};
      if (from.fetches()[k].ref == inside && readers_.contains(result)) return result;
    }
    return {};
  }

  // ---- the groups, made again ----

  bool has_changed(NodeId id) const {
    const Node& node = graph_.node(id);
    const bool reads = std::ranges::any_of(node.inputs, [&](const Ref& ref) { return recipes_.contains(ref); });
    const bool makes = std::ranges::any_of(recipes_, [&](const auto& each) { return each.second.group == id; });
    return reads || makes;
  }

  void rebuild(NodeId id) {
    const Node old = graph_.node(id);  // a copy: new nodes may move it
    const Graph& from = *old.bodies[0];
    auto made = std::make_shared<Graph>();
    Values inputs;
    std::map<Ref, Ref> read;  // of values outside: the input of the new body
    const auto input_of = [&](Ref outer) {
      const auto [it, is_new] = read.try_emplace(outer);
      if (is_new) {
        const Type type = graph_.type(outer);
        it->second = made->input(fmt::format("in{}", inputs.size()), type.dtype, type.shape).ref();
        inputs.push_back(graph_.value(outer));
      }
      return it->second;
    };
    std::map<Ref, Ref> inside;
    const auto copy = [&](const Graph& source, NodeId node, std::map<Ref, Ref>* to) {
      Node again = source.node(node);
      for (Ref& ref : again.inputs) ref = to->at(ref);
      (*to)[{node, 0}] = {made->add(std::move(again)), 0};
    };
    std::size_t next = 0;
    for (NodeId node = 0; node < from.size(); ++node) {
      if (!from.node(node).op->is(OpRole::source)) {
        copy(from, node, &inside);
        continue;
      }
      const Ref outer = old.inputs[next++];
      const auto recipe = recipes_.find(outer);
      if (recipe == recipes_.end()) {
        inside[{node, 0}] = input_of(outer);
        continue;
      }
      const ImageRecipe& again = recipe->second;
      std::map<Ref, Ref> of_recipe;
      for (const Ref& leaf : again.leaves) of_recipe[leaf] = input_of(leaf_outside(again, leaf));
      for (const NodeId each : again.nodes) copy(body(again.group), each, &of_recipe);
      inside[{node, 0}] = of_recipe.at(again.result);
    }
    std::vector<Ref> results;  // of the old group, those that stay, then values of the body that recipes start from
    const auto fetch = [&](Ref in_old_body) {
      made->fetch(fmt::format("out{}", results.size()), made->value(inside.at(in_old_body)));
    };
    for (std::int32_t k = 0; k < static_cast<std::int32_t>(old.types.size()); ++k) {
      if (recipes_.contains({id, k})) continue;
      fetch(from.fetches()[static_cast<std::size_t>(k)].ref);
      results.push_back({id, k});
    }
    std::vector<Ref> rows;
    for (const auto& [value, recipe] : recipes_) {
      if (recipe.group != id) continue;
      for (const Ref& leaf : recipe.leaves) {
        if (outer_of(id, leaf).valid() || std::ranges::find(rows, leaf) != rows.end()) continue;
        fetch(leaf);
        results.push_back({});
        rows.push_back(leaf);
      }
    }
    const KeepNames keep(graph_, old);
    const Values all = call(*old.op, inputs, old.attrs, {made}, &graph_);
    std::size_t row = 0;
    for (std::size_t k = 0; k < results.size(); ++k) {
      if (results[k].valid()) {
        moved_[results[k]] = all[k].ref();
      } else {
        rows_[{id, rows[row++]}] = all[k].ref();
      }
    }
  }

  Ref leaf_outside(const ImageRecipe& recipe, Ref leaf) const {
    const Ref outer = outer_of(recipe.group, leaf);
    return outer.valid() ? outer : rows_.at({recipe.group, leaf});
  }

  Graph& graph_;
  const NodeId size_;
  std::map<Ref, std::set<NodeId>> readers_;
  std::set<Ref> fetched_, sources_;             // sources: images that recipes read, which stay
  std::map<Ref, ImageRecipe> recipes_;          // by the value that is stored no more
  std::map<std::pair<NodeId, Ref>, Ref> rows_;  // by group and value of its body: the new result
  std::map<Ref, Ref> moved_;
};

}  // namespace

void rematerialize_images(Graph& graph, PassNotes& notes) {
  if (!notes.target().is_gpu()) return;
  int rematerialized = 0;
  for_each_graph(graph, [&](Graph& each) { rematerialized += ImageRematerialization(each).run(); });
  if (rematerialized > 0) {
    notes.add(fmt::format("{} values are made again of an image that is in memory anyway", rematerialized));
  }
}

}  // namespace paoding
