// SPDX-License-Identifier: Apache-2.0
// Parameters and Program.
#include "paoding/program.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <memory>

#include "arrays.h"
#include "bindings.h"
#include "errors.h"
#include "interrupts.h"
#include "paoding/error.h"

namespace paoding::python {
namespace {

using namespace nb::literals;

/// Program, as Python has it: feeds and fetches by name, found by the name's object first.
class ProgramHandle {
 public:
  ProgramHandle(Program program, std::shared_ptr<GraphOwner> graph, nb::object parameters, nb::object on_print)
      : program_(std::move(program)),
        graph_(std::move(graph)),
        parameters_(std::move(parameters)),
        on_print_(std::move(on_print)) {
    for (const std::string& name : program_.input_names()) inputs_.push_back(interned(name));
    for (const std::string& name : program_.fetch_names()) fetches_.push_back(interned(name));
  }

  nb::dict run(nb::handle feeds, bool keep);
  ProgramHandle bind(const GraphHandle& graph) const {
    return with_lines(*graph.owner, [&] {
      return ProgramHandle(run_freely([&] { return program_.bind(graph.graph()); }), graph.owner, parameters_,
                           on_print_);
    });
  }
  /// What `runs` runs take from C++, by position, in seconds: what the same from Python is held against.
  double seconds_of(const nb::dict& feeds, int runs);
  const Program& program() const { return program_; }
  const nb::object& parameters() const { return parameters_; }

 private:
  static nb::str interned(const std::string& name) {
    PyObject* text = PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
    if (text == nullptr) throw nb::python_error();
    PyUnicode_InternInPlace(&text);
    return nb::steal<nb::str>(text);
  }
  /// Feeds, the run and its results are one call, which another thread's must not come into.
  class OneCall {
   public:
    explicit OneCall(std::atomic<bool>& is_in_use) : is_in_use_(is_in_use) {
      if (!is_in_use.exchange(true, std::memory_order_acquire)) return;
      throw Error(ErrorKind::argument,
                  "run: a call of this program is under way, on another thread or around this callback\n"
                  "hint: threads need programs of their own, and not from Program.bind");
    }
    ~OneCall() { is_in_use_.store(false, std::memory_order_release); }
    OneCall(const OneCall&) = delete;
    OneCall& operator=(const OneCall&) = delete;

   private:
    std::atomic<bool>& is_in_use_;
  };
  std::size_t input_at(nb::handle name) const;
  Tensor fed(std::size_t index, nb::handle value) const;
  [[noreturn]] void refuse_missing(nb::handle feeds) const;

  Program program_;
  std::shared_ptr<GraphOwner> graph_;  // for the lines of its ops
  nb::object parameters_, on_print_;
  std::vector<nb::str> inputs_, fetches_;
  std::unique_ptr<std::atomic<bool>> is_in_use_ = std::make_unique<std::atomic<bool>>(false);
};

std::size_t ProgramHandle::input_at(nb::handle name) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].is(name)) return i;
  }
  return static_cast<std::size_t>(program_.input_index(nb::cast<std::string>(name)));
}

Tensor ProgramHandle::fed(std::size_t index, nb::handle value) const {
  const Type& wanted = program_.input_type(static_cast<int>(index));
  const ArrayName name{"input", program_.input_names()[index]};
  Tensor tensor = tensor_of(value, wanted.dtype, name);
  if (tensor.type() == wanted) return tensor;
  throw Error(tensor.dtype() == wanted.dtype ? ErrorKind::shape : ErrorKind::dtype,
              name.text() + " is " + to_string(wanted) + ", not " + to_string(tensor.type()));
}

void ProgramHandle::refuse_missing(nb::handle feeds) const {
  std::string missing;
  for (const nb::str& name : inputs_) {
    if (!nb::dict(nb::borrow<nb::dict>(feeds)).contains(name))
      missing += (missing.empty() ? "'" : ", '") + std::string(name.c_str()) + "'";
  }
  throw Error(ErrorKind::argument,
              "run: no value is given for " + missing + "\nhint: keep=True runs with the value that it had last");
}

