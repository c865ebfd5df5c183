// SPDX-License-Identifier: Apache-2.0
// The op table, and call(): how an op becomes a node.
#include "paoding/op.h"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <type_traits>
#include <unordered_map>

#include "base/check.h"
#include "base/one_line.h"
#include "graph/body_scope.h"
#include "graph/follow_by_none.h"
#include "graph/formula.h"
#include "graph/keep_names.h"
#include "graph/primitive_form.h"

namespace paoding {

void register_built_in_ops();  // src/ops/all_ops.cpp

namespace {

struct OpTable {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<OpDef>, std::less<>> ops;
};

OpTable& table() {
  static OpTable the_table;
  return the_table;
}

thread_local bool is_registering_built_in_ops = false;

OpTable& filled_table() {
  static std::once_flag once;
  std::call_once(once, [] {
    is_registering_built_in_ops = true;
    register_built_in_ops();
    is_registering_built_in_ops = false;
  });
  return table();
}

// Whether graph text, reports and dumps can print the name unquoted.
bool is_word(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto is_fit = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '.'; };
  return !name.empty() && is_letter(name[0]) && std::ranges::all_of(name, is_fit);
}

// Words, each once.
template <class List, class NameOf>
bool are_names(const List& list, const NameOf& name_of) {
  std::set<std::string> seen;
  return std::ranges::all_of(
      list, [&](const auto& each) { return is_word(name_of(each)) && seen.insert(name_of(each)).second; });
}

// The second part of op_facts.h.
auto facts_of_the_library(const OpDef& op) {
  return std::tie(op.view, op.bodies, op.conversion, op.indexing, op.collective, op.reduces_with, op.contracts,
                  op.convolution, op.cell, op.is_cell_gradient, op.narrow_inputs, op.wide_form, op.narrow_form,
                  op.is_kept, op.is_uniform, op.has_unused_room);
}

// Aliases are of kernels, and of inputs that each is there and is the memory of one result alone.
bool are_aliases(const OpDef& op) {
  std::set<std::size_t> results, inputs;
  return std::ranges::all_of(op.aliases, [&](const OpAlias& alias) {
    return alias.input < op.inputs.size() && inputs.insert(alias.input).second && results.insert(alias.result).second;
  });
}

void check_complete(const OpDef& op) {
  auto incomplete = [&](const char* what) { fail(ErrorKind::argument, "op '{}': {}", one_line(op.name), what); };
  const auto itself = [](const std::string& name) -> const std::string& { return name; };
  const auto name_of = [](const AttrSpec& attr) -> const std::string& { return attr.name; };
  if (op.name.empty()) incomplete("has no name");
  if (!is_word(op.name)) incomplete("has a name that is no word of letters, digits, '_' and '.'");
  if (op.version < 1) incomplete("has a version below 1, the first");
  if (op.summary.empty()) incomplete("has no summary");
  if (op.kind == OpKind::formula && !op.formula) incomplete("is a formula op without a formula");
  if (op.kind == OpKind::formula &&
      (op.conditions < 0 || op.inputs.size() <= static_cast<std::size_t>(op.conditions))) {
    incomplete("is a formula op without an input that gives the result its dtype");
  }
  if (op.kind == OpKind::composed && !op.compose) incomplete("is a composed op without a composition");
  if (op.kind != OpKind::formula && op.kind != OpKind::composed && !op.infer) incomplete("has no shape rule");
  if (op.optional_inputs < 0 || static_cast<std::size_t>(op.optional_inputs) > op.inputs.size()) {
    incomplete("has more optional inputs than inputs");
  }
  if (!are_names(op.inputs, itself)) incomplete("has two inputs of one name, or one whose name is no word");
  if (!are_names(op.attrs, name_of)) incomplete("has two attributes of one name, or one whose name is no word");
  const bool is_by_kernel = op.is_run_by_kernel() && !op.is_expanded_at_once();
  if (!op.aliases.empty() && (!is_by_kernel || op.is_variadic())) {
    incomplete("has an alias, but no kernel runs it: that is of kernel ops, and of composed ops with a gradient rule");
  }
  if (!are_aliases(op)) incomplete("has an alias of an input that it has not, or two of one input or of one result");
  if (op.cost && !is_by_kernel) {
    incomplete("has a cost, but no kernel runs it: that is of kernel ops, and of composed ops with a gradient rule");
  }
  if (is_registering_built_in_ops) return;
  // Passes and the planner know all forms of these.
  if (op.kind == OpKind::view || op.kind == OpKind::reduction || op.kind == OpKind::structural) {
    incomplete("is a view, a reduction or structural, as only the library's own are; it can be composed of those");
  }
  static const OpDef kPlain{};
  if (op.role != kPlain.role) incomplete("has a role, as only the library's own ops do");
  if (facts_of_the_library(op) != facts_of_the_library(kPlain)) {
    incomplete("has a fact that only the library's own ops have: it is in the second part of op_facts.h");
  }
}

int depth(const Graph* graph) {
  int levels = 0;
  for (; graph->parent != nullptr; graph = graph->parent) ++levels;
  return levels;
}

const char* kind_name(const AttrValue& value) {
  constexpr const char* names[] = {"a bool",  "an integer",         "a float",         "a string",
                                   "a dtype", "a list of integers", "a list of floats"};
  return names[value.index()];
}

// The declared attributes in declared order, defaults filled in; an integer serves where a float is wanted.
Attrs complete_attrs(const OpDef& op, const Attrs& given) {
  for (const auto& [name, value] : given.entries()) {
    const auto has_name = [&name = name](const AttrSpec& spec) { return spec.name == name; };
    if (std::none_of(op.attrs.begin(), op.attrs.end(), has_name)) {
      std::string known;
      for (const AttrSpec& spec : op.attrs) known += (known.empty() ? "" : ", ") + spec.name;
      fail(ErrorKind::argument, "{}: has no attribute '{}'; it takes: {}", op.name, one_line(name),
           known.empty() ? "none" : known);
    }
  }
  Attrs attrs;
  for (const AttrSpec& spec : op.attrs) {
    const AttrValue* value = given.find(spec.name);
    if (value == nullptr) {
      if (spec.required) fail(ErrorKind::argument, "{}: attribute '{}' is missing", op.name, spec.name);
      attrs.set(spec.name, spec.example);
    } else if (value->index() == spec.example.index()) {
      attrs.set(spec.name, *value);
    } else if (std::holds_alternative<double>(spec.example) && std::holds_alternative<std::int64_t>(*value)) {
      const Number number = std::get<std::int64_t>(*value);
      attrs.set(spec.name, spec.keeps_integers ? number.attr() : number.real());
    } else if (const auto* ints = std::get_if<std::vector<std::int64_t>>(value);
               ints != nullptr && std::holds_alternative<std::vector<double>>(spec.example)) {
      attrs.set(spec.name,
                spec.keeps_integers ? exact_numbers(*ints) : std::vector<double>(ints->begin(), ints->end()));
    } else {
      fail(ErrorKind::argument, "{}: attribute '{}' is {}, not {}", op.name, spec.name, kind_name(*value),
           kind_name(spec.example));
    }
  }
  return attrs;
}

void check_arity(const OpDef& op, std::size_t count) {
  if (op.takes(count)) return;
  const std::size_t most = op.inputs.size(), least = most - static_cast<std::size_t>(op.optional_inputs);
  const std::string range = op.is_variadic() ? fmt::format("at least {}", most)
                            : least < most   ? fmt::format("{} to {}", least, most)
                                             : std::to_string(most);
  fail(ErrorKind::argument, "{}: has {} inputs, takes {} ({})", op.name, count, range, fmt::join(op.inputs, ", "));
}

// Inputs of a formula op meet in one dtype; the first `op.conditions` keep theirs.
void promote_inputs(const OpDef& op, Values* inputs) {
  const auto first = static_cast<std::size_t>(op.conditions);
  if (inputs->size() <= first) return;
  DType dtype = (*inputs)[first].dtype();
  for (std::size_t i = first; i < inputs->size(); ++i) dtype = promote(dtype, (*inputs)[i].dtype());
  for (std::size_t i = first; i < inputs->size(); ++i) {
    if ((*inputs)[i].dtype() != dtype) (*inputs)[i] = call("cast", {(*inputs)[i]}, {{"dtype", dtype}});
  }
}

void append_bits(std::string* key, const void* bits, std::size_t size) {
  key->append(static_cast<const char*>(bits), size);
}
template <class T>
void append(std::string* key, T number) {
  append_bits(key, &number, sizeof number);
}

// The key of a formula's trace, to the bit: a NaN is itself and -0 is not 0.
std::string trace_key(std::span<const DType> dtypes, const Attrs& attrs) {
  std::string key;
  append(&key, dtypes.size());
  for (const DType dtype : dtypes) append(&key, dtype);
  const auto append_list = [&](const auto& list) {
    append(&key, list.size());
    append_bits(&key, list.data(), list.size() * sizeof list[0]);
  };
  // Attributes are complete and in the order that the op declares; their kinds may differ.
  for (const auto& [name, value] : attrs.entries()) {
    append(&key, value.index());
    std::visit(
        [&](const auto& held) {
          using Held = std::decay_t<decltype(held)>;
          if constexpr (std::is_arithmetic_v<Held> || std::is_enum_v<Held>) {
            append(&key, held);
          } else {
            append_list(held);
          }
        },
        value);
  }
  return key;
}

}  // namespace

