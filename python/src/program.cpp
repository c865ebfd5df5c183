// SPDX-License-Identifier: Apache-2.0
// Parameters and Program.
#include "paoding/program.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>

#include "arrays.h"
#include "bindings.h"
#include "errors.h"
#include "gil.h"
#include "interrupts.h"
#include "paoding/error.h"

namespace paoding::python {
namespace {

using namespace nb::literals;

/// Program, as Python has it: feeds and fetches by name, found by the name's object first.
class ProgramHandle {
 public:
  ProgramHandle(Program program, std::shared_ptr<GraphOwner> graph, nb::object parameters, nb::object on_print,
                const Device& device, bool is_strict, nb::dict options)
      : program_(std::move(program)),
        graph_(std::move(graph)),
        parameters_(std::move(parameters)),
        on_print_(std::move(on_print)),
        device_(device),
        stream_(program_.stream()),
        is_strict_(is_strict),
        options_(std::move(options)),
        nodes_(graph_->get().size()),
        fetch_count_(graph_->get().fetches().size()) {
    for (const std::string& name : program_.input_names()) inputs_.push_back(interned(name));
    for (const std::string& name : program_.fetch_names()) fetches_.push_back(interned(name));
  }

  /// With results that are Tensors or DeviceTensors.
  template <class Made>
  nb::dict run(nb::handle feeds, bool keep);
  ProgramHandle bind(const GraphHandle& graph) const {
    const std::unique_ptr<Graph> copy = graph.graph().clone();
    return with_lines(*graph.owner, [&] {
      return ProgramHandle(run_freely([&] { return program_.bind(*copy); }), graph.owner, parameters_, on_print_,
                           device_, is_strict_, options_);
    });
  }
  /// The time of `runs` runs from C++, by position, in seconds: the same from Python is compared with it.
  double seconds_of(const nb::dict& feeds, int runs);
  const Program& program() const { return program_; }
  const nb::object& parameters() const { return parameters_; }
  const Conversions& conversions() const { return conversions_; }
  const nb::dict& options() const { return options_; }
  /// Error (argument) when it is not the graph any more that the program was made of.
  GraphHandle graph() const {
    const Graph& graph = graph_->get();
    if (graph.size() == nodes_ && graph.fetches().size() == fetch_count_) return {graph_};
    throw Error(ErrorKind::argument,
                "graph: it has grown since the program was made\nhint: pd.Program(graph.clone(), ..) keeps its own");
  }

 private:
  static nb::str interned(const std::string& name) {
    PyObject* text = PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
    if (text == nullptr) throw nb::python_error();
    PyUnicode_InternInPlace(&text);
    return nb::steal<nb::str>(text);
  }
  int input_at(nb::handle name) const;
  Feed fed(nb::handle input, nb::handle value);
  std::vector<Feed> given(nb::handle feeds);

  Program program_;
  std::shared_ptr<GraphOwner> graph_;  // for the lines of its ops
  nb::object parameters_, on_print_;
  std::vector<nb::str> inputs_, fetches_;
  Device device_;
  void* stream_;  // of a GPU, nullptr on the CPU
  bool is_strict_;
  nb::dict options_;  // by name, as it was made with them
  NodeId nodes_;      // of its graph, which may grow
  std::size_t fetch_count_;
  Conversions conversions_;
};

int ProgramHandle::input_at(nb::handle name) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].is(name)) return static_cast<int>(i);
  }
  return program_.input_index(name_of(name, "the name of an input"));
}

Feed ProgramHandle::fed(nb::handle input, nb::handle value) {
  const int index = input_at(input);
  const ArrayName name{"input", program_.input_names()[static_cast<std::size_t>(index)]};
  const Type& type = program_.input_type(index);
  if (stream_ != nullptr || nb::isinstance<DeviceTensor>(value)) {
    if (auto there = device_array_of(value, device_, stream_, name)) {
      if (const Type& given = there->tensor.type(); given.dtype != type.dtype) {
        throw Error(ErrorKind::dtype, name.text() + " is " + to_string(type) + ", not " + to_string(given) +
                                          ", and arrays of a GPU are not converted\nhint: tensor.to(..), astype(..)");
      }
      return {index, std::move(there->tensor), there->stream};
    }
  }
  return {index, feed_of(value, type.dtype, &type.shape, name, is_strict_, &conversions_)};
}

