// SPDX-License-Identifier: Apache-2.0
// scan: recurrence over time as one node with the step as its body.
#include "ops/scan/scan.h"

#include <algorithm>

#include "base/check.h"
#include "base/one_line.h"
#include "graph/body_scope.h"
#include "ops/families.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

constexpr std::int64_t kMaxSteps = std::int64_t{1} << 24;

std::vector<Type> infer_scan(const OpCall& call) {
  if (call.bodies.size() != 1) call.fail(ErrorKind::argument, "needs one body");
  const Graph& body = *call.bodies[0];
  const std::int64_t carries = call.attrs.get_int("carries"), sequences = call.attrs.get_int("sequences");
  const std::int64_t length = call.attrs.get_int("length");
  const auto inputs = static_cast<std::int64_t>(call.inputs.size());
  if (carries < 0 || sequences < 0 || carries > inputs || sequences > inputs - carries) {
    call.fail(ErrorKind::argument,
              fmt::format("has {} inputs, but carries = {} and sequences = {}", inputs, carries, sequences));
  }
  if (length < 0 || length > kMaxSteps) {
    call.fail(ErrorKind::argument, fmt::format("length {} is not between 0 and {}", length, kMaxSteps));
  }
  if (static_cast<std::int64_t>(body.inputs().size()) != inputs) {
    call.fail(ErrorKind::argument, fmt::format("has {} inputs, but its body has {}", inputs, body.inputs().size()));
  }
  if (!body.parameters().empty()) call.fail(ErrorKind::argument, "its body declares a parameter; declare it outside");
  for (std::int64_t i = 0; i < inputs; ++i) {
    const auto at = static_cast<std::size_t>(i);
    Type expected = call.inputs[at];
    if (i >= carries && i < carries + sequences) {
      if (expected.shape.rank() == 0 || expected.shape[0] != length) {
        call.fail(ErrorKind::shape, fmt::format("sequence {} has shape {}; its first extent must be the length {}",
                                                i - carries, to_string(expected.shape), length));
      }
      expected.shape = expected.shape.with_removed(0);
    }
    const Type& actual = body.type({body.inputs()[at], 0});
    if (!(actual == expected)) {
      call.fail(ErrorKind::shape,
                fmt::format("input {} of the body is {}, but gets {}", i, to_string(actual), to_string(expected)));
    }
  }
  if (static_cast<std::int64_t>(body.fetches().size()) < carries) {
    call.fail(ErrorKind::argument,
              fmt::format("its body fetches {} values, fewer than its {} carries", body.fetches().size(), carries));
  }
  std::vector<Type> types;
  for (std::size_t i = 0; i < body.fetches().size(); ++i) {
    Type type = body.type(body.fetches()[i].ref);
    if (static_cast<std::int64_t>(i) < carries) {
      if (!(type == call.inputs[i])) {
        call.fail(ErrorKind::shape, fmt::format("carry {} starts as {}, but a step makes it {}", i,
                                                to_string(call.inputs[i]), to_string(type)));
      }
    } else {
      type.shape = type.shape.with_inserted(0, length);
    }
    types.push_back(type);
  }
  if (types.empty()) call.fail(ErrorKind::argument, "its body fetches nothing");
  return types;
}

}  // namespace

ScanView::ScanView(const Node& scan_node)
    : node(scan_node),
      body(*scan_node.bodies[0]),
      carries(static_cast<int>(scan_node.attrs.get_int("carries"))),
      sequences(static_cast<int>(scan_node.attrs.get_int("sequences"))),
      constants(static_cast<int>(scan_node.inputs.size()) - carries - sequences),
      outputs(static_cast<int>(body.fetches().size()) - carries),
      length(scan_node.attrs.get_int("length")),
      is_reverse(scan_node.attrs.get_bool("reverse")) {}

Values add_scan(Graph& graph, const Values& carries, const Values& sequences, const Values& constants,
                std::int64_t length, bool is_reverse, std::shared_ptr<Graph> body) {
  Values inputs = carries;
  inputs.insert(inputs.end(), sequences.begin(), sequences.end());
  inputs.insert(inputs.end(), constants.begin(), constants.end());
  const Attrs attrs{{"carries", static_cast<std::int64_t>(carries.size())},
                    {"sequences", static_cast<std::int64_t>(sequences.size())},
                    {"length", length},
                    {"reverse", is_reverse}};
  return call(*find_op("scan"), inputs, attrs, {std::move(body)}, &graph);
}

ScanOutputs::ScanOutputs(Graph& graph, NodeId scan) : graph_(graph), scan_(scan) {
  const ScanView view(graph.node(scan));
  for (int i = view.carries; i < view.carries + view.outputs; ++i) {
    output_of_.try_emplace(view.body.fetches()[static_cast<std::size_t>(i)].ref, i);
  }
}

Ref ScanOutputs::add(Ref body_value) {
  Node& node = graph_.mutable_node(scan_);
  const auto [it, is_new] = output_of_.try_emplace(body_value, static_cast<std::int32_t>(node.types.size()));
  if (is_new) {
    Graph& body = *node.bodies[0];
    body.mutable_fetches().push_back({fmt::format("saved{}", body.fetches().size()), body_value});
    Type type = body.type(body_value);
    type.shape = type.shape.with_inserted(0, node.attrs.get_int("length"));
    node.types.push_back(type);
  }
  return {scan_, it->second};
}

