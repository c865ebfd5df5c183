// SPDX-License-Identifier: Apache-2.0
#include "paoding/programs.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "base/check.h"
#include "runtime/compile.h"
#include "runtime/compile_environment.h"
#include "runtime/one_at_a_time.h"
#include "runtime/plans_ahead.h"

namespace paoding {

namespace {

// Leaves one to the programs.
std::size_t threads_ahead() {
  constexpr unsigned kMost = 16;
  return std::clamp(std::thread::hardware_concurrency(), 2u, kMost + 1) - 1;
}

}  // namespace

std::unique_ptr<Graph> Programs::graph_of(const Key& key) const {
  if (!build_) fail(ErrorKind::argument, "programs: there is no function that builds a graph");
  std::unique_ptr<Graph> graph = build_(key);
  if (graph == nullptr) {
    fail(ErrorKind::argument, "programs: the function gave no graph for key {}", fmt::join(key, ", "));
  }
  return graph;
}

Program& Programs::at(const Key& key) {
  const OneAtATime use(in_use_.now, "programs", "of at()", "threads need Programs of their own");
  if (const auto found = programs_.find(key); found != programs_.end()) return found->second;
  const auto start = std::chrono::steady_clock::now();
  std::optional<PlansAhead::Taken> ready;
  if (ahead_ != nullptr) ready = ahead_->take(key);
  if (!ready) ready = {graph_of(key), std::nullopt};
  CompiledPlan* const plan = ready->plan ? &*ready->plan : nullptr;
  // Bound to the program with the largest arena: where an arena cannot grow (on a GPU), only a program that needs more
  // than every other gets one of its own.
  const auto base = std::max_element(programs_.begin(), programs_.end(), [](const auto& a, const auto& b) {
    return a.second.report().arena_bytes < b.second.report().arena_bytes;
  });
  Program made = base == programs_.end() ? Program(*ready->graph, options_, parameters_, plan)
                                         : base->second.bind(*ready->graph, plan);
  Program& kept = programs_.emplace(key, std::move(made)).first->second;
  milliseconds_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return kept;
}

void Programs::prepare(std::span<const Key> keys) {
  const OneAtATime use(in_use_.now, "programs", "of prepare()", "threads need Programs of their own");
  if (options_.tune || options_.after_pass) return;
  if (ahead_ == nullptr) {
    const CompileOptions options = with_environment(options_);
    const Preprocess preprocess = preprocess_of(options, parameters_ != nullptr);
    ahead_ = std::make_shared<PlansAhead>(
        [options, preprocess, target = target_of(options.device)](const Graph& graph) {
          CompiledPlan plan = compile_plan(graph, options, target, preprocess);
          if (target->is_gpu()) compile_kernels_of(plan.plan, options);
          return plan;
        },
        threads_ahead());
  }
  for (const Key& key : keys) {
    if (!programs_.contains(key) && !ahead_->has(key)) ahead_->add(key, graph_of(key));
  }
}

std::int64_t Programs::arena_bytes() const {
  std::int64_t most = 0;
  for (const auto& [key, program] : programs_) most = std::max(most, program.report().arena_bytes);
  return most;
}

}  // namespace paoding