void OpCall::fail(ErrorKind kind, const std::string& message) const {
  paoding::fail(kind, "{}: {}{}", op.name, message, in_scope(scope.str()));
}

std::string OpCall::input_name(std::size_t i) const {
  if (op.is_variadic() && i + 1 >= op.inputs.size()) {
    const std::string& last = op.inputs.back();
    return fmt::format("{}[{}]", last.substr(0, last.size() - 3), i + 1 - op.inputs.size());
  }
  return op.inputs[i];
}

std::span<const Scalar> formula_inputs(std::span<const Scalar> in, std::size_t count) {
  if (in.size() != count) {
    fail(ErrorKind::argument, "the formula takes {} values, the op has {} inputs", count, in.size());
  }
  return in;
}

const OpDef& register_op(OpDef op) {
  check_complete(op);
  op.primitive = primitive_form_of(op);
  const std::lock_guard lock(table().mutex);
  auto [it, is_new] = table().ops.emplace(op.name, nullptr);
  if (!is_new) fail(ErrorKind::argument, "op '{}': there is already an op of this name", op.name);
  it->second = std::make_unique<OpDef>(std::move(op));
  return *it->second;
}

const OpDef* find_op(std::string_view name) {
  OpTable& ops = filled_table();
  const std::lock_guard lock(ops.mutex);
  const auto it = ops.ops.find(name);
  return it == ops.ops.end() ? nullptr : it->second.get();
}

