// SPDX-License-Identifier: Apache-2.0
// The activations of gates: exact ones where nothing else rounds (kIsExact), fast ones elsewhere.

#ifdef PD_EMULATE
PD_DEVICE float fast_tanh(float a) { return tanhf(a); }
PD_DEVICE float fast_exp2(float a) { return exp2f(a); }
PD_DEVICE float fast_reciprocal(float a) { return 1.0f / a; }
PD_DEVICE float if_below(float a, float limit, float below, float otherwise) { return a < limit ? below : otherwise; }
#else
// For normal values, to 2 units in the last place.
PD_DEVICE float fast_exp2(float a) {
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(a));
  return value;
}
PD_DEVICE float fast_reciprocal(float a) {
  float value;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(a));
  return value;
}
// Chooses between values that are both there, without a branch.
PD_DEVICE float if_below(float a, float limit, float below, float otherwise) {
  float value;
  asm("{\n.reg .pred p;\nsetp.lt.f32 p, %1, %2;\nselp.f32 %0, %3, %4, p;\n}"
      : "=f"(value) : "f"(a), "f"(limit), "f"(below), "f"(otherwise));
  return value;
}
// Differs from tanh by at most 1.1e-5 of it, a fiftieth of the error by TF32.
PD_DEVICE float fast_tanh(float a) {
  float value;
  asm("tanh.approx.f32 %0, %1;" : "=f"(value) : "f"(a));
  return value;
}
#endif

// Where nothing else rounds: they differ by at most 3e-7 from the true values, and tanh by as little of it. Without
// branches, so that a cell's gates are made side by side.
PD_DEVICE float exact_sigmoid(float a) { return fast_reciprocal(1.0f + fast_exp2(-1.44269504f * a)); }
// tanh, of 2 / (1 + e^-2a) - 1 or, of small ones, by the first terms of a series.
PD_DEVICE float tanh_of(float a, float sigmoid_of_twice) {
  const float square = a * a;
  float rest = 1.573379e-2f;
  rest = rest * square - 5.231339e-2f, rest = rest * square + 1.331529e-1f, rest = rest * square - 3.333313e-1f;
  return if_below(fabsf(a), 0.55f, a + a * square * rest, 2.0f * sigmoid_of_twice - 1.0f);
}
PD_DEVICE float exact_tanh(float a) { return tanh_of(a, exact_sigmoid(2.0f * a)); }
// One or the other, by one exponential.
PD_DEVICE float exact_sigmoid_or_tanh(float a, bool is_tanh) {
  const float sigmoid = exact_sigmoid(is_tanh ? 2.0f * a : a), tangent = tanh_of(a, sigmoid);
  return is_tanh ? tangent : sigmoid;
}
PD_DEVICE float cell_sigmoid_or_tanh(float a, bool is_tanh) {
  if constexpr (kIsExact) return exact_sigmoid_or_tanh(a, is_tanh);
  const float tangent = fast_tanh(is_tanh ? a : 0.5f * a);
  return is_tanh ? tangent : 0.5f + 0.5f * tangent;
}
PD_DEVICE float cell_tanh(float a) { return kIsExact ? exact_tanh(a) : fast_tanh(a); }
PD_DEVICE float cell_sigmoid(float a) { return kIsExact ? exact_sigmoid(a) : 0.5f + 0.5f * fast_tanh(0.5f * a); }