nb::dict ProgramHandle::run(nb::handle feeds, bool keep) {
  std::vector<std::pair<int, Tensor>> given;
  if (!feeds.is_none()) {
    if (PyDict_Check(feeds.ptr()) == 0) throw nb::type_error("run: feeds is no dict");
    given.reserve(static_cast<std::size_t>(PyDict_Size(feeds.ptr())));
    PyObject *name = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(feeds.ptr(), &at, &name, &value) != 0) {
      const std::size_t index = input_at(name);
      given.emplace_back(static_cast<int>(index), fed(index, value));
    }
  }
  if (!keep && given.size() < inputs_.size()) refuse_missing(feeds.is_none() ? nb::handle(nb::dict()) : feeds);
  std::vector<Tensor> fetched(fetches_.size());
  const OneCall one_call(*is_in_use_);
  with_lines(*graph_, [&] {
    run_freely([&] {
      for (const auto& [index, tensor] : given) program_.set_input(index, tensor);
      program_.run();
      for (std::size_t i = 0; i < fetched.size(); ++i) fetched[i] = program_.fetch(static_cast<int>(i));
    });
  });
  nb::dict results;
  for (std::size_t i = 0; i < fetched.size(); ++i) {
    results[fetches_[i]] = nb::cast(std::move(fetched[i]));
  }
  return results;
}

double ProgramHandle::seconds_of(const nb::dict& feeds, int runs) {
  std::vector<std::pair<int, Tensor>> given;
  for (auto [name, value] : feeds) {
    const std::size_t index = input_at(name);
    given.emplace_back(static_cast<int>(index), fed(index, value));
  }
  const nb::gil_scoped_release free;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < runs; ++i) {
    for (const auto& [index, tensor] : given) program_.set_input(index, tensor);
    program_.run();
    for (std::size_t k = 0; k < fetches_.size(); ++k) program_.fetch(static_cast<int>(k));
  }
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
    const nb::gil_scoped_acquire gil;
    listener(seen.message, seen.value, seen.scope, seen.instance);
  };
}

void construct_program(ProgramHandle* self, const GraphHandle& graph, nb::object parameters,
                       const std::optional<std::string>& device, const std::vector<std::string>& fetches, bool assign,
                       nb::object precision, bool allow_tf32, const std::string& execution,
                       const std::vector<std::string>& disabled_passes, std::uintptr_t stream, nb::object on_print) {
  const Parameters* store = parameters.is_none() ? nullptr : nb::cast<Parameters*>(parameters);
  CompileOptions options;
  options.device = device ? device_of(*device) : store != nullptr ? store->device() : Device::cpu();
  options.fetches = fetches;
  options.assign = assign;
  options.precision = dtype_of(precision);
  options.allow_tf32 = allow_tf32;
  options.execution = execution_of(execution);
  options.disabled_passes = disabled_passes;
  options.stream = reinterpret_cast<void*>(stream);
  options.on_print = listener_of(on_print);
  with_lines(*graph.owner, [&] {
    Program program = run_freely([&] { return Program(graph.graph(), options, store); });
    new (self) ProgramHandle(std::move(program), graph.owner, std::move(parameters), std::move(on_print));
  });
}

void construct_parameters(Parameters* self, const GraphHandle& graph, const std::string& device, std::uint64_t seed) {
  const Device on = device_of(device);
  new (self) Parameters(run_freely([&] { return Parameters(graph.graph(), on, {.seed = seed}); }));
}

void set_parameter(Parameters& self, const std::string& name, nb::object value) {
  const std::vector<std::string> names = self.names();
  const bool is_there = std::find(names.begin(), names.end(), name) != names.end();
  const Tensor tensor =
      tensor_of(value, is_there ? std::optional(self.get(name).dtype()) : std::nullopt, {"parameter", name});
  run_freely([&] { self.set(name, tensor); });
}

nb::dict report_of(const ProgramHandle& self) {
  const CompileReport& report = self.program().report();
  nb::dict made;
  made["milliseconds"] = report.milliseconds;
  made["kernel_milliseconds"] = report.kernel_milliseconds;
  made["kernels_compiled"] = report.kernels_compiled;
  made["launches"] = report.launches;
  made["arena_bytes"] = report.arena_bytes;
  made["peak_live_bytes"] = report.peak_live_bytes;
  made["plan_notes"] = report.plan_notes;
  return made;
}

using MaybeRole = std::optional<ParameterRole>;

