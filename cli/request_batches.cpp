// SPDX-License-Identifier: Apache-2.0
#include "request_batches.h"

#include "paoding/error.h"

namespace paoding::cli {
namespace {

BatchResult result_of(const RequestBatches::Predict& predict, std::span<const std::string> lines) {
  try {
    return {BatchResult::Kind::answered, predict(lines), {}};
  } catch (const Error& error) {
    const bool is_wrong = error.kind() == ErrorKind::argument || error.kind() == ErrorKind::file;
    return {is_wrong ? BatchResult::Kind::wrong : BatchResult::Kind::failed, {}, error.what()};
  } catch (const std::exception& error) {
    return {BatchResult::Kind::failed, {}, error.what()};
  }
}

}  // namespace

RequestBatches::RequestBatches(const BatchOptions& options, std::vector<Executor> executors) : options_(options) {
  const std::size_t count = executors.size();
  threads_.reserve(count);
  for (Executor& each : executors) threads_.emplace_back([this, each = std::move(each)] { work(each); });
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [&] { return begun_ == count; });
  if (!problem_) return;
  lock.unlock();
  finish();
  std::rethrow_exception(problem_);
}

RequestBatches::~RequestBatches() { finish(); }

void RequestBatches::finish() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  arrived_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool RequestBatches::add(std::vector<std::string> lines, Done done) {
  {
    const std::lock_guard lock(mutex_);
    if (is_over_ || waiting_lines_ + lines.size() > options_.most_waiting) return false;
    waiting_lines_ += lines.size();
    waiting_.push_back({std::move(lines), std::move(done), Clock::now()});
  }
  arrived_.notify_one();
  return true;
}

RequestBatches::Counts RequestBatches::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.waiting_lines = static_cast<std::int64_t>(waiting_lines_);
  return counts;
}

// Empty at the end.
std::vector<RequestBatches::Request> RequestBatches::next_batch() {
  std::unique_lock lock(mutex_);
  while (true) {
    arrived_.wait(lock, [&] { return is_over_ || !waiting_.empty(); });
    if (waiting_.empty()) return {};
    const Clock::time_point latest = waiting_.front().arrived + options_.wait;
    if (is_over_ || waiting_lines_ >= options_.most_lines || Clock::now() >= latest) break;
    arrived_.wait_until(lock, latest);
  }
  std::vector<Request> batch;
  std::size_t lines = 0;
  while (!waiting_.empty() && (batch.empty() || lines + waiting_.front().lines.size() <= options_.most_lines)) {
    lines += waiting_.front().lines.size();
    batch.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  waiting_lines_ -= lines;
  ++counts_.batches;
  counts_.lines += static_cast<std::int64_t>(lines);
  lock.unlock();
  arrived_.notify_one();  // there may be enough for another executor
  return batch;
}

void RequestBatches::work(const Executor& executor) {
  std::exception_ptr problem;
  try {
    executor.begin();
  } catch (...) {
    problem = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    ++begun_;
    if (problem && !problem_) problem_ = problem;
  }
  arrived_.notify_all();
  while (!problem) {
    std::vector<Request> batch = next_batch();
    if (batch.empty()) return;
    const Clock::time_point oldest = Clock::now() - options_.most_age;
    std::vector<Request> in_time;
    for (Request& request : batch) {
      if (request.arrived >= oldest) {
        in_time.push_back(std::move(request));
      } else {
        request.done({BatchResult::Kind::too_late, {}, "the request has waited too long"});
      }
    }
    if (!in_time.empty()) answer(executor.predict, std::move(in_time));
  }
}

void RequestBatches::answer(const Predict& predict, std::vector<Request> requests) {
  std::vector<std::string> lines;
  for (const Request& request : requests) lines.insert(lines.end(), request.lines.begin(), request.lines.end());
  BatchResult all = result_of(predict, lines);
  if (all.kind != BatchResult::Kind::answered && requests.size() > 1) {
    // Whose fault it was: each by itself.
    for (Request& request : requests) request.done(result_of(predict, request.lines));
    return;
  }
  std::size_t first = 0;
  for (Request& request : requests) {
    BatchResult own{all.kind, {}, all.problem};
    for (std::size_t i = 0; i < request.lines.size() && all.kind == BatchResult::Kind::answered; ++i) {
      own.predictions.push_back(std::move(all.predictions[first + i]));
    }
    first += request.lines.size();
    request.done(std::move(own));
  }
}

}  // namespace paoding::cli
