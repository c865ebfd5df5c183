// SPDX-License-Identifier: Apache-2.0
#include "runtime/plans_ahead.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace paoding {

PlansAhead::PlansAhead(Make make, std::size_t threads)
    : make_(std::move(make)), most_(threads), around_(CancelScope::active()) {}

PlansAhead::~PlansAhead() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;  // before plans are called off: no thread begins another
  }
  stop_.cancel();
  changed_.notify_all();
}

void PlansAhead::add(const Key& key, std::unique_ptr<Graph> graph) {
  const std::lock_guard lock(mutex_);
  works_.push_back({key, std::move(graph)});
  const auto waiting = static_cast<std::size_t>(std::ranges::count(works_, State::waiting, &Work::state));
  if (waiting > idle_ && threads_.size() < most_) {
    try {
      threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {  // the system starts no more: the caller makes those that are not begun
    }
  }
  changed_.notify_all();
}

bool PlansAhead::has(const Key& key) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::find(works_, key, &Work::key) != works_.end();
}

std::optional<PlansAhead::Taken> PlansAhead::take(const Key& key) {
  std::unique_lock lock(mutex_);
  const auto found = std::ranges::find(works_, key, &Work::key);
  if (found == works_.end()) return std::nullopt;
  changed_.wait(lock, [&] { return found->state != State::begun; });
  Work taken = std::move(*found);
  works_.erase(found);
  if (taken.error != nullptr) std::rethrow_exception(taken.error);
  return Taken{std::move(taken.graph), std::move(taken.plan)};
}

void PlansAhead::work() {
  std::vector<Cancellation> stops = around_;
  stops.push_back(stop_);
  const CancelScope scope(stops);
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    const auto next = std::ranges::find(works_, State::waiting, &Work::state);
    if (next == works_.end()) {
      ++idle_;
      changed_.wait(lock);
      --idle_;
      continue;
    }
    next->state = State::begun;
    lock.unlock();
    std::optional<CompiledPlan> plan;
    std::exception_ptr error;
    try {
      plan = make_(*next->graph);
    } catch (const Error& thrown) {
      // One that was called off is as if it had not been begun: the caller has scopes of its own.
      if (thrown.kind() != ErrorKind::cancelled) error = std::current_exception();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    next->plan = std::move(plan);
    next->error = error;
    next->state = State::ended;
    changed_.notify_all();
  }
}

}  // namespace paoding
