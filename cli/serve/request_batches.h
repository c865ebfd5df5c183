// SPDX-License-Identifier: Apache-2.0
// Requests that wait are answered together: a batch begins when an executor is free and the oldest of them has waited
// as long as it may, or there are enough. Requests whose clients have left are not run, or are cancelled.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cli/serve/tensor_call.h"
#include "models/task.h"
#include "paoding/cancellation.h"

namespace paoding::cli {

struct BatchOptions {
  std::size_t most_lines = 64;                    // of a batch
  std::chrono::microseconds wait{2000};           // for others, while there are fewer
  std::size_t most_waiting = 4096;                // lines; more are refused
  std::chrono::milliseconds most_age{5000};       // a request that has waited longer is refused
  std::chrono::milliseconds most_run{10000};      // of one run of the model: a longer one is cancelled
  std::chrono::milliseconds most_last_run{5000};  // the same, once finish() is called
};

/// The answer to one line.
struct LineAnswer {
  models::Predictions predictions;
  std::string remark = {};  // names the parts of the line that the model does not know
};

/// How much of a batch an input is: a line is one.
inline std::size_t lines_in(const std::string&) { return 1; }

struct BatchCounts {
  std::int64_t batches = 0, lines = 0, waiting_lines = 0, left_requests = 0;
};

/// Inputs are lines of text (or images), or calls with tensors: the end of this file names both.
template <class Input, class Answer>
class Batches {
 public:
  /// The outcome of a request.
  struct Result {
    enum class Kind { answered, wrong, failed, too_late };
    Kind kind = Kind::answered;
    std::vector<Answer> answers = {};
    std::string problem = {};
  };
  /// Called before each run of the model, whose time begins then. Error (cancelled) when nobody waits for it.
  using BeforeRun = std::function<void()>;
  /// Answers inputs; called by one thread at a time, each its own, within a CancelScope.
  using Predict = std::function<std::vector<Answer>(std::span<const Input> lines, const BeforeRun& before_run)>;
  using Done = std::function<void(Result)>;
  using IsAwaited = std::function<bool()>;

  struct Executor {
    std::function<void()> begin;  // called once, in its thread, before anything is answered
    Predict predict;
  };

  /// Starts a thread for each executor and returns when all have begun. Rethrows an exception of begin().
  Batches(const BatchOptions& options, std::vector<Executor> executors);
  ~Batches();
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;

  /// `done` is called at most once, in another thread: not when nobody waits anymore, and not when there is no memory
  /// for a result; it is destroyed in any case. False, and no call, when too many lines wait.
  bool add(
      std::vector<Input> lines, Done done, IsAwaited is_awaited = [] { return true; });
  /// Answers the requests that wait, and takes no more. Returns when it is done, however long the model runs.
  void finish();

  using Counts = BatchCounts;
  Counts counts() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Request {
    std::vector<Input> lines;
    std::size_t size;  // lines_in() of all of them
    Done done;
    IsAwaited is_awaited;
    Clock::time_point arrived;
  };
  using Requests = std::list<Request>;  // from one to another without an allocation, which could fail

  // An executor's thread and its batch, which the watching thread cancels when it takes too long.
  struct Worker {
    Executor executor;
    Cancellation stop;
    const Requests* running = nullptr;  // null: nothing
    Clock::time_point latest = {};      // for the run under way
    std::thread thread = {};
  };

  void work(Worker& worker) noexcept;
  bool next_batch(Requests* batch);
  void drop_what_left(Requests* left);
  void refuse_what_is_old(Requests* batch);
  void answer(Worker& worker, Requests batch) noexcept;
  void answer_all(Worker& worker, Requests& batch);
  Result result_of(Worker& worker, const Requests& running, std::span<const Input> lines);
  void keep_watch() noexcept;
  Clock::time_point latest_end() const;

  const BatchOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_, began_;
  Requests waiting_;
  std::size_t waiting_lines_ = 0;
  bool is_over_ = false, is_watch_over_ = false;
  std::size_t begun_ = 0, running_ = 0;
  std::exception_ptr problem_;  // of a begin()
  Counts counts_;
  std::list<Worker> workers_;
  std::thread watch_;
};

using RequestBatches = Batches<std::string, LineAnswer>;
using BatchResult = RequestBatches::Result;
using TensorBatches = Batches<TensorCall, TensorAnswer>;
extern template class Batches<std::string, LineAnswer>;
extern template class Batches<TensorCall, TensorAnswer>;

}  // namespace paoding::cli
