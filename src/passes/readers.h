// SPDX-License-Identifier: Apache-2.0
// Who reads which value, as the graph is when it is asked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "paoding/graph.h"

namespace paoding {

class Readers {
 public:
  explicit Readers(const Graph& graph) {
    const auto nodes = static_cast<std::size_t>(graph.size());
    first_value_.reserve(nodes + 1);
    std::uint32_t values = 0;
    for (NodeId id = 0; id < graph.size(); ++id) {
      first_value_.push_back(values);
      values += static_cast<std::uint32_t>(graph.node(id).types.size());
    }
    first_value_.push_back(values);
    // Readers of value v are those from first_reader_[v] to first_reader_[v + 1].
    first_reader_.assign(values + 1, 0);
    const auto each = [&](const auto& with) {
      for (NodeId id = 0; id < graph.size(); ++id) {
        for (const Ref& ref : graph.node(id).inputs) with(value_of(ref), id);
      }
    };
    each([&](std::size_t value, NodeId) { ++first_reader_[value + 1]; });
    for (std::size_t value = 0; value < values; ++value) first_reader_[value + 1] += first_reader_[value];
    readers_.resize(first_reader_.back());
    std::vector<std::uint32_t> next(first_reader_.begin(), first_reader_.end() - 1);
    each([&](std::size_t value, NodeId id) { readers_[next[value]++] = id; });
  }

  /// The nodes that read `ref`, in their order, one that reads it twice twice; none of a node that is newer than this.
  std::span<const NodeId> of(Ref ref) const { return is_known(ref.node) ? between(value_of(ref), 1) : none(); }
  /// The same for all outputs of a node, output by output.
  std::span<const NodeId> of(NodeId id) const {
    if (!is_known(id)) return none();
    const auto at = static_cast<std::size_t>(id);
    return between(first_value_[at], first_value_[at + 1] - first_value_[at]);
  }

 private:
  static std::span<const NodeId> none() { return {}; }
  bool is_known(NodeId id) const { return id >= 0 && static_cast<std::size_t>(id) + 1 < first_value_.size(); }
  std::size_t value_of(Ref ref) const {
    return first_value_[static_cast<std::size_t>(ref.node)] + static_cast<std::size_t>(ref.output);
  }
  std::span<const NodeId> between(std::size_t value, std::size_t values) const {
    return std::span(readers_).subspan(first_reader_[value], first_reader_[value + values] - first_reader_[value]);
  }

  std::vector<std::uint32_t> first_value_;   // by node
  std::vector<std::uint32_t> first_reader_;  // by value
  std::vector<NodeId> readers_;
};

}  // namespace paoding
