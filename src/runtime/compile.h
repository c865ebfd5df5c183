// SPDX-License-Identifier: Apache-2.0
// Makes the plan of a program from a graph: chooses fetches, runs passes and planner. Nothing here needs a device.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "paoding/program.h"
#include "passes/pass.h"
#include "plan/plan.h"
#include "runtime/kernel_environment.h"
#include "runtime/parameter_preprocessing.h"
#include "runtime/target.h"

namespace paoding {

struct CompiledPlan {
  std::unique_ptr<Graph> graph;  // as it was planned
  std::vector<PassRecord> passes;
  std::map<std::string, std::string> shadows;  // parameters that the passes added: which each is a shadow of
  Plan plan;
  PreprocessingPart preprocessed = {};  // the part that is not made in every run, and its plan
  Plan preprocessing_plan = {};
};

/// Whether values that follow from parameters alone are planned apart; this needs somebody who keeps them between runs.
enum class Preprocess : std::uint8_t { in_every_run, once };

/// How a program of these options does it. Who looks at every step sees all of them in every run.
Preprocess preprocess_of(const CompileOptions& options, bool has_parameters);

/// Plans a copy of `graph` for the target, which need not be there: the one path for programs, `dump`, benches and
/// tests. `options.device` is not looked at, nor is the process's environment where another is given. Error (argument)
/// on an unknown fetch or pass, (unsupported) as make_plan() says.
CompiledPlan compile_plan(const Graph& graph, const CompileOptions& options, TargetPtr target,
                          Preprocess preprocess = Preprocess::in_every_run,
                          KernelEnvironmentPtr environment = process_environment());

/// The same for a device that is there: where `options` ask for it, steps that a GPU may run by a library or by a
/// kernel of ours are timed first. The plan's notes begin with the times.
CompiledPlan compile_timed(const Graph& graph, const CompileOptions& options, const TargetPtr& target,
                           Preprocess preprocess = Preprocess::in_every_run);

/// Positions of names; of equal ones the first.
class NameIndex {
 public:
  NameIndex() = default;
  explicit NameIndex(const std::vector<std::string>& names);
  /// Error (argument) with the names there are; `kind` is their kind: "input".
  int at(std::string_view name, const char* kind) const;

 private:
  std::vector<std::string> names_;
  std::map<std::string, int, std::less<>> index_;
};

}  // namespace paoding
