// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/env.h"
#include "base/one_line.h"
#include "graph/shadow.h"
#include "profile/recorder.h"
#include "runtime/gpu/tuning.h"

namespace paoding {
namespace {

// Leaves the wanted fetches only, in the order asked for.
void select_fetches(Graph* graph, const std::vector<std::string>& wanted) {
  if (graph->fetches().empty() && graph->effects().empty())
    fail(ErrorKind::argument, "compile: the graph fetches nothing; name a result with Graph::fetch()");
  if (wanted.empty()) return;
  std::vector<std::string> names;
  for (const Graph::Fetch& fetch : graph->fetches()) names.push_back(fetch.name);
  const NameIndex index(names);
  std::vector<Graph::Fetch> selected;
  for (const std::string& name : wanted) {
    selected.push_back(graph->fetches()[static_cast<std::size_t>(index.at(name, "fetch"))]);
  }
  graph->mutable_fetches() = std::move(selected);
}

}  // namespace

NameIndex::NameIndex(const std::vector<std::string>& names) : names_(names) {
  for (std::size_t i = 0; i < names.size(); ++i) index_.try_emplace(names[i], static_cast<int>(i));
}

int NameIndex::at(std::string_view name, const char* kind) const {
  const auto it = index_.find(name);
  if (it == index_.end()) {
    fail(ErrorKind::argument, "{}: there is none named '{}'; there are: {}", kind, one_line(name), one_line(names_));
  }
  return it->second;
}

Preprocess preprocess_of(const CompileOptions& options, bool has_parameters) {
  return has_parameters && options.execution == Execution::captured ? Preprocess::once : Preprocess::in_every_run;
}

CompiledPlan compile_plan(const Graph& source, const CompileOptions& options, TargetPtr target, Preprocess preprocess,
                          KernelEnvironmentPtr environment) {
  if (options.precision != f32 && options.precision != bf16 && options.precision != f16) {
    fail(ErrorKind::argument, "compile: precision is {}; it must be f32, bf16 or f16", to_string(options.precision));
  }
  if (options.bucket_bytes < 0) {
    fail(ErrorKind::argument, "compile: bucket_bytes = {}; it must be at least 0", options.bucket_bytes);
  }
  if (options.communicator != nullptr) {
    auto with_ranks = std::make_shared<KernelEnvironment>(*environment);
    with_ranks->communicator = options.communicator;
    environment = std::move(with_ranks);
  }
  CompiledPlan compiled;
  compiled.graph = source.clone();
  Graph& graph = *compiled.graph;
  select_fetches(&graph, options.fetches);
  if (!options.assign) graph.drop_assigns();
  PassOptions pass_options;
  pass_options.target = target;
  pass_options.precision = options.precision;
  pass_options.allow_tf32 = options.allow_tf32;
  pass_options.environment = environment;
  pass_options.bucket_bytes = options.bucket_bytes;
  const auto does = [&](const char* pass) {
    const auto& disabled = options.disabled_passes;
    return std::find(disabled.begin(), disabled.end(), pass) == disabled.end();
  };
#ifdef NDEBUG
  pass_options.verifies_each = env_flag("PAODING_VERIFY");  // it takes as long as all passes together
#endif
  const bool preprocesses = preprocess == Preprocess::once && does("preprocess_parameters");
  pass_options.preprocesses = preprocesses;
  profile::Ticks since = profile::Recorder::now();
  const auto record = [&since](const std::string& part) {
    if (!profile::Recorder::active()) return;
    const profile::SiteId site = profile::Recorder::add_site({.name = part, .kind = profile::SpanKind::host});
    const profile::Ticks now = profile::Recorder::now();
    profile::Recorder::complete(site, since, now);
    since = now;
  };
  pass_options.after = [&](const std::string& pass, const Graph& after) {
    record("pass " + pass);
    if (options.after_pass) options.after_pass(pass, after);
  };
  pass_options.disabled = options.disabled_passes;
  std::set<std::string> given;
  for (NodeId id : graph.parameters()) given.insert(graph.node(id).name.str());
  compiled.passes = run_passes(graph, pass_options);
  for (NodeId id : graph.parameters()) {
    const std::string& name = graph.node(id).name.str();
    if (!given.contains(name)) compiled.shadows.emplace(name, shadowed(name));
  }
  PlanOptions plan_options;
  plan_options.target = target;
  plan_options.allow_tf32 = options.allow_tf32;
  plan_options.environment = environment;
  plan_options.choose_layouts = does("choose_layouts");
  plan_options.alias_views = does("alias_views");
  if (target->is_gpu()) plan_options.lower = [&](Step& step) { return lower_for_gpu(step, *target); };
  if (preprocesses) {
    const KernelSetting kernels{target, options.allow_tf32, environment, plan_options.choose_layouts};
    compiled.preprocessed = take_preprocessing(&graph, kernels);
  }
  if (compiled.preprocessed.graph != nullptr)
    compiled.preprocessing_plan = make_plan(*compiled.preprocessed.graph, plan_options);
  compiled.plan = make_plan(graph, plan_options);
  record("plan");
  return compiled;
}

CompiledPlan compile_timed(const Graph& graph, const CompileOptions& options, const TargetPtr& target,
                           Preprocess preprocess) {
  std::vector<std::string> timed;
  if (options.tune && target->is_gpu()) {
    CompileOptions unseen = options;
    unseen.after_pass = {};  // it sees the graph that is run
    timed = time_choices(compile_plan(graph, unseen, target).plan, options.device);
  }
  CompiledPlan compiled = compile_plan(graph, options, target, preprocess);
  compiled.plan.notes.insert(compiled.plan.notes.begin(), timed.begin(), timed.end());
  return compiled;
}

}  // namespace paoding
