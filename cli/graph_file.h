// SPDX-License-Identifier: Apache-2.0
// Graphs in files of text and in model files, and the sizes of the extents that a text may declare.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "paoding/extents.h"
#include "paoding/graph.h"
#include "paoding/tensor.h"

namespace CLI {
class App;
}

namespace paoding::cli {

/// --entry, --extents.
struct GraphFlags {
  std::string entry;
  std::vector<Sizes::Entry> sizes;
  void add_to(CLI::App& sub);
};

struct LoadedGraph {
  std::unique_ptr<Graph> graph;
  std::map<std::string, Tensor> parameters;  // values that a model file has
};

/// The graph in a text or a model file, at the sizes of the flags and, of extents that these leave out, those of inputs
/// of the types that `fed` gives; it is called where there are such. Errors name the file: as parse_graph() and
/// load_model_file(); (argument) extents without a size, sizes where the text has no such extents, an entry that the
/// model file has not, or none where it has several.
LoadedGraph load_graph(const std::string& path, const GraphFlags& flags,
                       const std::function<std::map<std::string, Type>()>& fed = {});

}  // namespace paoding::cli