std::vector<const OpDef*> all_ops() {
  OpTable& ops = filled_table();
  const std::lock_guard lock(ops.mutex);
  std::vector<const OpDef*> list;
  for (const auto& [name, op] : ops.ops) list.push_back(op.get());
  return list;
}

namespace {

// How many compositions and formulas are under way, one within the other, on this thread.
class Nesting {
 public:
  Nesting(const OpDef& op, const char* what) {
    constexpr int kMost = 100;
    if (depth_ == kMost) fail(ErrorKind::argument, "{}: its {} never ends: it leads to itself", op.name, what);
    ++depth_;
  }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  static thread_local int depth_;
};
thread_local int Nesting::depth_ = 0;

}  // namespace

TracedFormula trace_formula(const OpDef& op, std::span<const DType> dtypes, const Attrs& attrs) {
  const Nesting nesting(op, "formula");
  TracedFormula formula;
  std::vector<Scalar> inputs;
  for (std::size_t i = 0; i < dtypes.size(); ++i) {
    inputs.push_back(make_input(&formula.expr, static_cast<std::int32_t>(i), compute_dtype(dtypes[i])));
  }
  follow_by_none(&inputs);
  const Scalar root = op.formula(inputs, attrs);
  if (root.expr() == nullptr) {
    fail(ErrorKind::argument, "{}: its formula returned a Scalar that was never given a value", op.name);
  }
  if (root.expr() != &formula.expr || root.id() < 0 || root.id() >= formula.expr.size()) {
    fail(ErrorKind::argument, "{}: its formula returned a Scalar of another formula", op.name);
  }
  formula.root = root.id();
  return formula;
}

