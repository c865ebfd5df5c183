// SPDX-License-Identifier: Apache-2.0
#include "cpu/parallel.h"

#include <algorithm>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace paoding {

#ifdef _OPENMP

int max_threads() { return omp_get_max_threads(); }

// Always a team of all threads, of which some may have nothing to do: between regions of different sizes libgomp ends
// the threads that are too many and makes new ones, which costs many times the region (16 threads: 100 us and more).
void parallel(int threads, void (*body)(int thread, void* state), void* state) {
  if (threads == 1) return body(0, state);
#pragma omp parallel if (omp_in_parallel() == 0)
  {
    const int team = omp_get_num_threads();
    for (int thread = omp_get_thread_num(); thread < threads; thread += team) body(thread, state);
  }
}

SerialScope::SerialScope(bool is_serial) {
  if (!is_serial) return;
  saved_ = omp_get_max_threads();
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

void parallel(int threads, void (*body)(int thread, void* state), void* state) {
  for (int thread = 0; thread < threads; ++thread) body(thread, state);
}

#endif

// Measured on 16 cores with threads that wait actively: 0.6 us and 0.2 for each thread.
double fork_nanoseconds() { return 1000 + 300.0 * max_threads(); }

int threads_for(std::int64_t bytes) {
  constexpr std::int64_t kWorthThread = 128 << 10;  // what one core moves in about 10 us
  return static_cast<int>(std::clamp<std::int64_t>(bytes / kWorthThread, 1, max_threads()));
}

}  // namespace paoding
