// SPDX-License-Identifier: Apache-2.0
// while_loop. With a limit it is a scan whose step is a branch, and has a gradient from them. Without one it is a node
// of its own with two bodies, condition and step.
#include "base/check.h"
#include "graph/body_scope.h"
#include "ops/control/bodies.h"
#include "ops/families.h"
#include "ops/scan/scan.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

std::vector<Type> infer_while(const OpCall& call) {
  if (call.bodies.size() != 2) call.fail(ErrorKind::argument, "needs two bodies, condition and step");
  const std::int64_t carries = call.attrs.get_int("carries");
  if (carries < 1 || carries > static_cast<std::int64_t>(call.inputs.size())) {
    call.fail(ErrorKind::argument, fmt::format("has {} inputs, but carries = {}", call.inputs.size(), carries));
  }
  for (const auto& body : call.bodies) {
    if (!body->parameters().empty()) call.fail(ErrorKind::argument, "a body declares a parameter; declare it outside");
    if (body->inputs().size() != call.inputs.size()) {
      call.fail(ErrorKind::argument,
                fmt::format("has {} inputs, but a body has {}", call.inputs.size(), body->inputs().size()));
    }
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      const Type& inside = body->type({body->inputs()[i], 0});
      if (!(inside == call.inputs[i])) {
        call.fail(ErrorKind::shape, fmt::format("input {} of a body is {}, but gets {}", i, to_string(inside),
                                                to_string(call.inputs[i])));
      }
    }
  }
  const Graph &condition = *call.bodies[0], &step = *call.bodies[1];
  if (condition.fetches().size() != 1 || !(condition.type(condition.fetches()[0].ref) == Type{boolean, Shape{}})) {
    call.fail(ErrorKind::dtype, "the condition must give one bool[]");
  }
  if (static_cast<std::int64_t>(step.fetches().size()) != carries) {
    call.fail(ErrorKind::argument,
              fmt::format("carries {} values, but a step gives {}", carries, step.fetches().size()));
  }
  std::vector<Type> types;
  for (std::size_t i = 0; i < step.fetches().size(); ++i) {
    types.push_back(call.inputs[i]);
    const Type& made = step.type(step.fetches()[i].ref);
    if (!(made == call.inputs[i])) {
      call.fail(
          made.dtype == call.inputs[i].dtype ? ErrorKind::shape : ErrorKind::dtype,
          fmt::format("value {} starts as {}, but a step makes it {}", i, to_string(call.inputs[i]), to_string(made)));
    }
  }
  return types;
}

Value as_predicate(const Value& value) {
  if (!value.valid()) fail(ErrorKind::argument, "while_loop: the condition is a Value without a node");
  if (value.dtype() != boolean || value.shape().rank() > 1 || value.shape().elements() != 1) {
    fail(value.dtype() != boolean ? ErrorKind::dtype : ErrorKind::shape,
         "while_loop: the condition is {}; it must be one bool, of shape [] or [1]", to_string(value.type()));
  }
  return value.shape().rank() == 0 ? value : reshape(value, Shape{});
}

Graph& home_of(const Values& initial) {
  if (initial.empty()) fail(ErrorKind::argument, "while_loop: needs at least one value to carry");
  Graph* graph = nullptr;
  for (const Value& value : initial) {
    if (!value.valid()) fail(ErrorKind::argument, "while_loop: an initial value is a Value without a node");
    if (graph == nullptr || graph->encloses(value.graph())) graph = &value.graph();
  }
  return BodyScope::home(*graph);
}

std::shared_ptr<Graph> open_body(Graph& home, const Values& initial, Values* carried) {
  auto body = std::make_shared<Graph>();
  body->parent = &home;
  body->scope = home.scope;
  body->placement = home.placement;
  for (const Value& value : initial) {
    carried->push_back(body->input(fmt::format("carry{}", carried->size()), value.dtype(), value.shape()));
  }
  return body;
}

}  // namespace

