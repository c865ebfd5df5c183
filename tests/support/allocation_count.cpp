// SPDX-License-Identifier: Apache-2.0
// Takes glibc's malloc's place in the test program; the library's calls, and operator new's, come here too.
#include "tests/support/allocation_count.h"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define PD_COUNTS_ALLOCATIONS 1
#else
#define PD_COUNTS_ALLOCATIONS 0
#endif

namespace {
std::atomic<bool> is_counting{false};
std::atomic<std::int64_t> allocations{0};
std::atomic<std::int64_t> left_until_failure{-1};  // < 0: none fails
thread_local bool is_spared = false;
std::atomic<bool> is_limited{false}, is_passed_over{false};
std::atomic<std::int64_t> bytes_left{0};

bool is_within_limit(std::size_t size) {
  if (!is_limited.load(std::memory_order_relaxed)) return true;
  if (size > static_cast<std::size_t>(bytes_left.load(std::memory_order_relaxed))) {
    is_passed_over = true;
    return false;
  }
  bytes_left.fetch_sub(static_cast<std::int64_t>(size), std::memory_order_relaxed);
  return true;
}

// False when this one must fail.
[[maybe_unused]] bool note_allocation(std::size_t size) {
  if (is_counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  if (!is_within_limit(size)) {
    errno = ENOMEM;
    return false;
  }
  if (left_until_failure.load(std::memory_order_relaxed) < 0 || is_spared) return true;
  if (left_until_failure.fetch_sub(1, std::memory_order_relaxed) != 0) return true;
  errno = ENOMEM;
  return false;
}
}  // namespace

#if PD_COUNTS_ALLOCATIONS
extern "C" {
void* __libc_malloc(std::size_t);                 // NOLINT: glibc's names
void* __libc_calloc(std::size_t, std::size_t);    // NOLINT
void* __libc_realloc(void*, std::size_t);         // NOLINT
void* __libc_memalign(std::size_t, std::size_t);  // NOLINT

void* malloc(std::size_t size) {
  if (!note_allocation(size)) return nullptr;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  std::size_t all = 0;
  if (__builtin_mul_overflow(count, size, &all)) all = SIZE_MAX;
  if (!note_allocation(all)) return nullptr;
  return __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) {
  if (!note_allocation(size)) return nullptr;
  return __libc_realloc(old, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  if (!note_allocation(size)) return nullptr;
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  if (!note_allocation(size)) return nullptr;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** result, std::size_t alignment, std::size_t size) {
  if (!note_allocation(size)) return ENOMEM;
  void* const made = __libc_memalign(alignment, size);
  if (made == nullptr) return ENOMEM;
  *result = made;
  return 0;
}
}
#endif

namespace paoding::testing_program {

AllocationCount::AllocationCount() {
  allocations = 0;
  is_counting = true;
}
AllocationCount::~AllocationCount() { is_counting = false; }
std::int64_t AllocationCount::count() const { return allocations; }
FailingAllocation::FailingAllocation(std::int64_t number) {
  is_spared = true;
  left_until_failure = number;
}
FailingAllocation::~FailingAllocation() {
  left_until_failure = -1;
  is_spared = false;
}
bool FailingAllocation::has_failed() const { return left_until_failure < 0; }
AllocationLimit::AllocationLimit(std::int64_t most_bytes) {
  bytes_left = most_bytes;
  is_passed_over = false;
  is_limited = true;
}
AllocationLimit::~AllocationLimit() { is_limited = false; }
bool AllocationLimit::is_passed() const { return is_passed_over; }
bool AllocationCount::works() { return PD_COUNTS_ALLOCATIONS != 0; }

}  // namespace paoding::testing_program
