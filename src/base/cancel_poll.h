// SPDX-License-Identifier: Apache-2.0
// Lets loops ask whether a CancelScope of the thread that began the loop has been cancelled.
#pragma once

#include "paoding/cancellation.h"

namespace paoding {

[[noreturn]] void fail_cancelled();

/// The scopes that the thread has now, looked up once. A poll is a relaxed load for each, and a comparison.
class CancelPoll {
 public:
  CancelPoll();
  /// Whether there is a scope that could be cancelled.
  bool is_watching() const { return begin_ != end_; }
  bool is_cancelled() const {
    for (const Cancellation* at = begin_; at != end_; ++at) {
      if (at->is_cancelled()) return true;
    }
    return false;
  }
  /// Error (cancelled).
  void operator()() const {
    if (is_cancelled()) fail_cancelled();
  }

 private:
  const Cancellation* begin_ = nullptr;
  const Cancellation* end_ = nullptr;
};

}  // namespace paoding
