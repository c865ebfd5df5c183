// SPDX-License-Identifier: Apache-2.0
// Long calls: the GIL is free while they run, Ctrl-C ends them, and handlers of other signals are called meanwhile.
#pragma once

#include <nanobind/nanobind.h>
#include <signal.h>

#include <chrono>
#include <type_traits>

#include "gil.h"
#include "paoding/cancellation.h"
#include "paoding/error.h"
#include "paoding/interlude.h"

namespace paoding::python {

namespace nb = nanobind;

/// While it lives in the main thread, an interrupt cancels cancellation() besides Python's own handling. In other
/// threads it does nothing, as an interrupt is none of theirs.
class Interrupts {
 public:
  explicit Interrupts(const Cancellation& cancellation);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  const Cancellation& cancellation() const { return cancellation_; }
  bool is_of_main_thread() const { return is_of_main_thread_; }

 private:
  static void heard(int number, siginfo_t* about, void* where);
  inline static Interrupts* volatile innermost = nullptr;
  Cancellation cancellation_;
  struct sigaction before_ {};  // the handler of Python, or of whoever else has set one
  Interrupts* around_ = nullptr;
  bool is_of_main_thread_ = false;
  bool is_listening_ = false;
};

/// While it lives, the main thread gives Python's handlers of signals their turn some times a second. An exception of
/// one calls off the call that goes on.
class SignalTurns {
 public:
  explicit SignalTurns(const Cancellation& cancellation) : cancellation_(cancellation) {}
  ~SignalTurns();
  SignalTurns(const SignalTurns&) = delete;
  SignalTurns& operator=(const SignalTurns&) = delete;
  /// Throws the exception of a handler if there was one.
  void raise();
  static void take(void* turns);

 private:
  const Cancellation& cancellation_;
  PyObject *type_ = nullptr, *value_ = nullptr, *traceback_ = nullptr;
};

/// call() in a thread that hears signals, or none; without the GIL.
template <class Call>
auto run_hearing(const Interrupts& interrupts, SignalTurns& turns, Call&& call) {
  const WithoutGil free;
  const CancelScope scope(interrupts.cancellation());
  if (!interrupts.is_of_main_thread()) return call();
  const Interlude interlude(std::chrono::milliseconds(50), &SignalTurns::take, &turns);
  return call();
}

/// call() without the GIL. Ctrl-C calls it off and raises the exception of Python's handler; where that returns, call()
/// is made once more: a cancelled call has changed nothing. Handlers of other signals are called while it goes on; the
/// exception of one calls it off, and is raised.
template <class Call>
auto run_freely(Call&& call) {
  for (;;) {
    const Cancellation cancellation;
    SignalTurns turns(cancellation);
    try {
      const Interrupts interrupts(cancellation);
      if constexpr (std::is_void_v<decltype(call())>) {
        run_hearing(interrupts, turns, call);
        turns.raise();
        return;
      } else {
        auto made = run_hearing(interrupts, turns, call);
        turns.raise();
        return made;
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::cancelled) throw;
    }
    turns.raise();
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

}  // namespace paoding::python
