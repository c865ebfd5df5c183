// SPDX-License-Identifier: Apache-2.0
// Program: a graph compiled for one device. Every error of the model is found by the constructor; run() only runs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

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
  std::vector<Tensor> results;  // what the step wrote
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
  int repeats = 1;          // times that one run() runs the plan: for timing without launch gaps
  bool allow_tf32 = false;  // on a GPU: f32 products may round operands to TF32
  bool assign = true;       // off: parameters keep their values, to evaluate a graph that trains
  /// Called with every value that reaches a `print` op, in the order of the run; without it Program::printed() has
  /// those of the last run. On a GPU values are handed over at the end of the run, which is waited for.
  std::function<void(const Printed&)> on_print = {};
  /// Stepwise only: called after every step with what it wrote.
  std::function<void(const StepSeen&)> on_step = {};
  /// Called after each pass with the graph as it is then.
  std::function<void(const std::string& pass, const Graph& graph)> after_pass = {};
};

/// What compiling did and took.
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
  int kernels_compiled = 0;             // new kernel texts; 0 when another shape of the model was compiled before
  std::int64_t launches = 0;            // per run
  std::int64_t arena_bytes = 0;
  std::int64_t peak_live_bytes = 0;
};

struct ParametersOptions {
  std::uint64_t seed = 0;  // of every random initial value and of the graph's random numbers
};

/// The values of a graph's parameters on one device, shared by programs. They start as Graph::parameter() was told,
/// which is zero unless said otherwise; a value depends on the seed and the parameter's name, not on other parameters.
/// Runs of programs that share them are ordered when either writes, and with set() and get(), from whatever threads
/// they come.
class Parameters {
 public:
  Parameters(const Graph& graph, const Device& device, const ParametersOptions& options = {});
  ~Parameters();
  Parameters(Parameters&&) noexcept;
  Parameters& operator=(Parameters&&) noexcept;

  const Device& device() const;
  std::vector<std::string> names() const;
  /// Error (argument) on an unknown name, (shape) or (dtype) when the tensor's type is another.
  void set(std::string_view name, const Tensor& tensor);
  Tensor get(std::string_view name) const;

 private:
  friend class Program;
  struct Store;
  std::shared_ptr<Store> store_;
};

class Program {
 public:
  /// Compiles `graph`. Errors: (argument) unknown fetch or pass, parameters of another device or missing there;
  /// (unsupported) an op without a kernel on the device; (device) no such device.
  explicit Program(const Graph& graph, const CompileOptions& options = {}, const Parameters* parameters = nullptr);
  ~Program();
  Program(Program&&) noexcept;
  Program& operator=(Program&&) noexcept;

  /// The same model with other shapes: plans `graph` anew and compiles no kernel that is there already. The new
  /// program shares parameters and the arena, which grows where it is; the two must not run at the same time, and what
  /// one left to fetch is gone when the other runs.
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
  /// Runs once. On a GPU it returns when the run is under way; wait() or fetch() wait for it, and throw what was found
  /// wrong with it: an index out of range. Error (argument) when an input was never set; (device) when the device
  /// fails.
  void run();
  void wait();
  /// The value of the last run; of a Variant, the alternative that it took.
  Tensor fetch(int index);
  /// What `print` ops saw in the last run; empty when CompileOptions::on_print took it.
  const std::vector<Printed>& printed() const;

  // ---- by name, for convenience ----

  std::map<std::string, Tensor> run(const std::map<std::string, Tensor>& feeds);

  const CompileReport& report() const;
  /// Steps, operands and memory as text.
  std::string plan_text() const;
  /// The source text of every kernel made for this program on a GPU; empty on the CPU.
  std::string kernel_text() const;

 private:
  struct Compiled;
  explicit Program(std::unique_ptr<Compiled> compiled);
  Program compile(const Graph& graph) const;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace paoding
