// SPDX-License-Identifier: Apache-2.0
// Products of exact f32, on the tensor cores: each factor as two of TF32, three products, which leaves out
// 2^-21 of each.

// Returns the factor rounded to the nearest TF32; `value` becomes the remainder, of which the tensor cores take 11
// bits. A non-finite factor leaves a NaN, which comes out of the sum.
PD_DEVICE float take_high(float& value) {
  const float high = __uint_as_float((__float_as_uint(value) + 0x1000u) & ~0x1fffu);
  value -= high;
  return high;
}
