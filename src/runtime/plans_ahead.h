// SPDX-License-Identifier: Apache-2.0
// Plans that are made on other threads before anybody asks for them, so that a program of a new shape needs only its
// memory and its launches.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "paoding/cancellation.h"
#include "runtime/compile.h"

namespace paoding {

/// Used by one thread, besides its own.
class PlansAhead {
 public:
  using Key = std::vector<std::int64_t>;
  /// Called on several threads at once.
  using Make = std::function<CompiledPlan(const Graph& graph)>;

  /// At most so many threads, each begun when there is work for it. They stop for all that stops the thread that makes
  /// this.
  PlansAhead(Make make, std::size_t threads);
  /// Calls off the plans under way.
  ~PlansAhead();
  PlansAhead(const PlansAhead&) = delete;
  PlansAhead& operator=(const PlansAhead&) = delete;

  /// Plans are begun in the order in which they are added.
  void add(const Key& key, std::unique_ptr<Graph> graph);
  bool has(const Key& key) const;

  struct Taken {
    std::unique_ptr<Graph> graph;
    std::optional<CompiledPlan> plan;  // none where it had not been begun, or was called off: the caller makes it
  };
  /// Waits while the plan is under way. nullopt: it was not added, or has been taken. Throws its error.
  std::optional<Taken> take(const Key& key);

 private:
  enum class State : std::uint8_t { waiting, begun, ended };
  struct Work {
    Key key;
    std::unique_ptr<Graph> graph;
    State state = State::waiting;
    std::optional<CompiledPlan> plan = {};
    std::exception_ptr error = {};
  };

  void work();

  const Make make_;
  const std::size_t most_;
  const Cancellation stop_;
  const std::vector<Cancellation> around_;  // the thread that made this has them
  mutable std::mutex mutex_;                // guards all that follows
  std::condition_variable changed_;
  std::list<Work> works_;
  std::size_t idle_ = 0;
  bool is_over_ = false;
  std::vector<std::jthread> threads_;  // the last member: they end before the others do
};

}  // namespace paoding
