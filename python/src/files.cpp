// SPDX-License-Identifier: Apache-2.0
// Safetensors files and checkpoints.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "bindings.h"
#include "interrupts.h"
#include "paoding/checkpoint.h"
#include "paoding/io.h"

namespace paoding::python {
namespace {

using namespace nb::literals;
using Path = std::filesystem::path;
using Texts = std::map<std::string, std::string>;
using Tensors = std::map<std::string, Tensor>;

Tensors tensors_of(const nb::dict& given) {
  Tensors tensors;
  for (auto [name, array] : given) {
    const std::string key = name_of(name, "the name of a tensor");
    tensors.emplace(key, dense_tensor_of(array, std::nullopt, {"tensor", key}));
  }
  return tensors;
}

}  // namespace

void bind_files(nb::module_& module) {
  module.def(
      "load_safetensors", [](const Path& path) { return run_freely([&] { return load_safetensors(path); }); }, "path"_a,
      nb::sig("def load_safetensors(path: str | os.PathLike[str]) -> dict[str, Tensor]"),
      "The tensors of a file, by name. FileError when it is malformed in any way.");
  module.def(
      "save_safetensors",
      [](const Path& path, const nb::dict& tensors, const Texts& metadata) {
        const Tensors all = tensors_of(tensors);
        run_freely([&] { save_safetensors(path, all, metadata); });
      },
      "path"_a, "tensors"_a, "metadata"_a = Texts{},
      nb::sig("def save_safetensors(path: str | os.PathLike[str], tensors: dict[str, typing.Any], metadata: dict[str, "
              "str] = {}) -> None"),
      "A file that appears whole or not at all.");
  nb::class_<Manifest>(module, "Manifest", "What a checkpoint says about itself.")
      .def(nb::init<>())
      .def_rw("model", &Manifest::model)
      .def_rw("options", &Manifest::options)
      .def_rw("step", &Manifest::step)
      .def_rw("epoch", &Manifest::epoch)
      .def_rw("batch", &Manifest::batch)
      .def_rw("score", &Manifest::score)
      .def_rw("score_name", &Manifest::score_name)
      .def_rw("notes", &Manifest::notes)
      .def_rw("losses", &Manifest::losses)
      .def_rw("scores", &Manifest::scores);
  nb::class_<Checkpoint>(module, "Checkpoint", "Tensors, what they are of, and the model's own files.")
      .def_rw("manifest", &Checkpoint::manifest)
      .def_rw("tensors", &Checkpoint::tensors)
      .def_prop_ro(
          "files",
          [](const Checkpoint& self) {
            nb::dict files;
            for (const auto& [name, bytes] : self.files) files[name.c_str()] = nb::bytes(bytes.data(), bytes.size());
            return files;
          },
          nb::sig("def files(self) -> dict[str, bytes]"));
  nb::class_<CheckpointFolder>(module, "CheckpointFolder",
                               "Where a run's checkpoints are; no other trains into it meanwhile.")
      .def(nb::init<Path, int>(), "folder"_a, "keep_last"_a = 2,
           nb::sig("def __init__(self, folder: str | os.PathLike[str], keep_last: int = 2) -> None"))
      .def_prop_ro("path", &CheckpointFolder::path)
      .def("checkpoints", &CheckpointFolder::checkpoints)
      .def("latest", &CheckpointFolder::latest)
      .def("best", &CheckpointFolder::best)
      .def(
          "save",
          [](CheckpointFolder& self, const Manifest& manifest, const nb::object& tensors,
             const std::map<std::string, nb::bytes>& files) {
            Checkpoint checkpoint{.manifest = manifest, .tensors = {}, .files = {}};
            for (const auto& [name, bytes] : files)
              checkpoint.files.emplace(name, std::string(bytes.c_str(), bytes.size()));
            if (nb::isinstance<Parameters>(tensors)) {
              checkpoint.tensors = values_of(nb::cast<Parameters&>(tensors));
            } else {
              checkpoint.tensors = tensors_of(dict_of(tensors, "tensors", "Parameters or a dict"));
            }
            return run_freely([&] { return self.save(checkpoint); });
          },
          "manifest"_a, "tensors"_a, "files"_a = nb::dict(),
          nb::sig("def save(self, manifest: Manifest, tensors: Parameters | dict[str, typing.Any], files: dict[str, "
                  "bytes] = {}) -> pathlib.Path"));
  module.def(
      "load_checkpoint",
      [](const Path& path, bool latest) { return run_freely([&] { return load_checkpoint(path, latest); }); }, "path"_a,
      "latest"_a = false,
      nb::sig("def load_checkpoint(path: str | os.PathLike[str], latest: bool = False) -> Checkpoint"),
      "The checkpoint in `path`, or the best in it (the latest with `latest`).");
  module.def(
      "values_of",
      [](const Parameters& parameters, std::optional<ParameterRole> role) {
        return run_freely([&] { return role ? values_of(parameters, *role) : values_of(parameters); });
      },
      "parameters"_a, "role"_a = nb::none(),
      "Every value of a store by name, or those that are there for one thing: of ParameterRole.model all that a model "
      "which predicts needs.");
  module.def(
      "restore",
      [](Parameters& parameters, const nb::dict& tensors, bool allow_more) {
        restore(&parameters, tensors_of(tensors), allow_more);
      },
      "parameters"_a, "tensors"_a, "allow_more"_a = false,
      nb::sig("def restore(parameters: Parameters, tensors: dict[str, typing.Any], allow_more: bool = False) -> None"),
      "Gives every parameter the tensor of its name. ArgumentError that lists what does not fit; then nothing was "
      "changed.");
}

}  // namespace paoding::python
