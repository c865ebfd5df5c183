// SPDX-License-Identifier: Apache-2.0
// The one place that knows OpenMP. oneDNN uses the same pool, so that two pools never compete for the cores.
#pragma once

#include <cstdint>

namespace paoding {

/// The most threads a parallel region may use: OMP_NUM_THREADS, or the cores this process may run on.
int max_threads();
/// How many threads are worth starting for work that moves so many bytes.
int threads_for(std::int64_t bytes);

/// What a parallel region costs beyond its work, however many of the threads have some.
double fork_nanoseconds();

/// Calls body(thread, state) once for each thread in [0, threads) and returns when all have returned. With one thread,
/// and inside a parallel region, the calls are made one after the other by the caller. `body` must not throw.
void parallel(int threads, void (*body)(int thread, void* state), void* state);

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
