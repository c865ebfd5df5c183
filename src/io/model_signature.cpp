// SPDX-License-Identifier: Apache-2.0
#include "io/model_signature.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/check.h"
#include "base/one_line.h"

namespace paoding {
namespace {

SizedGraph sized(const std::string& name, const Graph& graph, std::map<std::string, std::int64_t> sizes) {
  SizedGraph made{name, std::move(sizes), {}, {}};
  for (const NodeId id : graph.inputs()) made.inputs.emplace_back(graph.node(id).name.str(), graph.node(id).types[0]);
  for (const Graph::Fetch& fetch : graph.fetches()) made.results.emplace_back(fetch.name, graph.type(fetch.ref));
  return made;
}

// The next bucket of an extent above the smallest, if there is one.
std::optional<Extents::Key> next_above(const Extents& extents, const Extents::Key& smallest, std::size_t extent) {
  if (smallest[extent] >= extents.specs()[extent].maximum) return std::nullopt;
  Extents::Key key = smallest;
  ++key[extent];
  try {
    return extents.bucket_of(key);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::cancelled) throw;
    return std::nullopt;  // no bucket holds it
  }
}

const Type* type_of(const SizedGraph::Types& types, const std::string& name) {
  const auto found = std::find_if(types.begin(), types.end(), [&](const auto& each) { return each.first == name; });
  return found == types.end() ? nullptr : &found->second;
}

std::string text_of(const SizedGraph::Types& types) {
  std::string text;
  for (const auto& [name, type] : types) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", one_line(name), to_string(type));
  }
  return text.empty() ? "nothing" : text;
}

// The tensors of one side of all graphs, their axes -1 where they differ.
std::vector<ModelTensor> tensors_of(std::span<const SizedGraph> graphs, SizedGraph::Types SizedGraph::*side,
                                    const char* verb) {
  std::vector<ModelTensor> tensors;
  for (const auto& [name, type] : graphs[0].*side) {
    tensors.push_back({name, type.dtype, {type.shape.begin(), type.shape.end()}});
  }
  for (const SizedGraph& graph : graphs) {
    bool is_alike = (graph.*side).size() == tensors.size();
    for (ModelTensor& tensor : tensors) {
      const Type* type = type_of(graph.*side, tensor.name);
      is_alike =
          is_alike && type != nullptr && type->dtype == tensor.dtype && type->shape.rank() == std::ssize(tensor.shape);
      for (std::size_t axis = 0; is_alike && axis < tensor.shape.size(); ++axis) {
        if (type->shape[static_cast<int>(axis)] != tensor.shape[axis]) tensor.shape[axis] = -1;
      }
    }
    if (!is_alike) {
      fail(ErrorKind::argument, "graph '{}' {} {}, and graph '{}' {}: one entry point has one signature",
           one_line(graphs[0].name), verb, text_of(graphs[0].*side), one_line(graph.name), text_of(graph.*side));
    }
  }
  return tensors;
}

// The axis that is as long as the batch in every graph; -1: none is.
int batch_axis(std::span<const SizedGraph> graphs, SizedGraph::Types SizedGraph::*side, const ModelTensor& tensor,
               const std::string& batch) {
  int found = -1;
  for (int axis = 0; axis < std::ssize(tensor.shape); ++axis) {
    const bool is_it = std::ranges::all_of(graphs, [&](const SizedGraph& graph) {
      return type_of(graph.*side, tensor.name)->shape[axis] == graph.sizes.at(batch);
    });
    if (!is_it) continue;
    if (found >= 0) {
      fail(ErrorKind::argument,
           "graph '{}': which axis of '{}' {} is the batch cannot be told: {} and {} are as long\n"
           "hint: give the entry point a graph of another batch, too",
           one_line(graphs[0].name), one_line(tensor.name), to_string(*type_of(graphs[0].*side, tensor.name)), found,
           axis);
    }
    found = axis;
  }
  return found;
}

}  // namespace

std::string_view entry_of(std::string_view graph_name) { return graph_name.substr(0, graph_name.find('[')); }

