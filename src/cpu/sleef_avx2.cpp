// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX2 as a whole (CMakeLists.txt): no inline function of another header may come in, which the linker
// could take for those of files that run everywhere.
#include "cpu/sleef_vectors.h"

#ifdef __AVX2__
#include <sleef.h>

#define PD_UNARY(name, bound32, bound64)                                                                               \
  void name(const float* a, float* out) { _mm256_store_ps(out, Sleef_##name##f8_##bound32##avx2(_mm256_load_ps(a))); } \
  void name(const double* a, double* out) { _mm256_store_pd(out, Sleef_##name##d4_##bound64##avx2(_mm256_load_pd(a))); }
#define PD_BINARY(name, bound32, bound64)                                                         \
  void name(const float* a, const float* b, float* out) {                                         \
    _mm256_store_ps(out, Sleef_##name##f8_##bound32##avx2(_mm256_load_ps(a), _mm256_load_ps(b))); \
  }                                                                                               \
  void name(const double* a, const double* b, double* out) {                                      \
    _mm256_store_pd(out, Sleef_##name##d4_##bound64##avx2(_mm256_load_pd(a), _mm256_load_pd(b))); \
  }

namespace paoding::sleef_avx2 {

PD_SLEEF_FUNCTIONS(PD_UNARY, PD_BINARY)

}  // namespace paoding::sleef_avx2
#endif
