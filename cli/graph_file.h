// SPDX-License-Identifier: Apache-2.0
// Graphs in files of text, and the sizes of the extents that a text may declare.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "paoding/extents.h"
#include "paoding/graph.h"

namespace CLI {
class App;
}

namespace paoding::cli {

/// --extents.
struct ExtentFlags {
  std::vector<Sizes::Entry> sizes;
  void add_to(CLI::App& sub);
};

/// The graph in a file, at the sizes of the flags and, of extents that these leave out, those of inputs of the types
/// that `fed` gives; it is called where there are such. Errors name the file: as parse_graph(); (argument) extents
/// without a size, and sizes where the text has no such extents.
std::unique_ptr<Graph> load_graph(const std::string& path, const ExtentFlags& extents,
                                  const std::function<std::map<std::string, Type>()>& fed = {});

}  // namespace paoding::cli
