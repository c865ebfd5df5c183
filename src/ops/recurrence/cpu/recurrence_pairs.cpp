// SPDX-License-Identifier: Apache-2.0
// Products of pairs of bf16, added up in f32, by AVX512-BF16: an instruction set of its own, of which the library of
// vectors knows nothing yet.
#include "base/check.h"
#include "ops/recurrence/recurrence_work.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#define PD_PAIRS __attribute__((target("avx512f,avx512bw,avx512bf16")))
#endif

namespace paoding {

#if defined(__x86_64__)
namespace {

template <int kRows, int kParts>
PD_PAIRS void multiply_rows(const std::uint16_t* a, std::int64_t stride, std::int64_t pairs, const std::uint16_t* panel,
                            float* tile) {
  __m512 sums[kRows][kParts];
  for (auto& row : sums) {
    for (__m512& sum : row) sum = _mm512_setzero_ps();
  }
  for (std::int64_t i = 0; i < pairs; ++i, panel += kParts * 2 * kUnitBlock) {
    __m512i factors[kParts];
    for (int v = 0; v < kParts; ++v) factors[v] = _mm512_loadu_si512(panel + v * 2 * kUnitBlock);
    for (int r = 0; r < kRows; ++r) {
      std::int32_t pair;
      std::memcpy(&pair, a + r * stride + 2 * i, sizeof(pair));
      __m512i both = _mm512_set1_epi32(pair);
#if defined(__clang__) && __clang_major__ < 17
      asm("" : "+v"(both));  // clang 16 crashes where it sees through the cast to bf16
#endif
      for (int v = 0; v < kParts; ++v) {
        sums[r][v] = _mm512_dpbf16_ps(sums[r][v], (__m512bh)both, (__m512bh)factors[v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kParts; ++v) _mm512_storeu_ps(tile + (r * kParts + v) * kUnitBlock, sums[r][v]);
  }
}

template <int kParts>
PD_PAIRS void multiply_parts(std::int64_t rows, const std::uint16_t* a, std::int64_t stride, std::int64_t pairs,
                             const std::uint16_t* panel, float* tile) {
  switch (rows) {
    case 1: return multiply_rows<1, kParts>(a, stride, pairs, panel, tile);
    case 2: return multiply_rows<2, kParts>(a, stride, pairs, panel, tile);
    case 3: return multiply_rows<3, kParts>(a, stride, pairs, panel, tile);
    case 4: return multiply_rows<4, kParts>(a, stride, pairs, panel, tile);
    case 5: return multiply_rows<5, kParts>(a, stride, pairs, panel, tile);
    case 6: return multiply_rows<6, kParts>(a, stride, pairs, panel, tile);
    case 7: return multiply_rows<7, kParts>(a, stride, pairs, panel, tile);
    default: return multiply_rows<8, kParts>(a, stride, pairs, panel, tile);
  }
}

}  // namespace

bool multiplies_pairs() { return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw"); }

void multiply_pairs(std::int64_t rows, std::int64_t parts, const std::uint16_t* a, std::int64_t stride,
                    std::int64_t pairs, const std::uint16_t* panel, float* tile) {
  switch (parts) {
    case 1: return multiply_parts<1>(rows, a, stride, pairs, panel, tile);
    case 2: return multiply_parts<2>(rows, a, stride, pairs, panel, tile);
    case 3: return multiply_parts<3>(rows, a, stride, pairs, panel, tile);
    default: return multiply_parts<4>(rows, a, stride, pairs, panel, tile);
  }
}

#else

bool multiplies_pairs() { return false; }

void multiply_pairs(std::int64_t, std::int64_t, const std::uint16_t*, std::int64_t, std::int64_t, const std::uint16_t*,
                    float*) {
  PD_ASSERT(false, "no CPU but x86 multiplies pairs of bf16 here");
}

#endif

}  // namespace paoding
