// SPDX-License-Identifier: Apache-2.0
// The GPU's part in kernels of matrix products (tensor_cores.cu): tiles that TMA brings, products of a group of four
// warps, the shared memory of the other CTAs of a cluster. Memory that a TMA tile will overwrite is lost as soon as the
// tile is asked for, and the tile is there some time later; products read shared memory when they are waited for, as
// late as they may. So a TMA tile that is read too early, or overwritten too early, shows as a NaN.
#pragma once

#include <array>
#include <cstdlib>
#include <cstring>

#include "square_products.h"
#include "tensor_map_words.h"
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

inline int in_tma_tile(int row, int word) { return row * 32 + ((word / 4 ^ row % 8) * 4 + word % 4); }

/// An element's place along every axis, innermost first.
using Place = std::array<int, 4>;

// Row r of a TMA tile begins at place_of(r). It is lost at once, and comes some time later.
template <class T, class Map, class PlaceOf>
void bring(T* to, const Map& map, unsigned long long* mbarrier, PlaceOf place_of) {
  TensorMapWords words;
  std::memcpy(&words, &map, sizeof(words));
  if (shared_address(to) % 1024 != 0) std::abort();  // as a GPU would fail
  std::memset(to, 0xff, words.tile_rows * 128);
  const auto come = [=] {
    const int in_piece = 16 / static_cast<int>(words.element_bytes);
    for (int row = 0; row < static_cast<int>(words.tile_rows); ++row) {
      for (int i = 0; i < in_piece * 8; ++i) {
        Place place = place_of(words, row);
        place[0] += i;
        const char* from = words.base;
        for (std::uint32_t axis = 0; axis < static_cast<std::uint32_t>(std::abs(words.rank)); ++axis) {
          const bool is_inside = place[axis] >= 0 && std::uint64_t(place[axis]) < words.extents[axis];
          if (from != nullptr && is_inside) {
            from += std::uint64_t(place[axis]) * (axis == 0 ? 1 : words.strides[axis - 1]) * words.element_bytes;
          } else {
            from = nullptr;
          }
        }
        char* const there = reinterpret_cast<char*>(to) +
                            (row * 8 + (i / in_piece ^ (words.is_plain ? 0 : row % 8))) * 16 +
                            i % in_piece * int(words.element_bytes);
        std::memset(there, 0, words.element_bytes);
        if (from != nullptr) std::memcpy(there, from, words.element_bytes);
        if (words.element_bytes == 4 && words.rank > 0) {
          float& value = *reinterpret_cast<float*>(there);
          value = to_tf32(value);
        }
      }
    }
    arrive(mbarrier, 0, 0u - static_cast<unsigned>(words.tile_rows * 128));
  };
  together.copies.push_back({come, machine.cta});
  ++machine.progress;
  yield();
}

template <class T, class Map>
void tma_load(T* to, const Map& map, int x, int y, unsigned long long* mbarrier) {
  bring(to, map, mbarrier, [=](const TensorMapWords&, int row) { return Place{x, y + row}; });
}
template <class T, class Map>
void tma_load(T* to, const Map& map, int x, int y, int z, unsigned long long* mbarrier) {
  bring(to, map, mbarrier, [=](const TensorMapWords&, int row) { return Place{x, y, z + row}; });
}
template <class T, class Map>
void bring_windows(T* to, const Map& map, int channel, int column, int row, int image, int tap_column, int tap_row,
                   unsigned long long* mbarrier) {
  if (tap_column < 0 || tap_row < 0 || tap_column > 255 || tap_row > 255) std::abort();
  bring(to, map, mbarrier, [=](const TensorMapWords& words, int i) {
    const int across = (column - words.first[0]) / words.step[0] + i;
    const int down = (row - words.first[1]) / words.step[1] + across / words.count[0];
    return Place{channel, words.first[0] + across % words.count[0] * words.step[0] + tap_column,
                 words.first[1] + down % words.count[1] * words.step[1] + tap_row, image + down / words.count[1]};
  });
}
template <class T, class Map>
void bring_patch(T* to, const Map& map, int channel, int column, int row, int image, unsigned long long* mbarrier) {
  bring(to, map, mbarrier, [=](const TensorMapWords& words, int i) {
    return Place{channel, column + i % int(words.tile_columns), row + i / int(words.tile_columns), image};
  });
}

// ---- products: those that a warp has started, and the words of its lanes, as they were ----

