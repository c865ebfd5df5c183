// SPDX-License-Identifier: Apache-2.0
// Ending a call into the library from another thread, or from a signal handler.
//
//   Cancellation stop;
//   std::thread watcher([stop] { if (too_late()) stop.cancel(); });
//   CancelScope scope(stop);
//   program.run(feeds);  // throws Error (cancelled) soon after stop.cancel()
#pragma once

#include <atomic>
#include <memory>
#include <vector>

namespace paoding {

/// A request to stop work, made by any thread. Copies share the request, so one thread can wait while another cancels.
class Cancellation {
 public:
  Cancellation() : is_cancelled_(std::make_shared<std::atomic<bool>>(false)) {}
  Cancellation(const Cancellation&) = default;  // no moves: there is always something to call off
  Cancellation& operator=(const Cancellation&) = default;

  /// May be called from any thread, and from a signal handler.
  void cancel() const noexcept { is_cancelled_->store(true, std::memory_order_relaxed); }
  /// Takes cancel() back.
  void reset() const noexcept { is_cancelled_->store(false, std::memory_order_relaxed); }
  bool is_cancelled() const noexcept { return is_cancelled_->load(std::memory_order_relaxed); }

 private:
  std::shared_ptr<std::atomic<bool>> is_cancelled_;
};

/// While it lives, calls into the library that its thread makes end with Error (cancelled) once `cancellation`, or that
/// of a scope around it, has been cancelled:
/// - building graphs, gradients and compiling (Program, bind, Programs::at, find_nonfinite), node by node, pass by pass
///   and kernel by kernel;
/// - Program::run, between kernels and between the turns of a loop: nothing of the run is written to parameters. Once
///   its writes have begun it goes on to its end, which takes no longer than the steps of the model's updates. With
///   CompileOptions::repeats the repeats that have ended stay;
/// - reading data files, and data::Prefetch, which takes the scopes of the thread that made it to its own.
/// A kernel that is under way ends first, and so does a run on a GPU that should take less than a quarter of a second;
/// a longer one is called off where it is waited for, but for its products, which a library computes. On a GPU
/// Program::run waits when more than half a second of runs is enqueued. It ends in the thread that made it.
class CancelScope {
 public:
  explicit CancelScope(const Cancellation& cancellation);
  /// Stops for any of several requests, such as those of another thread.
  explicit CancelScope(const std::vector<Cancellation>& cancellations);
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  /// Those of all scopes of this thread.
  static std::vector<Cancellation> active();
  /// Error (cancelled) when one of them has been cancelled. For loops of one's own.
  static void poll();

 private:
  friend class CancelPoll;
  std::vector<Cancellation> all_;  // of the scopes around it too
  const CancelScope* outer_;
};

}  // namespace paoding