std::vector<Feed> ProgramHandle::given(nb::handle feeds) {
  std::vector<Feed> given;
  if (feeds.is_none()) return given;
  dict_of(feeds, "run: feeds");
  given.reserve(static_cast<std::size_t>(PyDict_Size(feeds.ptr())));
  PyObject *name = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(feeds.ptr(), &at, &name, &value) != 0) {
    // The objects are kept, since an array may run Python that changes the dict when it gives its memory.
    const nb::object input = nb::borrow(name), array = nb::borrow(value);
    given.push_back(fed(input, array));
  }
  return given;
}

template <class Made>
nb::dict ProgramHandle::run(nb::handle feeds, bool keep) {
  const std::vector<Feed> inputs = given(feeds);
  constexpr Results where = std::is_same_v<Made, Tensor> ? Results::on_host : Results::on_device;
  std::vector<AnyTensor> made = with_lines(*graph_, [&] {
    return run_freely([&] { return program_.call(inputs, keep ? LeftOut::keep : LeftOut::error, where); });
  });
  nb::dict results;
  for (std::size_t i = 0; i < made.size(); ++i) {
    results[fetches_[i]] = nb::cast(std::get<Made>(std::move(made[i])));
  }
  return results;
}

double ProgramHandle::seconds_of(const nb::dict& feeds, int runs) {
  const std::vector<Feed> inputs = given(feeds);
  const WithoutGil free;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < runs; ++i) program_.call(inputs);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Execution execution_of(const std::string& text) {
  if (text == "captured") return Execution::captured;
  if (text == "stepwise") return Execution::stepwise;
  throw Error(ErrorKind::argument, "execution is '" + text + "', needed is captured or stepwise");
}

// Called from runs, which have no GIL.
std::function<void(const Printed&)> listener_of(const nb::object& function) {
  if (function.is_none()) return {};
  return [listener = nb::handle(function)](const Printed& seen) {  // which the Program keeps
    const WithGil gil;
    call_python([&] { listener(seen.message, seen.value, seen.scope, seen.instance); });
  };
}

void construct_program(ProgramHandle* self, const GraphHandle& graph, nb::object parameters,
                       const std::optional<std::string>& device, const std::vector<std::string>& fetches, bool assign,
                       nb::object precision, bool allow_tf32, bool tune, const std::string& execution,
                       const std::vector<std::string>& disabled_passes, std::uintptr_t stream, nb::object on_print,
                       bool strict, std::shared_ptr<Communicator> communicator, std::int64_t bucket_bytes) {
  if (!parameters.is_none() && !nb::isinstance<Parameters>(parameters)) {
    throw nb::type_error(("Program: parameters is of type " + type_name_of(parameters) +
                          ", needed is Parameters\nhint: pd.Parameters(graph), then parameters[name] = array")
                             .c_str());
  }
  const Parameters* store = parameters.is_none() ? nullptr : nb::cast<Parameters*>(parameters);
  CompileOptions options;
  options.device = device ? device_of(*device) : store != nullptr ? store->device() : Device::cpu();
  options.fetches = fetches;
  options.assign = assign;
  options.precision = dtype_of(precision);
  options.allow_tf32 = allow_tf32;
  options.tune = tune;
  options.execution = execution_of(execution);
  options.disabled_passes = disabled_passes;
  options.stream = reinterpret_cast<void*>(stream);
  options.on_print = listener_of(on_print);
  options.communicator = communicator;
  options.bucket_bytes = bucket_bytes;
  nb::dict given;
  given["device"] = to_string(options.device);
  given["fetches"] = fetches;
  given["assign"] = assign;
  given["precision"] = std::string(to_string(options.precision));
  given["allow_tf32"] = allow_tf32;
  given["tune"] = tune;
  given["execution"] = execution;
  given["disabled_passes"] = disabled_passes;
  given["stream"] = stream;
  given["on_print"] = on_print;
  given["strict"] = strict;
  given["communicator"] = communicator;
  given["bucket_bytes"] = bucket_bytes;
  const std::unique_ptr<Graph> copy = graph.graph().clone();  // other threads may change it meanwhile
  with_lines(*graph.owner, [&] {
    Program program = run_freely([&] { return Program(*copy, options, store); });
    new (self) ProgramHandle(std::move(program), graph.owner, std::move(parameters), std::move(on_print),
                             options.device, strict, std::move(given));
  });
}