Values while_loop(const Values& initial, const std::function<Value(const Values&)>& condition,
                  const std::function<Values(const Values&)>& body) {
  Graph* home = &home_of(initial);
  std::shared_ptr<Graph> written[2];
  for (int k = 0; k < 2; ++k) {
    Values carried;
    written[k] = open_body(*home, initial, &carried);
    Graph& mine = *written[k];
    const BodyScope writing(&mine, BodyKind::endless_loop);
    const Values made = k == 0 ? Values{as_predicate(condition(carried))} : body(carried);
    for (const Value& value : made) mine.fetch(fmt::format("out{}", mine.fetches().size()), mine.capture(value));
    home = mine.parent;
  }
  Values outer = initial;
  std::map<Ref, std::size_t> position;  // of the captured values
  for (const auto& each : written) {
    if (each->parent != home) each->move_into(*home);
    for (const Value& value : each->captured()) {
      if (position.try_emplace(value.ref(), outer.size()).second) outer.push_back(value);
    }
  }
  std::vector<std::shared_ptr<Graph>> bodies;
  for (const auto& each : written) {
    std::vector<BodyInput> inputs;
    for (const Value& value : outer) inputs.push_back({value.type()});
    for (std::size_t i = 0; i < each->inputs().size(); ++i) {
      const bool is_carried = i < initial.size();
      BodyInput& input = inputs[is_carried ? i : position.at(each->captured()[i - initial.size()].ref())];
      input.stands_for = {{each->inputs()[i], 0}};
      input.name = each->node(each->inputs()[i]).name.str();
    }
    std::vector<Ref> fetches;
    for (const Graph::Fetch& fetch : each->fetches()) fetches.push_back(fetch.ref);
    bodies.push_back(rebuild_body(*each, inputs, fetches));
  }
  const Attrs attrs{{"carries", static_cast<std::int64_t>(initial.size())}};
  return call(*find_op("while"), outer, attrs, bodies, home);
}

LoopResult while_loop(const Values& initial, const std::function<Value(const Values&)>& condition,
                      const std::function<Values(const Values&)>& body, std::int64_t max_iterations) {
  if (max_iterations < 0) fail(ErrorKind::argument, "while_loop: max_iterations = {}", max_iterations);
  Graph& first_home = home_of(initial);
  Values start = initial, carried;
  start.push_back(full(first_home, {}, 0, i64));
  const std::shared_ptr<Graph> turn = open_body(first_home, start, &carried);
  const Values values(carried.begin(), carried.end() - 1);
  const Value iterations = carried.back();
  turn->step_count = max_iterations;
  turn->step_number = iterations;  // the same, as long as it runs
  const BodyScope writing(turn.get(), BodyKind::loop);
  const Values next = cond(
      as_predicate(turn->capture(condition(values))),
      [&] {
        Values made = body(values);
        if (made.size() != values.size()) {
          fail(ErrorKind::argument, "while_loop: carries {} values, but a step gives {}", values.size(), made.size());
        }
        made.push_back(iterations + 1.0);
        return made;
      },
      [&] { return carried; });
  for (const Value& value : next) turn->fetch(fmt::format("next{}", turn->fetches().size()), turn->capture(value));
  Graph& home = *turn->parent;
  turn->parent = nullptr;
  Values made = add_scan(home, start, {}, turn->captured(), max_iterations, false, turn);
  const Value count = made.back();
  made.pop_back();
  return {made, count};
}

void register_while() {
  register_op({
      .name = "while",
      .summary = "repeats its second body as long as its first gives true",
      .kind = OpKind::structural,
      .inputs = {"values..."},
      .attrs =
          {{.name = "carries", .example = std::int64_t{0}, .required = true, .doc = "how many inputs are carried"}},
      .bodies = BodyUse::while_true,
      .infer = infer_while,
      .gradient = [](const GradCall&) -> Values {
        throw Error(ErrorKind::unsupported,
                    "while: a loop without a limit has no gradient, since what it would keep has no bound\n"
                    "hint: while_loop(..., max_iterations)");
      },
  });
}

}  // namespace paoding
