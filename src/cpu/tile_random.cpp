// SPDX-License-Identifier: Apache-2.0
// Tile routine: random_bits, Philox4x32-10 on vectors. A vector of u64 lanes holds one word of as many blocks in the
// low halves of its lanes; the high halves are whatever they are.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tile_random.cpp"
#include "hwy/foreach_target.h"
//
#include <algorithm>

#include "cpu/tile_vector-inl.h"
#include "scalar/philox.h"

HWY_BEFORE_NAMESPACE();
namespace paoding {
namespace HWY_NAMESPACE {

const hn::ScalableTag<std::uint64_t> d64;
const hn::ScalableTag<std::uint32_t> d32;
using Lanes = hn::Vec<decltype(d64)>;

struct Block {
  Lanes word0, word1, word2, word3;
};

HWY_INLINE Lanes one_for_all(std::uint64_t a) { return hn::Set(d64, a); }
HWY_INLINE Lanes multiply(Lanes a, Lanes b) { return hn::MulEven(hn::BitCast(d32, a), hn::BitCast(d32, b)); }
HWY_INLINE Lanes high(Lanes a) { return hn::ShiftRight<32>(a); }

// Counter words: the block number and the stream; key: the seed. All as whole 64-bit numbers.
HWY_INLINE Block mix(Lanes number, Lanes stream, Lanes seed) {
  Block b{number, high(number), stream, high(stream)};
  const Lanes multiply0 = one_for_all(Philox::kMultiply0), multiply1 = one_for_all(Philox::kMultiply1);
  const Lanes bump0 = one_for_all(Philox::kBump0), bump1 = one_for_all(Philox::kBump1);
  Lanes key0 = seed, key1 = high(seed);
  for (int round = 0; round < Philox::kRounds; ++round) {
    const Lanes p = multiply(b.word0, multiply0), q = multiply(b.word2, multiply1);
    b = {hn::Xor(high(q), hn::Xor(b.word1, key0)), q, hn::Xor(high(p), hn::Xor(b.word3, key1)), p};
    key0 = hn::Add(key0, bump0), key1 = hn::Add(key1, bump1);
  }
  return b;
}

HWY_INLINE Lanes pair(Lanes first, Lanes second) {
  return hn::Or(hn::And(first, one_for_all(0xFFFFFFFF)), hn::ShiftLeft<32>(second));
}

// Whether indices follow each other from here on, for all words of a vector of blocks.
HWY_INLINE bool is_run(const std::uint64_t* index) {
  const std::size_t lanes = hn::Lanes(d64);
  Lanes expected = hn::Iota(d64, 0);
  expected = hn::Add(expected, one_for_all(index[0]));
  Lanes differs = hn::Zero(d64);
  for (int i = 0; i < 4; ++i) {
    differs = hn::Or(differs, hn::Xor(hn::LoadU(d64, index + static_cast<std::size_t>(i) * lanes), expected));
    expected = hn::Add(expected, one_for_all(lanes));
  }
  return hn::AllTrue(d64, hn::Eq(differs, hn::Zero(d64)));
}

// Each of `count` elements from a block of its own.
HWY_INLINE void one_by_one(Lanes places, Lanes streams, Lanes seeds, std::uint32_t* out, std::size_t count) {
  constexpr std::size_t kMost = hn::MaxLanes(d64);
  HWY_ALIGN std::uint64_t words[4 * kMost], at[kMost];
  const Block b = mix(hn::ShiftRight<2>(places), streams, seeds);
  hn::Store(places, d64, at);
  hn::Store(b.word0, d64, words);
  hn::Store(b.word1, d64, words + kMost);
  hn::Store(b.word2, d64, words + 2 * kMost);
  hn::Store(b.word3, d64, words + 3 * kMost);
  for (std::size_t k = 0; k < count; ++k) out[k] = static_cast<std::uint32_t>(words[(at[k] & 3) * kMost + k]);
}

// kScalarArgs: bit k says that argument k (index, stream, seed) is one element for the whole tile.
template <unsigned kScalarArgs>
void routine(const Instruction& self, char* const* slots, const TileShape& shape) {
  constexpr bool kOneIndex = kScalarArgs & 1, kOneStream = kScalarArgs & 2, kOneSeed = kScalarArgs & 4;
  const std::size_t lanes = hn::Lanes(d64), n = static_cast<std::size_t>(element_count(self, shape));
  auto* out = reinterpret_cast<std::uint32_t*>(slots[self.out]);
  const auto* index = reinterpret_cast<const std::uint64_t*>(slots[self.a]);
  const auto* stream = reinterpret_cast<const std::uint64_t*>(slots[self.b]);
  const auto* seed = reinterpret_cast<const std::uint64_t*>(slots[self.c]);
  const Lanes one_index = one_for_all(index[0]), one_stream = one_for_all(stream[0]), one_seed = one_for_all(seed[0]);
  for (std::size_t i = 0; i < n;) {
    std::size_t count = std::min(lanes, n - i);
    if constexpr (kOneStream && kOneSeed && !kOneIndex) {
      const std::uint64_t word = index[i] & 3;
      if (word == 0 && i + 4 * lanes <= n && is_run(index + i)) {
        const Lanes number = hn::Add(one_for_all(index[i] >> 2), hn::Iota(d64, 0));
        const Block b = mix(number, one_stream, one_seed);
        const Lanes low = pair(b.word0, b.word1), high = pair(b.word2, b.word3);
        hn::StoreInterleaved2(low, high, d64, reinterpret_cast<std::uint64_t*>(out + i));
        i += 4 * lanes;
        continue;
      }
      // Within a run it goes only up to where its next block starts.
      if (count > 1 && word != 0 && index[i + 1] == index[i] + 1) count = std::min<std::size_t>(count, 4 - word);
    }
    one_by_one(kOneIndex ? one_index : load_first(d64, index + i, count),
               kOneStream ? one_stream : load_first(d64, stream + i, count),
               kOneSeed ? one_seed : load_first(d64, seed + i, count), out + i, count);
    i += count;
  }
}

TileRoutine find(unsigned scalar_args) {
  constexpr TileRoutine kRoutines[] = {routine<0>, routine<1>, routine<2>, routine<3>,
                                       routine<4>, routine<5>, routine<6>, routine<7>};
  return kRoutines[scalar_args];
}

}  // namespace HWY_NAMESPACE
}  // namespace paoding
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace paoding {

HWY_EXPORT(find);

TileRoutine find_random_routine(unsigned scalar_args) { return HWY_DYNAMIC_DISPATCH(find)(scalar_args); }

}  // namespace paoding
#endif
