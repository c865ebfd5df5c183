// SPDX-License-Identifier: Apache-2.0
// Model files: safetensors with the graphs' text in the metadata.
#include "io/model_file.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/one_line.h"
#include "io/manifest.h"
#include "io/model_signature.h"
#include "io/safetensors.h"
#include "paoding/graph_text.h"
#include "paoding/model.h"
#include "paoding/op.h"

namespace paoding {
namespace {

constexpr std::string_view kModelFormat = "paoding model", kModelVersion = "1";
constexpr std::string_view kFile = "file:", kGraph = "graph:", kOption = "option:", kNote = "note:";
constexpr const char* kSeal = "crc32";
constexpr const char* kBatch = "batch";
constexpr std::string_view kFileSeal = "crc32:";  // of an option
using Texts = std::map<std::string, std::string>;

// The seal of every name, type and byte, in their order.
std::string seal_of(const std::map<std::string, Tensor>& tensors, const Texts& metadata) {
  checkpoints::Seal seal;
  const auto add = [&](std::string_view text) {
    const std::uint64_t size = text.size();
    seal.add(&size, sizeof size);
    seal.add(text.data(), text.size());
  };
  for (const auto& [key, text] : metadata) {
    if (key != kSeal) add(key), add(text);
  }
  for (const auto& [name, tensor] : tensors) {
    add(name), add(to_string(tensor.type()));
    seal.add(tensor.bytes(), static_cast<std::size_t>(tensor.size_bytes()));
  }
  return checkpoints::crc_text(seal.crc);
}

std::string seal_of(const std::string& bytes) {
  checkpoints::Seal seal;
  seal.add(bytes.data(), bytes.size());
  return checkpoints::crc_text(seal.crc);
}

// Whether all bits of an exponent are set, which those of a finite number never are.
template <class Bits>
bool has_nonfinite(const Tensor& tensor, Bits exponent) {
  const auto* const first = reinterpret_cast<const Bits*>(tensor.bytes());
  return std::any_of(first, first + tensor.shape().elements(),
                     [&](Bits bits) { return (bits & exponent) == exponent; });
}
bool has_nonfinite(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::f64: return has_nonfinite(tensor, std::uint64_t{0x7ff0'0000'0000'0000});
    case DType::f32: return has_nonfinite(tensor, std::uint32_t{0x7f80'0000});
    case DType::f16: return has_nonfinite(tensor, std::uint16_t{0x7c00});
    case DType::bf16: return has_nonfinite(tensor, std::uint16_t{0x7f80});
    default: return false;
  }
}

Tensor bytes_tensor(const std::string& bytes) {
  Tensor tensor(u8, {static_cast<std::int64_t>(bytes.size())});
  if (!bytes.empty()) std::memcpy(tensor.bytes(), bytes.data(), bytes.size());
  return tensor;
}

[[noreturn]] void damaged(const std::string& file, const std::string& what) {
  fail(ErrorKind::file, "{}: {}", file, what);
}

ModelFile model_of(const std::string& file, SafetensorsFile read) {
  Texts& texts = read.metadata;
  const auto format = texts.find("format"), version = texts.find("version");
  if (format == texts.end() || format->second != kModelFormat || version == texts.end()) {
    damaged(file, "it is no model that `paoding export` or save_model() wrote");
  }
  if (version->second != kModelVersion) {
    damaged(file, fmt::format("it is a model of version {}; this paoding knows version {}",
                              safetensors::shown(version->second), kModelVersion));
  }
  const auto seal = texts.find(kSeal);
  const std::string computed = seal_of(read.tensors, texts);
  if (seal == texts.end() || seal->second != computed) {
    damaged(file, fmt::format("it is damaged: its checksum is {}, what is in it has {}",
                              seal == texts.end() ? "missing" : safetensors::shown(seal->second), computed));
  }
  ModelFile model;
  for (const auto& [key, text] : texts) {
    const auto rest = [&key = key](std::string_view prefix) { return key.substr(prefix.size()); };
    if (key == "model")
      model.model = text;
    else if (key == kBatch)
      model.batch = text;
    else if (key.starts_with(kGraph))
      model.graphs[rest(kGraph)] = text;
    else if (key.starts_with(kOption))
      model.options[rest(kOption)] = text;
    else if (key.starts_with(kNote))
      model.notes[rest(kNote)] = text;
  }
  for (auto& [name, tensor] : read.tensors) {
    if (!name.starts_with(kFile)) {
      model.parameters[name] = std::move(tensor);
      continue;
    }
    if (tensor.dtype() != u8 || tensor.shape().rank() != 1) {
      damaged(file, fmt::format("'{}' is {}, needed are bytes", safetensors::shown(name), to_string(tensor.type())));
    }
    model.files[name.substr(kFile.size())] =
        std::string(reinterpret_cast<const char*>(tensor.bytes()), static_cast<std::size_t>(tensor.size_bytes()));
  }
  if (model.graphs.empty()) damaged(file, "it has no graph");
  return model;
}

bool drops(const Node& node) {
  return node.op->name == "dropout" || (node.attrs.find("dropout") != nullptr && node.attrs.get_float("dropout") > 0);
}

// A node of the graph, or of a body in it, that drops as in training; null if there is none.
const Node* dropping(const Graph& graph) {
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (drops(node)) return &node;
    for (const auto& body : node.bodies) {
      if (const Node* within = dropping(*body)) return within;
    }
  }
  return nullptr;
}

// Refuses graphs that Model would refuse, with its reader: nesting, lengths of names and numbers of nodes are its
// limits. Also those with dropout, which would have one mask for ever, as runs of a Model assign nothing, not even the
// state of random numbers.
void check_graph(const std::string& file, const std::string& name, const ModelFile& model) {
  const auto fail_graph = [&](const std::string& what) {
    fail(ErrorKind::argument, "{}: graph '{}': {}", file, one_line(name), what);
  };
  std::unique_ptr<Graph> graph;
  try {
    const GraphText text(model.graphs.at(name));
    graph = text.at(text.extents().smallest());
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::cancelled) throw;
    fail_graph(error.what());
  }
  if (graph->fetches().empty()) fail_graph("it fetches nothing");
  for (const NodeId id : graph->parameters()) {
    const Node& node = graph->node(id);
    const auto given = model.parameters.find(node.name.str());
    if (given == model.parameters.end()) {
      fail_graph(fmt::format("no value is given for its parameter '{}'", one_line(node.name.str())));
    }
    if (given->second.type() != node.types[0]) {
      fail_graph(fmt::format("its parameter '{}' is {}, not {}", one_line(node.name.str()), to_string(node.types[0]),
                             to_string(given->second.type())));
    }
  }
  if (const Node* node = dropping(*graph)) {
    fail_graph(
        fmt::format("it drops values as in training, by the same mask in every run of the file{}\n"
                    "hint: build what is saved with training = false",
                    in_scope(node->scope.str())));
  }
}

}  // namespace

void seal_files(ModelFile* model) {
  for (const auto& [name, bytes] : model->files) model->options[std::string(kFileSeal) + name] = seal_of(bytes);
}

void check_sealed_files(const ModelFile& model, std::string_view name) {
  for (const auto& [key, crc] : model.options) {
    if (!key.starts_with(kFileSeal)) continue;
    const auto found = model.files.find(key.substr(kFileSeal.size()));
    const std::string computed = found == model.files.end() ? "missing" : seal_of(found->second);
    if (crc == computed) continue;
    fail(ErrorKind::file,
         "{}: its file '{}' is not the one that its weights were trained with: the checksum is {}, and was {}", name,
         safetensors::shown(key.substr(kFileSeal.size())), computed, safetensors::shown(crc));
  }
}

void check_finite_parameters(const ModelFile& model, std::string_view name) {
  for (const auto& [parameter, tensor] : model.parameters) {
    if (!has_nonfinite(tensor)) continue;
    fail(ErrorKind::file, "{}: the parameter '{}' has a NaN or an infinity: what such a model says means nothing", name,
         safetensors::shown(parameter));
  }
}

std::string graph_name(std::string_view entry, const std::vector<std::int64_t>& shape) {
  return fmt::format("{}[{}]", entry, fmt::join(shape, ","));
}

std::string graph_name(std::string_view entry, const Sizes& sizes) {
  std::string text;
  for (const auto& [name, size] : sizes.entries()) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, size);
  }
  return fmt::format("{}[{}]", entry, text);
}

