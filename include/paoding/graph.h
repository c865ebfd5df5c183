// SPDX-License-Identifier: Apache-2.0
// The one IR: a Graph of Nodes. A Value is one output of a node; its dtype and shape are known as soon as it exists.
#pragma once

#include <concepts>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "paoding/tensor.h"
#include "paoding/types.h"

namespace paoding {

class Graph;
class Replacements;
struct OpDef;
struct Decision;

/// An interned string: cheap to copy and compare, in any thread. Names of inputs, scopes and ops.
class Name {
 public:
  Name() : Name(std::string_view{}) {}
  Name(std::string_view text);  // NOLINT: meant to be implicit
  Name(const char* text) : Name(std::string_view(text)) {}
  Name(const std::string& text) : Name(std::string_view(text)) {}
  const std::string& str() const { return *text_; }
  bool empty() const { return text_->empty(); }
  friend bool operator==(Name a, Name b) { return a.text_ == b.text_; }

 private:
  const std::string* text_;
};

using NodeId = std::int32_t;

/// Output `output` of node `node` of some graph.
struct Ref {
  NodeId node = -1;
  std::int32_t output = 0;
  bool valid() const { return node >= 0; }
  friend bool operator==(const Ref&, const Ref&) = default;
  friend auto operator<=>(const Ref&, const Ref&) = default;
};

/// Handle to an output of a node. Copy it freely; it is valid as long as its Graph, and used by the same thread.
class Value {
 public:
  Value() = default;
  Value(Graph* graph, Ref ref) : graph_(graph), ref_(ref) {}
  bool valid() const { return graph_ != nullptr; }
  Graph& graph() const { return *graph_; }
  Ref ref() const { return ref_; }
  const Type& type() const;
  DType dtype() const { return type().dtype; }
  const Shape& shape() const { return type().shape; }
  friend bool operator==(const Value&, const Value&) = default;

 private:
  Graph* graph_ = nullptr;
  Ref ref_;
};
using Values = std::vector<Value>;

/// A value that is one of several alternatives, which may differ in shape and dtype; `variant_case` and similar ops
/// return it. Alternative i exists when `index` is i; outside 0 .. n-1 the last one does. visit() uses it, fetch()
/// reads it.
struct Variant {
  Value index;
  std::vector<Values> alternatives;
};

/// Where a node has to run; see class OnCpu.
enum class Placement : std::uint8_t { any, cpu };

/// The value of a node's attribute.
using AttrValue =
    std::variant<bool, std::int64_t, double, std::string, DType, std::vector<std::int64_t>, std::vector<double>>;

/// A number as C++ has it: an integer stays one, so that an i64 made of it is exact. Threads may share one as they
/// share an int.
class Number {
 public:
  template <std::floating_point T>
  Number(T value) : real_(value) {}  // NOLINT: meant to be implicit
  template <std::integral T>
  Number(T value)  // NOLINT: meant to be implicit
      : real_(static_cast<double>(value)), is_whole_(std::in_range<std::int64_t>(value)) {
    if (is_whole_) whole_ = static_cast<std::int64_t>(value);
  }
  /// The nearest double.
  double real() const { return real_; }
  /// The number in the form of an attribute: an integer where no double is the number.
  AttrValue attr() const;

 private:
  double real_;
  std::int64_t whole_ = 0;
  bool is_whole_ = false;
};
/// The same for a whole list: integers where a double would round one of them.
AttrValue exact_numbers(std::span<const std::int64_t> values);

/// Attributes of a node in the order its op declares them. Threads may share one as they share an int.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, AttrValue>> entries) : entries_(entries) {}
  void set(std::string name, AttrValue value);
  const AttrValue* find(std::string_view name) const;
  bool get_bool(std::string_view name) const;
  std::int64_t get_int(std::string_view name) const;
  /// Rounded where it is an integer that the attribute keeps.
  double get_float(std::string_view name) const;
  DType get_dtype(std::string_view name) const;
  const std::vector<std::int64_t>& get_ints(std::string_view name) const;
  const std::vector<double>& get_floats(std::string_view name) const;
  const std::vector<std::pair<std::string, AttrValue>>& entries() const { return entries_; }
  friend bool operator==(const Attrs&, const Attrs&) = default;

 private:
  std::vector<std::pair<std::string, AttrValue>> entries_;
};

