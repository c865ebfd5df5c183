// SPDX-License-Identifier: Apache-2.0
// Listening to SIGINT in front of Python's own handler, which only notes that there was one.
#include "interrupts.h"

#include <pthread.h>

namespace paoding::python {
namespace {

// Python hears signals in this thread.
bool is_main_thread() {
  static const auto main =
      nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident"));
  return PyThread_get_thread_ident() == main;
}

}  // namespace

Interrupts::Interrupts() {
  if (!is_main_thread()) return;
  struct sigaction ours {};
  ours.sa_sigaction = heard;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  around_ = innermost;
  if (around_ != nullptr) before_ = around_->before_;
  innermost = this;
  if (around_ == nullptr && sigaction(SIGINT, &ours, &before_) != 0) return;
  is_listening_ = true;
  const bool is_plain = (before_.sa_flags & SA_SIGINFO) == 0;
  if (around_ == nullptr && is_plain && (before_.sa_handler == SIG_DFL || before_.sa_handler == SIG_IGN)) {
    sigaction(SIGINT, &before_, nullptr);  // it ends the process, or nothing
    is_listening_ = false;
  }
}

Interrupts::~Interrupts() {
  if (innermost != this) return;
  if (is_listening_ && around_ == nullptr) sigaction(SIGINT, &before_, nullptr);
  innermost = around_;
}

void Interrupts::heard(int number, siginfo_t* about, void* where) {
  for (const Interrupts* each = innermost; each != nullptr; each = each->around_) each->cancellation_.cancel();
  if (innermost == nullptr) return;
  const struct sigaction& before = innermost->before_;
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(number, about, where);
  before.sa_handler(number);
}

}  // namespace paoding::python
