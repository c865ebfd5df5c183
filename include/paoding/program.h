// SPDX-License-Identifier: Apache-2.0
// Program: a graph compiled for one device. Every error of the model is found by the constructor; run() only runs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "paoding/communicator.h"
#include "paoding/device_tensor.h"
#include "paoding/graph.h"
#include "paoding/tensor.h"

namespace paoding {

/// How a plan is run; the same kernels either way.
enum class Execution {
  captured,  // on a GPU one CUDA graph launch per run
  stepwise,  // one step after the other, each waited for and checked: the debug execution
};

/// One step as the debug execution saw it.
struct StepSeen {
  std::string op;
  std::string scope;
  std::int64_t instance = 0;    // time step, inside a scan
  std::vector<Tensor> results;  // written by the step
};

/// A value that reached a `print` op.
struct Printed {
  std::string message;
  std::string scope;
  std::int64_t instance = 0;  // time step, inside a scan
  Tensor value;
};

struct CompileOptions {
  Device device = Device::cpu();
  std::vector<std::string> fetches = {};          // names of graph fetches; all when empty
  std::vector<std::string> disabled_passes = {};  // see `paoding dump --help`; "alias_views" makes every view a copy
  Execution execution = Execution::captured;
  int repeats = 1;  // runs, one after the other, that one run() makes: for timing without launch gaps
  /// On a GPU: launches that do not need each other's results may run as one. Off to time several pieces of work in one
  /// run, each as it would be alone.
  bool fuses_launches = true;
  bool allow_tf32 = false;  // on a GPU: f32 products may round operands to TF32
  /// On a GPU: a convolution that a library and a kernel of our own can run, or a product that a library can run in
  /// many ways, is timed on the device once. The fastest is kept in the folder of compiled kernels, where every program
  /// finds it.
  bool tune = false;
  /// bf16 or f16: mixed precision. Products and convolutions of f32 take operands of that dtype, and their operands and
  /// results are stored in it; reductions, losses, statistics, the carries of loops, gradients of parameters and
  /// parameters stay f32. A parameter that products read has a rounded copy in Parameters, its shadow, which the kernel
  /// that updates it writes too; no name has it and no checkpoint. f16 wants MinimizeOptions::loss_scale. Error
  /// (argument) unless it is one of the three.
  DType precision = DType::f32;
  /// The ranks that ops of paoding/ops/collective.h run on; every rank makes the same programs and runs them in the
  /// same order. With one rank a program is as it would be without such ops. Error (argument) where a graph has them
  /// and this is missing.
  std::shared_ptr<Communicator> communicator = nullptr;
  /// Gradients and other values that are reduced over the ranks go together in messages of about so many bytes, in the
  /// order in which they are ready, the last in a quarter of it. Error (argument) when it is negative.
  std::int64_t bucket_bytes = std::int64_t{16} << 20;
  bool assign = true;  // off: parameters keep their values, to evaluate a graph that trains
  /// On a GPU: a CUstream of the caller's, in which everything is enqueued in place of one of the program's own. It
  /// outlives the program and those bound to it.
  void* stream = nullptr;
  /// On a GPU: memory of the device that the captured graphs of programs bound together may take beside their arena,
  /// about 4 KiB a launch. Those that were not used for longest are dropped, and made again, in some milliseconds, when
  /// they run.
  std::int64_t graph_bytes = std::int64_t{1} << 30;
  /// Called with every value that reaches a `print` op, in the order of the run, before the run writes a parameter;
  /// without it Program::printed() has those of the last run. An exception from it ends the run and is thrown by run().
  /// It may read Parameters, which still hold their values from before the run; of programs with memory or Parameters
  /// of this one it may run none that writes. On a GPU all values of a run are handed over when everything in front of
  /// its writes is done, which run() waits for.
  std::function<void(const Printed&)> on_print = {};
  /// Stepwise only: called after every step with its results. An exception from it ends the run and is thrown by run(),
  /// and parameters keep their values.
  std::function<void(const StepSeen&)> on_step = {};
  /// Called after each pass with the graph as it is then.
  std::function<void(const std::string& pass, const Graph& graph)> after_pass = {};
};

/// The treatment of inputs that run(feeds) is not given.
enum class LeftOut {
  error,  // Error (argument) that names them
  keep,   // they keep the value that they were given last, by run() or set_input()
};

/// A value of the host or of a GPU.
using AnyTensor = std::variant<Tensor, DeviceTensor>;

/// A value for an input of a program, by position.
struct Feed {
  int input = 0;
  AnyTensor value;
  void* stream = nullptr;  // of a value on the GPU: see Program::set_input
};

/// Where Program::call leaves results.
enum class Results {
  on_host,
  on_device,
};

/// The passes, the plan and the times of a compilation.
struct CompileReport {
  struct Pass {
    std::string name;
    double milliseconds = 0;
    std::int64_t nodes_before = 0, nodes_after = 0;
    std::vector<std::string> notes;
  };
  std::vector<Pass> passes;
  std::vector<std::string> plan_notes;  // kernels that declined, copies that were needed, with the reason
  double milliseconds = 0;              // all of it
  double kernel_milliseconds = 0;       // of that, compiling or loading kernels
  int kernels_compiled = 0;             // new kernel sources; 0 when another shape of the model was compiled before
  std::int64_t launches = 0;            // per run
  std::int64_t arena_bytes = 0;
  std::int64_t peak_live_bytes = 0;
};

struct ParametersOptions {
  std::uint64_t seed = 0;  // of every random initial value and of the graph's random numbers
};

/// A parameter of a store.
struct ParameterInfo {
  std::string name;
  Type type;
  ParameterRole role = ParameterRole::model;
  std::int64_t elements() const { return type.shape.elements(); }
  std::int64_t size_bytes() const { return paoding::size_bytes(type); }
};

/// The values of a graph's parameters on one device, shared by programs. They start as Graph::parameter() was told,
/// which is zero unless said otherwise; a value depends on the seed and the parameter's name, not on other parameters.
/// A program whose random ops draw from a state that is not there yet adds it, with the store's seed.
/// Runs of programs that share them are ordered when either writes, and with set() and get(), from whatever threads
/// they come. A run that throws has written nothing (of several CompileOptions::repeats: the one that threw).
/// Every call on Parameters that were moved from is an Error (argument).
class Parameters {
 public:
  explicit Parameters(const Graph& graph, const Device& device = Device::cpu(), const ParametersOptions& options = {});
  ~Parameters();
  Parameters(Parameters&&) noexcept;
  Parameters& operator=(Parameters&&) noexcept;