// The parameters of a graph, in one that has only such, with the first values that they have there or were given later.
void declare(const GraphHandle& from, Graph* into) {
  const Graph& graph = from.graph();
  for (const NodeId id : graph.parameters()) {
    const std::string& name = graph.node(id).name.str();
    const Type& type = graph.node(id).types[0];
    if (const Value there = into->find(name); there.valid()) {
      if (there.type() == type) continue;
      throw Error(there.dtype() == type.dtype ? ErrorKind::shape : ErrorKind::dtype,
                  "Parameters: '" + name + "' is " + to_string(there.type()) + " in one graph and " + to_string(type) +
                      " in another\nhint: what several graphs share has one name and one type");
    }
    const auto initial = graph.initializers().find(name);
    const auto& given = from.owner->first_values;
    const auto later = given.find(name);
    Initializer first = later != given.end()                    ? later->second
                        : initial != graph.initializers().end() ? initial->second
                                                                : Initializer{};
    into->parameter(name, type.dtype, type.shape, std::move(first), graph.role(name));
  }
}

void construct_parameters(Parameters* self, const nb::object& graphs, const std::string& device, std::uint64_t seed) {
  const Device on = device_of(device);
  Graph all;  // not the graphs themselves, which other threads may change meanwhile
  if (nb::isinstance<GraphHandle>(graphs)) {
    declare(nb::cast<GraphHandle&>(graphs), &all);
  } else {
    std::vector<GraphHandle> list;
    if (!nb::try_cast(graphs, list)) {
      throw nb::type_error(("Parameters: needed is a Graph or a list of them, not " + type_name_of(graphs)).c_str());
    }
    for (const GraphHandle& each : list) declare(each, &all);
  }
  new (self) Parameters(run_freely([&] { return Parameters(all, on, {.seed = seed}); }));
}

