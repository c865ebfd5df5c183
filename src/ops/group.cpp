// SPDX-License-Identifier: Apache-2.0
// group: fuse_groups makes it of elementwise ops and reductions that share an iteration space; one kernel.
#include "base/check.h"
#include "base/one_line.h"
#include "ops/axes.h"
#include "ops/control/bodies.h"
#include "ops/families.h"
#include "ops/group_body.h"
#include "paoding/op.h"

namespace paoding {

const Shape& space_of(const Graph& graph, const Node& node) {
  return node.op->kind == OpKind::reduction ? graph.type(node.inputs[0]).shape : node.types[0].shape;
}

std::uint32_t row_axes_of(const Graph& graph, const Node& reduction, const Shape& space) {
  if (!(graph.type(reduction.inputs[0]).shape == space)) return 0;
  const std::vector<int> axes = plain_axes(reduction.attrs.get_ints("axes"), space.rank());
  const bool are_in_front = !axes.empty() && axes.back() == static_cast<int>(axes.size()) - 1;
  if (!reduction.attrs.get_bool("keepdims") && !are_in_front) return 0;
  std::uint32_t mask = 0;
  for (const int axis : axes) mask |= 1u << axis;
  return mask;
}

bool is_row_shape(const Shape& shape, const Shape& space, std::uint32_t row_axes) {
  const int missing = space.rank() - shape.rank();  // leading axes of extent 1
  if (missing < 0) return false;
  for (int axis = 0; axis < space.rank(); ++axis) {
    if ((axis < missing ? 1 : shape[axis - missing]) != ((row_axes >> axis) & 1u ? 1 : space[axis])) return false;
  }
  return true;
}

GroupBody read_body(const Graph& body, const std::function<void(ErrorKind, const std::string&)>& fail) {
  GroupBody read{{}, 0, std::vector<char>(static_cast<std::size_t>(body.size()), 0)};
  for (NodeId id = 0; id < body.size(); ++id) {
    const Node& node = body.node(id);
    if (node.op->is(OpRole::source)) continue;
    const bool is_computed = node.op->kind == OpKind::formula || node.op->kind == OpKind::reduction;
    if (!is_computed && node.op->name != "expand" && !node.op->is(OpRole::generated)) {
      fail(ErrorKind::unsupported, fmt::format("its body has a {}, which is no part of a group", node.op->name));
    }
    const Shape before = read.space;
    const Shape& shape = space_of(body, node);
    if (!broadcast(before, shape, &read.space)) {
      fail(ErrorKind::shape,
           fmt::format("its body's shapes {} and {} share no iteration space", to_string(before), to_string(shape)));
    }
    for (const Ref& ref : node.inputs) {
      if (body.node(ref.node).op->kind == OpKind::reduction) read.is_read[static_cast<std::size_t>(ref.node)] = 1;
    }
  }
  for (NodeId id = 0; id < body.size(); ++id) {
    const Node& node = body.node(id);
    if (!read.is_read[static_cast<std::size_t>(id)]) continue;
    const std::uint32_t axes = row_axes_of(body, node, read.space);
    if (axes == 0) {
      fail(ErrorKind::unsupported,
           fmt::format("its body uses the result of a {} of {}, which does not broadcast back "
                       "over the iteration space {}",
                       node.op->name, to_string(body.type(node.inputs[0]).shape), to_string(read.space)));
    }
    if (read.row_axes != 0 && read.row_axes != axes) {
      fail(ErrorKind::unsupported, "its body uses the results of reductions over different axes");
    }
    read.row_axes = axes;
  }
  for (const Graph::Fetch& fetch : body.fetches()) {
    const Shape& shape = space_of(body, body.node(fetch.ref.node));
    if (!(shape == read.space) && !read.is_per_row(body, fetch.ref)) {
      fail(ErrorKind::shape, fmt::format("fetch '{}' is of shape {}, not of the iteration space {}",
                                         one_line(fetch.name), to_string(shape), to_string(read.space)));
    }
  }
  return read;
}

namespace {

std::vector<Type> infer_group(const OpCall& call) {
  std::vector<Type> types = infer_from_body(call);
  read_body(*call.bodies[0], [&](ErrorKind kind, const std::string& what) { call.fail(kind, what); });
  return types;
}

}  // namespace

void register_group() {
  register_op({
      .name = "group",
      .summary = "its body of elementwise ops and reductions as one kernel",
      .kind = OpKind::structural,
      .inputs = {"values..."},
      .bodies = BodyUse::every_point,
      .infer = infer_group,
  });
}

}  // namespace paoding