  const Device& device() const;
  std::vector<std::string> names() const;
  /// All of them in the order of the graph: for (const ParameterInfo& p : parameters.list()) ..
  std::vector<ParameterInfo> list() const;
  /// The number of elements of all parameters together, or of those of one role: elements(ParameterRole::model) is
  /// usually called the size of a model.
  std::int64_t elements() const;
  std::int64_t elements(ParameterRole role) const;
  std::int64_t size_bytes() const;
  std::int64_t size_bytes(ParameterRole role) const;
  /// Error (argument) on an unknown name, and in a callback of a run that reads them; (shape) or (dtype) when the
  /// tensor's type is another.
  void set(std::string_view name, const Tensor& tensor);
  /// The value of a parameter. Error (argument) on an unknown name. A callback of a run that writes parameters gets
  /// their values at that moment.
  Tensor get(std::string_view name) const;

 private:
  friend class Program;
  friend class PlacedGraph;
  friend void restore(Parameters* parameters, const std::map<std::string, Tensor>& tensors, bool allow_more);
  struct Store;
  Store& store() const;
  std::shared_ptr<Store> store_;
};

/// A result of a run, on its way from the device while others run.
class Fetched {
 public:
  /// Waits for the run, and for nothing after it; the same value every time. Errors: those of the run. For threads it
  /// counts as a call of the program that it comes from.
  const Tensor& value() const;
  /// Whether value() would not wait.
  bool is_there() const;