std::map<std::string, std::int64_t> named_sizes(std::string_view graph_name) {
  const std::size_t open = graph_name.find('[');
  if (open == graph_name.npos || !graph_name.ends_with(']')) return {};
  std::string_view rest = graph_name.substr(open + 1, graph_name.size() - open - 2);
  std::map<std::string, std::int64_t> sizes;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find(','));
    const std::size_t equals = part.find('=');
    if (equals == part.npos || equals == 0) return {};
    std::int64_t size = 0;
    const auto read = std::from_chars(part.data() + equals + 1, part.data() + part.size(), size);
    if (read.ec != std::errc() || read.ptr != part.data() + part.size()) return {};
    if (!sizes.emplace(part.substr(0, equals), size).second) return {};
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
  }
  return sizes;
}

std::vector<SizedGraph> sized_graphs(const std::string& name, const GraphText& text) {
  const Extents& extents = text.extents();
  const Extents::Key smallest = extents.smallest();
  std::vector<Extents::Key> keys{smallest};
  for (std::size_t i = 0; i < extents.specs().size(); ++i) {
    if (auto key = next_above(extents, smallest, i)) keys.push_back(std::move(*key));
  }
  std::vector<SizedGraph> made;
  for (const Extents::Key& key : keys) {
    std::map<std::string, std::int64_t> sizes = named_sizes(name);
    for (std::size_t i = 0; i < key.size(); ++i) sizes[extents.specs()[i].name] = key[i];
    made.push_back(sized(name, *text.at(key), std::move(sizes)));
  }
  return made;
}

ModelSignature signature_of(std::span<const SizedGraph> graphs, const std::string& batch) {
  ModelSignature made{tensors_of(graphs, &SizedGraph::inputs, "takes"),
                      tensors_of(graphs, &SizedGraph::results, "gives")};
  const auto has_it = [&](const SizedGraph& graph) { return graph.sizes.contains(batch); };
  if (batch.empty() || std::ranges::none_of(graphs, has_it)) return made;
  if (const auto without = std::ranges::find_if_not(graphs, has_it); without != graphs.end()) {
    fail(ErrorKind::argument, "graph '{}' has no extent '{}', which is the batch of other graphs of '{}'",
         one_line(without->name), one_line(batch), one_line(entry_of(without->name)));
  }
  for (ModelTensor& input : made.inputs) input.batch_axis = batch_axis(graphs, &SizedGraph::inputs, input, batch);
  for (ModelTensor& result : made.results) {
    result.batch_axis = batch_axis(graphs, &SizedGraph::results, result, batch);
    if (result.batch_axis >= 0) continue;
    fail(ErrorKind::argument,
         "graph '{}': no axis of its result '{}' {} is as long as the batch in every graph: it is not of single rows\n"
         "hint: fetch what each row has, or save the model without batch = '{}'",
         one_line(graphs[0].name), one_line(result.name), to_string(*type_of(graphs[0].results, result.name)),
         one_line(batch));
  }
  made.has_batch = std::ranges::any_of(made.inputs, [](const ModelTensor& input) { return input.batch_axis >= 0; });
  if (!made.has_batch) {
    fail(ErrorKind::argument, "graph '{}': no axis of any input is as long as the batch in every graph",
         one_line(graphs[0].name));
  }
  return made;
}

void check_batch(const ModelFile& model) {
  if (model.batch.empty()) return;
  std::map<std::string, std::vector<SizedGraph>, std::less<>> by_entry;
  std::map<std::string, std::int64_t> seen;
  for (const auto& [name, text] : model.graphs) {
    std::vector<SizedGraph>& graphs = by_entry[std::string(entry_of(name))];
    for (SizedGraph& graph : sized_graphs(name, GraphText(text))) {
      seen.insert(graph.sizes.begin(), graph.sizes.end());
      graphs.push_back(std::move(graph));
    }
  }
  if (!seen.contains(model.batch)) {
    std::vector<std::string> names;
    for (const auto& [name, size] : seen) names.push_back(name);
    fail(ErrorKind::argument,
         "batch = '{}': no graph has this extent; there are: {}\n"
         "hint: graphs of several sizes are named '{}[{}=1]', '{}[{}=8]' ..",
         one_line(model.batch), one_line(names), one_line(by_entry.begin()->first), one_line(model.batch),
         one_line(by_entry.begin()->first), one_line(model.batch));
  }
  for (const auto& [entry, graphs] : by_entry) {
    const bool has_it =
        std::ranges::any_of(graphs, [&](const SizedGraph& graph) { return graph.sizes.contains(model.batch); });
    if (has_it) signature_of(graphs, model.batch);
  }
}

}  // namespace paoding
