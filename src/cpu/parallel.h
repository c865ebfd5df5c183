// SPDX-License-Identifier: Apache-2.0
// The one place that knows OpenMP. oneDNN uses the same pool, so that two pools never compete for the cores.
#pragma once

#include <cstdint>

namespace paoding {

/// The most threads a parallel region may use: OMP_NUM_THREADS, or the cores this process may run on and be busy with.
int max_threads();
/// How many threads are worth starting for work that moves so many bytes.
int threads_for(std::int64_t bytes);

/// The cost of a parallel region beyond its work, however many of the threads have some.
double fork_nanoseconds();

/// Error (device) where regions would wait for ever: in a process that was forked from one whose threads had started,
/// and which has none of them. Before regions, of libraries too.
void require_threads();

/// Calls body(thread, state) once for each thread in [0, threads) and returns when all have returned. With one thread,
/// and inside a parallel region, the calls are made one after the other by the caller. When some throw, the first one's
/// exception is thrown when all are done; calls that had not begun by then are left out.
void parallel(int threads, void (*body)(int thread, void* state), void* state);

/// Starts the threads that parallel regions of the calling thread will have, unless it has. Error (argument) when
/// OMP_NUM_THREADS asks for more than 4096, (device) when the system does not start that many: the OpenMP library ends
/// the process then. parallel() calls it; libraries that enter regions of their own do not.
void start_threads();

/// Calls work(begin, end, thread) once per thread for its part of 0 .. count - 1. Parts follow each other and differ by
/// one at most; some are empty when there are fewer units than threads. Allocates nothing. `work` may throw.
template <class Work>
void share_out(int threads, std::int64_t count, const Work& work) {
  struct State {
    int threads;
    std::int64_t count;
    const Work* work;
  } state{threads, count, &work};
  parallel(
      threads,
      [](int thread, void* raw) {
        const State& s = *static_cast<State*>(raw);
        (*s.work)(s.count * thread / s.threads, s.count * (thread + 1) / s.threads, thread);
      },
      &state);
}

/// While it lives, parallel regions that the calling thread starts, in libraries too, have one thread when `is_serial`.
/// For work that is over before a second thread would have woken up.
class SerialScope {
 public:
  explicit SerialScope(bool is_serial);
  ~SerialScope();
  SerialScope(const SerialScope&) = delete;
  SerialScope& operator=(const SerialScope&) = delete;

 private:
  int saved_ = 0;  // threads before; 0: nothing to restore
};

}  // namespace paoding