 private:
  friend class Program;
  struct State;
  explicit Fetched(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

struct CompiledPlan;

/// One thread uses it at a time: a call while another is under way, on another thread or around a callback, is an Error
/// (argument), and so is every call on a Program that was moved from. A process that was forked from one that
/// had compiled a program for several threads has lost these: compiling and running there is an Error (device).
class Program {
 public:
  /// Compiles `graph`. Errors: (argument) unknown fetch or pass, parameters of another device or missing there;
  /// (unsupported) an op without a kernel on the device; (device) no such device; (cancelled) see CancelScope.
  explicit Program(const Graph& graph, const CompileOptions& options = {}, const Parameters* parameters = nullptr);
  ~Program();
  Program(Program&&) noexcept;
  Program& operator=(Program&&) noexcept;

  /// The same model with other shapes: plans `graph` anew and compiles no kernel that is there already. The new program
  /// shares parameters and the arena, which grows where it is: running both at the same time is an Error (argument),
  /// and fetches of one are gone when the other runs.
  Program bind(const Graph& graph) const;

  // ---- by position: nothing is looked up ----

  const std::vector<std::string>& input_names() const;
  const std::vector<std::string>& fetch_names() const;
  /// Position of an input or fetch. Error (argument) with the names there are.
  int input_index(std::string_view name) const;
  int fetch_index(std::string_view name) const;
  const Type& input_type(int index) const;
  /// Error (argument) for a Variant, which has a type only after a run.
  const Type& fetch_type(int index) const;
  /// Gives an input its value, until it is given another. Error (shape, dtype) when the type is another.
  void set_input(int index, const Tensor& tensor);
  /// The same for a value on the program's GPU, which a copy enqueued in stream() brings. A program's result is copied
  /// after the run that makes it; work that fills the caller's own memory has to be ordered in front of stream(). All
  /// work that is enqueued in `stream`, the caller's, from here on comes after the copy, so that it may write there
  /// (nullptr: the legacy default stream). Error (argument) when the value is on another device.
  void set_input(int index, const DeviceTensor& tensor, void* stream = nullptr);
  /// Runs once. On a GPU it returns when the run is under way: runs of programs that share Parameters come one after
  /// the other there, and inputs that are set meanwhile are for the next. wait(), fetch() and Fetched::value() wait,
  /// and throw the run's error; runs that were enqueued after one that failed have done nothing, and fail likewise.
  /// Errors: (argument) an input was never set, an index out of range; (device) the device fails; (cancelled) see
  /// CancelScope; and the exceptions of on_print and on_step. A run that throws has written no parameter and has
  /// nothing to fetch.
  void run();
  void wait();
  /// The value of the last run; of a Variant, the alternative that it took. Error (argument) when there is none: the
  /// program has not run, its last run threw, or another program has run in their arena since.
  Tensor fetch(int index);
  /// The same on the program's GPU, in memory of its own, without waiting. Error (argument) on the CPU, and for a
  /// Variant.
  DeviceTensor fetch_on_device(int index);
  /// fetch() without waiting: on a GPU a copy is enqueued after the run, which the next runs leave as it is.
  Fetched fetch_later(int index);
  /// Sets inputs, runs, fetches all, in the order of fetch_names(), as one call, which no other thread can interrupt.
  /// With Results::on_device it does not wait. Errors: as set_input, run, fetch and fetch_on_device; (argument) as
  /// LeftOut says. Nothing runs then.
  std::vector<AnyTensor> call(std::span<const Feed> feeds, LeftOut left_out = LeftOut::error,
                              Results results = Results::on_host);
  /// On a GPU the CUstream in which everything of the program is enqueued, for callers who order their own work
  /// by it; nullptr on the CPU.
  void* stream() const;
  /// Values that `print` ops saw in the last run; empty when CompileOptions::on_print took them.
  const std::vector<Printed>& printed() const;

  // ---- by name, for convenience ----

  /// call() by names. Errors besides: (argument) a name that no input has.
  std::map<std::string, Tensor> run(const std::map<std::string, Tensor>& feeds, LeftOut left_out = LeftOut::error);

  const CompileReport& report() const;
  /// Steps, operands and memory as text.
  std::string plan_text() const;
  /// The source text of every kernel made for this program on a GPU; empty on the CPU.
  std::string kernel_text() const;

 private:
  struct Compiled;
  Compiled& compiled() const;
  explicit Program(std::unique_ptr<Compiled> compiled);
  friend class Programs;
  Program(const Graph& graph, const CompileOptions& options, const Parameters* parameters, CompiledPlan* plan);
  /// `plan`: of the graph, where it has been made already.
  Program bind(const Graph& graph, CompiledPlan* plan) const;
  Program compile(const Graph& graph, CompiledPlan* plan) const;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace paoding
