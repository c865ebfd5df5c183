// SPDX-License-Identifier: Apache-2.0
// SLEEF's vector functions (Shibata, Petrogalli: "SLEEF: A portable vectorized library of C standard mathematical
// functions", 2020), each for one vector from memory to memory: out = f(a) or f(a, b), aligned to the vector's size.
// Not by value: clang passes a vector wider than the *file* may use on the stack, also where a pragma allows the
// function wider ones, and SLEEF takes it from a register. So each instruction set has a file that is compiled for it
// as a whole.
#pragma once

// name, bound of the error for f32, for f64 (u10: 1.0 ulp; none: exact).
#define PD_SLEEF_FUNCTIONS(UNARY, BINARY) \
  UNARY(expm1, u10, u10)                  \
  UNARY(log1p, u10, u10)                  \
  UNARY(log2, u10, u10)                   \
  UNARY(log10, u10, u10)                  \
  UNARY(sin, u35, u10)                    \
  UNARY(cos, u35, u10)                    \
  UNARY(tan, u35, u10)                    \
  UNARY(erf, u10, u10)                    \
  UNARY(erfc, u15, u15)                   \
  UNARY(asin, u10, u10)                   \
  UNARY(acos, u10, u10)                   \
  UNARY(atan, u10, u10)                   \
  UNARY(sinh, u10, u10)                   \
  UNARY(cosh, u10, u10)                   \
  UNARY(asinh, u10, u10)                  \
  UNARY(acosh, u10, u10)                  \
  UNARY(atanh, u10, u10)                  \
  BINARY(atan2, u10, u10)                 \
  BINARY(pow, u10, u10)                   \
  BINARY(fmod, , )

namespace paoding {

#define PD_DECLARE_UNARY(name, bound32, bound64) \
  void name(const float* a, float* out);         \
  void name(const double* a, double* out);
#define PD_DECLARE_BINARY(name, bound32, bound64)        \
  void name(const float* a, const float* b, float* out); \
  void name(const double* a, const double* b, double* out);

namespace sleef_avx2 {
PD_SLEEF_FUNCTIONS(PD_DECLARE_UNARY, PD_DECLARE_BINARY)
}
namespace sleef_avx512 {
PD_SLEEF_FUNCTIONS(PD_DECLARE_UNARY, PD_DECLARE_BINARY)
}
namespace sleef_neon {
PD_SLEEF_FUNCTIONS(PD_DECLARE_UNARY, PD_DECLARE_BINARY)
}

#undef PD_DECLARE_UNARY
#undef PD_DECLARE_BINARY

}  // namespace paoding
