// SPDX-License-Identifier: Apache-2.0
// Graph: adding nodes, capturing outer values, replacing uses, dropping unused nodes.
#include "paoding/graph.h"

#include <algorithm>
#include <array>
#include <functional>
#include <mutex>
#include <ranges>
#include <unordered_set>

#include "base/check.h"
#include "base/one_line.h"
#include "graph/body_scope.h"
#include "graph/replacements.h"
#include "paoding/cancellation.h"
#include "paoding/op.h"

namespace paoding {

namespace {
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
}  // namespace

Name::Name(std::string_view text) {
  static const std::string none;  // every node that is made has names that nobody has given yet
  static std::mutex mutex;
  static std::unordered_set<std::string, TextHash, std::equal_to<>> names;  // node based: addresses stay
  if (text.empty()) {
    text_ = &none;
    return;
  }
  const std::lock_guard lock(mutex);
  const auto known = names.find(text);
  text_ = known != names.end() ? &*known : &*names.emplace(text).first;
}

const Type& Value::type() const {
  if (graph_ == nullptr) fail(ErrorKind::argument, "value: this Value was never given a node");
  return graph_->type(ref_);
}

void Attrs::set(std::string name, AttrValue value) {
  for (auto& [key, old] : entries_) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  entries_.emplace_back(std::move(name), std::move(value));
}

const AttrValue* Attrs::find(std::string_view name) const {
  for (const auto& [key, value] : entries_) {
    if (key == name) return &value;
  }
  return nullptr;
}

namespace {
template <class T>
const T& get(const Attrs& attrs, std::string_view name) {
  const AttrValue* value = attrs.find(name);
  if (value == nullptr) fail(ErrorKind::argument, "attribute '{}': there is none of this name", one_line(name));
  if (!std::holds_alternative<T>(*value))
    fail(ErrorKind::argument, "attribute '{}': it is of another kind", one_line(name));
  return std::get<T>(*value);
}
}  // namespace

namespace {
bool is_a_double(std::int64_t value) {
  const auto rounded = static_cast<double>(value);
  return rounded < 0x1p63 && static_cast<std::int64_t>(rounded) == value;
}
}  // namespace

AttrValue Number::attr() const {
  if (is_whole_ && !is_a_double(whole_)) return whole_;
  return real_;
}

AttrValue exact_numbers(std::span<const std::int64_t> values) {
  if (std::all_of(values.begin(), values.end(), is_a_double)) return std::vector<double>(values.begin(), values.end());
  return std::vector<std::int64_t>(values.begin(), values.end());
}

bool Attrs::get_bool(std::string_view name) const { return get<bool>(*this, name); }
std::int64_t Attrs::get_int(std::string_view name) const { return get<std::int64_t>(*this, name); }
double Attrs::get_float(std::string_view name) const {
  const AttrValue* value = find(name);
  if (value != nullptr && std::holds_alternative<std::int64_t>(*value)) return static_cast<double>(get_int(name));
  return get<double>(*this, name);
}
DType Attrs::get_dtype(std::string_view name) const { return get<DType>(*this, name); }
const std::vector<std::int64_t>& Attrs::get_ints(std::string_view name) const {
  return get<std::vector<std::int64_t>>(*this, name);
}
const std::vector<double>& Attrs::get_floats(std::string_view name) const {
  return get<std::vector<double>>(*this, name);
}

const std::string& Node::label() const { return origin.empty() ? op->name : origin.str(); }
std::string Node::title() const { return origin.empty() ? op->name : origin.str() + "/" + op->name; }

Value Graph::input(std::string_view name, DType dtype, const Shape& shape) {
  if (name.empty()) fail(ErrorKind::argument, "input: the name is empty");
  if (find(name).valid())
    fail(ErrorKind::argument, "input: there is already an input or parameter named '{}'", one_line(name));
  Node node;
  node.op = find_op("input");
  node.name = name;
  node.types = {Type{dtype, shape}};
  return value({add(std::move(node)), 0});
}

Value Graph::parameter(std::string_view name, DType dtype, const Shape& shape, Initializer initial,
                       ParameterRole role) {
  if (name.empty()) fail(ErrorKind::argument, "parameter: the name is empty");
  if (find(name).valid()) {
    fail(ErrorKind::argument, "parameter: there is already an input or parameter named '{}'", one_line(name));
  }
  Node node;
  node.op = find_op("parameter");
  node.name = name;
  node.types = {Type{dtype, shape}};
  if (initial) initializers_[std::string(name)] = std::move(initial);
  if (role != ParameterRole::model) roles_[std::string(name)] = role;
  return value({add(std::move(node)), 0});
}

ParameterRole Graph::role(std::string_view name) const {
  const auto it = roles_.find(name);
  return it == roles_.end() ? ParameterRole::model : it->second;
}

void Graph::fetch(std::string_view name, const Value& value) {
  if (!value.valid() || &value.graph() != this) {
    fail(ErrorKind::argument, "fetch: '{}' is not a value of this graph", one_line(name));
  }
  if (fetch_names_.empty()) {
    for (const Fetch& fetch : fetches_) fetch_names_.insert(fetch.name);
  }
  if (!fetch_names_.emplace(name).second)
    fail(ErrorKind::argument, "fetch: there is already a fetch named '{}'", one_line(name));
  fetches_.push_back({std::string(name), value.ref()});
  is_compact_ = false;
}

void Graph::fetch(std::string_view name, const Variant& variant) {
  Values inputs{variant.index};
  for (std::size_t i = 0; i < variant.alternatives.size(); ++i) {
    if (variant.alternatives[i].size() != 1) {
      fail(ErrorKind::argument, "fetch: alternative {} of '{}' has {} values; a fetch takes one", i, one_line(name),
           variant.alternatives[i].size());
    }
    inputs.push_back(variant.alternatives[i][0]);
  }
  fetch(name, call(*find_op("variant"), inputs, {}, {}, this).front());
}

void Graph::assign(const Value& parameter, const Value& value) {
  if (!parameter.valid() || &parameter.graph() != this || !node(parameter.ref().node).op->is_kept) {
    fail(ErrorKind::argument, "assign: what is assigned to is no parameter of this graph{}", in_scope(scope.str()));
  }
  if (!value.valid() || &value.graph() != this) {
    fail(ErrorKind::argument, "assign: what '{}' is given is no value of this graph{}",
         one_line(node(parameter.ref().node).name.str()), in_scope(scope.str()));
  }
  if (&BodyScope::home(*this) != this) {
    fail(ErrorKind::argument,
         "assign: parameter '{}' is assigned in a branch, but an assign takes effect in every run{}\n"
         "hint: assign what the branch gives, after it",
         one_line(node(parameter.ref().node).name.str()), in_scope(scope.str()));
  }
  if (assign_of_.empty()) {
    for (const NodeId id : assigns()) assign_of_.emplace(node(id).inputs[0], id);
  }
  if (const auto it = assign_of_.find(parameter.ref()); it != assign_of_.end()) {
    const Name other = node(it->second).scope;
    fail(ErrorKind::argument, "assign: parameter '{}' is assigned twice: {}, and {}",
         one_line(node(parameter.ref().node).name.str()),
         other.empty() ? "without a scope" : "in " + one_line(other.str()),
         scope.empty() ? "without a scope" : "in " + one_line(scope.str()));
  }
  call(*find_op("assign"), std::array{parameter, value}, {}, {}, this);
}

std::vector<NodeId> Graph::assigns() const {
  std::vector<NodeId> ids;
  for (NodeId id : effects_) {
    if (node(id).op->is(OpRole::update)) ids.push_back(id);
  }
  return ids;
}

void Graph::forget_effect(NodeId id) {
  is_compact_ = false;
  std::erase(effects_, id);
  assign_of_.clear();
}

void Graph::drop_assigns() {
  is_compact_ = false;
  std::erase_if(effects_, [this](NodeId id) { return node(id).op->is(OpRole::update); });
  compact();
}

Value Graph::find(std::string_view name) {
  const auto it = named_.find(name);
  return it == named_.end() ? Value() : value({it->second, 0});
}

bool has_effect(const Node& node) {
  if (node.op->has_effect) return true;
  for (const auto& body : node.bodies) {
    if (!body->effects().empty()) return true;
  }
  return false;
}

NodeId Graph::add(Node node) {
  CancelScope::poll();
  if (node.scope.empty()) node.scope = scope;
  if (node.origin.empty()) node.origin = origin;
  const NodeId id = size();
  is_compact_ = false;
  if (node.placement == Placement::any) node.placement = placement;
  if (node.op->is(OpRole::source)) (node.op->is_kept ? parameters_ : inputs_).push_back(id);
  if (!node.name.empty()) named_.emplace(node.name.str(), id);
  if (has_effect(node)) effects_.push_back(id);
  if (!assign_of_.empty() && node.op->is(OpRole::update)) assign_of_.emplace(node.inputs[0], id);
  nodes_.push_back(std::move(node));
  return id;
}

Value Graph::capture(const Value& outer) {
  if (!outer.valid()) fail(ErrorKind::argument, "value: this Value was never given a node");
  if (&outer.graph() == this) return outer;
  if (parent == nullptr) {
    fail(ErrorKind::argument,
         "value of another graph: values of one expression must come from one graph or from those "
         "that enclose it");
  }
  if (parent != &outer.graph() && parent->encloses(outer.graph())) move_into(outer.graph());
  const Value mine = parent->capture(outer);
  if (auto it = capture_of_.find(mine.ref()); it != capture_of_.end()) return value(it->second);
  const Node& source = parent->node(mine.ref().node);
  std::string name = source.name.str();
  if (name.empty() || find(name).valid()) name = fmt::format("c{}", captured_.size());
  while (find(name).valid()) name += "_";
  const Value made = input(name, mine.dtype(), mine.shape());
  captured_.push_back(mine);
  capture_of_[mine.ref()] = made.ref();
  return made;
}

bool Graph::encloses(const Graph& inner) const {
  const Graph* graph = inner.parent;
  while (graph != nullptr && graph != this) graph = graph->parent;
  return graph == this;
}

void Graph::move_into(Graph& inner) {
  std::map<Ref, Ref> moved;
  for (Value& outer : captured_) {
    const Ref mine = capture_of_.at(outer.ref());
    outer = inner.capture(outer);
    moved[outer.ref()] = mine;
  }
  capture_of_ = std::move(moved);
  parent = &inner;
}

void Graph::replace(Ref from, Ref to) { replace({{from, to}}); }

void Graph::replace(const std::map<Ref, Ref>& replacements) {
  Replacements replaced(replacements);
  replace(replaced);
}

void Graph::replace(Replacements& replaced) {
  if (replaced.empty()) return;
  is_compact_ = false;
  for (Node& node : nodes_) {
    for (Ref& ref : node.inputs) ref = replaced.now(ref);
  }
  for (Fetch& fetch : fetches_) fetch.ref = replaced.now(fetch.ref);
  assign_of_.clear();
}

std::vector<NodeId> Graph::order_of_needed(const std::vector<char>& needed, bool is_in_order) const {
  std::vector<NodeId> order;
  std::vector<char> state(nodes_.size(), 0);  // 0 new, 1 open, 2 done
  std::vector<std::pair<NodeId, std::size_t>> stack;
  auto visit = [&](NodeId root) {
    stack.emplace_back(root, 0);
    while (!stack.empty()) {
      auto& [id, next] = stack.back();
      if (state[static_cast<std::size_t>(id)] == 2) {
        stack.pop_back();
        continue;
      }
      state[static_cast<std::size_t>(id)] = 1;
      const Node& now = node(id);
      if (next < now.inputs.size()) {
        const NodeId input = now.inputs[next++].node;
        PD_ASSERT(state[static_cast<std::size_t>(input)] != 1, "the graph has a cycle");
        if (state[static_cast<std::size_t>(input)] == 0) stack.emplace_back(input, 0);
        continue;
      }
      state[static_cast<std::size_t>(id)] = 2;
      order.push_back(id);
      stack.pop_back();
    }
  };
  // A rewrite may have put a node after its users, but keeping the old order wherever possible keeps dumps readable.
  // Positional inputs stand in their order, which is all that text has to say of it.
  if (!is_in_order) {
    for (NodeId id : inputs_) {
      if (needed[static_cast<std::size_t>(id)]) visit(id);
    }
  }
  for (NodeId id = 0; id < size(); ++id) {
    if (needed[static_cast<std::size_t>(id)]) visit(id);
  }
  return order;
}

void Graph::compact(bool drop_inputs) {
  if (is_compact_ && !drop_inputs) return assign_of_.clear();
  is_compact_ = true;
  // Nodes that are needed, from the last to the first: an input stands in front of its reader, unless a rewrite has put
  // it behind.
  std::vector<char> needed(nodes_.size(), 0);
  const auto need = [&](NodeId id) { needed[static_cast<std::size_t>(id)] = 1; };
  for (const Fetch& fetch : fetches_) need(fetch.ref.node);
  for (NodeId id : effects_) need(id);
  if (!drop_inputs) {
    for (NodeId id : inputs_) need(id);
    for (NodeId id : parameters_) need(id);
  }
  std::vector<NodeId> open;  // needed by one that stands in front of them, with all that they need
  bool stands = true;        // nothing is to be dropped or moved
  for (NodeId id = size() - 1; id >= 0; --id) {
    if (!needed[static_cast<std::size_t>(id)]) {
      stands = false;
      continue;
    }
    for (const Ref& ref : node(id).inputs) {
      if (ref.node >= id) stands = false;
      if (ref.node > id && !needed[static_cast<std::size_t>(ref.node)]) open.push_back(ref.node);
      need(ref.node);
    }
  }
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    for (const Ref& ref : node(id).inputs) {
      if (!needed[static_cast<std::size_t>(ref.node)]) open.push_back(ref.node);
      need(ref.node);
    }
  }
  const bool is_in_order = std::ranges::is_sorted(inputs_);
  if (is_in_order && stands) return assign_of_.clear();

