// SPDX-License-Identifier: Apache-2.0
// What src/gpu/square_products.cpp has of a GPU: products by groups of four warps, which read shared memory when they
// are waited for, as late as they may.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "waiting_ctas.h"

namespace emulation {

struct Squares {
  const unsigned char* at;
  int along, across;  // bytes from a square to the next along K, and to that of the next 8 rows
};
inline Squares squares_of(const void* at, int along, int across) {
  if (reinterpret_cast<std::uintptr_t>(at) % 16 != 0 || along % 16 != 0 || across % 16 != 0) std::abort();
  return {static_cast<const unsigned char*>(at), along, across};
}
inline Squares squares_at(Squares squares, int pieces) {
  return {squares.at + pieces * 16, squares.along, squares.across};
}
// Word `word` of the 8 along K of row `row`.
inline unsigned word_of(const Squares& squares, int row, int word) {
  unsigned bits;
  std::memcpy(&bits, squares.at + word / 4 * squares.along + row / 8 * squares.across + row % 8 * 16 + word % 4 * 4, 4);
  return bits;
}

struct SquareProduct {
  float* sum;
  int sums, in_word;
  bool is_in_registers;
  unsigned words[32][4];  // of the warp's rows, where they are
  Squares left, right;
  float (*value_of)(unsigned bits);
};
inline std::map<const void*, std::deque<std::vector<SquareProduct>>> square_products;  // groups of them
inline void add_square_product(const SquareProduct& product) {
  auto& groups = square_products[this_thread()];
  if (groups.empty()) groups.emplace_back();
  groups.back().push_back(product);
}
inline void start_square_products() {
  auto& groups = square_products[this_thread()];
  if (!groups.empty()) groups.emplace_back();
}

template <int kInWord, std::size_t kSums>
void add_square_product(float (&sum)[kSums], const unsigned (&words)[4], Squares right, float (*value_of)(unsigned)) {
  const int first = machine.current / kWarp * kWarp;
  machine.cta->slots[machine.current] = reinterpret_cast<std::uint64_t>(&words);
  wait_warp();
  SquareProduct product{sum, static_cast<int>(kSums), kInWord, true, {}, {}, right, value_of};
  for (int lane = 0; lane < kWarp; ++lane) {
    std::memcpy(product.words[lane], reinterpret_cast<const void*>(machine.cta->slots[first + lane]), 16);
  }
  wait_warp();
  add_square_product(product);
}
template <int kInWord, std::size_t kSums>
void add_square_product(float (&sum)[kSums], Squares left, Squares right, float (*value_of)(unsigned)) {
  add_square_product({sum, static_cast<int>(kSums), kInWord, false, {}, left, right, value_of});
}

inline void finish_square_products(std::size_t most_left) {
  yield();
  const int lane = machine.current % kWarp, warp = machine.current / kWarp % 4, g = lane / 4, t = lane % 4;
  auto& groups = square_products[this_thread()];
  for (; groups.size() > most_left + 1; groups.pop_front()) {
    for (const SquareProduct& product : groups.front()) {
      // Of TF32 the last 13 bits are not seen.
      const auto factor = [&](unsigned word, int i) {
        return product.value_of(product.in_word == 1 ? word & ~0x1fffu : word >> (16 * i) & 0xffffu);
      };
      for (int i = 0; i < product.sums; ++i) {
        const int half = i / 2 % 2, column = i / 4 * 8 + t * 2 + i % 2;
        for (int word = 0; word < 8; ++word) {
          const unsigned of_left = product.is_in_registers ? product.words[g * 4 + word % 4][half + word / 4 * 2]
                                                           : word_of(product.left, warp * 16 + half * 8 + g, word);
          const unsigned of_right = word_of(product.right, column, word);
          for (int k = 0; k < product.in_word; ++k) product.sum[i] += factor(of_left, k) * factor(of_right, k);
        }
      }
    }
  }
  wait_warp();
}

}  // namespace emulation
