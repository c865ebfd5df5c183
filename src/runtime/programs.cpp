// SPDX-License-Identifier: Apache-2.0
#include "paoding/programs.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "runtime/one_at_a_time.h"

namespace paoding {

Program& Programs::at(const Key& key) {
  const OneAtATime use(in_use_.now, "programs", "of at()", "threads need Programs of their own");
  if (const auto found = programs_.find(key); found != programs_.end()) return found->second;
  const auto start = std::chrono::steady_clock::now();
  if (!build_) fail(ErrorKind::argument, "programs: there is no function that builds a graph");
  const std::unique_ptr<Graph> graph = build_(key);
  if (graph == nullptr) {
    fail(ErrorKind::argument, "programs: the function gave no graph for key {}", fmt::join(key, ", "));
  }
  // Bound to the program with the largest arena: where an arena cannot grow (on a GPU), only a program that needs more
  // than every other gets one of its own.
  const auto base = std::max_element(programs_.begin(), programs_.end(), [](const auto& a, const auto& b) {
    return a.second.report().arena_bytes < b.second.report().arena_bytes;
  });
  Program made = base == programs_.end() ? Program(*graph, options_, parameters_) : base->second.bind(*graph);
  Program& kept = programs_.emplace(key, std::move(made)).first->second;
  milliseconds_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return kept;
}

std::int64_t Programs::arena_bytes() const {
  std::int64_t most = 0;
  for (const auto& [key, program] : programs_) most = std::max(most, program.report().arena_bytes);
  return most;
}

}  // namespace paoding