void bind_parameter_info(nb::module_& module) {
  nb::class_<ParameterInfo>(module, "ParameterInfo", "A parameter of a store.")
      .def_ro("name", &ParameterInfo::name)
      .def_prop_ro("dtype", [](const ParameterInfo& self) { return self.type.dtype; })
      .def_prop_ro(
          "shape",
          [](const ParameterInfo& self) {
            const Shape& shape = self.type.shape;
            return nb::tuple(nb::cast(std::vector<std::int64_t>(shape.begin(), shape.end())));
          },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_ro("role", &ParameterInfo::role)
      .def_prop_ro("elements", &ParameterInfo::elements)
      .def_prop_ro("size_bytes", &ParameterInfo::size_bytes)
      .def("__repr__", [](const ParameterInfo& self) { return self.name + " " + to_string(self.type); });
}

void bind_parameters(nb::module_& module) {
  nb::class_<Parameters>(module, "Parameters",
                         "The values of a graph's parameters on one device, by name; programs share them.")
      .def("__init__", &construct_parameters, "graph"_a, "device"_a = "cpu", "seed"_a = 0)
      .def_prop_ro("device", [](const Parameters& self) { return to_string(self.device()); })
      .def(
          "__getitem__",
          [](const Parameters& self, const std::string& name) { return run_freely([&] { return self.get(name); }); },
          "name"_a)
      .def("__setitem__", &set_parameter, "name"_a, "value"_a,
           nb::sig("def __setitem__(self, name: str, value: object) -> None"))
      .def(
          "__contains__",
          [](const Parameters& self, const std::string& name) {
            const std::vector<std::string> names = self.names();
            return std::find(names.begin(), names.end(), name) != names.end();
          },
          "name"_a)
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
            std::vector<std::pair<std::string, Tensor>> all;
            for (const std::string& name : self.names()) all.emplace_back(name, self.get(name));
            return all;
          },
          nb::sig("def items(self) -> collections.abc.Sequence[tuple[str, Tensor]]"));
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
           "precision"_a = DType::f32, "allow_tf32"_a = false, "execution"_a = "captured",
           "disabled_passes"_a = std::vector<std::string>{}, "stream"_a = 0, "on_print"_a = nb::none(),
           nb::sig(
               "def __init__(self, graph: Graph, parameters: Parameters | None = None, *, device: str | None = None, "
               "fetches: collections.abc.Sequence[str] = (), assign: bool = True, precision: DType | str = 'f32', "
               "allow_tf32: bool = False, "
               "execution: str = 'captured', disabled_passes: collections.abc.Sequence[str] = (), stream: int = 0, "
               "on_print: "
               "collections.abc.Callable[[str, Tensor, str, int], None] | None = None) -> None"))
      .def(
          "run", &ProgramHandle::run, "feeds"_a = nb::none(), "keep"_a = false,
          nb::sig("def run(self, feeds: dict[str, typing.Any] | None = None, keep: bool = False) -> dict[str, Tensor]"),
          "Runs once: feeds by name, results by name. With `keep` inputs left out have the value they had last.")
      .def(
          "__call__", [](ProgramHandle& self, const nb::kwargs& feeds) { return self.run(feeds, false); },
          nb::sig("def __call__(self, **feeds: typing.Any) -> dict[str, Tensor]"))
      .def("seconds_in_cpp", &ProgramHandle::seconds_of, "feeds"_a, "runs"_a,
           nb::sig("def seconds_in_cpp(self, feeds: dict[str, typing.Any], runs: int) -> float"),
           "What so many runs take without Python.")
      .def("bind", &ProgramHandle::bind, "graph"_a, "The same model with other shapes, in the same memory.")
      .def_prop_ro("parameters", &ProgramHandle::parameters, nb::sig("def parameters(self) -> Parameters | None"))
      .def_prop_ro("input_names", [](const ProgramHandle& self) { return self.program().input_names(); })
      .def_prop_ro("fetch_names", [](const ProgramHandle& self) { return self.program().fetch_names(); })
      .def_prop_ro("report", &report_of, nb::sig("def report(self) -> dict[str, typing.Any]"),
                   "What compiling did and took.")
      .def(
          "plan", [](const ProgramHandle& self) { return self.program().plan_text(); },
          "Steps, operands and memory, as text.")
      .def(
          "kernels", [](const ProgramHandle& self) { return self.program().kernel_text(); },
          "The text of every kernel made for a GPU.");
}

}  // namespace paoding::python
