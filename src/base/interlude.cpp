// SPDX-License-Identifier: Apache-2.0
#include "paoding/interlude.h"

#include <ctime>

namespace paoding {

namespace {

// initial-exec: every run reads it, and has no call to find it.
[[gnu::tls_model("initial-exec")]] thread_local Interlude* innermost_interlude = nullptr;

// The kernel's clock of its last tick, which is read in a few nanoseconds: there is a poll for every kernel of a run.
std::int64_t coarse_now_ns() {
  std::timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

Interlude::Interlude(std::chrono::milliseconds every, void (*function)(void*), void* data)
    : function_(function),
      data_(data),
      every_ns_(std::chrono::nanoseconds(every).count()),
      next_ns_(coarse_now_ns() + every_ns_),
      outer_(innermost_interlude) {
  innermost_interlude = this;
}

Interlude::~Interlude() { innermost_interlude = outer_; }

[[gnu::hot]] void Interlude::poll() {
  Interlude* const mine = innermost_interlude;
  if (mine == nullptr || coarse_now_ns() < mine->next_ns_) return;
  innermost_interlude = nullptr;
  mine->function_(mine->data_);
  innermost_interlude = mine;
  mine->next_ns_ = coarse_now_ns() + mine->every_ns_;
}

}  // namespace paoding
