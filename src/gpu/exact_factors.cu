// SPDX-License-Identifier: Apache-2.0
// Products of exact f32, on the tensor cores: each factor as two of TF32, three products, which leaves out
// 2^-21 of each.

// The factor to the nearest of TF32; `value` becomes what is left of it, of which the tensor cores take 11 bits. What
// is non-finite leaves a NaN, which comes out of the sum.
PD_DEVICE float take_high(float& value) {
  const float high = __uint_as_float((__float_as_uint(value) + 0x1000u) & ~0x1fffu);
  value -= high;
  return high;
}