struct Product {
  float* sum;
  int rows;
  unsigned words[32][4];
  const float* tile;
  int step;
};
inline PerThread<std::vector<Product>> started;

template <class Map>
void fetch_map(const Map&) {}
inline void fence_for_copies() {}
inline void products_begin() {}
template <int kRegisters>
void give_registers() {}
template <int kRegisters>
void take_registers() {}
using TmaTile = const float*;
inline TmaTile tma_tile_of(const float* at) { return at; }
inline void keep(int&) {}
inline bool mbarrier_try_wait_cta(unsigned long long* mbarrier, unsigned parity) {
  return mbarrier_try_wait(mbarrier, parity);
}
inline void products_start();

template <std::size_t kSums>
void add_product(float (&sum)[kSums], const unsigned (&words)[4], const float* tile, int step) {
  const int first = machine.current / kWarp * kWarp;
  machine.cta->slots[machine.current] = reinterpret_cast<std::uint64_t>(&words);
  wait_warp();
  Product product{sum, static_cast<int>(kSums * 2), {}, tile, step};
  for (int lane = 0; lane < kWarp; ++lane) {
    std::memcpy(product.words[lane], reinterpret_cast<const void*>(machine.cta->slots[first + lane]), 16);
  }
  wait_warp();
  started.mine().push_back(product);
}

template <std::size_t kSums>
void products_wait(float (&)[kSums]) {
  yield();
  const int lane = machine.current % kWarp, g = lane / 4, t = lane % 4;
  const auto factor = [](float value) { return std::bit_cast<float>(std::bit_cast<unsigned>(value) & ~0x1fffu); };
  for (const Product& product : started.mine()) {
    for (int i = 0; i < product.rows / 2; ++i) {
      const int of_words = g + i / 2 % 2 * 8, of_tile = i / 4 * 8 + t * 2 + i % 2;
      for (int k = 0; k < 8; ++k) {
        const unsigned word = product.words[of_words % 8 * 4 + k % 4][of_words / 8 + k / 4 * 2];
        product.sum[i] +=
            factor(std::bit_cast<float>(word)) * factor(product.tile[in_tma_tile(of_tile, product.step * 8 + k)]);
      }
    }
  }
  started.mine().clear();
  wait_warp();
}

// ---- products of two TMA tiles of 16 bits: groups of them, of which one after the other is waited for ----

struct WgmmaProduct {
  float* sum;
  int columns, step;
  const void *a, *b;
  int pitch_a, pitch_b;
  bool is_a_across, is_b_across;
  float (*value_of)(unsigned bits);
  const void* next = nullptr;  // of rows that are in no TMA tile
  bool is_b_rows = false;      // in no TMA tile, 8 columns each
  // Where a factor has more than one TMA tile a row, or is in registers: the rows of a TMA tile, the words of
  // the four lanes that have this one's rows.
  int a_rows = 64, b_rows = 64;
  bool is_in_words = false;
  unsigned words[4][4] = {};
};
inline PerThread<std::deque<std::vector<WgmmaProduct>>> under_way;

