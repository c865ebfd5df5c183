// SPDX-License-Identifier: Apache-2.0
// branch: one of several bodies runs, chosen by an index. cond, switch_case, case_of and their Variant forms make it.
#include "ops/control/branch.h"

#include <numeric>

#include "base/check.h"
#include "base/one_line.h"
#include "graph/body_scope.h"
#include "ops/control/bodies.h"
#include "ops/families.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

std::vector<Type> infer_branch(const OpCall& call) {
  if (call.bodies.empty()) call.fail(ErrorKind::argument, "needs at least one body");
  const Type& index = call.inputs[0];
  if ((index.dtype != i32 && index.dtype != i64) || index.shape.rank() != 0) {
    call.fail(index.shape.rank() != 0 ? ErrorKind::shape : ErrorKind::dtype,
              "the index is " + to_string(index) + "; it must be i32[] or i64[]");
  }
  const std::int64_t common = call.attrs.get_int("common");
  const auto& owners = call.attrs.get_ints("owners");
  std::vector<std::int64_t> next(call.bodies.size(), common);  // own fetch
  std::vector<std::int64_t> own_count(call.bodies.size(), 0);
  for (const std::int64_t owner : owners) {
    if (owner < 0 || owner >= static_cast<std::int64_t>(call.bodies.size())) {
      call.fail(ErrorKind::argument, fmt::format("owner {} is none of the {} branches", owner, call.bodies.size()));
    }
    ++own_count[static_cast<std::size_t>(owner)];
  }
  for (std::size_t k = 0; k < call.bodies.size(); ++k) {
    const Graph& body = *call.bodies[k];
    const auto has = [&](std::size_t count) { return fmt::format("branch {} has {} inputs", k, count); };
    if (!body.parameters().empty()) call.fail(ErrorKind::argument, "a body declares a parameter; declare it outside");
    if (body.inputs().size() + 1 != call.inputs.size()) {
      call.fail(ErrorKind::argument,
                fmt::format("{}, but gets {} values", has(body.inputs().size()), call.inputs.size() - 1));
    }
    for (std::size_t i = 0; i < body.inputs().size(); ++i) {
      const Type& inside = body.type({body.inputs()[i], 0});
      if (!(inside == call.inputs[i + 1])) {
        call.fail(ErrorKind::shape, fmt::format("input {} of branch {} is {}, but gets {}", i, k, to_string(inside),
                                                to_string(call.inputs[i + 1])));
      }
    }
    const std::int64_t own = own_count[k];
    const auto fetches = static_cast<std::int64_t>(body.fetches().size());
    if (common < 0 || fetches < common || fetches - common != own) {
      call.fail(ErrorKind::argument, fmt::format("branch {} gives {} values, but {} common and {} of its own are "
                                                 "expected",
                                                 k, fetches, common, own));
    }
    for (std::int64_t i = 0; i < common; ++i) {
      const Graph& first = *call.bodies[0];
      const Type &mine = body.type(body.fetches()[static_cast<std::size_t>(i)].ref),
                 &theirs = first.type(first.fetches()[static_cast<std::size_t>(i)].ref);
      if (!(mine == theirs)) {
        call.fail(mine.dtype == theirs.dtype ? ErrorKind::shape : ErrorKind::dtype,
                  fmt::format("result {} of branch {} is {}, of branch 0 {}; branches that differ give a Variant", i, k,
                              to_string(mine), to_string(theirs)));
      }
    }
  }
  std::vector<Type> types;
  const auto add = [&](const Graph& body, std::int64_t fetch) {
    types.push_back(body.type(body.fetches()[static_cast<std::size_t>(fetch)].ref));
  };
  for (std::int64_t i = 0; i < common; ++i) add(*call.bodies[0], i);
  for (const std::int64_t owner : owners) {
    add(*call.bodies[static_cast<std::size_t>(owner)], next[static_cast<std::size_t>(owner)]++);
  }
  if (types.empty()) call.fail(ErrorKind::argument, "its branches give nothing");
  return types;
}

std::vector<Type> infer_variant(const OpCall& call) {
  if (call.inputs.size() < 2) call.fail(ErrorKind::argument, "needs an index and at least one alternative");
  if (!is_integer(call.inputs[0].dtype) || call.inputs[0].shape.rank() != 0) {
    call.fail(ErrorKind::dtype, "the index is " + to_string(call.inputs[0]) + "; it must be i32[] or i64[]");
  }
  return {Type{DType::u8, Shape{0}}};
}

// A scalar of shape [] from one of shape [] or [1].
Value scalar(const Value& value, const char* op, const char* what) {
  if (!value.valid()) fail(ErrorKind::argument, "{}: the {} is a Value without a node", op, what);
  if (value.shape().rank() > 1 || value.shape().elements() != 1) {
    const Name scope = value.graph().scope;
    fail(ErrorKind::shape, "{}: the {} has shape {}; it must be one element, of shape [] or [1]{}", op, what,
         to_string(value.shape()), in_scope(scope.str()));
  }
  return value.shape().rank() == 0 ? value : reshape(value, Shape{});
}

