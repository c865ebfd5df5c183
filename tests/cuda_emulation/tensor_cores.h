// SPDX-License-Identifier: Apache-2.0
// What kernels of matrix products use (tensor_cores.cu): boxes that the copy engine brings, products of a group of four
// warps, the shared memory of the other CTAs of a cluster. What a box will overwrite is lost as soon as it is asked
// for, and it is there some time later; products read shared memory when they are waited for, as late as they may. So
// a box that is read too early, or overwritten too early, shows as a NaN.
#pragma once

#include <map>

#include "waiting_ctas.h"

struct alignas(16) float4 {
  float x, y, z, w;
};

namespace emulation {

/// From the start of the CTA's dynamic shared memory.
inline unsigned shared_address(const void* at) {
  return static_cast<unsigned>(static_cast<const char*>(at) - reinterpret_cast<char*>(machine.cta->shared.data()));
}

/// To the nearest of 10 bits of mantissa, of two to the even one; of finite numbers.
inline float to_tf32(float value) {
  const unsigned bits = std::bit_cast<unsigned>(value);
  return std::bit_cast<float>((bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu);
}

/// What the host fills a Map with here.
struct BoxWords {
  const float* base;
  std::uint64_t rows, columns, row_stride, box_rows;
};

inline int in_box(int row, int word) { return row * 32 + ((word / 4 ^ row % 8) * 4 + word % 4); }

template <class Map>
void bring_box(float* to, const Map& map, int x, int y, unsigned long long* mailbox) {
  BoxWords words;
  std::memcpy(&words, &map, sizeof(words));
  if (shared_address(to) % 1024 != 0) std::abort();  // as a GPU would fail
  for (std::uint64_t i = 0; i < words.box_rows * 32; ++i) to[i] = NAN;
  Cta* const cta = machine.cta;
  together.coming.push_back([=] {
    for (int row = 0; row < static_cast<int>(words.box_rows); ++row) {
      for (int i = 0; i < 32; ++i) {
        const auto r = static_cast<std::uint64_t>(y + row), c = static_cast<std::uint64_t>(x + i);
        const float value = r < words.rows && c < words.columns ? words.base[r * words.row_stride + c] : 0;
        to[in_box(row, i)] = to_tf32(value);
      }
    }
    machine.cta = cta;
    arrive(mailbox, 0, 0u - static_cast<unsigned>(words.box_rows * 128));
  });
  ++machine.progress;
  yield();
}

// ---- products: those that a warp has started, and the words of its lanes, as they were ----

struct Product {
  float* sum;
  int rows;
  unsigned words[32][4];
  const float* box;
  int step;
};
inline std::map<const void*, std::vector<Product>> started;
inline std::map<const void*, const unsigned*> shown;

template <class Map>
void fetch_map(const Map&) {}
inline void products_begin() {}
using Box = const float*;
inline Box box_of(const float* at) { return at; }
inline void keep(int&) {}
inline bool mailbox_try_here(unsigned long long* mailbox, unsigned parity) { return mailbox_try(mailbox, parity); }
inline void products_start() {}

template <std::size_t kSums>
void add_product(float (&sum)[kSums], const unsigned (&words)[4], const float* box, int step) {
  const int first = machine.current / kWarp * kWarp;
  shown[this_thread()] = words;
  wait_warp();
  Product product{sum, static_cast<int>(kSums * 2), {}, box, step};
  for (int lane = 0; lane < kWarp; ++lane) {
    std::memcpy(product.words[lane], shown[&machine.cta->fibers[first + lane]], sizeof(product.words[lane]));
  }
  wait_warp();
  started[this_thread()].push_back(product);
}

template <std::size_t kSums>
void products_wait(float (&)[kSums]) {
  yield();
  const int lane = machine.current % kWarp, g = lane / 4, t = lane % 4;
  const auto factor = [](float value) { return std::bit_cast<float>(std::bit_cast<unsigned>(value) & ~0x1fffu); };
  for (const Product& product : started[this_thread()]) {
    for (int i = 0; i < product.rows / 2; ++i) {
      const int of_words = g + i / 2 % 2 * 8, of_box = i / 4 * 8 + t * 2 + i % 2;
      for (int k = 0; k < 8; ++k) {
        const unsigned word = product.words[of_words % 8 * 4 + k % 4][of_words / 8 + k / 4 * 2];
        product.sum[i] +=
            factor(std::bit_cast<float>(word)) * factor(product.box[in_box(of_box, product.step * 8 + k)]);
      }
    }
  }
  started[this_thread()].clear();
  wait_warp();
}

inline float4 load_remote(const float* at, unsigned rank) {
  yield();
  float4 value;
  std::memcpy(&value, in_cta(const_cast<float*>(at), cta_of_rank(rank)), sizeof(value));
  return value;
}

}  // namespace emulation
