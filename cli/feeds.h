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

namespace CLI {
class App;
}

namespace paoding::cli {

/// --feed, --allow-surplus, --random.
struct FeedFlags {
  std::vector<std::string> paths;  // safetensors files, checkpoints, folders of runs
  bool allows_surplus = false;     // of tensors that the graph has no place for
  std::optional<std::uint64_t> seed;

  void add_to(CLI::App& sub);
  /// The types of all that is fed. Error (file) when something cannot be read.
  std::map<std::string, Type> types() const;
  /// Finds a tensor for every input and every parameter of `graph`: the one that was fed, else that of `held`, else a
  /// random one when there is a seed. Error (argument) that lists everything that is missing, unknown, there twice or
  /// of another type; (file) when something cannot be read.
  std::map<std::string, Tensor> collect(const Graph& graph, std::map<std::string, Tensor> held = {}) const;
};

}  // namespace paoding::cli