Value predicate(const Value& value, const char* op) {
  const Value one = scalar(value, op, "predicate");
  if (one.dtype() != boolean) fail(ErrorKind::dtype, "{}: the predicate is {}, not bool", op, to_string(one.dtype()));
  return one;
}

// The bodies that the functions write, with one list of inputs, in the innermost graph whose values they use.
struct BuiltBranches {
  Graph* graph = nullptr;
  Values values;
  std::vector<std::shared_ptr<Graph>> bodies;
  std::vector<std::size_t> results;  // per body
};

BuiltBranches build_branches(const Value& index, const std::vector<std::function<Values()>>& branches, const char* op) {
  if (branches.empty()) fail(ErrorKind::argument, "{}: needs at least one branch", op);
  BuiltBranches built;
  built.graph = &BodyScope::home(index.graph());
  std::vector<std::shared_ptr<Graph>> written;
  for (const auto& branch : branches) {
    auto body = std::make_shared<Graph>();
    body->parent = built.graph;
    body->scope = built.graph->scope;
    body->placement = built.graph->placement;
    const BodyScope writing(body.get(), BodyKind::branch);
    for (const Value& value : branch()) {
      body->fetch(fmt::format("out{}", body->fetches().size()), body->capture(value));
    }
    built.graph = body->parent;  // a value of a graph further in moves the branch there
    written.push_back(std::move(body));
  }
  std::map<Ref, std::size_t> position;
  for (const auto& body : written) {
    if (body->parent != built.graph) body->move_into(*built.graph);
    for (const Value& outer : body->captured()) {
      if (position.try_emplace(outer.ref(), built.values.size()).second) built.values.push_back(outer);
    }
  }
  for (const auto& body : written) {
    std::vector<BodyInput> inputs;
    for (const Value& value : built.values) inputs.push_back({value.type()});
    for (std::size_t i = 0; i < body->captured().size(); ++i) {
      BodyInput& input = inputs[position.at(body->captured()[i].ref())];
      input.stands_for = {{body->inputs()[i], 0}};
      input.name = body->node(body->inputs()[i]).name.str();
    }
    std::vector<Ref> fetches;
    for (const Graph::Fetch& fetch : body->fetches()) fetches.push_back(fetch.ref);
    built.results.push_back(fetches.size());
    built.bodies.push_back(rebuild_body(*body, inputs, fetches));
  }
  return built;
}

}  // namespace

BranchView::BranchView(const Node& branch_node)
    : node(branch_node),
      common(static_cast<int>(branch_node.attrs.get_int("common"))),
      owners(branch_node.attrs.get_ints("owners")),
      own_(branch_node.bodies.size()) {
  for (int output = 0; output < outputs(); ++output) {
    if (output < common) {
      fetches_.push_back(output);
      continue;
    }
    std::vector<int>& mine = own_[static_cast<std::size_t>(owner(output))];
    fetches_.push_back(common + static_cast<int>(mine.size()));
    mine.push_back(output);
  }
}

int BranchView::owner(int output) const {
  return output < common ? -1 : static_cast<int>(owners[static_cast<std::size_t>(output - common)]);
}

std::vector<int> BranchView::outputs_of(int k) const {
  std::vector<int> given(static_cast<std::size_t>(common));
  std::iota(given.begin(), given.end(), 0);
  const std::vector<int>& own = own_[static_cast<std::size_t>(k)];
  given.insert(given.end(), own.begin(), own.end());
  return given;
}

Ref BranchView::value_of(int k, int output) const {
  return body(k).fetches()[static_cast<std::size_t>(fetches_[static_cast<std::size_t>(output)])].ref;
}

Values add_branch(Graph& graph, const Value& index, const Values& values, int common, std::vector<std::int64_t> owners,
                  std::vector<std::shared_ptr<Graph>> bodies) {
  Values inputs{index};
  inputs.insert(inputs.end(), values.begin(), values.end());
  const Attrs attrs{{"common", static_cast<std::int64_t>(common)}, {"owners", std::move(owners)}};
  return call(*find_op("branch"), inputs, attrs, std::move(bodies), &graph);
}

BranchOutputs::BranchOutputs(Graph& graph, NodeId branch) : graph_(graph), branch_(branch) {
  const BranchView view(graph.node(branch));
  owners_ = view.owners;
  for (int output = view.common; output < view.outputs(); ++output) {
    const int k = view.owner(output);
    output_of_.try_emplace({k, view.value_of(k, output)}, output);
  }
}

Ref BranchOutputs::add(int k, Ref body_value) {
  Node& node = graph_.mutable_node(branch_);
  const auto [it, is_new] = output_of_.try_emplace({k, body_value}, static_cast<std::int32_t>(node.types.size()));
  if (is_new) {
    Graph& body = *node.bodies[static_cast<std::size_t>(k)];
    body.mutable_fetches().push_back({fmt::format("saved{}", body.fetches().size()), body_value});
    node.types.push_back(body.type(body_value));
    owners_.push_back(k);
  }
  return {branch_, it->second};
}

