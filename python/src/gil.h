// SPDX-License-Identifier: Apache-2.0
// The GIL given up and taken. Python up to 3.13 ends a daemon thread that asks for it while the interpreter goes by
// pthread_exit(), which unwinds our frames as an exception that nobody may stop: std::terminate. Such a thread sleeps
// here until the process ends, as Python 3.14 has it.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace paoding::python {

[[noreturn]] inline void sleep_for_good() {
  for (;;) pause();
}

/// call(), which runs Python, from a place that has our frames below it.
template <class Call>
auto call_python(Call&& call) {
  try {
    return call();
  } catch (const abi::__forced_unwind&) {
    sleep_for_good();
  }
}

/// While it lives, its thread is without the GIL.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
      sleep_for_good();
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

/// While it lives, its thread has the GIL, unless there is no Python any more: is_held() tells.
class WithGil {
 public:
  WithGil() : is_held_(Py_IsInitialized() != 0) {
    if (!is_held_) return;
    try {
      state_ = PyGILState_Ensure();
    } catch (const abi::__forced_unwind&) {
      sleep_for_good();
    }
  }
  ~WithGil() {
    if (is_held_) PyGILState_Release(state_);
  }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;
  bool is_held() const { return is_held_; }

 private:
  bool is_held_;
  PyGILState_STATE state_{};
};

}  // namespace paoding::python
