// SPDX-License-Identifier: Apache-2.0
// Something of the caller's that is done every now and then while a long call into the library goes on.
#pragma once

#include <chrono>
#include <cstdint>

namespace paoding {

/// While it lives, calls into the library that its thread makes call `function(data)` in that thread each time that
/// about `every` has passed (to a few milliseconds), where a CancelScope could end them: between kernels, turns of
/// loops and nodes, and where a GPU is waited for. So an application hears signals, draws, or cancels. The innermost
/// alone is called, and not by the calls that its function makes. The function does not throw: to end a call it cancels
/// a Cancellation. It ends in the thread that made it.
class Interlude {
 public:
  Interlude(std::chrono::milliseconds every, void (*function)(void*), void* data);
  ~Interlude();
  Interlude(const Interlude&) = delete;
  Interlude& operator=(const Interlude&) = delete;

  /// Calls the function of this thread's innermost one if its time has come. For loops of one's own.
  static void poll();

 private:
  void (*function_)(void*);
  void* data_;
  std::int64_t every_ns_, next_ns_;
  Interlude* outer_;
};

}  // namespace paoding
