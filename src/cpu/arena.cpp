// SPDX-License-Identifier: Apache-2.0
#include "cpu/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"

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

std::int64_t GrowingMemory::machine_bytes() { return sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE); }

GrowingMemory::GrowingMemory(std::int64_t bytes, std::int64_t most) {
  const std::int64_t needed = std::max<std::int64_t>(whole_pages(bytes), whole_pages(1));
  // Where addresses are limited (ulimit -v) just what is needed: such memory cannot grow.
  for (const std::int64_t wish : {whole_pages(most), needed}) {
    reserved_ = std::max(wish, needed);
    address_ = reserve(reserved_);
    if (address_ != nullptr) break;
  }
  if (address_ != nullptr && grow(bytes)) return;
  if (address_ != nullptr) munmap(address_, static_cast<std::size_t>(reserved_));
  fail(ErrorKind::device, "memory: no {} bytes for a program's arena", bytes);
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
  return true;
}

char* tile_memory(std::int64_t bytes) {
  thread_local GrowingMemory memory(0, kMostTileBytes);
  if (bytes > memory.size_bytes()) {
    PD_ASSERT(memory.grow(bytes), "the machine has memory for a tile");
  }
  return reinterpret_cast<char*>(memory.bytes());
}

}  // namespace paoding
