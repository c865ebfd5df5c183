// SPDX-License-Identifier: Apache-2.0
// Enough of CUDA for g++ to compile generated kernel source and run it on the CPU, so that kernels are checked where
// there is no GPU. CTAs run one after the other in a given order (waiting_ctas.h runs those that wait for each
// other); a CTA's threads are fibers that change places at barriers and shuffles only, so a missing barrier shows as a
// wrong result rather than as luck.
// Stands before the kernel source; every kernel is wrapped in a namespace of its own.
#pragma once

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/half.h"
#include "fibers.h"

#define PD_EMULATE 1
#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
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

// Another clock than the host's: an hour ahead of it, in steps of 32 ns.
inline unsigned long long gpu_clock() {
  const auto host = std::chrono::steady_clock::now().time_since_epoch() + std::chrono::hours(1);
  return static_cast<unsigned long long>(std::chrono::nanoseconds(host).count()) & ~31ull;
}

/// The CTA's dynamic shared memory; of CTAs that run one after the other as much as a GPU has.
inline void* dynamic_shared() {
  constexpr std::size_t kMostBytes = 227 << 10;
  auto& shared = machine.cta->shared;
  if (shared.empty()) shared.assign(kMostBytes / 8, 0x7f7f7f7f7f7f7f7f);
  return shared.data();
}

/// Runs one CTA; false when some threads wait for others that never come.
inline bool run_block(unsigned index) {
  Machine& m = machine;
  start_cta(0, index);
  Cta& cta = *m.ctas[0];
  int idle = 0;  // rounds in which nothing came of the calls that ran: some let others run before they do anything
  while (cta.live > 0) {
    const std::uint64_t before = m.progress;
    for (int t = 0; t < m.threads; ++t) {
      if (idle > 0 && !cta.fibers[t].is_done) wake(cta, t / kWarp, 1u << (t % kWarp));
      if ((cta.ready[t / kWarp] >> (t % kWarp) & 1) != 0) resume(cta, t);
    }
    idle = m.progress == before ? idle + 1 : 0;
    if (idle > 8 && cta.live > 0) return false;
  }
  return true;
}

template <class T>
T shuffle_from(T value, int from) {  // a thread of the same warp
  static_assert(sizeof(T) <= 8);
  Machine& m = machine;
  std::memcpy(&m.cta->slots[m.current], &value, sizeof(T));
  wait_warp();
  T other;
  std::memcpy(&other, &m.cta->slots[from], sizeof(T));
  wait_warp();
  return other;
}

inline unsigned ballot(bool is_true) {
  Machine& m = machine;
  const int self = m.current, first = self / kWarp * kWarp;
  m.cta->slots[self] = is_true;
  wait_warp();
  unsigned bits = 0;
  for (int i = 0; i < kWarp; ++i) bits |= (m.cta->slots[first + i] != 0 ? 1u : 0u) << i;
  wait_warp();
  return bits;
}

template <class... P, std::size_t... I>
void call(void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_const_t<P>*>(arguments[I])...);
}

/// Makes the next CTAs' fibers run `kernel` with its arguments.
template <class... P>
struct Bound {
  void (*kernel)(P...);
  void** arguments;

  void prepare(unsigned grid, unsigned block) {
    Machine& m = machine;
    ++m.launches;
    m.ready_warps.clear();
    m.threads = static_cast<int>(block);
    m.block_dim = {block, 1, 1};
    m.grid_dim = {grid, 1, 1};
    m.body_argument = this;
    m.body = [](void* p) {
      auto* b = static_cast<Bound*>(p);
      call(b->kernel, b->arguments, std::index_sequence_for<P...>());
    };
  }
};

/// Runs a kernel as cuLaunchKernel would, CTAs one after the other in the order given. Returns 0, 1 for a deadlock, or
/// 2 where a CTA reads words of others that none has written and tests have filled with kUnwritten.
template <class... P>
int launch(void (*kernel)(P...), void** arguments, unsigned grid, unsigned block, const unsigned* order) {
  Bound<P...> bound{kernel, arguments};
  bound.prepare(grid, block);
  machine.cluster = 1, machine.shared_bytes = 0;
  machine.reads_unwritten = false;
  for (unsigned i = 0; i < grid; ++i) {
    if (!run_block(order[i])) return 1;
  }
  return machine.reads_unwritten ? 2 : 0;
}

}  // namespace emulation

#define threadIdx (::emulation::Index3{static_cast<unsigned>(::emulation::machine.current), 0, 0})
#define blockIdx (::emulation::machine.cta->index)
#define blockDim (::emulation::machine.block_dim)
#define gridDim (::emulation::machine.grid_dim)

inline void __syncthreads() { emulation::wait_block(); }
inline int __syncthreads_or(int is_true) {
  emulation::Cta& cta = *emulation::machine.cta;
  cta.slots[emulation::machine.current] = is_true != 0;
  emulation::wait_block();
  int any = 0;
  for (int t = 0; t < emulation::machine.threads; ++t) any |= cta.slots[t] != 0;
  emulation::wait_block();
  return any;
}
inline void __syncwarp(unsigned = ~0u) { emulation::wait_warp(); }
inline void __threadfence() {}
inline void __threadfence_system() {}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return emulation::shuffle_from(value, emulation::machine.current / emulation::kWarp * emulation::kWarp + lane);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int offset) {
  return emulation::shuffle_from(value, emulation::machine.current ^ offset);
}
template <class T>
T __shfl_up_sync(unsigned, T value, int offset) {
  const int self = emulation::machine.current;
  return emulation::shuffle_from(value, self % emulation::kWarp >= offset ? self - offset : self);
}
inline unsigned __ballot_sync(unsigned, bool is_true) { return emulation::ballot(is_true); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __ffs(int bits) { return std::countr_zero(static_cast<unsigned>(bits)) + 1; }  // of bits != 0
inline unsigned atomicAdd(unsigned* at, unsigned value) { return std::exchange(*at, *at + value); }
inline unsigned atomicInc(unsigned* at, unsigned last) { return std::exchange(*at, *at >= last ? 0 : *at + 1); }
inline unsigned long long atomicMin(unsigned long long* at, unsigned long long value) {
  return std::exchange(*at, value < *at ? value : *at);
}

template <class T>
T __ldg(const T* at) {
  return *at;
}
template <class T>
T __ldcg(const T* at) {
  if constexpr (sizeof(T) >= 4) {
    unsigned words[sizeof(T) / 4];
    std::memcpy(words, at, sizeof(T));
    for (const unsigned word : words) emulation::machine.reads_unwritten |= word == emulation::kUnwritten;
  }
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
