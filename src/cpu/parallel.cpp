// SPDX-License-Identifier: Apache-2.0
#include "cpu/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/env.h"
#include "base/memory.h"
#include "cpu/cpu_quota.h"
#include "cpu/team.h"
#include "profile/recorder.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace paoding {

#ifdef _OPENMP

#if PAODING_BEFORE_GOMP
extern "C" void paoding_after_gomp(void);  // before_gomp.c
#endif

namespace {

#if PAODING_BEFORE_GOMP
const bool is_gomp_loaded = (paoding_after_gomp(), true);
#endif

constexpr int kMostThreads = 4096;

// A control group's share of the processors holds for regions of this thread, of libraries too, where nobody has said
// another number: the OpenMP library counts the processors that a process may run on, not its share of them.
void heed_quota() {
  thread_local bool is_heeded = false;
  if (is_heeded) return;
  is_heeded = true;
  static const int quota = env_value("OMP_NUM_THREADS") ? 0 : cpu_quota();
  if (quota > 0 && quota < omp_get_max_threads() && omp_get_max_threads() == omp_get_num_procs()) {
    omp_set_num_threads(quota);
  }
}

// An exception that leaves a region ends the process: the first is kept until the region is over.
class FirstThrown {
 public:
  bool is_set() const { return is_taken_.load(std::memory_order_relaxed); }
  void keep() noexcept {
    if (!is_taken_.exchange(true)) thrown_ = std::current_exception();
  }
  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  std::atomic<bool> is_taken_{false};
  std::exception_ptr thrown_;
};

// Bytes of the stack of an OpenMP thread, where OMP_STACKSIZE says so ("4M"; kilobytes without a letter); 0: the
// system's own.
std::size_t stack_bytes() {
  std::string text = env_text("OMP_STACKSIZE");
  if (text.empty()) text = env_text("GOMP_STACKSIZE");
  char* end = nullptr;
  const std::size_t count = std::strtoull(text.c_str(), &end, 10);
  while (std::isspace(static_cast<unsigned char>(*end)) != 0) ++end;
  switch (std::toupper(static_cast<unsigned char>(*end))) {
    case 'B': return count;
    case 'M': return count << 20;
    case 'G': return count << 30;
    default: return count << 10;
  }
}

// Threads that do nothing but be there at the same time.
class TrialThreads {
 public:
  explicit TrialThreads(int count) {
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    if (const std::size_t bytes = stack_bytes(); bytes > 0) pthread_attr_setstacksize(&attr, bytes);
    threads_.reserve(static_cast<std::size_t>(count));
    while (problem_ == 0 && started() < count) {
      pthread_t thread{};
      problem_ = pthread_create(&thread, &attr, wait, this);
      if (problem_ == 0) threads_.push_back(thread);
    }
    pthread_attr_destroy(&attr);
  }
  ~TrialThreads() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_all();
    for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
  }
  TrialThreads(const TrialThreads&) = delete;
  TrialThreads& operator=(const TrialThreads&) = delete;

  int started() const { return static_cast<int>(threads_.size()); }
  int problem() const { return problem_; }  // errno; 0: all have started

 private:
  static void* wait(void* self) {
    auto* trial = static_cast<TrialThreads*>(self);
    std::unique_lock lock(trial->mutex_);
    trial->over_.wait(lock, [&] { return trial->is_over_; });
    return nullptr;
  }

  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::vector<pthread_t> threads_;
  int problem_ = 0;
};

// Memory that the library and the threads allocate while they start: it has no way to say that it could not.
constexpr std::int64_t kStartBytes = 4 << 20, kThreadBytes = 256 << 10;

void check_threads(int wanted) {
  if (wanted > kMostThreads) {
    fail(ErrorKind::argument, "threads: {} are asked for (OMP_NUM_THREADS), the most is {}", wanted, kMostThreads);
  }
  const TrialThreads trial(wanted - 1);
  if (trial.problem() != 0) {
    fail(ErrorKind::device,
         "threads: {} are needed (OMP_NUM_THREADS), but the system starts {} ({}; {})\nhint: OMP_NUM_THREADS={}",
         wanted, trial.started() + 1, std::strerror(trial.problem()), memory_left(), std::max(trial.started() / 2, 1));
  }
  require_memory(fmt::format("threads: starting {}", wanted), kStartBytes + wanted * kThreadBytes);
}

// State of a process and of those forked from it.
struct Team {
  std::atomic<bool> has_started{false};
  std::atomic<bool> is_lost{false};
};
Team& team() {
  static Team the_team;
  return the_team;
}

