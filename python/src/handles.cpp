// SPDX-License-Identifier: Apache-2.0
// Which graph a Value of Python belongs to, and which graph ops without inputs go to.
#include "handles.h"

#include <algorithm>

#include "arrays.h"
#include "paoding/error.h"

namespace paoding::python {
namespace {

// The owners by graph; read and written under the GIL, like everything that builds graphs.
std::unordered_map<const Graph*, GraphOwner*>& roots() {
  static std::unordered_map<const Graph*, GraphOwner*> all;
  return all;
}

thread_local std::vector<std::shared_ptr<GraphOwner>> current;  // the innermost last

std::string key_of(const std::string& op, const std::string& scope) { return op + '\n' + scope; }

}  // namespace

GraphOwner::GraphOwner(std::unique_ptr<Graph> graph) : owned_(std::move(graph)), graph_(owned_.get()) {
  roots().emplace(graph_, this);
}

GraphOwner::~GraphOwner() {
  if (owned_) roots().erase(owned_.get());
}

Graph& GraphOwner::get() const {
  if (graph_ == nullptr) {
    throw Error(ErrorKind::argument,
                "a value of the body of a loop or branch is used after the function that wrote it\n"
                "hint: return it from that function");
  }
  return *graph_;
}

void GraphOwner::note_line(const std::string& op, const std::string& scope, std::string line) {
  std::vector<std::string>& lines = lines_[key_of(op, scope)];
  if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(std::move(line));
}

std::string GraphOwner::lines_of(const std::string& op, const std::string& scope) const {
  constexpr std::size_t kMost = 4;
  const auto found = lines_.find(key_of(op, scope));
  if (found == lines_.end() || found->second.size() > kMost) return "";
  std::string text;
  for (const std::string& line : found->second) text += (text.empty() ? "" : ", ") + line;
  return text;
}

BodyFrame::BodyFrame(Graph* body) : around_(innermost), is_current_(body != nullptr) {
  innermost = this;
  if (is_current_) current.push_back(bodies_.emplace(body, std::make_shared<GraphOwner>(body)).first->second);
}

BodyFrame::~BodyFrame() {
  if (is_current_) current.pop_back();
  for (auto& [body, owner] : bodies_) owner->end();
  innermost = around_;
}

std::shared_ptr<GraphOwner> owner_of(Graph* graph) {
  if (const auto root = roots().find(graph); root != roots().end()) return root->second->shared_from_this();
  for (BodyFrame* frame = BodyFrame::innermost; frame != nullptr; frame = frame->around_) {
    if (const auto body = frame->bodies_.find(graph); body != frame->bodies_.end()) return body->second;
  }
  if (BodyFrame::innermost == nullptr) throw Error(ErrorKind::argument, "a value of a graph that Python did not make");
  auto& owner = BodyFrame::innermost->bodies_[graph];
  owner = std::make_shared<GraphOwner>(graph);
  return owner;
}

ValueHandle wrap(const Value& value) { return {owner_of(&value.graph()), value.ref()}; }

MaybeValue wrap_if_any(const Value& value) { return value.valid() ? MaybeValue(wrap(value)) : std::nullopt; }

std::vector<ValueHandle> wrap(const Values& values) {
  std::vector<ValueHandle> handles;
  handles.reserve(values.size());
  for (const Value& value : values) handles.push_back(wrap(value));
  return handles;
}

std::shared_ptr<GraphOwner> root_of(const Graph& graph) {
  const Graph* root = &graph;
  while (root->parent != nullptr) root = root->parent;
  const auto found = roots().find(root);
  return found == roots().end() ? nullptr : found->second->shared_from_this();
}

void enter_graph(const std::shared_ptr<GraphOwner>& owner) { current.push_back(owner); }
void leave_graph() {
  if (current.empty()) throw Error(ErrorKind::argument, "Graph: __exit__ without __enter__ in this thread");
  current.pop_back();
}

Graph& graph_for(const GraphHandle* given, const char* op) {
  if (given != nullptr) return given->graph();
  if (!current.empty()) return current.back()->get();
  throw Error(ErrorKind::argument, std::string(op) +
                                       ": has no input that says which graph it belongs to\n"
                                       "hint: call it within `with graph:`, or give it graph=");
}

std::string calling_line() {
  // Frames of the package itself are not the user's.
  static const std::string* package = nullptr;
  if (package == nullptr) {
    const std::string file = text_of(nb::str(nb::module_::import_("paoding").attr("__file__")));
    package = new std::string(file.substr(0, file.rfind('/') + 1));  // as long as the process
  }
  nb::object frame;
  try {
    frame = nb::module_::import_("sys").attr("_getframe")(0);
  } catch (nb::python_error&) {
    return "";  // called by no Python
  }
  for (; !frame.is_none(); frame = frame.attr("f_back")) {
    const std::string file = text_of(nb::str(frame.attr("f_code").attr("co_filename")));  // of any bytes
    if (file.starts_with(*package) || file.starts_with("<frozen")) continue;
    return file.substr(file.rfind('/') + 1) + ":" + std::to_string(nb::cast<int>(frame.attr("f_lineno")));
  }
  return "";
}

}  // namespace paoding::python
