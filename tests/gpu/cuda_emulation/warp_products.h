// SPDX-License-Identifier: Apache-2.0
// The GPU's part in src/gpu/kernels/warp_products.cu: copies beside other work, which are made when they are waited
// for, as late as they may, over places that hold NaNs until then; products of tiles by their definition.
#pragma once

#include <deque>

#include "cuda_emulation.h"

namespace emulation {

// ---- copies: those that a thread has begun, by groups ----

struct Copy {
  void* to;
  unsigned char bytes[16];
  int count;
};
inline PerThread<std::deque<std::vector<Copy>>> copies;

inline std::deque<std::vector<Copy>>& groups_of_thread() {
  auto& groups = copies.mine();
  if (groups.empty()) groups.emplace_back();
  return groups;
}

template <int kBytes>
void copy_beside(void* to, const void* from, bool is_there) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  if (reinterpret_cast<std::uintptr_t>(to) % kBytes != 0) std::abort();  // as a GPU would fail
  if (reinterpret_cast<std::uintptr_t>(from) % kBytes != 0) std::abort();
  Copy copy{to, {}, kBytes};
  if (is_there) std::memcpy(copy.bytes, from, kBytes);
  std::memset(to, 0xff, kBytes);
  groups_of_thread().back().push_back(copy);
}
inline void copies_end_group() { groups_of_thread().emplace_back(); }
template <int kGroups>
void copies_wait() {
  auto& groups = groups_of_thread();
  while (groups.size() > kGroups + 1) {
    for (const Copy& copy : groups.front()) std::memcpy(copy.to, copy.bytes, static_cast<std::size_t>(copy.count));
    groups.pop_front();
  }
}

// ---- products ----

inline unsigned round_to_tf32(unsigned word) {
  const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
  return is_nan ? 0x7fffffffu : (word + 0x1000u) & ~0x1fffu;
}

struct Fragments {
  const unsigned *a, *b;
};

// kInWord elements a word, whose numbers `value_of` gives: 2 of 16 bits, or one whose last 13 bits the tensor cores do
// not see.
template <int kInWord, class Value>
void add_tile(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2], Value value_of) {
  const int lane = machine.current % kWarp, first = machine.current - lane, g = lane / 4, t = lane % 4;
  const Fragments mine{a, b};  // on this fiber's stack, where the others of its warp read it
  machine.cta->slots[machine.current] = reinterpret_cast<std::uint64_t>(&mine);
  wait_warp();
  const auto of_lane = [&](int other) {
    return *reinterpret_cast<const Fragments*>(machine.cta->slots[first + other]);
  };
  const auto put = [&](float* to, unsigned word) {
    for (int i = 0; i < kInWord; ++i) to[i] = value_of(kInWord == 1 ? word & ~0x1fffu : word >> (16 * i) & 0xffffu);
  };
  float rows[2][8 * kInWord], columns[2][8 * kInWord];
  for (int half = 0; half < 2; ++half) {
    for (int word = 0; word < 8; ++word) {
      put(&rows[half][word * kInWord], of_lane(g * 4 + word % 4).a[half + word / 4 * 2]);
      put(&columns[half][word * kInWord], of_lane((2 * t + half) * 4 + word % 4).b[word / 4]);
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 8 * kInWord; ++k) sum[i] += rows[i / 2][k] * columns[i % 2][k];
  }
  wait_warp();
}

template <std::size_t kCount>
void load_squares(unsigned (&words)[kCount], const void* row) {
  const int lane = machine.current % kWarp, first = machine.current - lane;
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) std::abort();
  machine.cta->slots[machine.current] = reinterpret_cast<std::uint64_t>(row);
  wait_warp();
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto from = machine.cta->slots[first + static_cast<int>(i) * 8 + lane / 4];
    words[i] = reinterpret_cast<const unsigned*>(from)[lane % 4];
  }
  wait_warp();
}

template <std::size_t kCount>
void load_transposed(unsigned (&words)[kCount], const void* row) {
  const int lane = machine.current % kWarp, first = machine.current - lane, g = lane / 4, t = lane % 4;
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) std::abort();
  machine.cta->slots[machine.current] = reinterpret_cast<std::uint64_t>(row);
  wait_warp();
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto element = [&](int k) {
      const auto* of_row =
          reinterpret_cast<const std::uint16_t*>(machine.cta->slots[first + static_cast<int>(i) * 8 + k]);
      return static_cast<unsigned>(of_row[g]);
    };
    words[i] = element(2 * t) | element(2 * t + 1) << 16;
  }
  wait_warp();
}

}  // namespace emulation
