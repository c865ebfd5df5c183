// SPDX-License-Identifier: Apache-2.0
// Python's handles of a graph: a Graph or Value there keeps the C++ graph alive, or knows that it is over.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "paoding/graph.h"

namespace paoding::python {

namespace nb = nanobind;

/// A graph that a program made, or the body of a loop or branch while the Python function that writes it runs.
class GraphOwner : public std::enable_shared_from_this<GraphOwner> {
 public:
  explicit GraphOwner(std::unique_ptr<Graph> graph);
  explicit GraphOwner(Graph* body) : graph_(body) {}
  ~GraphOwner();
  GraphOwner(const GraphOwner&) = delete;
  GraphOwner& operator=(const GraphOwner&) = delete;

  /// Error (argument) when it was a body whose function has returned.
  Graph& get() const;
  void end() { graph_ = nullptr; }

  /// Notes where Python called an op: errors of compiling and running are told with that line.
  void note_line(const std::string& op, const std::string& scope, std::string line);
  /// "model.py:12", or "" where no line or too many are known.
  std::string lines_of(const std::string& op, const std::string& scope) const;

  std::map<std::string, Initializer> first_values = {};  // of parameters that were given one after they were declared

 private:
  std::unique_ptr<Graph> owned_;
  Graph* graph_;
  std::unordered_map<std::string, std::vector<std::string>> lines_;  // by op and scope
};

/// Graph, as Python has it.
struct GraphHandle {
  std::shared_ptr<GraphOwner> owner;
  Graph& graph() const { return owner->get(); }
};

/// Value, as Python has it.
struct ValueHandle {
  std::shared_ptr<GraphOwner> owner;
  Ref ref;
  operator Value() const { return {&owner->get(), ref}; }  // NOLINT: functions of values take it
};
using MaybeValue = std::optional<ValueHandle>;
inline Value value_of(const MaybeValue& given) { return given ? Value(*given) : Value{}; }
inline Values values_of(const std::vector<ValueHandle>& given) { return {given.begin(), given.end()}; }

/// The Python side of a graph: of one that Python made, or of one that a function of Python's is writing now.
std::shared_ptr<GraphOwner> owner_of(Graph* graph);
/// The Python side of a value of any graph that Python knows, or of the body that is being written.
ValueHandle wrap(const Value& value);
MaybeValue wrap_if_any(const Value& value);
std::vector<ValueHandle> wrap(const Values& values);
/// The graph that is no body around a graph or body; null when Python did not make it.
std::shared_ptr<GraphOwner> root_of(const Graph& graph);

/// While it lives, a Python function writes the body of a loop or branch. Bodies that it met are over after it.
class BodyFrame {
 public:
  /// `body`: the graph that ops without inputs go to, if it is known.
  explicit BodyFrame(Graph* body = nullptr);
  ~BodyFrame();
  BodyFrame(const BodyFrame&) = delete;
  BodyFrame& operator=(const BodyFrame&) = delete;

 private:
  friend std::shared_ptr<GraphOwner> owner_of(Graph* graph);
  inline static thread_local BodyFrame* innermost = nullptr;
  std::unordered_map<Graph*, std::shared_ptr<GraphOwner>> bodies_;
  BodyFrame* around_;
  bool is_current_;
};

/// Graphs for ops without inputs: `with graph:`.
void enter_graph(const std::shared_ptr<GraphOwner>& owner);
void leave_graph();
/// `given`, or the graph of the innermost `with` or loop. Error (argument) when there is none.
Graph& graph_for(const GraphHandle* given, const char* op);

/// The line of Python that called into the package: "model.py:12"; "" when there is none.
std::string calling_line();

}  // namespace paoding::python