bool has(const Parameters& parameters, const std::string& name) {
  const std::vector<std::string> names = parameters.names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Throws the error that a dict has, in the library's words.
void check_has(const Parameters& parameters, const std::string& name) {
  if (has(parameters, name)) return;
  try {
    static_cast<void>(parameters.get(name));
  } catch (const Error& error) {
    const nb::object type = nb::module_::import_("paoding.errors").attr("NotFoundError");
    PyErr_SetObject(type.ptr(), type(error.what()).ptr());
    throw nb::python_error();
  }
}

void set_parameter(Parameters& self, const std::string& name, nb::object value) {
  check_has(self, name);
  const std::vector<ParameterInfo> all = self.list();
  const auto info = std::find_if(all.begin(), all.end(), [&](const ParameterInfo& each) { return each.name == name; });
  const Tensor tensor = feed_of(value, info->type.dtype, &info->type.shape, {"parameter", name}, false, nullptr);
  run_freely([&] { self.set(name, tensor); });
}

nb::dict program_report(const ProgramHandle& self) {
  const CompileReport& report = self.program().report();
  nb::dict made;
  made["milliseconds"] = report.milliseconds;
  made["kernel_milliseconds"] = report.kernel_milliseconds;
  made["kernels_compiled"] = report.kernels_compiled;
  made["launches"] = report.launches;
  made["arena_bytes"] = report.arena_bytes;
  made["peak_live_bytes"] = report.peak_live_bytes;
  made["plan_notes"] = report.plan_notes;
  const Conversions& conversions = self.conversions();
  made["converted_feeds"] = conversions.count;
  made["converted_bytes"] = conversions.bytes;
  made["convert_milliseconds"] = 1e3 * conversions.seconds;
  return made;
}

using MaybeRole = std::optional<ParameterRole>;

void bind_parameter_info(nb::module_& module) {
  nb::class_<ParameterInfo>(module, "ParameterInfo", "A parameter of a store.")
      .def_ro("name", &ParameterInfo::name)
      .def_prop_ro("dtype", [](const ParameterInfo& self) { return self.type.dtype; })
      .def_prop_ro(
          "shape", [](const ParameterInfo& self) { return tuple_of(self.type.shape); },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_ro("role", &ParameterInfo::role)
      .def_prop_ro("elements", &ParameterInfo::elements)
      .def_prop_ro("size_bytes", &ParameterInfo::size_bytes)
      .def("__repr__", [](const ParameterInfo& self) { return self.name + " " + to_string(self.type); });
}

void bind_parameters(nb::module_& module) {
  nb::class_<Parameters>(module, "Parameters",
                         "The values of a graph's parameters on one device, by name; programs share them.")
      .def(
          "__init__", &construct_parameters, "graph"_a, "device"_a = "cpu", "seed"_a = 0,
          nb::sig("def __init__(self, graph: Graph | collections.abc.Sequence[Graph], device: str = 'cpu', seed: int = "
                  "0) -> None"),
          "Those of a graph, or of several graphs of one model, which share what has one name.")
      .def_prop_ro("device", [](const Parameters& self) { return to_string(self.device()); })
      .def("__repr__",
           [](const Parameters& self) {
             return "Parameters(" + std::to_string(self.names().size()) + " on " + to_string(self.device()) + ": " +
                    std::to_string(self.elements(ParameterRole::model)) + " elements of the model, " +
                    std::to_string(self.elements() - self.elements(ParameterRole::model)) + " others)";
           })
      .def(
          "__getitem__",
          [](const Parameters& self, const std::string& name) {
            check_has(self, name);
            return ParameterValue(run_freely([&] { return self.get(name); }));
          },
          "name"_a, nb::sig("def __getitem__(self, name: str) -> Tensor"),
          "A copy of the value, read-only. KeyError (and ArgumentError) when there is none of this name.")
      .def(
          "get",
          [](const Parameters& self, const std::string& name, nb::object otherwise) {
            if (!has(self, name)) return otherwise;
            return nb::cast(ParameterValue(run_freely([&] { return self.get(name); })));
          },
          "name"_a, "default"_a = nb::none(),
          nb::sig("def get(self, name: str, default: typing.Any = None) -> typing.Any"))
      .def(
          "update",
          [](Parameters& self, nb::handle values) {
            for (nb::handle name : values.attr("keys")()) {
              set_parameter(self, name_of(name, "the name of a parameter"), values[name]);
            }
          },
          "values"_a, nb::sig("def update(self, values: collections.abc.Mapping[str, typing.Any]) -> None"),
          "Sets each of them.")
      .def("__setitem__", &set_parameter, "name"_a, "value"_a,
           nb::sig("def __setitem__(self, name: str, value: object) -> None"))
      .def(
          "__contains__",
          [](const Parameters& self, nb::handle name) {
            return PyUnicode_Check(name.ptr()) != 0 && has(self, name_of(name, "the name of a parameter"));
          },
          "name"_a, nb::sig("def __contains__(self, name: object) -> bool"))
      .def("__len__", [](const Parameters& self) { return self.names().size(); })
      .def(
          "__iter__", [](const Parameters& self) { return nb::iter(nb::cast(self.names())); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[str]"))
      .def("keys", &Parameters::names, nb::sig("def keys(self) -> collections.abc.Sequence[str]"))
      .def("list", &Parameters::list, nb::sig("def list(self) -> collections.abc.Sequence[ParameterInfo]"),
           "All of them in the order of the graph.")
      .def(
          "elements",
          [](const Parameters& self, MaybeRole role) { return role ? self.elements(*role) : self.elements(); },
          "role"_a = nb::none(), "Of all together, or of those that are there for one thing.")
      .def(
          "size_bytes",
          [](const Parameters& self, MaybeRole role) { return role ? self.size_bytes(*role) : self.size_bytes(); },
          "role"_a = nb::none())
      .def(
          "items",
          [](const Parameters& self) {
            nb::list all;
            for (const std::string& name : self.names()) {
              all.append(nb::make_tuple(name, ParameterValue(run_freely([&] { return self.get(name); }))));
            }
            return all;
          },
          nb::sig("def items(self) -> collections.abc.Sequence[tuple[str, Tensor]]"))
      .def(
          "values",
          [](const Parameters& self) {
            nb::list all;
            for (const std::string& name : self.names()) {
              all.append(ParameterValue(run_freely([&] { return self.get(name); })));
            }
            return all;
          },
          nb::sig("def values(self) -> collections.abc.Sequence[Tensor]"));
}

}  // namespace

void bind_program(nb::module_& module) {
  bind_parameter_info(module);
  bind_parameters(module);
  nb::class_<ProgramHandle>(module, "Program",
                            "A graph compiled for a device. Every error of the model is found when it is made. One "
                            "thread runs it at a time; the GIL is free meanwhile, and Ctrl-C ends a run.")
      .def("__init__", &construct_program, "graph"_a, "parameters"_a = nb::none(), nb::kw_only(),
           "device"_a = nb::none(), "fetches"_a = std::vector<std::string>{}, "assign"_a = true,
           "precision"_a = DType::f32, "allow_tf32"_a = false, "tune"_a = false, "execution"_a = "captured",
           "disabled_passes"_a = std::vector<std::string>{}, "stream"_a = 0, "on_print"_a = nb::none(),
           "strict"_a = false, "communicator"_a = nb::none(), "bucket_bytes"_a = CompileOptions().bucket_bytes,
           nb::sig(
               "def __init__(self, graph: Graph, parameters: Parameters | None = None, *, device: str | None = None, "
               "fetches: collections.abc.Sequence[str] = (), assign: bool = True, precision: DType | str = 'f32', "
               "allow_tf32: bool = False, tune: bool = False, "
               "execution: str = 'captured', disabled_passes: collections.abc.Sequence[str] = (), stream: int = 0, "
               "on_print: "
               "collections.abc.Callable[[str, Tensor, str, int], None] | None = None, strict: bool = False, "
               "communicator: Communicator | None = None, bucket_bytes: int = 16777216) -> None"),
           "Feeds of other dtypes and strides are converted, and counted in report; `strict` refuses them.")
      .def(
          "run", &ProgramHandle::run<Tensor>, "feeds"_a = nb::none(), "keep"_a = false,
          nb::sig("def run(self, feeds: dict[str, typing.Any] | None = None, keep: bool = False) -> dict[str, Tensor]"),
          "Runs once: feeds by name, results by name. With `keep` inputs left out have the value they had last.")
      .def("run_on_device", &ProgramHandle::run<DeviceTensor>, "feeds"_a = nb::none(), "keep"_a = false,
           nb::sig(
               "def run_on_device(self, feeds: dict[str, typing.Any] | None = None, keep: bool = False) -> dict[str, "
               "DeviceTensor]"),
           "The same with results that stay on the program's GPU; nothing is waited for.")
      .def_prop_ro(
          "stream", [](const ProgramHandle& self) { return reinterpret_cast<std::uintptr_t>(self.program().stream()); },
          "The CUDA stream in which everything of the program is enqueued; 0 on the CPU.")
      .def(
          "__call__", [](ProgramHandle& self, const nb::kwargs& feeds) { return self.run<Tensor>(feeds, false); },
          nb::sig("def __call__(self, **feeds: typing.Any) -> dict[str, Tensor]"))
      .def("seconds_in_cpp", &ProgramHandle::seconds_of, "feeds"_a, "runs"_a,
           nb::sig("def seconds_in_cpp(self, feeds: dict[str, typing.Any], runs: int) -> float"),
           "What so many runs take without Python.")
      .def("bind", &ProgramHandle::bind, "graph"_a, "The same model with other shapes, in the same memory.")
      .def_prop_ro("parameters", &ProgramHandle::parameters, nb::sig("def parameters(self) -> Parameters | None"))
      .def_prop_ro("graph", &ProgramHandle::graph,
                   "The graph that it was made of. ArgumentError when that has grown since.")
      .def_prop_ro("options", &ProgramHandle::options, nb::sig("def options(self) -> dict[str, typing.Any]"),
                   "The options that it was made with, by name.")
      .def_prop_ro("input_names", [](const ProgramHandle& self) { return self.program().input_names(); })
      .def_prop_ro("fetch_names", [](const ProgramHandle& self) { return self.program().fetch_names(); })
      .def_prop_ro("report", &program_report, nb::sig("def report(self) -> dict[str, typing.Any]"),
                   "What compiling did and took, and what the conversion of feeds has taken since.")
      .def(
          "plan", [](const ProgramHandle& self) { return self.program().plan_text(); },
          "Steps, operands and memory, as text.")
      .def(
          "kernels", [](const ProgramHandle& self) { return self.program().kernel_text(); },
          "The text of every kernel made for a GPU.");
}

}  // namespace paoding::python
