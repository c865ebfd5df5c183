// SPDX-License-Identifier: Apache-2.0
// Enough of CUDA for g++ to compile generated kernel text and run it on the CPU, so that kernels are checked where
// there is no GPU. CTAs run one after the other in a given order; a CTA's threads are fibers that change places at
// barriers and shuffles only, so a missing barrier shows as a wrong result rather than as luck.
// Stands before the kernel text; every kernel is wrapped in a namespace of its own.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/half.h"

#define PD_EMULATE 1
#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#ifndef __restrict__
#define __restrict__ __restrict
#endif

struct uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

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
constexpr int kMaxThreads = 1024, kWarp = 32;

struct Fiber {
  void* stack_pointer = nullptr;
  char* stack = nullptr;
  bool is_done = false;
};

struct Machine {
  Fiber fibers[kMaxThreads];
  void* home = nullptr;  // where the scheduler's own stack stands
  int threads = 0, current = 0, live = 0;
  int waiting_block = 0, waiting_warp[kMaxThreads / kWarp] = {};
  std::uint64_t block_round = 0, warp_round[kMaxThreads / kWarp] = {}, progress = 0;
  std::uint64_t slots[kMaxThreads] = {};
  Index3 block_index, block_dim, grid_dim;
  void (*body)(void*) = nullptr;
  void* body_argument = nullptr;
};

inline Machine machine;

inline void yield() { pd_switch_stack(&machine.fibers[machine.current].stack_pointer, machine.home); }

inline void fiber_main() {
  machine.body(machine.body_argument);
  machine.fibers[machine.current].is_done = true;
  --machine.live;
  ++machine.progress;
  yield();
}

inline void wait_block() {
  const std::uint64_t round = machine.block_round;
  ++machine.progress;
  if (++machine.waiting_block == machine.threads) {
    machine.waiting_block = 0;
    ++machine.block_round;
  }
  while (machine.block_round == round) yield();
}

inline void wait_warp() {
  const int warp = machine.current / kWarp;
  const std::uint64_t round = machine.warp_round[warp];
  ++machine.progress;
  if (++machine.waiting_warp[warp] == kWarp) {
    machine.waiting_warp[warp] = 0;
    ++machine.warp_round[warp];
  }
  while (machine.warp_round[warp] == round) yield();
}

/// Runs one CTA; false when some threads wait for others that never come.
inline bool run_block() {
  Machine& m = machine;
  for (int t = 0; t < m.threads; ++t) {
    Fiber& fiber = m.fibers[t];
    if (fiber.stack == nullptr) fiber.stack = static_cast<char*>(std::aligned_alloc(64, kStackBytes));
    auto* top = reinterpret_cast<void**>(fiber.stack + kStackBytes);
    *--top = nullptr;  // the return address fiber_main would have: keeps the stack aligned as after a call
    *--top = reinterpret_cast<void*>(&fiber_main);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    fiber.stack_pointer = top;
    fiber.is_done = false;
  }
  m.live = m.threads;
  m.waiting_block = 0;
  for (int& waiting : m.waiting_warp) waiting = 0;
  while (m.live > 0) {
    const std::uint64_t before = m.progress;
    for (int t = 0; t < m.threads; ++t) {
      if (m.fibers[t].is_done) continue;
      m.current = t;
      pd_switch_stack(&m.home, m.fibers[t].stack_pointer);
    }
    if (m.progress == before && m.live > 0) return false;
  }
  return true;
}

template <class T>
T shuffle_xor(T value, int offset) {
  static_assert(sizeof(T) <= 8);
  Machine& m = machine;
  const int self = m.current;
  std::memcpy(&m.slots[self], &value, sizeof(T));
  wait_warp();
  T other;
  std::memcpy(&other, &m.slots[self ^ offset], sizeof(T));
  wait_warp();
  return other;
}

template <class T>
T shuffle_up(T value, int offset) {
  static_assert(sizeof(T) <= 8);
  Machine& m = machine;
  const int self = m.current, from = self % kWarp >= offset ? self - offset : self;
  std::memcpy(&m.slots[self], &value, sizeof(T));
  wait_warp();
  T other;
  std::memcpy(&other, &m.slots[from], sizeof(T));
  wait_warp();
  return other;
}

inline unsigned ballot(bool is_true) {
  Machine& m = machine;
  const int self = m.current, first = self / kWarp * kWarp;
  m.slots[self] = is_true;
  wait_warp();
  unsigned bits = 0;
  for (int i = 0; i < kWarp; ++i) bits |= (m.slots[first + i] != 0 ? 1u : 0u) << i;
  wait_warp();
  return bits;
}

template <class... P, std::size_t... I>
void call(void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_const_t<P>*>(arguments[I])...);
}

/// Runs a kernel as cuLaunchKernel would, CTAs in the order given. Returns 0, or 1 for a deadlock.
template <class... P>
int launch(void (*kernel)(P...), void** arguments, unsigned grid, unsigned block, const unsigned* order) {
  struct Bound {
    void (*kernel)(P...);
    void** arguments;
  } bound{kernel, arguments};
  Machine& m = machine;
  m.threads = static_cast<int>(block);
  m.block_dim = {block, 1, 1};
  m.grid_dim = {grid, 1, 1};
  m.body_argument = &bound;
  m.body = [](void* p) {
    auto* b = static_cast<Bound*>(p);
    call(b->kernel, b->arguments, std::index_sequence_for<P...>());
  };
  for (unsigned i = 0; i < grid; ++i) {
    m.block_index = {order[i], 0, 0};
    if (!run_block()) return 1;
  }
  return 0;
}

}  // namespace emulation

#define threadIdx (::emulation::Index3{static_cast<unsigned>(::emulation::machine.current), 0, 0})
#define blockIdx (::emulation::machine.block_index)
#define blockDim (::emulation::machine.block_dim)
#define gridDim (::emulation::machine.grid_dim)

inline void __syncthreads() { emulation::wait_block(); }
inline void __syncwarp(unsigned = ~0u) { emulation::wait_warp(); }
inline void __threadfence() {}
template <class T>
T __shfl_xor_sync(unsigned, T value, int offset) {
  return emulation::shuffle_xor(value, offset);
}
template <class T>
T __shfl_up_sync(unsigned, T value, int offset) {
  return emulation::shuffle_up(value, offset);
}
inline unsigned __ballot_sync(unsigned, bool is_true) { return emulation::ballot(is_true); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __ffs(int bits) { return std::countr_zero(static_cast<unsigned>(bits)) + 1; }  // of bits != 0
inline unsigned atomicAdd(unsigned* at, unsigned value) { return std::exchange(*at, *at + value); }
inline unsigned long long atomicMin(unsigned long long* at, unsigned long long value) {
  return std::exchange(*at, value < *at ? value : *at);
}

template <class T>
T __ldg(const T* at) {
  return *at;
}
template <class T>
T __ldcg(const T* at) {
  return *at;
}
template <class To, class From>
To emulated_bits(From from) {
  return std::bit_cast<To>(from);
}
inline float __uint_as_float(unsigned bits) { return emulated_bits<float>(bits); }
inline unsigned __float_as_uint(float value) { return emulated_bits<unsigned>(value); }
inline double __longlong_as_double(long long bits) { return emulated_bits<double>(bits); }
inline long long __double_as_longlong(double value) { return emulated_bits<long long>(value); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((std::uint64_t{a} * b) >> 32); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float a) { return 1 / std::sqrt(a); }
inline double rsqrt(double a) { return 1 / std::sqrt(a); }
