// SPDX-License-Identifier: Apache-2.0
// Equal nodes become one; the first stays, with its scope and origin.
//
//   before:  %2 = tanh(%0)          after:  %2 = tanh(%0)
//            %3 = tanh(%0)                  %4 = mul(%2, %2)
//            %4 = mul(%2, %3)
//
// Inputs and parameters are never equal, nor are nodes with bodies (comparing bodies costs more than such twins would).
#include <algorithm>
#include <bit>
#include <unordered_map>

#include "paoding/op.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

void mix(std::size_t* hash, std::size_t value) {
  *hash = (*hash ^ value) * 0x9E3779B97F4A7C15ull;
  *hash ^= *hash >> 29;
}

std::size_t hash_of(const AttrValue& value) {
  std::size_t hash = value.index();
  if (const auto* flag = std::get_if<bool>(&value)) mix(&hash, *flag);
  if (const auto* number = std::get_if<std::int64_t>(&value)) mix(&hash, static_cast<std::size_t>(*number));
  if (const auto* number = std::get_if<double>(&value)) mix(&hash, std::bit_cast<std::uint64_t>(*number));
  if (const auto* text = std::get_if<std::string>(&value)) mix(&hash, std::hash<std::string>()(*text));
  if (const auto* dtype = std::get_if<DType>(&value)) mix(&hash, static_cast<std::size_t>(*dtype));
  if (const auto* ints = std::get_if<std::vector<std::int64_t>>(&value)) {
    for (std::int64_t number : *ints) mix(&hash, static_cast<std::size_t>(number));
  }
  if (const auto* floats = std::get_if<std::vector<double>>(&value)) {
    for (double number : *floats) mix(&hash, std::bit_cast<std::uint64_t>(number));
  }
  return hash;
}

std::size_t hash_of(const Node& node) {
  std::size_t hash = std::hash<const void*>()(node.op);
  for (const Ref& ref : node.inputs) {
    mix(&hash, static_cast<std::size_t>(ref.node));
    mix(&hash, static_cast<std::size_t>(ref.output));
  }
  for (const auto& [name, value] : node.attrs.entries()) mix(&hash, hash_of(value));
  return hash;
}

// Floats compare by their bits: 0 is not -0, and a NaN is itself.
bool equal_values(const AttrValue& a, const AttrValue& b) {
  const auto same_bits = [](double x, double y) {
    return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
  };
  if (a.index() != b.index()) return false;
  if (const auto* number = std::get_if<double>(&a)) return same_bits(*number, std::get<double>(b));
  if (const auto* list = std::get_if<std::vector<double>>(&a)) {
    return std::ranges::equal(*list, std::get<std::vector<double>>(b), same_bits);
  }
  return a == b;
}

bool equal_attrs(const Attrs& a, const Attrs& b) {
  if (a.entries().size() != b.entries().size()) return false;
  for (std::size_t i = 0; i < a.entries().size(); ++i) {
    if (a.entries()[i].first != b.entries()[i].first) return false;
    if (!equal_values(a.entries()[i].second, b.entries()[i].second)) return false;
  }
  return true;
}

bool equal_nodes(const Node& a, const Node& b) {
  return a.op == b.op && a.inputs == b.inputs && a.types == b.types && equal_attrs(a.attrs, b.attrs);
}

void merge_in(Graph& graph) {
  Rewriter rewriter(graph);
  std::unordered_multimap<std::size_t, NodeId> seen;
  for (NodeId id = 0; id < rewriter.first_new; ++id) {
    const Node& node = rewriter.enter(id);
    if (!node.bodies.empty() || node.op->has_effect || node.op->is(OpRole::source)) continue;
    const std::size_t hash = hash_of(node);
    NodeId twin = -1;
    for (auto [it, end] = seen.equal_range(hash); it != end && twin < 0; ++it) {
      if (equal_nodes(node, graph.node(it->second))) twin = it->second;
    }
    if (twin < 0) {
      seen.emplace(hash, id);
      continue;
    }
    for (std::int32_t k = 0; k < static_cast<std::int32_t>(node.types.size()); ++k) {
      rewriter.replace({id, k}, {twin, k});
    }
  }
  rewriter.finish();
}

}  // namespace

void merge_duplicates(Graph& graph, PassNotes&) { for_each_graph(graph, merge_in); }

}  // namespace paoding