// A recording's spans of a region: on the tracks of its other threads the work that each had, and on that of the thread
// that entered it how long it waited for them.
class RegionSpans {
 public:
  profile::Ticks begin() const { return on_ ? Recorder::now() : 0; }
  void end(int thread, profile::Ticks start) {
    if (!on_) return;
    const profile::Ticks now = Recorder::now();
    if (thread == 0) {
      own_end_ = now;
    } else {
      static const profile::SiteId site =
          Recorder::add_site({.name = "parallel region", .kind = profile::SpanKind::work});
      Recorder::complete(site, start, now);
    }
  }
  void leave() const {
    if (!on_ || own_end_ == 0) return;
    static const profile::SiteId site = Recorder::add_site({.name = "other threads", .kind = profile::SpanKind::wait});
    Recorder::complete(site, own_end_, Recorder::now());
  }

 private:
  using Recorder = profile::Recorder;
  const bool on_ = Recorder::active() && omp_in_parallel() == 0;
  profile::Ticks own_end_ = 0;
};

}  // namespace

int max_threads() {
  heed_quota();
  return omp_get_max_threads();
}

void require_threads() {
  if (max_threads() == 1) return;
  if (team().is_lost.load(std::memory_order_relaxed)) {
    fail(ErrorKind::device,
         "threads: this process was forked from one whose threads had begun to work, and has none of them\n"
         "hint: fork before the first program is compiled, run in the parent only, or run with one thread "
         "(OMP_NUM_THREADS=1)");
  }
  if (team().has_started.load(std::memory_order_relaxed) || team().has_started.exchange(true)) return;
  pthread_atfork(nullptr, nullptr, [] { team().is_lost.store(true, std::memory_order_relaxed); });
}

void start_threads() {
  thread_local int started = 1;
  const int wanted = max_threads();
  if (wanted <= started || omp_in_parallel() != 0) return;
  check_threads(wanted);
  std::atomic<int> here{0};
#pragma omp parallel
  here.fetch_add(1, std::memory_order_relaxed);
  started = wanted;
}

// Always a team of all threads, of which some may have nothing to do: between regions of different sizes libgomp ends
// the threads that are too many and makes new ones, which costs many times the region (16 threads: 100 us and more).
void parallel(int threads, void (*body)(int thread, void* state), void* state) {
  if (threads == 1) return body(0, state);
  start_threads();
  FirstThrown thrown;
  RegionSpans seen;
#pragma omp parallel if (omp_in_parallel() == 0)
  {
    const int team = omp_get_num_threads(), first = omp_get_thread_num();
    const profile::Ticks start = seen.begin();
    for (int thread = first; thread < threads && !thrown.is_set(); thread += team) {
      try {
        body(thread, state);
      } catch (...) {
        thrown.keep();
      }
    }
    if (first < threads) seen.end(first, start);
  }
  seen.leave();
  thrown.rethrow();
}

void run_team(int threads, void (*body)(int thread, int team, void* state) noexcept, void* state) {
  if (threads == 1 || omp_in_parallel() != 0) return body(0, 1, state);
  start_threads();
#pragma omp parallel
  {
    const int team = std::min(threads, omp_get_num_threads()), thread = omp_get_thread_num();
    if (thread < team) body(thread, team, state);
  }
}

SerialScope::SerialScope(bool is_serial) {
  if (!is_serial) return;
  saved_ = max_threads();
  if (saved_ == 1) {
    saved_ = 0;
  } else {
    omp_set_num_threads(1);
  }
}

SerialScope::~SerialScope() {
  if (saved_ != 0) omp_set_num_threads(saved_);
}

#else

SerialScope::SerialScope(bool) {}
SerialScope::~SerialScope() {}

int max_threads() { return 1; }
void require_threads() {}

void start_threads() {}

void parallel(int threads, void (*body)(int thread, void* state), void* state) {
  for (int thread = 0; thread < threads; ++thread) body(thread, state);
}

void run_team(int, void (*body)(int thread, int team, void* state) noexcept, void* state) { body(0, 1, state); }

#endif

// Measured on 16 cores with threads that wait actively: 0.6 us and 0.2 for each thread.
double fork_nanoseconds() { return 1000 + 300.0 * max_threads(); }

int threads_for(std::int64_t bytes) {
  constexpr std::int64_t kWorthThread = 128 << 10;  // one core moves so much in about 10 us
  return static_cast<int>(std::clamp<std::int64_t>(bytes / kWorthThread, 1, max_threads()));
}

}  // namespace paoding
