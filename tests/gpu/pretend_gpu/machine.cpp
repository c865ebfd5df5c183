// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/pretend_gpu/machine.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace paoding::pretend {

Machine::Machine() = default;

Machine& Machine::get() {
  static auto* machine = new Machine();  // destructors of statics may still release something
  return *machine;
}

// ---- the interface for tests ----

void Machine::schedule(unsigned seed, unsigned haste) {
  const std::lock_guard lock(mutex);
  random_.seed(seed);
  haste_ = haste;
}

std::vector<std::string> Machine::calls() const {
  const std::lock_guard lock(mutex);
  return calls_;
}

void Machine::forget_calls() {
  const std::lock_guard lock(mutex);
  calls_.clear();
}

void Machine::before(const std::string& function, std::function<void()> then) {
  const std::lock_guard lock(mutex);
  before_[function] = std::move(then);
}

void Machine::break_at(const std::string& kernel, CUresult error) {
  const std::lock_guard lock(mutex);
  break_at_ = kernel, break_with_ = error;
}

void Machine::profile(bool keeps, unsigned every) {
  const std::lock_guard lock(mutex);
  keeps_order = keeps, timeless_every = every;
}

void Machine::revive() {
  const std::lock_guard lock(mutex);
  broken = CUDA_SUCCESS;
  for (auto& [at, stream] : streams_) stream->queue.clear();
}

std::size_t Machine::bytes_in_use() const {
  const std::lock_guard lock(mutex);
  return used_;
}

std::size_t Machine::graph_bytes() const {
  const std::lock_guard lock(mutex);
  return graphs_;
}

void Machine::set_memory(std::size_t bytes) {
  const std::lock_guard lock(mutex);
  memory_bytes = bytes;
}

std::size_t Machine::waiting() const {
  const std::lock_guard lock(mutex);
  std::size_t count = null_stream_.queue.size();
  for (const auto& [at, stream] : streams_) count += stream->queue.size();
  return count;
}

std::size_t Machine::busy_streams() const {
  const std::lock_guard lock(mutex);
  std::size_t count = null_stream_.queue.empty() ? 0 : 1;
  for (const auto& [at, stream] : streams_) count += stream->queue.empty() ? 0 : 1;
  return count;
}

std::size_t Machine::kernels_run() const {
  const std::lock_guard lock(mutex);
  return kernels_run_;
}

// ---- calls ----

CUresult Machine::enter(const char* function) {
  calls_.emplace_back(function);
  if (const auto found = before_.find(function); found != before_.end() && found->second) found->second();
  if (haste_ != 0) {
    for (unsigned count = random() % (haste_ + 1); count > 0 && run_one(); --count) {
    }
  }
  return broken;
}

// The default streams are one here, and order no other.
CUstream_st* Machine::stream(CUstream given) {
  return given == nullptr || given == CU_STREAM_LEGACY || given == CU_STREAM_PER_THREAD ? &null_stream_ : given;
}

CUstream Machine::make_stream() {
  auto made = std::make_unique<CUstream_st>();
  CUstream_st* at = made.get();
  streams_.emplace(at, std::move(made));
  return at;
}

CUevent Machine::make_event() { return events_.emplace_back(std::make_unique<CUevent_st>()).get(); }

void Machine::drop_stream(CUstream given) {
  run_until([&] { return given->queue.empty(); });
  streams_.erase(given);
}

void Machine::enqueue(CUstream given, Piece piece) {
  CUstream_st* to = stream(given);
  if (to->captured != nullptr) {
    piece.node = next_number();
    piece.lane = to->lane;
    ++to->captured->pieces[static_cast<std::size_t>(to->lane)];
    to->last = {node_handle(piece.node)};
    to->captured->nodes.push_back(std::move(piece));
  } else {
    to->queue.push_back(std::move(piece));
  }
}

// ---- running ----

bool Machine::run_one() {
  if (is_running_ || broken != CUDA_SUCCESS) return false;
  std::vector<CUstream_st*> ready;
  const auto look = [&](CUstream_st& stream) {
    if (stream.queue.empty()) return;
    const Piece& head = stream.queue.front();
    const bool is_ready =
        head.is_ready ? head.is_ready() : head.work || head.conditional || head.event->done >= head.version;
    if (is_ready) ready.push_back(&stream);
  };
  look(null_stream_);
  for (const auto& [at, stream] : streams_) look(*stream);
  if (ready.empty()) return false;
  CUstream_st& chosen = *ready[random() % ready.size()];
  const Piece piece = std::move(chosen.queue.front());
  chosen.queue.pop_front();
  if (piece.conditional) {
    decide(piece, &chosen.queue);
    return true;
  }
  const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
  const std::int64_t start_ns = now();
  is_running_ = true;
  if (piece.work) piece.work();
  is_running_ = false;
  if (ran && piece.kind != Piece::Kind::none) ran(piece, start_ns, now());
  return true;
}

// The body that is taken comes next; the node of a loop once more after it.
void Machine::decide(const Piece& node, std::deque<Piece>* queue) {
  const Conditional& of = *node.conditional;
  if (of.is_loop ? *of.value == 0 : *of.value >= of.bodies.size()) return;
  std::vector<Piece> next = of.bodies[of.is_loop ? 0 : *of.value];
  if (of.is_loop) next.push_back(node);
  queue->insert(queue->begin(), next.begin(), next.end());
}

bool Machine::waits_for_ranks() const {
  return std::ranges::any_of(
      streams_, [](const auto& each) { return !each.second->queue.empty() && each.second->queue.front().is_ready; });
}

bool Machine::run_until(const std::function<bool()>& is_done) {
  while (!is_done()) {
    if (!run_one()) return false;
  }
  return true;
}

CUresult Machine::wait_until(const std::function<bool()>& is_done) {
  constexpr int kPatience = 100'000;  // of 200 us, with other threads
  bool is_over = run_until(is_done);
  // Work of a rank may wait for that of another, whose thread has still to enqueue it.
  for (int i = 0; !is_over && broken == CUDA_SUCCESS && waits_for_ranks() && i < kPatience; ++i) {
    mutex.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    mutex.lock();
    is_over = run_until(is_done);
  }
  if (broken != CUDA_SUCCESS) return broken;
  return is_over ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_TIMEOUT;
}

void Machine::launched(const std::string& kernel, int rc) {
  ++kernels_run_;
  if (rc != 0) broken = CUDA_ERROR_LAUNCH_TIMEOUT;
  if (break_at_.empty() || !kernel.starts_with(break_at_)) return;
  broken = break_with_;
  break_at_.clear();
}

// ---- memory ----

bool Machine::take(std::size_t bytes) {
  if (bytes > memory_bytes - std::min(memory_bytes, used_)) return false;
  used_ += bytes;
  return true;
}

void Machine::add_graph(std::int64_t bytes) {
  used_ += static_cast<std::size_t>(bytes);
  graphs_ += static_cast<std::size_t>(bytes);
}

bool Machine::is_pinned(const void* at) const {
  auto found = pinned.upper_bound(static_cast<char*>(const_cast<void*>(at)));
  if (found == pinned.begin()) return false;
  --found;
  return static_cast<const char*>(at) < found->first + found->second;
}

extern "C" __attribute__((visibility("default"))) Gpu* paoding_pretend_gpu() { return &Machine::get(); }

}  // namespace paoding::pretend