/// One application of an op.
struct Node {
  const OpDef* op = nullptr;
  std::vector<Ref> inputs;
  Attrs attrs;
  std::vector<Type> types;                     // of the outputs
  std::vector<std::shared_ptr<Graph>> bodies;  // sub-graphs (scan has one); never shared between nodes
  Name name;                                   // of an input or parameter; empty otherwise
  Name scope;                                  // the user's scope: "decoder/blend"
  Name origin;                                 // the composed op or gradient that made it: "lstm_cell", "mul_grad"
  Placement placement = Placement::any;
  std::shared_ptr<const Decision> decision;  // compiling: which kernel runs it, where a pass had to know

  /// The group that the node belongs to: its origin, else its op's name.
  const std::string& label() const;
  /// The node's name in reports: "lstm_cell/matmul", or its op's name alone when it has no origin.
  std::string title() const;
};

/// Makes the value a parameter has before it is set or trained; equal seeds give equal bits. See paoding/nn.h.
using Initializer = std::function<Tensor(const Type& type, std::uint64_t seed)>;

/// The purpose of a parameter. Not part of the text form: parameters that a text declares are the model's.
enum class ParameterRole : std::uint8_t {
  model,      // read by the model's computation: weights, running statistics
  optimizer,  // the rest of training's state: means of gradients, counters, averages
  random,     // seed and counter of random ops
};

/// Whether the node is kept though nobody reads its result: its op does something, or one in a body of it does.
bool has_effect(const Node& node);

/// A static computation: nodes in an order in which every node follows its inputs, named inputs, named fetches.
/// A body (of scan) is a Graph too: its inputs and fetches are positional, and it uses values of the enclosing graph
/// only through inputs that capture() makes. One thread builds or compiles a graph at a time; graphs are independent.
class Graph {
 public:
  struct Fetch {
    std::string name;
    Ref ref;
  };

  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// A value fed on every run. Error (argument) when the name is taken or empty.
  Value input(std::string_view name, DType dtype, const Shape& shape);
  /// A value kept in a Parameters store and shared by programs; zero at first unless `initial` says otherwise. Same
  /// errors.
  Value parameter(std::string_view name, DType dtype, const Shape& shape, Initializer initial = {},
                  ParameterRole role = ParameterRole::model);
  /// Names `value` as a result that compile() can fetch. Error (argument) when the name is taken.
  void fetch(std::string_view name, const Value& value);
  /// The same for a Variant whose alternatives are one value each: the fetched Tensor is of the alternative that the
  /// run took.
  void fetch(std::string_view name, const Variant& variant);
  /// `parameter` takes `value` at the end of every run; within a run every read sees the value at its start. A program
  /// does so whatever it fetches, unless CompileOptions::assign is off. Error (argument) when `parameter` is no
  /// parameter of this graph or is assigned already, (shape, dtype) when the types differ.
  void assign(const Value& parameter, const Value& value);

  std::unique_ptr<Graph> clone() const;

  // ---- reading ----
  NodeId size() const { return static_cast<NodeId>(nodes_.size()); }
  const Node& node(NodeId id) const { return nodes_[static_cast<std::size_t>(id)]; }
  const Type& type(Ref ref) const { return node(ref.node).types[static_cast<std::size_t>(ref.output)]; }
  Value value(Ref ref) { return {this, ref}; }
  /// Nodes of op `input`, in the order they were made.
  const std::vector<NodeId>& inputs() const { return inputs_; }
  const std::vector<NodeId>& parameters() const { return parameters_; }
  const std::vector<Fetch>& fetches() const { return fetches_; }
  /// Initializers by the names of the parameters that have one. Not part of the text form.
  const std::map<std::string, Initializer>& initializers() const { return initializers_; }
  /// The role of a parameter by its name.
  ParameterRole role(std::string_view name) const;
  /// The input or parameter of this name; invalid when there is none.
  Value find(std::string_view name);
  /// Nodes of op `assign`, in the order they were made.
  std::vector<NodeId> assigns() const;
  /// Nodes that do something besides giving values (assign, print, and nodes with one in a body): kept though nobody
  /// may read them.
  const std::vector<NodeId>& effects() const { return effects_; }

