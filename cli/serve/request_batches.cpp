// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/request_batches.h"

#include <fmt/format.h>

#include <algorithm>

#include "paoding/error.h"

namespace paoding::cli {
namespace {

constexpr std::chrono::milliseconds kLook{20};  // between checks of the batches that run

// An exception of `done` is dropped: its request gets no answer, which the owner of `done` notices when it is
// destroyed.
void tell(const auto& done, auto result) noexcept {
  try {
    done(std::move(result));
  } catch (...) {
  }
}

bool is_any_awaited(const auto& requests) {
  return std::any_of(requests.begin(), requests.end(), [](const auto& request) { return request.is_awaited(); });
}

}  // namespace

template <class Input, class Answer>
Batches<Input, Answer>::Batches(const BatchOptions& options, std::vector<Executor> executors) : options_(options) {
  try {
    for (Executor& each : executors) {
      Worker& worker = workers_.emplace_back();
      worker.executor = std::move(each);
      worker.thread = std::thread([this, &worker] { work(worker); });
    }
    watch_ = std::thread([this] { keep_watch(); });
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return begun_ == workers_.size(); });
    if (problem_) std::rethrow_exception(problem_);
  } catch (...) {
    finish();
    throw;
  }
}

template <class Input, class Answer>
Batches<Input, Answer>::~Batches() {
  finish();
}

template <class Input, class Answer>
void Batches<Input, Answer>::finish() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    for (Worker& worker : workers_) worker.latest = std::min(worker.latest, latest_end());
  }
  arrived_.notify_all();
  for (Worker& worker : workers_) {
    if (worker.thread.joinable()) worker.thread.join();
  }
  {
    const std::lock_guard lock(mutex_);
    is_watch_over_ = true;
  }
  began_.notify_all();
  if (watch_.joinable()) watch_.join();
}

// The deadline of a run that begins now.
template <class Input, class Answer>
typename Batches<Input, Answer>::Clock::time_point Batches<Input, Answer>::latest_end() const {
  return Clock::now() + (is_over_ ? std::min(options_.most_run, options_.most_last_run) : options_.most_run);
}

// Removes waiting requests whose clients have left, since they would keep places in the queue.
template <class Input, class Answer>
void Batches<Input, Answer>::drop_what_left(Requests* left) {
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const auto request = at++;
    if (request->is_awaited()) continue;
    waiting_lines_ -= request->size;
    ++counts_.left_requests;
    left->splice(left->end(), waiting_, request);
  }
}

template <class Input, class Answer>
bool Batches<Input, Answer>::add(std::vector<Input> lines, Done done, IsAwaited is_awaited) {
  Requests added, left;  // let go of without the lock
  std::size_t count = 0;
  for (const Input& line : lines) count += lines_in(line);
  added.push_back({std::move(lines), count, std::move(done), std::move(is_awaited), Clock::now()});
  {
    const std::lock_guard lock(mutex_);
    if (waiting_lines_ + count > options_.most_waiting) drop_what_left(&left);
    if (is_over_ || waiting_lines_ + count > options_.most_waiting) return false;
    waiting_lines_ += count;
    waiting_.splice(waiting_.end(), added);
  }
  arrived_.notify_one();
  return true;
}

template <class Input, class Answer>
BatchCounts Batches<Input, Answer>::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.waiting_lines = static_cast<std::int64_t>(waiting_lines_);
  return counts;
}

// False at the end.
template <class Input, class Answer>
bool Batches<Input, Answer>::next_batch(Requests* batch) {
  Requests left;
  std::unique_lock lock(mutex_);
  while (true) {
    arrived_.wait(lock, [&] { return is_over_ || !waiting_.empty(); });
    if (waiting_.empty()) return false;
    const Clock::time_point latest = waiting_.front().arrived + options_.wait;
    if (is_over_ || waiting_lines_ >= options_.most_lines || Clock::now() >= latest) {
      drop_what_left(&left);
      if (!waiting_.empty()) break;
      if (is_over_) return false;
      continue;
    }
    arrived_.wait_until(lock, latest);
  }
  std::size_t lines = 0;
  while (!waiting_.empty() && (batch->empty() || lines + waiting_.front().size <= options_.most_lines)) {
    lines += waiting_.front().size;
    batch->splice(batch->end(), waiting_, waiting_.begin());
  }
  waiting_lines_ -= lines;
  ++counts_.batches;
  counts_.lines += static_cast<std::int64_t>(lines);
  lock.unlock();
  arrived_.notify_one();  // there may be enough for another executor
  return true;
}

