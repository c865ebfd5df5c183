// SPDX-License-Identifier: Apache-2.0
// The functions for AArch64, all of whose processors have these vectors.
#include "cpu/sleef_vectors.h"

#ifdef __aarch64__
#include <sleef.h>

#define PD_UNARY(name, bound32, bound64)                                                                       \
  void name(const float* a, float* out) { vst1q_f32(out, Sleef_##name##f4_##bound32##advsimd(vld1q_f32(a))); } \
  void name(const double* a, double* out) { vst1q_f64(out, Sleef_##name##d2_##bound64##advsimd(vld1q_f64(a))); }
#define PD_BINARY(name, bound32, bound64)                                            \
  void name(const float* a, const float* b, float* out) {                            \
    vst1q_f32(out, Sleef_##name##f4_##bound32##advsimd(vld1q_f32(a), vld1q_f32(b))); \
  }                                                                                  \
  void name(const double* a, const double* b, double* out) {                         \
    vst1q_f64(out, Sleef_##name##d2_##bound64##advsimd(vld1q_f64(a), vld1q_f64(b))); \
  }

namespace paoding::sleef_neon {

PD_SLEEF_FUNCTIONS(PD_UNARY, PD_BINARY)

}  // namespace paoding::sleef_neon
#endif
