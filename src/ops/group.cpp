// SPDX-License-Identifier: Apache-2.0
// group: what fuse_groups makes of elementwise ops and reductions that share an iteration space; one kernel.
#include "base/check.h"
#include "ops/families.h"
#include "paoding/op.h"

namespace paoding {
namespace {

std::vector<Type> infer_group(const OpCall& call) {
  if (call.bodies.size() != 1) call.fail(ErrorKind::argument, "needs one body");
  const Graph& body = *call.bodies[0];
  if (body.inputs().size() != call.inputs.size()) {
    call.fail(ErrorKind::argument,
              fmt::format("has {} inputs, but its body has {}", call.inputs.size(), body.inputs().size()));
  }
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const Type& inside = body.type({body.inputs()[i], 0});
    if (!(inside == call.inputs[i])) {
      call.fail(ErrorKind::shape, fmt::format("input {} of the body is {}, but gets {}", i, to_string(inside),
                                              to_string(call.inputs[i])));
    }
  }
  if (body.fetches().empty()) call.fail(ErrorKind::argument, "its body fetches nothing");
  Shape space;
  for (NodeId id = 0; id < body.size(); ++id) {
    const Node& node = body.node(id);
    const std::string& op = node.op->name;
    if (op == "input") continue;
    if (node.op->kind != OpKind::formula && op != "sum" && op != "expand" && op != "full") {
      call.fail(ErrorKind::unsupported, fmt::format("its body has a {}, which is no part of a group", op));
    }
    const Shape& shape = op == "sum" ? body.type(node.inputs[0]).shape : node.types[0].shape;
    const Shape before = space;
    if (!broadcast(before, shape, &space)) {
      call.fail(ErrorKind::shape, fmt::format("its body's shapes {} and {} share no iteration space", to_string(before),
                                              to_string(shape)));
    }
    for (const Ref& ref : node.inputs) {
      if (body.node(ref.node).op->name == "sum") {
        call.fail(ErrorKind::unsupported, "its body uses the result of a sum, which exists only after it");
      }
    }
  }
  std::vector<Type> types;
  for (const Graph::Fetch& fetch : body.fetches()) {
    const Node& node = body.node(fetch.ref.node);
    const Shape& shape = node.op->name == "sum" ? body.type(node.inputs[0]).shape : node.types[0].shape;
    if (!(shape == space)) {
      call.fail(ErrorKind::shape, fmt::format("fetch '{}' is of shape {}, not of the iteration space {}", fetch.name,
                                              to_string(shape), to_string(space)));
    }
    types.push_back(body.type(fetch.ref));
  }
  return types;
}

}  // namespace

void register_group() {
  register_op({
      .name = "group",
      .summary = "its body of elementwise ops and sums as one kernel",
      .kind = OpKind::structural,
      .inputs = {"values..."},
      .infer = infer_group,
  });
}

}  // namespace paoding
