// SPDX-License-Identifier: Apache-2.0
// Long calls: the GIL is free while they run, and Ctrl-C ends them.
#pragma once

#include <nanobind/nanobind.h>
#include <signal.h>

#include "gil.h"
#include "paoding/cancellation.h"
#include "paoding/error.h"

namespace paoding::python {

namespace nb = nanobind;

/// While it lives in the main thread, an interrupt cancels cancellation() besides Python's own handling. In other
/// threads it does nothing, as an interrupt is none of theirs.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  const Cancellation& cancellation() const { return cancellation_; }

 private:
  static void heard(int number, siginfo_t* about, void* where);
  inline static Interrupts* volatile innermost = nullptr;
  Cancellation cancellation_;
  struct sigaction before_ {};  // the handler of Python, or of whoever else has set one
  Interrupts* around_ = nullptr;
  bool is_listening_ = false;
};

/// call() without the GIL. Ctrl-C calls it off and raises the exception of Python's handler; where that returns, call()
/// is made once more: a cancelled call has changed nothing.
template <class Call>
auto run_freely(Call&& call) {
  for (;;) {
    try {
      const Interrupts interrupts;
      const WithoutGil free;
      const CancelScope scope(interrupts.cancellation());
      return call();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::cancelled) throw;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

}  // namespace paoding::python
