// SPDX-License-Identifier: Apache-2.0
// The facts about a group's kernel that its body tells. Shared by the op's type rule and by lowering.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "paoding/error.h"
#include "paoding/graph.h"

namespace paoding {

/// The iteration space of one node: its result's shape, for a reduction its input's.
const Shape& space_of(const Graph& graph, const Node& node);

/// The axes of `space` that a reduction of a value of that shape reduces, a bit each, if its result broadcasts back
/// over the space as it is: reduced axes stay as extent 1, or stand in front of the others. 0 when it does not.
std::uint32_t row_axes_of(const Graph& graph, const Node& reduction, const Shape& space);

/// Whether a value has one element per row: the shape of `space` with extent 1 along `row_axes`, in front of
/// others not always written.
bool is_row_shape(const Shape& shape, const Shape& space, std::uint32_t row_axes);

struct GroupBody {
  Shape space;
  std::uint32_t row_axes = 0;  // axes of those reductions that the body itself reads; 0 where it reads none
  std::vector<char> is_read;   // per node: a reduction that the body reads

  /// Whether a fetch of `body` is one element per row; else it is an element per point.
  bool is_per_row(const Graph& body, Ref fetch) const {
    return is_read[static_cast<std::size_t>(fetch.node)] != 0 ||
           (row_axes != 0 && is_row_shape(body.type(fetch).shape, space, row_axes) &&
            !(space_of(body, body.node(fetch.node)) == space));
  }
};

/// Reads a body; calls `fail` with the reason if it is no body of a group.
GroupBody read_body(const Graph& body, const std::function<void(ErrorKind, const std::string&)>& fail);

}  // namespace paoding
