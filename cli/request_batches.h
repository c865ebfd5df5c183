// SPDX-License-Identifier: Apache-2.0
// Requests that wait are answered together: a batch begins when an executor is free and the oldest of them has waited
// as long as it may, or there are enough.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "models/task.h"

namespace paoding::cli {

struct BatchOptions {
  std::size_t most_lines = 64;               // of a batch
  std::chrono::microseconds wait{2000};      // for others, while there are fewer
  std::size_t most_waiting = 4096;           // lines; what comes beyond is refused
  std::chrono::milliseconds most_age{5000};  // what has waited longer is refused, not answered
};

/// What became of a request.
struct BatchResult {
  enum class Kind { answered, wrong, failed, too_late };
  Kind kind = Kind::answered;
  std::vector<models::Predictions> predictions = {};
  std::string problem = {};
};

class RequestBatches {
 public:
  /// Answers lines; called by one thread at a time, each its own.
  using Predict = std::function<std::vector<models::Predictions>(std::span<const std::string> lines)>;
  using Done = std::function<void(BatchResult)>;

  struct Executor {
    std::function<void()> begin;  // called once, in its thread, before anything is answered
    Predict predict;
  };

  /// A thread for each of the executors; returns when all have begun. Throws what one of them throws in begin().
  RequestBatches(const BatchOptions& options, std::vector<Executor> executors);
  ~RequestBatches();
  RequestBatches(const RequestBatches&) = delete;
  RequestBatches& operator=(const RequestBatches&) = delete;

  /// `done` is called once, in another thread. False, and no call, when too many lines wait.
  bool add(std::vector<std::string> lines, Done done);
  /// Answers what waits, and takes nothing more.
  void finish();

  struct Counts {
    std::int64_t batches = 0, lines = 0, waiting_lines = 0;
  };
  Counts counts() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Request {
    std::vector<std::string> lines;
    Done done;
    Clock::time_point arrived;
  };
  void work(const Executor& executor);
  std::vector<Request> next_batch();
  static void answer(const Predict& predict, std::vector<Request> requests);

  const BatchOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Request> waiting_;
  std::size_t waiting_lines_ = 0;
  bool is_over_ = false;
  std::size_t begun_ = 0;
  std::exception_ptr problem_;  // of a begin()
  Counts counts_;
  std::vector<std::thread> threads_;
};

}  // namespace paoding::cli