  // ---- building and rewriting, for ops and passes ----
  /// Appends a node that is complete (types inferred); takes scope and origin from the graph when it has none.
  NodeId add(Node node);
  Node& mutable_node(NodeId id) {
    is_compact_ = false;
    return nodes_[static_cast<std::size_t>(id)];
  }
  std::vector<Fetch>& mutable_fetches() {
    is_compact_ = false;
    fetch_names_.clear();
    return fetches_;
  }
  /// `id` has been replaced by another node: it goes when nobody reads it, like any.
  void forget_effect(NodeId id);
  /// Parameters keep their values: every `assign` goes, with the nodes that only it needed.
  void drop_assigns();
  /// For callers that give a body its inputs in another order than they made them.
  std::vector<NodeId>& mutable_inputs() {
    is_compact_ = false;
    return inputs_;
  }
  /// Makes every use of `from`, in nodes and fetches, a use of `to`.
  void replace(Ref from, Ref to);
  /// replace() of several at once, in one walk; chains (a to b, b to c) are followed.
  void replace(const std::map<Ref, Ref>& replacements);
  void replace(Replacements& replacements);
  /// Drops nodes that no fetch and no node with an effect needs (inputs and parameters stay, unless `drop_inputs`), and
  /// restores the order. It takes no time where nothing has been changed since the last time: most passes change
  /// nothing in most graphs.
  void compact(bool drop_inputs = false);

  /// For a body under construction: the enclosing graph, and the input that stands for `outer`, made on first use. A
  /// body belongs to the innermost graph whose values it uses: a value of a graph further in moves it there.
  Graph* parent = nullptr;
  Value capture(const Value& outer);
  const std::vector<Value>& captured() const { return captured_; }
  /// For the step of a loop under construction: how often it runs, and the number of the step (i64), which is an input
  /// of the body that step_index() makes on first use. -1: no loop.
  std::int64_t step_count = -1;
  Value step_number;
  /// How many random ops draw from a random state, by its name; each has a stream of its own.
  std::map<std::string, std::int64_t, std::less<>> random_streams;
  Name random_purpose;  // of random ops that are made; see class RandomPurpose
  /// The parent, which encloses `inner`, and the values captured from it, are now `inner`.
  void move_into(Graph& inner);
  /// Whether `inner` is under construction for a node of this graph, or of one further in.
  bool encloses(const Graph& inner) const;

  Name scope;                            // given to new nodes; see class Scope
  Name origin;                           // given to new nodes; see call()
  Placement placement = Placement::any;  // given to new nodes; see class OnCpu

 private:
  /// Of compact(): the nodes of which `needed` is set, each behind its inputs.
  std::vector<NodeId> order_of_needed(const std::vector<char>& needed, bool is_in_order) const;

  std::deque<Node> nodes_;
  std::vector<NodeId> inputs_;
  std::vector<NodeId> parameters_;
  std::map<std::string, Initializer> initializers_;
  std::map<std::string, ParameterRole, std::less<>> roles_;  // of those that are not the model's
  std::vector<NodeId> effects_;
  std::vector<Fetch> fetches_;
  bool is_compact_ = false;                           // nothing was added or could be changed since compact()
  std::vector<Value> captured_;                       // outer values, in the order their inputs were made
  std::map<Ref, Ref> capture_of_;                     // by the parent's value
  std::map<std::string, NodeId, std::less<>> named_;  // inputs and parameters
  std::set<std::string, std::less<>> fetch_names_;    // of fetches_, or empty: then they are collected anew
  std::map<Ref, NodeId> assign_of_;                   // by parameter, or empty: then they are collected anew
};

/// Names the nodes that its thread builds while it lives: they get "outer/inner" as scope; errors, dumps and reports
/// show it.
class Scope {
 public:
  Scope(Graph& graph, std::string_view name);
  ~Scope() { graph_.scope = saved_; }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Graph& graph_;
  Name saved_;
};

/// Nodes that its thread builds while it lives run on the CPU, in a program for a GPU too: predicates and other small
/// computations that only decide which work is done. On a CPU program it changes only dumps and plans.
class OnCpu {
 public:
  explicit OnCpu(Graph& graph) : graph_(graph), saved_(graph.placement) { graph.placement = Placement::cpu; }
  ~OnCpu() { graph_.placement = saved_; }
  OnCpu(const OnCpu&) = delete;
  OnCpu& operator=(const OnCpu&) = delete;

 private:
  Graph& graph_;
  Placement saved_;
};

/// Text form of a graph, version 1: a statement a line; parse_graph() reads it back (docs/reference/graph_text.md).
std::string to_text(const Graph& graph);
/// Error (file) with line and column when `text` is not a graph; op errors keep their own kind.
std::unique_ptr<Graph> parse_graph(std::string_view text);

}  // namespace paoding