void save_model(const std::filesystem::path& path, const ModelFile& model) {
  if (model.graphs.empty()) fail(ErrorKind::argument, "{}: a model has at least one graph", path.string());
  Texts texts{{"format", std::string(kModelFormat)}, {"version", std::string(kModelVersion)}, {"model", model.model}};
  const auto add = [&](std::string_view prefix, const Texts& all) {
    for (const auto& [name, text] : all) texts[std::string(prefix) + name] = text;
  };
  add(kGraph, model.graphs);
  add(kOption, model.options);
  add(kNote, model.notes);
  for (const auto& [name, text] : model.graphs) check_graph(path.string(), name, model);
  if (!model.batch.empty()) {
    texts[kBatch] = model.batch;
    try {
      check_batch(model);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::argument) throw;
      fail(ErrorKind::argument, "{}: {}", path.string(), error.what());
    }
  }
  std::map<std::string, Tensor> tensors = model.parameters;
  for (const auto& [name, tensor] : model.parameters) {
    if (name.starts_with(kFile)) {
      fail(ErrorKind::argument, "{}: the parameter '{}' has a name that stands for a file", path.string(),
           safetensors::shown(name));
    }
  }
  for (const auto& [name, bytes] : model.files) tensors[std::string(kFile) + name] = bytes_tensor(bytes);
  texts[kSeal] = seal_of(tensors, texts);
  save_safetensors(path, tensors, texts);
}

ModelFile load_model_file(const std::filesystem::path& path) { return model_of(path.string(), read_safetensors(path)); }

ModelFile parse_model_file(std::span<const std::byte> bytes, std::string_view name) {
  return model_of(std::string(name), parse_safetensors(bytes, name));
}

}  // namespace paoding