  const std::vector<NodeId> order = order_of_needed(needed, is_in_order);
  std::vector<NodeId> new_id(nodes_.size(), -1);
  for (std::size_t i = 0; i < order.size(); ++i) new_id[static_cast<std::size_t>(order[i])] = static_cast<NodeId>(i);
  // Nodes keep their places in memory where they only move up.
  if (!std::ranges::is_sorted(order)) {
    std::vector<Node> moved;
    moved.reserve(order.size());
    for (const NodeId id : order) moved.push_back(std::move(nodes_[static_cast<std::size_t>(id)]));
    std::ranges::move(moved, nodes_.begin());
  } else {
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto from = static_cast<std::size_t>(order[i]);
      if (from != i) nodes_[i] = std::move(nodes_[from]);
    }
  }
  nodes_.resize(order.size());
  for (Node& node : nodes_) {
    for (Ref& ref : node.inputs) ref.node = new_id[static_cast<std::size_t>(ref.node)];
  }
  for (Fetch& fetch : fetches_) fetch.ref.node = new_id[static_cast<std::size_t>(fetch.ref.node)];
  for (auto& [name, id] : named_) id = new_id[static_cast<std::size_t>(id)];
  std::erase_if(named_, [](const auto& entry) { return entry.second < 0; });
  for (auto* list : {&inputs_, &parameters_, &effects_}) {
    std::vector<NodeId> ids;
    for (NodeId id : *list) {
      if (new_id[static_cast<std::size_t>(id)] >= 0) ids.push_back(new_id[static_cast<std::size_t>(id)]);
    }
    *list = std::move(ids);
  }
  assign_of_.clear();
}

std::unique_ptr<Graph> Graph::clone() const {
  auto copy = std::make_unique<Graph>();
  copy->nodes_ = nodes_;
  for (Node& node : copy->nodes_) {
    for (auto& body : node.bodies) body = body->clone();
  }
  copy->inputs_ = inputs_;
  copy->parameters_ = parameters_;
  copy->initializers_ = initializers_;
  copy->roles_ = roles_;
  copy->random_streams = random_streams;
  copy->effects_ = effects_;
  copy->fetches_ = fetches_;
  copy->named_ = named_;
  return copy;
}

Scope::Scope(Graph& graph, std::string_view name) : graph_(graph), saved_(graph.scope) {
  graph.scope = saved_.empty() ? Name(name) : Name(fmt::format("{}/{}", saved_.str(), name));
}

}  // namespace paoding
