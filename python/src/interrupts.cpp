// SPDX-License-Identifier: Apache-2.0
// Listening to SIGINT in front of Python's own handler, which only notes that there was one.
#include "interrupts.h"

#include <pthread.h>

#include <utility>

namespace paoding::python {
namespace {

// Python hears signals in this thread.
bool is_main_thread() {
  static const auto main =
      nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident"));
  return PyThread_get_thread_ident() == main;
}

}  // namespace

Interrupts::Interrupts(const Cancellation& cancellation) : cancellation_(cancellation) {
  is_of_main_thread_ = is_main_thread();
  if (!is_of_main_thread_) return;
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

SignalTurns::~SignalTurns() {
  Py_XDECREF(type_);
  Py_XDECREF(value_);
  Py_XDECREF(traceback_);
}

void SignalTurns::raise() {
  if (type_ == nullptr) return;
  PyErr_Restore(std::exchange(type_, nullptr), std::exchange(value_, nullptr), std::exchange(traceback_, nullptr));
  throw nb::python_error();
}

void SignalTurns::take(void* turns) {
  auto& self = *static_cast<SignalTurns*>(turns);
  if (self.type_ != nullptr) return;  // it is being called off
  const WithGil gil;
  if (!gil.is_held()) return;
  call_python([&] {
    if (PyErr_CheckSignals() == 0) return;
    PyErr_Fetch(&self.type_, &self.value_, &self.traceback_);
    self.cancellation_.cancel();
  });
}

}  // namespace paoding::python
