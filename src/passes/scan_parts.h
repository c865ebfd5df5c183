// SPDX-License-Identifier: Apache-2.0
// A scan taken apart for editing: passes change the lists, then rebuild() makes a new node from them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "paoding/graph.h"

namespace paoding {

struct ScanParts {
  struct Carry {
    Ref initial;  // outside
    Ref input;    // inside: its value at the start of a step
    Ref next;     // inside: its value for the next step
    Ref last;     // outside: the old node's output that holds the last one; invalid for a new carry
  };
  struct Argument {
    Ref outer;  // outside
    Ref input;  // inside
  };
  struct Output {
    Ref value;    // inside
    Ref stacked;  // outside: the old node's output; invalid for a new one
    std::string name;
  };

  ScanParts(Graph& graph, NodeId scan);

  /// A new input of the body, for a carry that is to be added; its name is the body's own.
  Ref new_input(std::string_view kind, const Type& type);
  /// Makes `outer` visible inside: as element t of its outermost axis, or whole. Returns the inside value.
  Ref add_sequence(Ref outer);
  Ref add_constant(Ref outer);
  /// Stacks an inside value; equal ones are shared. Returns its index in `outputs`.
  std::size_t add_output(Ref value);

  // ---- The role of a value; nullptr where it has another ----

  const Carry* carry_read_as(Ref input) const;
  const Argument* sequence_read_as(Ref input) const;
  const Argument* constant_read_as(Ref input) const;
  const Output* output_of(Ref value) const;            // the first that stacks the inside value
  const Output* output_stacked_as(Ref stacked) const;  // outside

  /// Adds a scan node made of the lists as they are now, dropping body nodes that no carry or output needs, and
  /// arguments the body does not read. Fills `replaced` (old outer refs to new ones) for every carry and output that
  /// has one; the caller applies it, with graph.replace(). Returns the node; outer refs of new outputs are
  /// {node, carries + index}.
  NodeId rebuild(std::map<Ref, Ref>* replaced);

  Graph& graph;
  Graph& body;
  NodeId scan;
  std::vector<Carry> carries;
  std::vector<Argument> sequences;
  std::vector<Argument> constants;
  std::vector<Output> outputs;
  std::int64_t length;
  bool is_reverse;

 private:
  void index_arguments();

  bool are_arguments_indexed_ = false;
  std::map<Ref, Ref> sequence_of_, constant_of_;  // by the outer value
  std::map<Ref, std::size_t> index_of_;           // of an output, by the inside value
  std::size_t indexed_ = 0;                       // outputs that were there when it was brought up to date
};

/// Calls `edit` with every scan of `graph` in order. Values that it replaces (old outer refs to new ones) are replaced
/// for the scans that come later, and at the end for all nodes; then the graph is compacted.
void for_each_scan(Graph& graph, const std::function<void(NodeId scan, std::map<Ref, Ref>* replaced)>& edit);

/// For every node of a body: whether its value depends on a carry.
std::vector<char> depends_on_carries(const ScanParts& parts);
/// For every node of a body: whether a carry's next value depends on it.
std::vector<char> feeds_carries(const ScanParts& parts);

}  // namespace paoding
