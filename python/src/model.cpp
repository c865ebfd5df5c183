// SPDX-License-Identifier: Apache-2.0
// Models in one file: written, read, and called from any thread.
#include "paoding/model.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "bindings.h"
#include "interrupts.h"
#include "paoding/checkpoint.h"
#include "paoding/error.h"
#include "paoding/graph_text.h"

namespace paoding::python {
namespace {

using namespace nb::literals;
using Texts = std::map<std::string, std::string>;
using Tensors = std::map<std::string, Tensor>;

using Dtypes = std::map<std::string, DType>;

std::optional<DType> found_in(const Dtypes& dtypes, const std::string& name) {
  const auto found = dtypes.find(name);
  return found == dtypes.end() ? std::nullopt : std::optional(found->second);
}

nb::dict files_of(const ModelFile& file) {
  nb::dict files;
  for (const auto& [name, bytes] : file.files) files[name.c_str()] = nb::bytes(bytes.data(), bytes.size());
  return files;
}

nb::list inputs_of(const Model& self, const std::string& entry) {
  nb::list made;
  for (const auto& types : self.inputs(entry)) {
    nb::dict inputs;
    for (const auto& [name, type] : types) {
      const std::vector<std::int64_t> extents(type.shape.begin(), type.shape.end());
      inputs[name.c_str()] = nb::make_tuple(type.dtype, nb::tuple(nb::cast(extents)));
    }
    made.append(inputs);
  }
  return made;
}

// A graph as it is in a file. One with extents is read at their smallest sizes, for the parameters that it has.
struct SavedGraph {
  std::string text;
  std::vector<std::pair<std::string, Type>> parameters;
};

SavedGraph saved_graph(nb::handle given, const std::string& name) {
  SavedGraph saved;
  std::unique_ptr<Graph> read;
  const Graph* graph = nullptr;
  if (nb::isinstance<GraphText>(given)) {
    const auto& sized = nb::cast<const GraphText&>(given);
    saved.text = sized.text();
    read = sized.at(sized.extents().smallest());
    graph = read.get();
  } else if (nb::isinstance<GraphHandle>(given)) {
    graph = &nb::cast<const GraphHandle&>(given).graph();
    saved.text = to_text(*graph);
  } else {
    throw nb::type_error(
        ("the graph '" + name + "' is of type " + type_name_of(given) + ", needed is a Graph or GraphText").c_str());
  }
  for (const NodeId id : graph->parameters()) {
    const Node& node = graph->node(id);
    saved.parameters.emplace_back(node.name.str(), node.types[0]);
  }
  return saved;
}

void save(const std::filesystem::path& path, const nb::dict& graphs, nb::object parameters, const std::string& model,
          const std::string& batch, const Texts& options, const Texts& notes, const nb::dict& files) {
  ModelFile file{.model = model, .options = options, .notes = notes};
  file.batch = batch;
  std::map<std::string, SavedGraph> saved;
  for (auto [key, graph] : graphs) {
    const std::string name = name_of(key, "the name of a graph");
    saved.emplace(name, saved_graph(graph, name));
  }
  for (auto [name, bytes] : files) {
    const std::string key = name_of(name, "the name of a file");
    if (PyBytes_Check(bytes.ptr()) == 0) {
      throw nb::type_error(("the file '" + key + "' is of type " + type_name_of(bytes) + ", needed are bytes").c_str());
    }
    const auto content = nb::borrow<nb::bytes>(bytes);
    file.files.emplace(key, std::string(content.c_str(), content.size()));
  }
  Dtypes dtypes;  // of lists
  for (const auto& [name, graph] : saved) {
    for (const auto& [parameter, type] : graph.parameters) dtypes.emplace(parameter, type.dtype);
  }
  Tensors values;
  if (nb::isinstance<Parameters>(parameters)) {
    const auto& store = nb::cast<const Parameters&>(parameters);
    values = run_freely([&] { return values_of(store); });
  } else if (!parameters.is_none()) {
    for (auto [name, array] : dict_of(parameters, "parameters", "Parameters or a dict")) {
      const std::string key = name_of(name, "the name of a parameter");
      values.emplace(key, dense_tensor_of(array, found_in(dtypes, key), {"parameter", key}));
    }
  }
  for (const auto& [name, graph] : saved) {
    file.graphs.emplace(name, graph.text);
    for (const auto& [parameter, type] : graph.parameters) {
      const auto found = values.find(parameter);
      if (found == values.end()) {
        throw Error(ErrorKind::argument,
                    "save_model: no value is given for the parameter '" + parameter + "' of the graph '" + name + "'");
      }
      file.parameters.emplace(parameter, found->second);
    }
  }
  run_freely([&] { save_model(path, file); });
}

Model load(const std::filesystem::path& path, const std::string& device, int executors, nb::object precision,
           bool allow_tf32, bool tune) {
  ModelOptions options;
  options.compile.device = device_of(device);
  options.compile.precision = dtype_of(precision);
  options.compile.allow_tf32 = allow_tf32;
  options.compile.tune = tune;
  options.executors = executors;
  return run_freely([&] { return Model::load(path, options); });
}

// Arrays, lists and numbers get the input's dtype, as the entry's graphs have it.
Tensors fed(const Model& self, const std::optional<std::string>& entry, const nb::dict& feeds, bool strict) {
  Dtypes dtypes;
  const std::vector<std::string> entries = self.entries();
  if (entry || entries.size() == 1) {
    for (const auto& types : self.inputs(entry ? *entry : entries[0])) {
      for (const auto& [name, type] : types) dtypes.emplace(name, type.dtype);
    }
  }
  Tensors tensors;
  for (auto [name, array] : feeds) {
    const std::string key = name_of(name, "the name of an input");
    const std::optional<DType> wanted = found_in(dtypes, key);
    const ArrayName given{"input", key};
    tensors.emplace(
        key, wanted ? feed_of(array, *wanted, nullptr, given, strict, nullptr) : tensor_of(array, std::nullopt, given));
  }
  return tensors;
}

Tensors run(const Model& self, const nb::dict& feeds, const std::optional<std::string>& entry, bool strict) {
  const Tensors tensors = fed(self, entry, feeds, strict);
  return run_freely([&] { return entry ? self.run(*entry, tensors) : self.run(tensors); });
}

}  // namespace

void bind_model(nb::module_& module) {
  nb::class_<Model>(module, "Model",
                    "The graphs of a model file, compiled for a device when they are first needed. Any thread may call "
                    "it at any time: there is one copy of the weights, and `executors` calls run at once.")
      .def_static("load", &load, "path"_a, "device"_a = "cpu", nb::kw_only(), "executors"_a = 2,
                  "precision"_a = DType::f32, "allow_tf32"_a = false, "tune"_a = false,
                  nb::sig("def load(path: str | os.PathLike[str], device: str = 'cpu', *, executors: int = 2, "
                          "precision: DType | str = 'f32', allow_tf32: bool = False, tune: bool = False) -> Model"),
                  "FileError when the file is truncated, damaged, none of a model, or of a later version; nothing in "
                  "it is trusted.")
      .def("run", &run, "feeds"_a, "entry"_a = nb::none(), "strict"_a = false,
           nb::sig("def run(self, feeds: dict[str, typing.Any], entry: str | None = None, strict: bool = False) -> "
                   "dict[str, Tensor]"),
           "Runs the graph of the entry point (the only one, without a name) whose inputs have the types of the feeds.")
      .def(
          "__call__",
          [](const Model& self, const nb::kwargs& feeds) {
            return run(self, nb::borrow<nb::dict>(feeds), std::nullopt, false);
          },
          nb::sig("def __call__(self, **feeds: typing.Any) -> dict[str, Tensor]"))
      .def_prop_ro("entries", &Model::entries, "The names of its entry points.")
      .def("inputs", &inputs_of, "entry"_a,
           nb::sig("def inputs(self, entry: str) -> list[dict[str, tuple[DType, tuple[int, ...]]]]"),
           "What the graphs of an entry point take: one for every shape.")
      .def(
          "graph",
          [](const Model& self, const std::string& name) {
            return GraphHandle{std::make_shared<GraphOwner>(self.graph(name))};
          },
          "name"_a, "A copy of a graph.")
      .def_prop_ro(
          "parameters", [](const Model& self) { return run_freely([&] { return values_of(self.parameters()); }); },
          "The weights' values by name, copied.")
      .def_prop_ro("name", [](const Model& self) { return self.file().model; })
      .def_prop_ro(
          "batch", [](const Model& self) { return self.file().batch; },
          "The extent along which rows know nothing of each other; '' where the file says none.")
      .def_prop_ro("options", [](const Model& self) { return self.file().options; })
      .def_prop_ro("notes", [](const Model& self) { return self.file().notes; })
      .def_prop_ro(
          "files", [](const Model& self) { return files_of(self.file()); },
          nb::sig("def files(self) -> dict[str, bytes]"));
  module.def(
      "write_model_file", &save, "path"_a, "graphs"_a, "parameters"_a.none(), nb::kw_only(), "model"_a, "batch"_a,
      "options"_a, "notes"_a, "files"_a,
      nb::sig("def write_model_file(path: str | os.PathLike[str], graphs: dict[str, Graph | GraphText], parameters: "
              "Parameters | "
              "collections.abc.Mapping[str, typing.Any] | None, *, model: str, batch: str, options: dict[str, "
              "str], notes: dict[str, str], files: dict[str, bytes]) -> None"),
      "Of paoding.save_model, of graphs and texts alone.");
}

}  // namespace paoding::python
