// SPDX-License-Identifier: Apache-2.0
#include "paoding/cancellation.h"

#include "base/cancel_poll.h"
#include "base/check.h"
#include "paoding/interlude.h"

namespace paoding {

namespace {
// initial-exec: every run reads it, and has no call to find it.
[[gnu::tls_model("initial-exec")]] thread_local const CancelScope* innermost = nullptr;
}  // namespace

CancelScope::CancelScope(const Cancellation& cancellation) : CancelScope(std::vector<Cancellation>{cancellation}) {}

CancelScope::CancelScope(const std::vector<Cancellation>& cancellations) : all_(active()), outer_(innermost) {
  all_.insert(all_.end(), cancellations.begin(), cancellations.end());
  innermost = this;
}

CancelScope::~CancelScope() { innermost = outer_; }

std::vector<Cancellation> CancelScope::active() {
  return innermost == nullptr ? std::vector<Cancellation>() : innermost->all_;
}

[[gnu::hot]] void CancelScope::poll() {
  Interlude::poll();
  if (innermost != nullptr) CancelPoll()();
}

CancelPoll::CancelPoll() {
  if (innermost == nullptr) return;
  begin_ = innermost->all_.data();
  end_ = begin_ + innermost->all_.size();
}

void fail_cancelled() { fail(ErrorKind::cancelled, "cancelled: it was called off before it was done"); }

}  // namespace paoding
