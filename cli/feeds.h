// SPDX-License-Identifier: Apache-2.0
// Values for a graph's inputs and parameters, by name, checked before any work starts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "paoding/graph.h"
#include "paoding/tensor.h"

namespace paoding::cli {

/// A tensor for every input and every parameter of `graph`: from the safetensors files, and where they have none random
/// ones when there is a seed. Error (argument) that lists everything that is missing, unknown, there twice or of
/// another type; (file) when a file cannot be read.
std::map<std::string, Tensor> collect_feeds(const Graph& graph, const std::vector<std::string>& files,
                                            std::optional<std::uint64_t> seed);

}  // namespace paoding::cli
