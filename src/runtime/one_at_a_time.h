// SPDX-License-Identifier: Apache-2.0
// A second call on an object that may be used by one call at a time is an error, not a race.
#pragma once

#include <atomic>

#include "base/check.h"

namespace paoding {

/// While it lives nobody else has the object that `is_in_use` stands for.
class OneAtATime {
 public:
  /// `object`: "of this program". Error (argument) when it is in use, which ends with the hint.
  OneAtATime(std::atomic<bool>& is_in_use, const char* call, const char* object, const char* hint)
      : is_in_use_(is_in_use) {
    if (!is_in_use.exchange(true, std::memory_order_acquire)) return;
    fail(ErrorKind::argument, "{}: a call {} is under way, on another thread or around this callback\nhint: {}", call,
         object, hint);
  }
  ~OneAtATime() { is_in_use_.store(false, std::memory_order_release); }
  OneAtATime(const OneAtATime&) = delete;
  OneAtATime& operator=(const OneAtATime&) = delete;

 private:
  std::atomic<bool>& is_in_use_;
};

}  // namespace paoding
