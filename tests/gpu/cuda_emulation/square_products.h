// SPDX-License-Identifier: Apache-2.0
// The GPU's part in src/gpu/kernels/square_products.cpp: products by groups of four warps, which read shared memory
// when they are waited for, as late as they may.
#pragma once

#include <cstring>
#include <deque>
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
  int sums;
  bool is_in_registers;
  unsigned words[4][4];  // of the four lanes that have this one's rows, where they are
  Squares left, right;
  void (*multiply)(const SquareProduct&);
};
// kInWord elements a word, whose values Value gives; of TF32 the last 13 bits are not seen.
template <int kInWord, class Value>
void multiply_squares(const SquareProduct& product) {
  const int lane = machine.current % kWarp, warp = machine.current / kWarp % 4, g = lane / 4, t = lane % 4;
  const auto put = [](float* to, unsigned word) {
    for (int i = 0; i < kInWord; ++i) to[i] = Value{}(kInWord == 1 ? word & ~0x1fffu : word >> (16 * i) & 0xffffu);
  };
  float left[2][8 * kInWord], right[8 * kInWord];
  for (int half = 0; half < 2; ++half) {
    for (int word = 0; word < 8; ++word) {
      put(&left[half][word * kInWord], product.is_in_registers ? product.words[word % 4][half + word / 4 * 2]
                                                               : word_of(product.left, warp * 16 + half * 8 + g, word));
    }
  }
  for (int column = 0; column < product.sums / 2; ++column) {
    const int of_tile = column / 2 * 8 + t * 2 + column % 2;
    for (int word = 0; word < 8; ++word) put(&right[word * kInWord], word_of(product.right, of_tile, word));
    for (int half = 0; half < 2; ++half) {
      float& sum = product.sum[column / 2 * 4 + half * 2 + column % 2];
      for (int k = 0; k < 8 * kInWord; ++k) sum += left[half][k] * right[k];
    }
  }
}
inline PerThread<std::deque<std::vector<SquareProduct>>> square_products;  // groups of them
inline void add_square_product(const SquareProduct& product) {
  auto& groups = square_products.mine();
  if (groups.empty()) groups.emplace_back();
  groups.back().push_back(product);
}
inline void start_square_products() {
  auto& groups = square_products.mine();
  if (!groups.empty()) groups.emplace_back();
}

template <int kInWord, std::size_t kSums, class Value>
void add_square_product(float (&sum)[kSums], const unsigned (&words)[4], Squares right, Value) {
  const int first = machine.current / 4 * 4;
  machine.cta->slots[machine.current] = reinterpret_cast<std::uint64_t>(&words);
  wait_warp();
  SquareProduct product{sum, static_cast<int>(kSums), true, {}, {}, right, multiply_squares<kInWord, Value>};
  for (int lane = 0; lane < 4; ++lane) {
    std::memcpy(product.words[lane], reinterpret_cast<const void*>(machine.cta->slots[first + lane]), 16);
  }
  wait_warp();
  add_square_product(product);
}
template <int kInWord, std::size_t kSums, class Value>
void add_square_product(float (&sum)[kSums], Squares left, Squares right, Value) {
  add_square_product({sum, static_cast<int>(kSums), false, {}, left, right, multiply_squares<kInWord, Value>});
}

inline void finish_square_products(std::size_t most_left) {
  yield();
  auto& groups = square_products.mine();
  for (; groups.size() > most_left + 1; groups.pop_front()) {
    for (const SquareProduct& product : groups.front()) product.multiply(product);
  }
  wait_warp();
}

}  // namespace emulation
