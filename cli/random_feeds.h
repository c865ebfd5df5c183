// SPDX-License-Identifier: Apache-2.0
// Made-up values for inputs that are not fed, chosen so that the graph's results stay finite.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "paoding/graph.h"
#include "paoding/tensor.h"

namespace paoding::cli {

/// A tensor for input or parameter `id`: as random_tensor(), but
///   - an optimizer's state is as before its first update: 0, the loss scale its initial one, a master weight equal to
///     the parameter (`fed`, or made up);
///   - a variance, known by its name, is not negative;
///   - integers are such as the ops can read that they reach, through views, casts and the steps of scans: below the
///   extent
///     that they index, labels below the classes, lengths no more than the steps. 0..9 otherwise.
Tensor random_feed(const Graph& graph, NodeId id, std::uint64_t seed, const std::map<std::string, Tensor>& fed);

}  // namespace paoding::cli