template <class Input, class Answer>
void Batches<Input, Answer>::work(Worker& worker) noexcept {
  std::exception_ptr problem;
  try {
    worker.executor.begin();
  } catch (...) {
    problem = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    ++begun_;
    if (problem && !problem_) problem_ = problem;
  }
  arrived_.notify_all();
  for (Requests batch; !problem && next_batch(&batch); batch.clear()) {
    refuse_what_is_old(&batch);
    if (!batch.empty()) answer(worker, std::move(batch));
  }
}

template <class Input, class Answer>
void Batches<Input, Answer>::refuse_what_is_old(Requests* batch) {
  const Clock::time_point oldest = Clock::now() - options_.most_age;
  for (auto at = batch->begin(); at != batch->end();) {
    const auto request = at++;
    if (request->arrived >= oldest) continue;
    try {
      tell(request->done, Result{Result::Kind::too_late, {}, "the request has waited too long"});
    } catch (...) {  // of memory for these words
    }
    batch->erase(request);
  }
}

template <class Input, class Answer>
void Batches<Input, Answer>::answer(Worker& worker, Requests batch) noexcept {
  {
    const std::lock_guard lock(mutex_);
    worker.running = &batch;
    worker.latest = latest_end();
    if (running_++ == 0) began_.notify_one();
  }
  try {
    answer_all(worker, batch);
  } catch (...) {
    // There is no memory. Requests without an answer are destroyed, which their owners notice.
  }
  const std::lock_guard lock(mutex_);
  worker.running = nullptr;
  worker.stop.reset();
  --running_;
}

template <class Input, class Answer>
void Batches<Input, Answer>::answer_all(Worker& worker, Requests& batch) {
  std::vector<Input> lines;
  for (const Request& request : batch) lines.insert(lines.end(), request.lines.begin(), request.lines.end());
  Result all = result_of(worker, batch, lines);
  const bool is_ones_fault = all.kind == Result::Kind::wrong || all.kind == Result::Kind::failed;
  std::size_t first = 0;
  for (const Request& request : batch) {
    if (is_ones_fault && batch.size() > 1) {  // whose: each by itself
      if (request.is_awaited()) tell(request.done, result_of(worker, batch, request.lines));
      continue;
    }
    Result own{all.kind, {}, all.problem};
    for (std::size_t i = 0; i < request.lines.size() && all.kind == Result::Kind::answered; ++i) {
      own.answers.push_back(std::move(all.answers[first + i]));
    }
    first += request.lines.size();
    tell(request.done, std::move(own));
  }
}

template <class Input, class Answer>
typename Batches<Input, Answer>::Result Batches<Input, Answer>::result_of(Worker& worker, const Requests& running,
                                                                          std::span<const Input> lines) {
  const auto before_run = [&] {
    const bool is_awaited = is_any_awaited(running);
    const std::lock_guard lock(mutex_);
    worker.latest = latest_end();
    is_awaited ? worker.stop.reset() : worker.stop.cancel();
  };
  try {
    before_run();
    const CancelScope scope(worker.stop);
    return {Result::Kind::answered, worker.executor.predict(lines, before_run), {}};
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::cancelled) {
      const std::lock_guard lock(mutex_);
      const double seconds = std::chrono::duration<double>(options_.most_run).count();
      return {Result::Kind::too_late,
              {},
              is_over_ ? "the model was called off: the server ends"
                       : fmt::format("the model ran for more than {:g} s and was called off", seconds)};
    }
    const bool is_wrong = error.kind() == ErrorKind::argument || error.kind() == ErrorKind::file;
    return {is_wrong ? Result::Kind::wrong : Result::Kind::failed, {}, error.what()};
  } catch (const std::exception& error) {
    return {Result::Kind::failed, {}, error.what()};
  }
}

// Calls off runs that take too long, and those that nobody waits for.
template <class Input, class Answer>
void Batches<Input, Answer>::keep_watch() noexcept {
  std::unique_lock lock(mutex_);
  while (true) {
    began_.wait(lock, [&] { return is_watch_over_ || running_ > 0; });
    if (is_watch_over_) return;
    for (const Worker& worker : workers_) {
      if (worker.running == nullptr) continue;
      if (Clock::now() >= worker.latest || !is_any_awaited(*worker.running)) worker.stop.cancel();
    }
    began_.wait_for(lock, kLook, [&] { return is_watch_over_; });
  }
}

template class Batches<std::string, LineAnswer>;
template class Batches<TensorCall, TensorAnswer>;

}  // namespace paoding::cli
