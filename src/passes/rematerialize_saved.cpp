// SPDX-License-Identifier: Apache-2.0
// rematerialize_saved: a value that one loop stacks for another to read is made again there, when it follows from
// little that both can see: the places at which dropout draws its numbers, which forward and backward need, are
// counted, not stored.
//
//   s = scan(xs) [ .. out = add(iota, x) ];  r = scan(.., s) [ .. exp(element) ]
// becomes
//   s = scan(xs) [ .. ];                     r = scan(.., xs) [ .. exp(add(iota, x)) ]
#include <map>
#include <optional>
#include <set>

#include "base/check.h"
#include "group/lower.h"
#include "paoding/op.h"
#include "passes/pass.h"
#include "passes/scan_parts.h"

namespace paoding {
namespace {

// More arithmetic than this is not worth a read.
constexpr std::size_t kMostNodes = 64;

/// Nodes of a body that make a value out of its arguments alone.
struct Recipe {
  std::vector<NodeId> nodes;    // in an order that stands
  std::vector<Ref> arguments;   // of the body: elements of sequences, and constants
  std::int64_t read_bytes = 0;  // of those
};

class Rematerializer {
 public:
  Rematerializer(Graph& graph, NodeId id, PassNotes& notes) : graph_(graph), notes_(notes), reader_(graph, id) {}

  void run() {
    std::map<Ref, Ref> inside;  // of the body: from the value that was read to the one that is made
    const std::vector<ScanParts::Argument> sequences = reader_.sequences;
    for (const ScanParts::Argument& argument : sequences) {
      if (graph_.node(argument.outer.node).op->is_scan()) rematerialize(argument, &inside);
    }
    if (inside.empty()) return;
    reader_.body.replace(inside);
    for (ScanParts::Carry& carry : reader_.carries) carry.next = moved(inside, carry.next);
    for (ScanParts::Output& output : reader_.outputs) output.value = moved(inside, output.value);
    std::map<Ref, Ref> replaced;
    reader_.rebuild(&replaced);
    graph_.replace(replaced);
  }

 private:
  static Ref moved(const std::map<Ref, Ref>& to, Ref ref) {
    const auto it = to.find(ref);
    return it == to.end() ? ref : it->second;
  }

  void rematerialize(const ScanParts::Argument& argument, std::map<Ref, Ref>* inside) {
    const ScanParts maker(graph_, argument.outer.node);
    const ScanParts::Output* output = maker.output_stacked_as(argument.outer);
    if (output == nullptr) return;
    const Type& type = maker.body.type(output->value);
    const auto recipe = recipe_of(maker, output->value);
    if (!recipe || 2 * recipe->read_bytes > size_bytes(type)) return;
    (*inside)[argument.input] = follow(maker, *recipe, output->value);
    notes_.add(fmt::format("{} {} is made again, not stacked over {} steps",
                           maker.body.node(output->value.node).op->name, to_string(type), maker.length));
  }

  static std::optional<Recipe> recipe_of(const ScanParts& maker, Ref value) {
    Recipe recipe;
    std::set<NodeId> cone{value.node};  // ids of a body stand after those of their inputs
    while (!cone.empty()) {
      const NodeId id = *cone.rbegin();
      cone.erase(std::prev(cone.end()));
      const Node& node = maker.body.node(id);
      if (node.op->is(OpRole::source)) {
        if (maker.carry_read_as({id, 0}) != nullptr) return std::nullopt;
        recipe.arguments.insert(recipe.arguments.begin(), {id, 0});
        recipe.read_bytes += size_bytes(node.types[0]);
        continue;
      }
      const bool is_view = node.op->kind == OpKind::view && node.inputs.size() == 1;
      if (!is_generated(node) && node.op->kind != OpKind::formula && !is_view) return std::nullopt;
      recipe.nodes.insert(recipe.nodes.begin(), id);
      if (recipe.nodes.size() > kMostNodes) return std::nullopt;
      for (const Ref& ref : node.inputs) cone.insert(ref.node);
    }
    return recipe;
  }

  Ref follow(const ScanParts& maker, const Recipe& recipe, Ref value) {
    std::map<Ref, Ref> made;
    for (const Ref& ref : recipe.arguments) {
      const ScanParts::Argument* element = maker.sequence_read_as(ref);
      made[ref] = element != nullptr ? reader_.add_sequence(element->outer)
                                     : reader_.add_constant(maker.constant_read_as(ref)->outer);
    }
    for (const NodeId id : recipe.nodes) {
      Node copy = maker.body.node(id);
      for (Ref& ref : copy.inputs) ref = made.at(ref);
      const NodeId copied = reader_.body.add(std::move(copy));
      for (std::int32_t k = 0; k < static_cast<std::int32_t>(maker.body.node(id).types.size()); ++k) {
        made[{id, k}] = {copied, k};
      }
    }
    return made.at(value);
  }

  Graph& graph_;
  PassNotes& notes_;
  ScanParts reader_;
};

}  // namespace

void rematerialize_saved(Graph& graph, PassNotes& notes) {
  for_each_graph(graph, [&](Graph& each) {
    const NodeId size = each.size();
    for (NodeId id = 0; id < size; ++id) {
      if (each.node(id).op->is_scan()) Rematerializer(each, id, notes).run();
    }
    each.compact();
  });
}

}  // namespace paoding
