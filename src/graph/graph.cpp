// SPDX-License-Identifier: Apache-2.0
// Graph: adding nodes, capturing outer values, replacing uses, dropping what is not needed.
#include "paoding/graph.h"

#include <mutex>
#include <unordered_set>

#include "base/check.h"
#include "paoding/op.h"

namespace paoding {

Name::Name(std::string_view text) {
  static std::mutex mutex;
  static std::unordered_set<std::string> names;  // node based: addresses stay
  const std::lock_guard lock(mutex);
  text_ = &*names.emplace(text).first;
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
  PD_ASSERT(value != nullptr && std::holds_alternative<T>(*value), "attribute missing or of another kind");
  return std::get<T>(*value);
}
}  // namespace

bool Attrs::get_bool(std::string_view name) const { return get<bool>(*this, name); }
std::int64_t Attrs::get_int(std::string_view name) const { return get<std::int64_t>(*this, name); }
double Attrs::get_float(std::string_view name) const { return get<double>(*this, name); }
DType Attrs::get_dtype(std::string_view name) const { return get<DType>(*this, name); }
const std::vector<std::int64_t>& Attrs::get_ints(std::string_view name) const {
  return get<std::vector<std::int64_t>>(*this, name);
}

const std::string& Node::label() const { return origin.empty() ? op->name : origin.str(); }
std::string Node::title() const { return origin.empty() ? op->name : origin.str() + "/" + op->name; }

Value Graph::input(std::string_view name, DType dtype, const Shape& shape) {
  if (name.empty()) fail(ErrorKind::argument, "input: the name is empty");
  if (find(name).valid()) fail(ErrorKind::argument, "input: there is already an input or parameter named '{}'", name);
  Node node;
  node.op = find_op("input");
  node.name = name;
  node.types = {Type{dtype, shape}};
  return value({add(std::move(node)), 0});
}

Value Graph::parameter(std::string_view name, DType dtype, const Shape& shape, Initializer initial) {
  if (name.empty()) fail(ErrorKind::argument, "parameter: the name is empty");
  if (find(name).valid()) {
    fail(ErrorKind::argument, "parameter: there is already an input or parameter named '{}'", name);
  }
  Node node;
  node.op = find_op("parameter");
  node.name = name;
  node.types = {Type{dtype, shape}};
  if (initial) initializers_[std::string(name)] = std::move(initial);
  return value({add(std::move(node)), 0});
}

void Graph::fetch(std::string_view name, const Value& value) {
  if (!value.valid() || &value.graph() != this) {
    fail(ErrorKind::argument, "fetch: '{}' is not a value of this graph", name);
  }
  for (const Fetch& fetch : fetches_) {
    if (fetch.name == name) fail(ErrorKind::argument, "fetch: there is already a fetch named '{}'", name);
  }
  fetches_.push_back({std::string(name), value.ref()});
}

Value Graph::find(std::string_view name) {
  for (const auto* list : {&inputs_, &parameters_}) {
    for (NodeId id : *list) {
      if (node(id).name.str() == name) return value({id, 0});
    }
  }
  return {};
}

NodeId Graph::add(Node node) {
  if (node.scope.empty()) node.scope = scope;
  if (node.origin.empty()) node.origin = origin;
  const NodeId id = size();
  if (node.op->name == "input") inputs_.push_back(id);
  if (node.op->name == "parameter") parameters_.push_back(id);
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
  const Value mine = parent->capture(outer);
  const auto key = std::pair(parent, mine.ref());
  if (auto it = capture_of_.find(key); it != capture_of_.end()) return value(it->second);
  const Node& source = parent->node(mine.ref().node);
  std::string name = source.name.str();
  if (name.empty() || find(name).valid()) name = fmt::format("c{}", captured_.size());
  while (find(name).valid()) name += "_";
  const Value made = input(name, mine.dtype(), mine.shape());
  captured_.push_back(mine);
  capture_of_[key] = made.ref();
  return made;
}

void Graph::replace(Ref from, Ref to) { replace({{from, to}}); }

void Graph::replace(const std::map<Ref, Ref>& replacements) {
  if (replacements.empty()) return;
  auto follow = [&](Ref ref) {
    for (auto it = replacements.find(ref); it != replacements.end(); it = replacements.find(ref)) ref = it->second;
    return ref;
  };
  for (Node& node : nodes_) {
    for (Ref& ref : node.inputs) ref = follow(ref);
  }
  for (Fetch& fetch : fetches_) fetch.ref = follow(fetch.ref);
}

void Graph::compact(bool drop_inputs) {
  std::vector<NodeId> order;
  std::vector<char> state(nodes_.size(), 0);  // 0 new, 1 open, 2 done
  auto visit = [&](NodeId root) {
    std::vector<std::pair<NodeId, std::size_t>> stack{{root, 0}};
    while (!stack.empty()) {
      auto& [id, next] = stack.back();
      if (state[static_cast<std::size_t>(id)] == 2) {
        stack.pop_back();
        continue;
      }
      state[static_cast<std::size_t>(id)] = 1;
      const Node& open = node(id);
      if (next < open.inputs.size()) {
        const NodeId input = open.inputs[next++].node;
        PD_ASSERT(state[static_cast<std::size_t>(input)] != 1, "the graph has a cycle");
        if (state[static_cast<std::size_t>(input)] == 0) stack.emplace_back(input, 0);
        continue;
      }
      state[static_cast<std::size_t>(id)] = 2;
      order.push_back(id);
      stack.pop_back();
    }
  };
  // Mark what is needed first, then order it: a rewrite may have put a node behind its users, but keeping the old
  // order wherever possible keeps dumps readable.
  std::vector<char> needed(nodes_.size(), 0);
  std::vector<NodeId> open;
  auto need = [&](NodeId id) {
    if (!needed[static_cast<std::size_t>(id)]) needed[static_cast<std::size_t>(id)] = 1, open.push_back(id);
  };
  for (const Fetch& fetch : fetches_) need(fetch.ref.node);
  if (!drop_inputs) {
    for (NodeId id : inputs_) need(id);
    for (NodeId id : parameters_) need(id);
  }
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    for (const Ref& ref : node(id).inputs) need(ref.node);
  }
  for (NodeId id = 0; id < size(); ++id) {
    if (needed[static_cast<std::size_t>(id)]) visit(id);
  }

  std::vector<NodeId> new_id(nodes_.size(), -1);
  std::deque<Node> kept;
  for (NodeId id : order) {
    new_id[static_cast<std::size_t>(id)] = static_cast<NodeId>(kept.size());
    kept.push_back(std::move(nodes_[static_cast<std::size_t>(id)]));
    for (Ref& ref : kept.back().inputs) ref.node = new_id[static_cast<std::size_t>(ref.node)];
  }
  nodes_ = std::move(kept);
  for (Fetch& fetch : fetches_) fetch.ref.node = new_id[static_cast<std::size_t>(fetch.ref.node)];
  for (auto* list : {&inputs_, &parameters_}) {
    std::vector<NodeId> ids;
    for (NodeId id : *list) {
      if (new_id[static_cast<std::size_t>(id)] >= 0) ids.push_back(new_id[static_cast<std::size_t>(id)]);
    }
    *list = std::move(ids);
  }
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
  copy->random_streams = random_streams;
  copy->fetches_ = fetches_;
  return copy;
}

Scope::Scope(Graph& graph, std::string_view name) : graph_(graph), saved_(graph.scope) {
  graph.scope = saved_.empty() ? Name(name) : Name(fmt::format("{}/{}", saved_.str(), name));
}

}  // namespace paoding