void BranchOutputs::finish() { graph_.mutable_node(branch_).attrs.set("owners", owners_); }

Values switch_case(const Value& index, const std::vector<std::function<Values()>>& branches) {
  const Value chosen = scalar(index, "switch_case", "index");
  const BuiltBranches built = build_branches(chosen, branches, "switch_case");
  for (std::size_t k = 0; k < built.results.size(); ++k) {
    if (built.results[k] == built.results[0]) continue;
    fail(ErrorKind::argument, "switch_case: branch {} gives {} values, branch 0 gives {}", k, built.results[k],
         built.results[0]);
  }
  return add_branch(*built.graph, chosen, built.values, static_cast<int>(built.results[0]), {}, built.bodies);
}

Variant switch_variant(const Value& index, const std::vector<std::function<Values()>>& branches) {
  const Value chosen = scalar(index, "switch_variant", "index");
  const BuiltBranches built = build_branches(chosen, branches, "switch_variant");
  std::vector<std::int64_t> owners;
  for (std::size_t k = 0; k < built.results.size(); ++k)
    owners.insert(owners.end(), built.results[k], static_cast<std::int64_t>(k));
  const Values made = add_branch(*built.graph, chosen, built.values, 0, owners, built.bodies);
  Variant variant{built.graph->capture(chosen), {}};
  std::size_t next = 0;
  for (std::size_t count : built.results) {
    const auto first = made.begin() + static_cast<std::ptrdiff_t>(next);
    variant.alternatives.emplace_back(first, first + static_cast<std::ptrdiff_t>(count));
    next += count;
  }
  return variant;
}

// The number of the first predicate that is true; how many there are when none is.
static Value first_true(std::span<const Value> predicates, const char* op) {
  if (predicates.empty()) fail(ErrorKind::argument, "{}: needs at least one predicate", op);
  Value index;
  for (std::size_t i = predicates.size(); i-- > 0;) {
    const Value is_true = predicate(predicates[i], op);
    Graph& graph = is_true.graph();
    if (!index.valid()) index = full(graph, {}, static_cast<double>(predicates.size()), i32);
    index = select(is_true, full(graph, {}, static_cast<double>(i), i32), index);
  }
  return index;
}

Values cond(const Value& is_true, const std::function<Values()>& then, const std::function<Values()>& otherwise) {
  return switch_case(first_true(std::array{is_true}, "cond"), {then, otherwise});
}

Value cond(const Value& is_true, const std::function<Value()>& then, const std::function<Value()>& otherwise) {
  return cond(
             is_true, [&] { return Values{then()}; }, [&] { return Values{otherwise()}; })
      .front();
}

static std::vector<std::function<Values()>> with_default(const std::vector<Case>& cases,
                                                         const std::function<Values()>& otherwise) {
  std::vector<std::function<Values()>> branches;
  for (const Case& each : cases) branches.push_back(each.branch);
  if (otherwise) branches.push_back(otherwise);
  return branches;
}

static Value index_of(const std::vector<Case>& cases, const char* op) {
  Values predicates;
  for (const Case& each : cases) predicates.push_back(each.predicate);
  return first_true(predicates, op);
}

Values case_of(const std::vector<Case>& cases, const std::function<Values()>& otherwise) {
  return switch_case(index_of(cases, "case_of"), with_default(cases, otherwise));
}

Variant case_variant(const std::vector<Case>& cases, const std::function<Values()>& otherwise) {
  return switch_variant(index_of(cases, "case_variant"), with_default(cases, otherwise));
}

static std::vector<std::function<Values()>> of_alternatives(const Variant& variant,
                                                            const std::function<Values(const Values&)>& f) {
  std::vector<std::function<Values()>> branches;
  for (const Values& alternative : variant.alternatives) branches.push_back([&] { return f(alternative); });
  return branches;
}

Values visit(const Variant& variant, const std::function<Values(const Values&)>& f) {
  return switch_case(variant.index, of_alternatives(variant, f));
}

Variant visit_variant(const Variant& variant, const std::function<Values(const Values&)>& f) {
  return switch_variant(variant.index, of_alternatives(variant, f));
}

void register_branch() {
  register_op({
      .name = "branch",
      .summary = "runs the body that its index chooses, the last when there is none of that number",
      .kind = OpKind::structural,
      .inputs = {"values..."},
      .attrs = {{.name = "common",
                 .example = std::int64_t{0},
                 .required = true,
                 .doc = "how many results every body gives; what a body fetches after them is its own"},
                {.name = "owners",
                 .example = std::vector<std::int64_t>{},
                 .doc = "for each further output the body whose own result it is"}},
      .bodies = BodyUse::one_chosen,
      .infer = infer_branch,
      .gradient = branch_gradient,
  });
  register_op({
      .name = "variant",
      .summary = "the alternative of the index's number, for a fetch",
      .kind = OpKind::structural,
      .inputs = {"values..."},
      .role = OpRole::alternatives,
      .infer = infer_variant,
  });
}

}  // namespace paoding