void register_scan() {
  register_op({
      .name = "scan",
      .summary = "runs its body for every element of its sequences, carrying values from step to step",
      .kind = OpKind::structural,
      .inputs = {"values..."},
      .attrs = {{.name = "carries", .example = std::int64_t{0}, .required = true, .doc = "how many inputs are carried"},
                {.name = "sequences", .example = std::int64_t{0}, .required = true, .doc = "how many are sequences"},
                {.name = "length", .example = std::int64_t{0}, .required = true, .doc = "steps"},
                {.name = "reverse", .example = false, .doc = "from the last step to the first"}},
      .bodies = BodyUse::every_step,
      .infer = infer_scan,
      .gradient = scan_gradient,
  });
}

Value step_index(Graph& body) {
  if (body.step_count < 0) fail(ErrorKind::argument, "step_index: the graph given is not the step of a scan");
  if (!body.step_number.valid()) body.step_number = body.input("step", i64, {});
  return body.step_number;
}

// The number of the step becomes the last sequence: its input moves in front of the captured values'.
static Value add_step_sequence(Graph& graph, Graph& body, std::size_t sequences_end) {
  std::vector<NodeId>& inputs = body.mutable_inputs();
  const auto at = std::find(inputs.begin(), inputs.end(), body.step_number.ref().node);
  std::rotate(inputs.begin() + static_cast<std::ptrdiff_t>(sequences_end), at, at + 1);
  return iota(graph, Shape{body.step_count}, 0, i64);
}

// Inside the step of another scan, sequences may be values of any enclosing graph: the scan belongs to the innermost.
static Graph& innermost(const Values& initial, const Values& sequences) {
  Graph* deepest = nullptr;
  int deepest_level = -1;
  for (const Values* list : {&initial, &sequences}) {
    for (const Value& value : *list) {
      if (!value.valid()) fail(ErrorKind::argument, "scan: an initial value or sequence is a Value without a node");
      int level = 0;
      for (const Graph* graph = &value.graph(); graph->parent != nullptr; graph = graph->parent) ++level;
      if (level > deepest_level) deepest_level = level, deepest = &value.graph();
    }
  }
  return BodyScope::home(*deepest);
}

static StepResult run_body(Graph& body, const Values& initial, const Values& sequences,
                           const std::function<StepResult(const Values&, const Values&)>& make) {
  Values carries, elements;
  for (std::size_t i = 0; i < initial.size(); ++i) {
    carries.push_back(body.input(fmt::format("carry{}", i), initial[i].dtype(), initial[i].shape()));
  }
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    elements.push_back(
        body.input(fmt::format("element{}", i), sequences[i].dtype(), sequences[i].shape().with_removed(0)));
  }
  const BodyScope writing(&body, BodyKind::loop);
  StepResult result = make(carries, elements);
  // A result may be a value of the enclosing graph that the step passes through.
  for (auto* list : {&result.carries, &result.outputs}) {
    for (Value& value : *list) value = body.capture(value);
  }
  return result;
}

StepResult scan(const Values& initial, const Values& given_sequences,
                const std::function<StepResult(const Values&, const Values&)>& make, bool reverse) {
  Values sequences = given_sequences;
  if (sequences.empty()) fail(ErrorKind::shape, "scan: needs at least one sequence to know its length");
  Graph& graph = innermost(initial, sequences);
  const std::string in = in_scope(graph.scope.str());
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Shape &shape = sequences[i].shape(), &first = sequences[0].shape();
    if (shape.rank() == 0 || shape[0] != first[0]) {
      fail(ErrorKind::shape, "scan: sequence {} has shape {}, sequence 0 has {}; their first extents must be equal{}",
           i, to_string(shape), to_string(first), in);
    }
  }
  const std::int64_t length = sequences[0].shape()[0];
  auto body = std::make_shared<Graph>();
  body->parent = &graph;
  body->scope = graph.scope;
  body->origin = graph.origin;
  body->step_count = length;
  body->placement = graph.placement;
  const StepResult made = run_body(*body, initial, sequences, make);
  Graph& home = *body->parent;  // further in than its sequences, if it uses values from there
  body->parent = nullptr;
  if (made.carries.size() != initial.size()) {
    fail(ErrorKind::argument, "scan: starts with {} carries, but a step returns {}{}", initial.size(),
         made.carries.size(), in);
  }
  if (body->step_number.valid()) {
    sequences.push_back(add_step_sequence(home, *body, initial.size() + sequences.size()));
  }
  for (std::size_t i = 0; i < made.carries.size(); ++i) body->fetch(fmt::format("next{}", i), made.carries[i]);
  for (std::size_t i = 0; i < made.outputs.size(); ++i) body->fetch(fmt::format("out{}", i), made.outputs[i]);
  if (body->step_number.valid()) body->compact();  // its inputs have another order now
  const Values outputs = add_scan(home, initial, sequences, body->captured(), length, reverse, body);
  const auto middle = outputs.begin() + static_cast<std::ptrdiff_t>(initial.size());
  return {Values(outputs.begin(), middle), Values(middle, outputs.end())};
}

StepResult scan(const Values& initial, std::int64_t count,
                const std::function<StepResult(const Values&, const Value&)>& body, bool reverse) {
  if (initial.empty()) fail(ErrorKind::argument, "scan: steps that are counted need an initial value");
  if (count < 0) fail(ErrorKind::shape, "scan: {} steps", count);
  if (!initial[0].valid()) fail(ErrorKind::argument, "scan: an initial value is a Value without a node");
  const Value numbers = iota(initial[0].graph(), Shape{count}, 0, i64);
  return scan(
      initial, {numbers}, [&](const Values& carries, const Values& elements) { return body(carries, elements[0]); },
      reverse);
}

StepResult scan(const Values& initial, std::int64_t count, const std::function<StepResult(const Values&)>& body) {
  return scan(initial, count, [&](const Values& carries, const Value&) { return body(carries); });
}

}  // namespace paoding
