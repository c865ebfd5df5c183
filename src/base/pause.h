// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace paoding {

/// Pauses between two polls of a word that another thread, or a GPU, is about to change.
inline void pause_thread() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace paoding
