// SPDX-License-Identifier: Apache-2.0
// Threads of CTAs as fibers: who waits at a barrier stops until it is woken, so that a scheduler knows who can go on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

namespace emulation {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

// ---- Fibers: a stack and a saved stack pointer each ----

#if defined(__x86_64__)
// Saves the callee-saved registers on the old stack, swaps stacks, restores them from the new one.
extern "C" void pd_switch_stack(void** save, void* load);
asm(R"(
.text
.weak pd_switch_stack
.hidden pd_switch_stack
pd_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
#else
#error "the fibers are written for x86-64"
#endif

constexpr std::size_t kStackBytes = 64 << 10;
constexpr int kMaxThreads = 1024, kWarp = 32, kMaxWarps = kMaxThreads / kWarp, kBarriers = 16;

struct Free {
  void operator()(char* memory) const { std::free(memory); }
};

struct Fiber {
  void* stack_pointer = nullptr;
  std::unique_ptr<char, Free> stack;
  bool is_done = false;
};

struct Barrier {
  int come = 0;
  std::uint64_t round = 0;
  unsigned waiting[kMaxWarps] = {};  // lanes
};

/// A CTA that is under way.
struct Cta {
  Fiber fibers[kMaxThreads];
  unsigned ready[kMaxWarps] = {};  // lanes that can go on
  Index3 index;
  int number = 0, live = 0;
  Barrier block, warp[kMaxWarps], some[kBarriers];
  std::uint64_t met = 0;  // rounds of barriers of more than a warp
  std::uint64_t slots[kMaxThreads] = {};
  std::uint64_t cluster_arrived = 0, cluster_round = 0;
  std::vector<std::uint64_t> shared;  // dynamic shared memory
};

struct Machine {
  std::vector<std::unique_ptr<Cta>> ctas;  // those that run at once
  Cta* cta = nullptr;                      // of the fiber that runs
  int current = 0;                         // its number in it
  void* home = nullptr;                    // where the scheduler's own stack stands
  int threads = 0;
  std::uint64_t progress = 0, launches = 0;
  std::vector<std::uint64_t> ready_warps;  // a bit of each: of which CTA, and which of its warps
  bool has_let_others = false;             // since the scheduler chose
  Index3 block_dim, grid_dim;
  unsigned cluster = 1;
  std::size_t shared_bytes = 0;
  bool reads_unwritten = false;
  void (*body)(void*) = nullptr;
  void* body_argument = nullptr;
};

// Never destroyed: a program that still has work for the GPU as it ends launches kernels after the destructors of
// their library, which was loaded later than whatever launches them.
inline Machine& machine = *new Machine;

constexpr unsigned kUnwritten = 0x7f7f7f7f;

inline Cta& this_cta() { return *machine.cta; }
/// Its number among all that run at once.
inline int this_thread() { return this_cta().number * kMaxThreads + machine.current; }

/// A value for each thread, of this launch alone.
template <class T>
class PerThread {
 public:
  T& mine() { return of(this_thread()); }
  T& of(int thread) {
    while (all_.size() <= static_cast<std::size_t>(thread)) all_.emplace_back();
    auto& [launch, value] = all_[static_cast<std::size_t>(thread)];
    if (std::exchange(launch, machine.launches) != machine.launches) value = T{};
    return value;
  }

 private:
  std::deque<std::pair<std::uint64_t, T>> all_;
};

inline void switch_to_scheduler() { pd_switch_stack(&this_cta().fibers[machine.current].stack_pointer, machine.home); }
/// Called where others could see this thread's next step.
inline void yield() {
  machine.has_let_others = true;
  switch_to_scheduler();
}
inline void wake(Cta& cta, int warp, unsigned lanes) {
  if (lanes == 0) return;
  cta.ready[warp] |= lanes;
  const int number = cta.number * kMaxWarps + warp;
  machine.ready_warps[static_cast<std::size_t>(number / 64)] |= std::uint64_t{1} << (number % 64);
}
/// Until somebody wakes it.
inline void stop() {
  Cta& cta = this_cta();
  const int warp = machine.current / kWarp, number = cta.number * kMaxWarps + warp;
  cta.ready[warp] &= ~(1u << (machine.current % kWarp));
  if (cta.ready[warp] == 0) {
    machine.ready_warps[static_cast<std::size_t>(number / 64)] &= ~(std::uint64_t{1} << (number % 64));
  }
  switch_to_scheduler();
}

inline void fiber_main() {
  machine.body(machine.body_argument);
  this_cta().fibers[machine.current].is_done = true;
  --this_cta().live;
  ++machine.progress;
  stop();
}

/// Says that this thread has come to a barrier of so many; whether it was the last.
inline bool come_to(Barrier& barrier, int threads) {
  ++machine.progress;
  if (++barrier.come < threads) return false;
  barrier.come = 0;
  ++barrier.round;
  for (int warp = 0; warp < kMaxWarps; ++warp) wake(this_cta(), warp, std::exchange(barrier.waiting[warp], 0));
  return true;
}
inline void wait_at(Barrier& barrier, int threads) {
  const std::uint64_t round = barrier.round;
  if (come_to(barrier, threads)) return;
  while (barrier.round == round) {
    barrier.waiting[machine.current / kWarp] |= 1u << (machine.current % kWarp);
    stop();
  }
}

inline void wait_block() {
  Cta& cta = this_cta();
  if (cta.block.come + 1 == machine.threads) ++cta.met;
  wait_at(cta.block, machine.threads);
}
inline void barrier_pass(int barrier, int threads) {
  if (come_to(this_cta().some[barrier], threads)) ++this_cta().met;
}
inline void barrier_wait(int barrier, int threads) {
  Barrier& some = this_cta().some[barrier];
  if (some.come + 1 == threads) ++this_cta().met;
  wait_at(some, threads);
}
inline void wait_warp() {
  Barrier& barrier = this_cta().warp[machine.current / kWarp];
  const std::uint64_t round = barrier.round;
  ++machine.progress;
  if (++barrier.come == kWarp) {
    barrier.come = 0;
    ++barrier.round;
    wake(this_cta(), machine.current / kWarp, ~0u);
  }
  while (barrier.round == round) stop();
}

/// Puts CTA number `index` where CTA `at` of those that run at once stands.
inline void start_cta(std::size_t at, unsigned index) {
  Machine& m = machine;
  while (m.ctas.size() <= at) m.ctas.push_back(std::make_unique<Cta>());
  Cta& cta = *m.ctas[at];
  for (int t = 0; t < m.threads; ++t) {
    Fiber& fiber = cta.fibers[t];
    if (fiber.stack == nullptr) fiber.stack.reset(static_cast<char*>(std::aligned_alloc(64, kStackBytes)));
    auto* top = reinterpret_cast<void**>(fiber.stack.get() + kStackBytes);
    *--top = nullptr;  // the return address fiber_main would have: keeps the stack aligned as after a call
    *--top = reinterpret_cast<void*>(&fiber_main);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    fiber.stack_pointer = top;
    fiber.is_done = false;
  }
  cta.index = {index, 0, 0};
  cta.number = static_cast<int>(at), cta.live = m.threads;
  cta.block = {};
  for (Barrier& barrier : cta.warp) barrier = {};
  for (Barrier& barrier : cta.some) barrier = {};
  cta.met = cta.cluster_arrived = cta.cluster_round = 0;
  m.ready_warps.resize((m.ctas.size() * kMaxWarps + 63) / 64);
  for (int warp = 0; warp < kMaxWarps; ++warp) {
    const int lanes = std::clamp(m.threads - warp * kWarp, 0, kWarp);
    cta.ready[warp] = 0;
    wake(cta, warp, static_cast<unsigned>((std::uint64_t{1} << lanes) - 1));
  }
  cta.shared.assign((m.shared_bytes + 7) / 8, 0x7f7f7f7f7f7f7f7f);
}

inline void resume(Cta& cta, int thread) {
  machine.cta = &cta;
  machine.current = thread;
  pd_switch_stack(&machine.home, cta.fibers[thread].stack_pointer);
}

}  // namespace emulation