const TracedFormula& traced_formula(const OpDef& op, std::span<const DType> dtypes, const Attrs& attrs) {
  // Node based, so that references stay; formulas live as long as the process, as ops do.
  static std::mutex mutex;
  static std::unordered_map<const OpDef*, std::unordered_map<std::string, TracedFormula>> kept;
  std::string key = trace_key(dtypes, attrs);
  {
    const std::lock_guard lock(mutex);
    const auto& formulas = kept[&op];
    if (const auto found = formulas.find(key); found != formulas.end()) return found->second;
  }
  TracedFormula formula = trace_formula(op, dtypes, attrs);  // which may call ops itself, on other threads too
  const std::lock_guard lock(mutex);
  return kept[&op].emplace(std::move(key), std::move(formula)).first->second;
}

Values expand_composed(Graph& graph, const OpDef& op, std::span<const Value> inputs, const Attrs& attrs) {
  const Nesting nesting(op, "composition");
  const KeepNames keep(graph);
  graph.origin = op.name;
  Values given(inputs.begin(), inputs.end());
  follow_by_none(&given);
  Values made = op.compose(given, attrs);
  if (made.empty()) fail(ErrorKind::argument, "{}: its composition gives no value", op.name);
  for (Value& value : made) {
    if (!value.valid()) fail(ErrorKind::argument, "{}: its composition gave a Value without a node", op.name);
    value = graph.capture(value);
  }
  return made;
}

namespace {
// The types of a composed op are those of its expansion.
std::vector<Type> infer_composed(const OpCall& call) {
  Graph scratch;
  scratch.scope = call.scope;
  Values inputs;
  for (const Type& type : call.inputs) {
    inputs.push_back(scratch.input(fmt::format("in{}", inputs.size()), type.dtype, type.shape));
  }
  std::vector<Type> types;
  for (const Value& value : expand_composed(scratch, call.op, inputs, call.attrs)) types.push_back(value.type());
  return types;
}

std::vector<Type> infer_formula(const OpCall& call) {
  Shape shape;
  std::vector<DType> dtypes;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const Shape before = shape;
    if (!broadcast(before, call.inputs[i].shape, &shape)) {
      call.fail(ErrorKind::shape, fmt::format("{} has shape {}, which does not broadcast with {}", call.input_name(i),
                                              to_string(call.inputs[i].shape), to_string(before)));
    }
    dtypes.push_back(call.inputs[i].dtype);
  }
  const DType promoted = dtypes[static_cast<std::size_t>(call.op.conditions)];
  DType result = promoted;
  try {
    const TracedFormula& traced = traced_formula(call.op, dtypes, call.attrs);
    if (call.attrs.find("dtype") != nullptr) {
      result = call.attrs.get_dtype("dtype");
    } else if (traced.expr.dtype_of(traced.root) != compute_dtype(promoted)) {
      result = traced.expr[traced.root].dtype;
    }
  } catch (const Error& error) {  // the primitive's message, with the op's name and scope around it
    std::string types;
    for (const Type& type : call.inputs) types += (types.empty() ? "" : ", ") + to_string(type);
    call.fail(error.kind(), fmt::format("inputs are {}; {}", types, error.what()));
  }
  return {Type{result, shape}};
}
}  // namespace

