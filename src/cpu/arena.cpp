// SPDX-License-Identifier: Apache-2.0
#include "cpu/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/huge_pages.h"
#include "cpu/parallel.h"

namespace paoding {
namespace {

std::int64_t whole_pages(std::int64_t bytes) {
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

std::byte* reserve(std::int64_t bytes) {
  void* made =
      mmap(nullptr, static_cast<std::size_t>(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return made == MAP_FAILED ? nullptr : static_cast<std::byte*>(made);
}

}  // namespace

GrowingMemory::GrowingMemory(std::int64_t bytes, std::int64_t most) {
  const std::int64_t needed = std::max<std::int64_t>(whole_pages(bytes), whole_pages(1));
  // Addresses cost nothing unless they are limited: then no more are taken than are needed.
  if (needed <= machine_bytes()) {
    for (const std::int64_t wish : {has_address_limit() ? needed : whole_pages(most), needed}) {
      reserved_ = std::max(wish, needed);
      address_ = reserve(reserved_);
      if (address_ != nullptr) break;
    }
  }
  if (address_ != nullptr && grow(bytes)) return;
  if (address_ != nullptr) munmap(address_, static_cast<std::size_t>(reserved_));
  fail_without_memory("arena", bytes);
}

GrowingMemory::~GrowingMemory() {
  if (address_ != nullptr) munmap(address_, static_cast<std::size_t>(reserved_));
}

bool GrowingMemory::grow(std::int64_t bytes) {
  const std::int64_t wanted = whole_pages(bytes);
  if (wanted <= size_) return true;
  if (wanted > reserved_) return false;
  if (mprotect(address_, static_cast<std::size_t>(wanted), PROT_READ | PROT_WRITE) != 0) return false;
  size_ = wanted;
  if (is_worth_huge_pages(static_cast<std::size_t>(size_)))
    prefer_huge_pages(address_, static_cast<std::size_t>(size_));
  return true;
}

char* tile_memory(std::int64_t bytes) {
  constexpr std::int64_t kLeast = 1 << 18;  // most groups: as much as a second cache holds
  struct Pages {
    void* address = nullptr;
    std::int64_t size = 0;

    void free() {
      if (address != nullptr) munmap(address, static_cast<std::size_t>(size));
      address = nullptr, size = 0;
    }
    ~Pages() { free(); }
  };
  thread_local Pages memory;
  if (bytes <= memory.size) return static_cast<char*>(memory.address);
  memory.free();
  const std::int64_t wanted = whole_pages(std::max(bytes, kLeast));
  void* made =
      mmap(nullptr, static_cast<std::size_t>(wanted), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) fail_without_memory("group: a thread", bytes);
  memory.address = made, memory.size = wanted;
  return static_cast<char*>(made);
}

void reserve_tiles(std::int64_t bytes) {
  thread_local std::int64_t reserved = -1;
  thread_local int threads = 0;
  if (bytes <= reserved && max_threads() <= threads) return;
  threads = max_threads();
  share_out(threads, threads, [&](std::int64_t, std::int64_t, int) { tile_memory(bytes); });
  reserved = std::max(reserved, bytes);
}

}  // namespace paoding
