// SPDX-License-Identifier: Apache-2.0
// Dropout of attention's weights: the weight of query t and key s of the h-th head takes random number
// first + (h queries + t) keys + s, as random_uniform() of the composition, so a gradient draws the same again. Lanes of a
// warp work out a bit for each weight of their tile, four from a block of Philox, and exchange them by shuffles: a thread
// of sums has scores of every fourth pair of columns and of every eighth row. Stands after attention_tiles.cu and kScores.

struct Drops {
  long long first, stream, seed;
};
PD_DEVICE Drops drops_of(const long long* first, const long long* run, const long long* seed, const Sizes& size) {
  return {first[0], run[0] + size.stream_wide, seed[0]};
}
PD_DEVICE float kept_factor(const Sizes& size) { return kHasDropout ? __uint_as_float((unsigned)size.kept_factor) : 1.0f; }

// A bit for each of up to 32 weights that stand side by side: 1 for those that dropout leaves.
PD_DEVICE unsigned kept_bits(long long index, int count, const Drops& drops, const Sizes& size) {
  const int shift = (int)(index & 3);
  unsigned long long bits = 0;
#pragma unroll 2
  for (int at = 0; at < count + shift; at += 4) {
    unsigned word[4];
    pd_random_block(word, index - shift + at, drops.stream, drops.seed);
    unsigned four = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) four |= (word[i] ^ 0x80000000u) >> 8 >= (unsigned)size.dropped ? 1u << i : 0u;
    bits |= (unsigned long long)four << at;
  }
  return (unsigned)(bits >> shift);
}

// The bits of a warp's scores with 16 queries as rows, from `query` on, and keys as columns, from `key` on.
struct KeptKeys {
  unsigned word[2][kScores / 16];  // of a thread's two rows, 32 columns each, from its own first one on

  PD_DEVICE void draw(int head, int query, int key, const Drops& drops, const Sizes& size) {
    constexpr int kWords = kScores / 16, kOwn = kWords / 2;  // of a row; of a lane
    const int lane = threadIdx.x % 32;
    unsigned own[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int at = lane % 4 + i * 4, row = query + lane / 4 + at / kWords * 8, column = key + at % kWords * 32;
      const long long index = drops.first + ((long long)head * size.queries + row) * size.keys + column;
      own[i] = row < size.queries ? kept_bits(index, least(32, size.keys - column), drops, size) : 0;
    }
#pragma unroll
    for (int i = 0; i < 2 * kWords; ++i) {
      const unsigned all = __shfl_sync(~0u, own[i / 4], (lane & ~3) | i % 4);
      word[i / kWords][i % kWords] = all >> lane % 4 * 2;
    }
  }
  PD_DEVICE bool has(int score) const {
    const int column = score / 4 * 8 + score % 2;
    return (word[score / 2 % 2][column / 32] >> column % 32 & 1) != 0;
  }
};

// The same with 16 keys as rows and queries as columns.
struct KeptQueries {
  unsigned word[kScores / 32];  // two bits for each column, of a thread's two rows

  PD_DEVICE void draw(int head, int key, int query, const Drops& drops, const Sizes& size) {
    constexpr int kOwn = kScores / 32;  // words of a lane, of two columns each, eight columns of its own apart
    const int lane = threadIdx.x % 32;
    unsigned own[kOwn];
#pragma unroll
    for (int i = 0; i < 2 * kOwn; ++i) {
      const int at = lane / 4 + i * 8, column = query + at / 2 * 8 + lane % 4 * 2 + at % 2;
      const long long index = drops.first + ((long long)head * size.queries + column) * size.keys + key;
      const int count = column < size.queries ? least(16, size.keys - key) : 0;
      const unsigned bits = kept_bits(index, count, drops, size) & 0xffffu;
      own[i / 2] = i % 2 == 0 ? bits : own[i / 2] | bits << 16;
    }
#pragma unroll
    for (int at = 0; at < 16 * kOwn; ++at) {
      const unsigned all = __shfl_sync(~0u, own[at / 16], at % 8 * 4 + lane % 4) >> (at / 8 % 2 * 16 + lane / 4);
      const unsigned both = (all & 1) | (all >> 7 & 2);
      word[at / 16] = at % 16 == 0 ? both : word[at / 16] | both << at % 16 * 2;
    }
  }
  PD_DEVICE bool has(int score) const {
    const int column = score / 4 * 2 + score % 2;  // of the thread's own
    return (word[column / 16] >> (column % 16 * 2 + score / 2 % 2) & 1) != 0;
  }
};

// Without dropout nothing is drawn, and all is kept.
struct AllKept {
  PD_DEVICE void draw(int, int, int, const Drops&, const Sizes&) {}
  PD_DEVICE bool has(int) const { return true; }
};
template <bool kIs, class Yes, class No> struct OneOf {
  using Type = Yes;
};
template <class Yes, class No> struct OneOf<false, Yes, No> {
  using Type = No;
};
using KeysLeft = OneOf<kHasDropout, KeptKeys, AllKept>::Type;
using QueriesLeft = OneOf<kHasDropout, KeptQueries, AllKept>::Type;

// Rounded weights that dropout takes become zeros; the others are too small by the factor of those that are kept.
template <class Kept> PD_DEVICE void drop_words(unsigned (&words)[kScores / 8][4], const Kept& kept) {
  if constexpr (kHasDropout) {
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) {
      const unsigned low = kept.has(2 * i) ? 0xffffu : 0u, high = kept.has(2 * i + 1) ? 0xffff0000u : 0u;
      words[i / 4][i % 4] &= low | high;
    }
  }
}
// The gradients for weights before dropout, of those after it.
template <class Kept> PD_DEVICE void drop_grads(float (&grad)[kScores], const Kept& kept, const Sizes& size) {
  if constexpr (kHasDropout) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) grad[i] = kept.has(i) ? grad[i] * kept_factor(size) : 0;
  }
}