std::vector<Type> infer_types(const OpCall& call) {
  if (call.op.kind == OpKind::composed) return infer_composed(call);
  try {
    return call.op.kind == OpKind::formula ? infer_formula(call) : call.op.infer(call);
  } catch (const Error& error) {  // a Shape does not know whose it is
    if (!std::string_view(error.what()).starts_with("shape: ")) throw;
    call.fail(error.kind(), fmt::format("the result's {}", error.what()));
  }
}

namespace {
void check_aliases(const OpCall& call, std::span<const Type> results) {
  for (const auto& [result, input] : call.op.aliases) {
    if (input >= call.inputs.size()) continue;  // an optional one
    if (result < results.size() && results[result] == call.inputs[input]) continue;
    call.fail(ErrorKind::argument, fmt::format("result {} is to lie in the memory of {}, {}, but is {}", result,
                                               call.input_name(input), to_string(call.inputs[input]),
                                               result < results.size() ? to_string(results[result]) : "not there"));
  }
}

Values apply(const OpDef& op, std::span<const Value> given, const Attrs& given_attrs,
             std::vector<std::shared_ptr<Graph>> bodies, Graph* graph, bool is_read_as_body) {
  check_arity(op, given.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!given[i].valid()) fail(ErrorKind::argument, "{}: input {} is a Value without a node", op.name, i);
    if (graph == nullptr || depth(&given[i].graph()) > depth(graph)) graph = &given[i].graph();
  }
  if (graph == nullptr) fail(ErrorKind::argument, "{}: has no inputs, so it needs the graph to be put in", op.name);
  graph = &BodyScope::home(*graph);
  Values inputs;
  for (const Value& value : given) inputs.push_back(graph->capture(value));
  Attrs attrs = complete_attrs(op, given_attrs);

  const bool is_body = is_read_as_body || graph->parent != nullptr;
  if (op.is_expanded_at_once() || (op.is_open_in_bodies && is_body)) {
    return expand_composed(*graph, op, inputs, attrs);
  }
  if (op.kind == OpKind::formula) promote_inputs(op, &inputs);

  Node node;
  node.op = &op;
  std::vector<Type> types;
  for (const Value& value : inputs) {
    node.inputs.push_back(value.ref());
    types.push_back(value.type());
  }
  node.types = infer_types({op, types, attrs, bodies, graph->scope});
  if (node.types.empty() && op.kind == OpKind::kernel) {
    fail(ErrorKind::argument, "{}: its shape rule gives no type", op.name);
  }
  check_aliases({op, types, attrs, bodies, graph->scope}, node.types);
  node.attrs = std::move(attrs);
  node.bodies = std::move(bodies);
  const auto outputs = static_cast<std::int32_t>(node.types.size());
  const NodeId id = graph->add(std::move(node));
  Values results;
  for (std::int32_t i = 0; i < outputs; ++i) results.push_back(graph->value({id, i}));
  return results;
}
}  // namespace

Values call(const OpDef& op, std::span<const Value> inputs, Attrs attrs, std::vector<std::shared_ptr<Graph>> bodies,
            Graph* graph) {
  return apply(op, inputs, attrs, std::move(bodies), graph, false);
}

Values call_in_body(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs,
                    std::vector<std::shared_ptr<Graph>> bodies, Graph* body) {
  return apply(op, inputs, attrs, std::move(bodies), body, true);
}

Value call(std::string_view op, std::initializer_list<Value> inputs, Attrs attrs) {
  const OpDef* def = find_op(op);
  if (def == nullptr) fail(ErrorKind::argument, "there is no op named '{}'; `paoding ops` lists them", op);
  const Values made = call(*def, std::span(inputs.begin(), inputs.size()), std::move(attrs));
  if (made.empty()) fail(ErrorKind::argument, "{}: gives no value", op);
  return made.front();
}

}  // namespace paoding
