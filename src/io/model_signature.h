// SPDX-License-Identifier: Apache-2.0
// Inputs and results of an entry point, told from the graphs that a file has for it; and which axes are its batch.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "paoding/graph_text.h"
#include "paoding/model.h"

namespace paoding {

/// "search" of "search[12,64]".
std::string_view entry_of(std::string_view graph_name);
/// The sizes that "classify[batch=8,time=16]" names; none of another name.
std::map<std::string, std::int64_t> named_sizes(std::string_view graph_name);

/// A graph as its callers see it, and the extents by name that it was made for.
struct SizedGraph {
  using Types = std::vector<std::pair<std::string, Type>>;
  std::string name;
  std::map<std::string, std::int64_t> sizes;
  Types inputs, results;
};
/// The graph, or of a text with extents the one of the smallest sizes and, for each extent, one that is larger in it
/// alone.
std::vector<SizedGraph> sized_graphs(const std::string& name, const GraphText& text);

/// The graphs are those of one entry point, at least one. Error (argument): as Model::signature, and of `batch` as
/// save_model.
ModelSignature signature_of(std::span<const SizedGraph> graphs, const std::string& batch);

/// Error (argument) unless a graph has the extent model.batch, where there is one, and all that have it show which axes
/// it is.
void check_batch(const ModelFile& model);

}  // namespace paoding
