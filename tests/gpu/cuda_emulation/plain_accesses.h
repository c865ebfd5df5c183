// SPDX-License-Identifier: Apache-2.0
// The functions that g++ -fsanitize=thread calls in front of every access: those of a kernel's source to memory that
// CTAs have in common are told to memory_order.h. The sanitizer's own library is not there.
#pragma once

#include "memory_order.h"

namespace emulation {

inline bool is_common(const void* at) { return reinterpret_cast<std::uintptr_t>(at) - kCommonMemory < kCommonBytes; }

}  // namespace emulation

#define PD_TELLS(access, told, bytes)                                                      \
  __attribute__((used, no_sanitize_thread)) inline void __tsan_##access##bytes(void* at) { \
    if (emulation::is_common(at)) emulation::memory_order.told(at, bytes);                 \
  }
#define PD_TELLS_ALL(bytes)              \
  PD_TELLS(read, reads, bytes)           \
  PD_TELLS(write, writes, bytes)         \
  PD_TELLS(unaligned_read, reads, bytes) \
  PD_TELLS(unaligned_write, writes, bytes)
#define PD_TELLS_RANGE(access, told)                                                                           \
  __attribute__((used, no_sanitize_thread)) inline void __tsan_##access##_range(void* at, std::size_t bytes) { \
    if (emulation::is_common(at)) emulation::memory_order.told(at, bytes);                                     \
  }
extern "C" {
PD_TELLS_ALL(1)
PD_TELLS_ALL(2)
PD_TELLS_ALL(4)
PD_TELLS_ALL(8)
PD_TELLS_ALL(16)
PD_TELLS_RANGE(read, reads)
PD_TELLS_RANGE(write, writes)
__attribute__((used)) inline void __tsan_init() {}
__attribute__((used)) inline void __tsan_vptr_update(void**, void*) {}
}
#undef PD_TELLS
#undef PD_TELLS_ALL
#undef PD_TELLS_RANGE
