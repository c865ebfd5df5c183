// SPDX-License-Identifier: Apache-2.0
// Values that differ from turn to turn of an unrolled loop, as one value with the turns along a new outermost axis.
#pragma once

#include <optional>
#include <vector>

#include "paoding/graph.h"

namespace paoding {

/// `values` are of one type. Where they are slices of one value that follow each other along an axis, and views of
/// those that are equal but for that, the result is a view of that value. nullopt where they are not.
std::optional<Value> as_view_of_one(Graph& graph, const std::vector<Ref>& values);

/// The same; values that are not so and were computed are put side by side. nullopt where they are inputs or
/// parameters: to copy those in every run would cost more than a loop gains.
std::optional<Value> stack_turns(Graph& graph, const std::vector<Ref>& values);

/// -1 where as_view_of_one() would be backwards, 1 where forwards, 0 where it is nullopt.
int direction_of(const Graph& graph, const std::vector<Ref>& values);

/// The concatenation of all turns' values along their axis `axis`, made of the value that has the turns outermost.
Value side_by_side(const Value& stacked, int axis);

}  // namespace paoding
