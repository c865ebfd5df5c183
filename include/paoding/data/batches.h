// SPDX-License-Identifier: Apache-2.0
// Which examples make a batch, in which order, and preparing the next ones while one is trained on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "paoding/cancellation.h"

namespace paoding::data {

/// The examples of one batch by number; all of one bucket.
using BatchExamples = std::vector<std::int64_t>;

/// The batches of an epoch: `buckets` has one number per example, and only examples of equal numbers share a batch of
/// at most `size`; the last batch of a bucket may be smaller. Shuffled by seed and epoch alone (Philox; the examples,
/// then the batches), so that an epoch can be gone on with at any batch on any machine. Error (argument) when size < 1.
std::vector<BatchExamples> shuffled_batches(std::span<const std::int64_t> buckets, std::int64_t size,
                                            std::uint64_t seed, std::int64_t epoch);
/// The same in the order of the examples, and of the first examples of batches: for evaluation.
std::vector<BatchExamples> batches_in_order(std::span<const std::int64_t> buckets, std::int64_t size);

/// Example numbers 0 .. count - 1 split at random into one part per share and one more for the rest (empty when the
/// shares add up to 1), each in ascending order; only the seed decides. Error (argument) unless the shares are in 0 ..
/// 1 and add up to at most 1.
std::vector<std::vector<std::int64_t>> split(std::int64_t count, std::span<const double> shares, std::uint64_t seed);

/// The smallest of `bounds` (ascending) that is at least `length`; the last one when none is. Error (argument) when
/// there are no bounds.
std::int64_t bucket_bound(std::span<const std::int64_t> bounds, std::int64_t length);

/// Starts a thread. Error (device) when the system does not.
std::thread start_thread(std::function<void()> body);

/// How many items are made in advance where a program asks for `depth`: that, or read_ahead=N of PAODING_RUN, by which
/// `paoding verify` measures the gain of a reader that works ahead.
std::size_t read_ahead(std::size_t depth);

/// A thread that makes the items for next() in advance, at most read_ahead(depth) of them; with 0 there is no thread,
/// and next() makes its item itself. Items are 0 .. count - 1 of `make`, in order. next() is for one thread; items that
/// were made and not asked for are dropped at the end. The CancelScopes around its construction count in its thread
/// too, those around next() end its waiting. Error (device) when the system starts no thread.
template <class T>
class Prefetch {
 public:
  Prefetch(std::int64_t count, std::function<T(std::int64_t)> make, std::size_t depth = 4)
      : count_(count), make_(std::move(make)), depth_(read_ahead(depth)), cancellations_(CancelScope::active()) {
    if (depth_ > 0) thread_ = start_thread([this] { work(); });
  }
  ~Prefetch() {
    {
      const std::lock_guard lock(mutex_);
      is_stopped_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  /// The next item; nothing after the last. Errors of `make` are thrown here; else Error (cancelled) alone.
  std::optional<T> next() {
    if (depth_ == 0) return made_now();
    std::unique_lock lock(mutex_);
    do {
      CancelScope::poll();
    } while (!changed_.wait_for(lock, kBetweenPolls, [this] { return !ready_.empty() || is_done_; }));
    if (ready_.empty()) {
      if (error_) std::rethrow_exception(error_);
      return std::nullopt;
    }
    std::optional<T> item(std::move(ready_.front()));
    ready_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return item;
  }

 private:
  static constexpr std::chrono::milliseconds kBetweenPolls{50};

  std::optional<T> made_now() {
    if (error_) std::rethrow_exception(error_);
    if (made_ == count_) return std::nullopt;
    const CancelScope scope(cancellations_);
    try {
      CancelScope::poll();
      return make_(made_++);
    } catch (...) {
      error_ = std::current_exception();
      throw;
    }
  }

  void work() {
    const CancelScope scope(cancellations_);
    for (std::int64_t i = 0; i < count_; ++i) {
      try {
        {
          std::unique_lock lock(mutex_);
          changed_.wait(lock, [this] { return ready_.size() < depth_ || is_stopped_; });
          if (is_stopped_) return;
        }
        CancelScope::poll();
        T item = make_(i);
        const std::lock_guard lock(mutex_);
        ready_.push_back(std::move(item));
      } catch (...) {
        const std::lock_guard lock(mutex_);
        error_ = std::current_exception();
        break;
      }
      changed_.notify_all();
    }
    const std::lock_guard lock(mutex_);
    is_done_ = true;
    changed_.notify_all();
  }

  const std::int64_t count_;
  const std::function<T(std::int64_t)> make_;
  const std::size_t depth_;
  const std::vector<Cancellation> cancellations_;
  std::int64_t made_ = 0;  // without a thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> ready_;
  std::exception_ptr error_;
  bool is_done_ = false, is_stopped_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace paoding::data