template <bool kIsAAcross, bool kIsBAcross, std::size_t kSums>
void add_wgmma_product(float (&sum)[kSums], const void* a, const void* b, int step, float (*value_of)(unsigned),
                       int pitch_a, int pitch_b) {
  auto& groups = under_way.mine();
  if (groups.empty()) groups.emplace_back();
  groups.back().push_back(
      {sum, static_cast<int>(kSums * 2), step, a, b, pitch_a, pitch_b, kIsAAcross, kIsBAcross, value_of});
}
template <std::size_t kSums>
void add_row_product(float (&sum)[kSums], const void* a, const void* next, const void* b, int step,
                     float (*value_of)(unsigned)) {
  if (shared_address(next) <= shared_address(a)) std::abort();  // how far apart they are is not negative
  auto& groups = under_way.mine();
  if (groups.empty()) groups.emplace_back();
  groups.back().push_back({sum, static_cast<int>(kSums * 2), step, a, b, 8, 8, false, false, value_of, next});
}
template <std::size_t kSums>
void add_rows_product(float (&sum)[kSums], const void* a, const void* b, int step, float (*value_of)(unsigned)) {
  auto& groups = under_way.mine();
  if (groups.empty()) groups.emplace_back();
  groups.back().push_back({sum, static_cast<int>(kSums * 2), step, a, b, 8, 8, true, false, value_of, nullptr, true});
}
template <std::size_t kSums>
void add_tile_product(float (&sum)[kSums], WgmmaProduct product, bool adds) {
  for (std::size_t i = 0; i < kSums && !adds; ++i) sum[i] = 0;
  auto& groups = under_way.mine();
  if (groups.empty()) groups.emplace_back();
  groups.back().push_back(product);
}
template <std::size_t kSums>
void add_tile_product(float (&sum)[kSums], const void* a, int a_rows, const void* b, int b_rows, bool is_b_across,
                      int step, bool adds, float (*value_of)(unsigned)) {
  WgmmaProduct product{sum, static_cast<int>(kSums * 2), step, a, b, 8, 8, false, is_b_across, value_of};
  product.a_rows = a_rows, product.b_rows = b_rows;
  add_tile_product(sum, product, adds);
}
template <std::size_t kSums>
void add_tile_product(float (&sum)[kSums], const unsigned (&words)[4], int, const void* b, int b_rows, bool is_b_across,
                      int step, bool adds, float (*value_of)(unsigned)) {
  WgmmaProduct product{sum, static_cast<int>(kSums * 2), step, nullptr, b, 8, 8, false, is_b_across, value_of};
  product.b_rows = b_rows, product.is_in_words = true;
  const int first = machine.current / 4 * 4;
  machine.cta->slots[machine.current] = reinterpret_cast<std::uint64_t>(&words);
  wait_warp();
  for (int lane = 0; lane < 4; ++lane) {
    std::memcpy(product.words[lane], reinterpret_cast<const void*>(machine.cta->slots[first + lane]), 16);
  }
  wait_warp();
  add_tile_product(sum, product, adds);
}
inline void products_start() {
  start_square_products();
  auto& groups = under_way.mine();
  if (!groups.empty()) groups.emplace_back();
}

inline void finish_wgmma_products(std::size_t most_left) {
  yield();
  const int lane = machine.current % kWarp, warp = machine.current / kWarp % 4;
  auto& groups = under_way.mine();
  for (; groups.size() > most_left + 1; groups.pop_front()) {
    for (const WgmmaProduct& product : groups.front()) {
      const auto element = [&](const void* tile, int pitch, int rows, bool is_across, int across, int along) {
        const int row = is_across ? across / 64 * rows + along : along / 64 * rows + across;
        const int in_row = (is_across ? across : along) % 64;
        const char* const at = static_cast<const char*>(tile) + (row / 8 * pitch + row % 8) * 128;
        std::uint16_t bits;
        std::memcpy(&bits, at + (in_row / 8 ^ static_cast<int>(shared_address(at) / 128 % 8)) * 16 + in_row % 8 * 2, 2);
        return product.value_of(bits);
      };
      const auto of_rows = [&](int row, int k) {
        const char* const at = static_cast<const char*>(k % 16 < 8 ? product.a : product.next) + row * 16 + k % 8 * 2;
        std::uint16_t bits;
        std::memcpy(&bits, at, 2);
        return product.value_of(bits);
      };
      const auto in_words = [&](int half, int k) {
        return product.value_of(product.words[k % 8 / 2][half + k / 8 * 2] >> (k % 2 * 16) & 0xffffu);
      };
      const auto in_rows = [&](int column, int k) {
        std::uint16_t bits;
        std::memcpy(&bits, static_cast<const char*>(product.b) + (k % 16 + column / 8) * 16 + column % 8 * 2, 2);
        return product.value_of(bits);
      };
      for (int i = 0; i < product.columns / 2; ++i) {
        const int row = warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        for (int k = product.step * 16; k < product.step * 16 + 16; ++k) {
          const float a = product.is_in_words ? in_words(i / 2 % 2, k % 16)
                          : product.next != nullptr
                              ? of_rows(row, k)
                              : element(product.a, product.pitch_a, product.a_rows, product.is_a_across, row, k);
          const float b = product.is_b_rows
                              ? in_rows(column, k)
                              : element(product.b, product.pitch_b, product.b_rows, product.is_b_across, column, k);
          product.sum[i] += a * b;
        }
      }
    }
  }
  wait_warp();
}
inline void products_wait_but_one() { finish_wgmma_products(1); }

inline float4 load_remote(const float* at, unsigned rank) {
  yield();
  float4 value;
  std::memcpy(&value, in_cta(const_cast<float*>(at), cta_of_rank(rank)), sizeof(value));
  return value;
}

}  // namespace emulation
