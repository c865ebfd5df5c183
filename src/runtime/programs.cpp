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
    fail(ErrorKind::argument, "programs: the function gave no graph for {}",
         is_named_ ? extents_.text_of(key) : fmt::format("key {}", fmt::join(key, ", ")));
  }
  return graph;
}

Program& Programs::at(const Key& sizes) {
  const OneAtATime use(in_use_.now, "programs", "of at()", "threads need Programs of their own");
  return is_named_ ? found_or_made(extents_.bucket_of(sizes)) : found_or_made(sizes);
}

Program& Programs::at(const Sizes& sizes) {
  const OneAtATime use(in_use_.now, "programs", "of at()", "threads need Programs of their own");
  return found_or_made(extents_.bucket_of(sizes));
}

Program& Programs::found_or_made(const Key& key) {
  ++uses_;
  if (const auto found = programs_.find(key); found != programs_.end()) {
    found->second.last_use = uses_;
    return found->second.program;
  }
  const auto start = std::chrono::steady_clock::now();
  std::optional<PlansAhead::Taken> ready;
  if (ahead_ != nullptr) ready = ahead_->take(key);
  if (!ready) ready = {graph_of(key), std::nullopt};
  CompiledPlan* const plan = ready->plan ? &*ready->plan : nullptr;
  // Bound to the program with the largest arena: where an arena cannot grow (on a GPU), only a program that needs more
  // than every other gets one of its own.
  const auto base = std::max_element(programs_.begin(), programs_.end(), [](const auto& a, const auto& b) {
    return a.second.program.report().arena_bytes < b.second.program.report().arena_bytes;
  });
  Program made = base == programs_.end() ? Program(*ready->graph, options_, parameters_, plan)
                                         : base->second.program.bind(*ready->graph, plan);
  Program& kept = programs_.emplace(key, Kept{std::move(made), uses_}).first->second.program;
  ++made_;
  arena_bytes_ = std::max(arena_bytes_, kept.report().arena_bytes);
  drop_all_but(most_, key);
  milliseconds_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return kept;
}

// Those that were used last stay.
void Programs::drop_all_but(std::int64_t count, const Key& except) {
  while (size() > count) {
    auto oldest = programs_.end();
    for (auto each = programs_.begin(); each != programs_.end(); ++each) {
      if (each->first == except) continue;
      if (oldest == programs_.end() || each->second.last_use < oldest->second.last_use) oldest = each;
    }
    programs_.erase(oldest);
  }
}

void Programs::keep_at_most(std::int64_t programs) {
  const OneAtATime use(in_use_.now, "programs", "of keep_at_most()", "threads need Programs of their own");
  if (programs < 1) fail(ErrorKind::argument, "programs: keeps at most {}, needed is at least 1", programs);
  most_ = programs;
  const auto newest = std::max_element(programs_.begin(), programs_.end(), [](const auto& a, const auto& b) {
    return a.second.last_use < b.second.last_use;
  });
  if (newest != programs_.end()) drop_all_but(most_, Key(newest->first));
}

void Programs::prepare(std::span<const Key> sizes) {
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
  std::int64_t room = most_ - size();
  for (const Key& each : sizes) {
    const Key key = bucket_of(each);
    if (programs_.contains(key) || ahead_->has(key)) continue;
    if (room-- <= 0) break;
    ahead_->add(key, graph_of(key));
  }
}

}  // namespace paoding
