// SPDX-License-Identifier: Apache-2.0
// ---- Scalar functions of the primitives ----

template <class T> PD_DEVICE T pd_abs(T a) { return a < T(0) ? -a : a; }
template <> PD_DEVICE float pd_abs(float a) { return fabsf(a); }
template <> PD_DEVICE double pd_abs(double a) { return fabs(a); }
// NaN if either is: a NaN first argument fails the comparison's complement, a NaN second one fails b == b.
template <class T> PD_DEVICE T pd_min(T a, T b) { return !(b < a) && b == b ? a : b; }
template <class T> PD_DEVICE T pd_max(T a, T b) { return !(a < b) && b == b ? a : b; }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <> PD_DEVICE float pd_min(float a, float b) {
  float least;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
  return least;
}
template <> PD_DEVICE float pd_max(float a, float b) {
  float greatest;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(greatest) : "f"(a), "f"(b));
  return greatest;
}
#endif
// e^a where a was stored in 16 bits, which leaves |a| / 512 of it uncertain, a thousand times the error made here: 2 +
// 1.2 |a| units of the last place, and results below 2^-126. A quarter of the instructions of expf.
PD_DEVICE float exp_of_16_bits(float a) {
#ifdef PD_EMULATE
  return expf(a);
#else
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(a * 1.442695041f));
  return power;
#endif
}
// A divisor of many values. Its reciprocal is computed once, for a divisor that is neither too small nor too large for
// it; quotients differ from exact ones by at most 1.5 units of the last place.
struct FloatDivisor {
  float number, share, scale;
  PD_DEVICE void find_share() {
    scale = fabsf(number) < 0x1p-100f ? 0x1p64f : fabsf(number) > 0x1p100f ? 0x1p-64f : 1.0f;
    share = 1.0f / (number * scale);
  }
};
PD_DEVICE float divide(float a, const FloatDivisor& by) { return a * by.share * by.scale; }
PD_DEVICE bool equals_number(int a, long long b) { return a == (int)b && (long long)(int)b == b; }
PD_DEVICE float pd_tanh(float a) { return tanhf(a); }
PD_DEVICE double pd_tanh(double a) { return tanh(a); }
// expf overflows to infinity below -88, which gives 0, as it should.
PD_DEVICE float pd_sigmoid(float a) { return __fdividef(1.0f, 1.0f + expf(-a)); }
PD_DEVICE double pd_sigmoid(double a) { return 1.0 / (1.0 + exp(-a)); }

// Integers modulo 0 give 0; -1 is treated apart since the hardware's division would overflow for the least integer.
template <class T> PD_DEVICE T pd_remainder(T a, T b) {
  if (b == 0 || b == T(-1)) return 0;
  const T rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
template <class T> PD_DEVICE T pd_floor_divide(T a, T b) {
  if (b == 0) return 0;
  if (b == T(-1)) return (T)(0ull - (unsigned long long)a);
  const T quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}
template <class T> PD_DEVICE bool pd_is_infinite(T a) { return a == a && a - a != a - a; }
template <class T> PD_DEVICE T pd_with_sign_of(T rest, T a, T b) {
  if (pd_is_infinite(b) && a - a == a - a) return a == 0 || (a < 0) == (b < 0) ? a : b;
  if (rest == 0) return b < 0 ? T(-0.0) : T(0);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}
template <> PD_DEVICE float pd_remainder(float a, float b) { return pd_with_sign_of(fmodf(a, b), a, b); }
template <> PD_DEVICE double pd_remainder(double a, double b) { return pd_with_sign_of(fmod(a, b), a, b); }
template <> PD_DEVICE float pd_floor_divide(float a, float b) {
  if (b == 0 || pd_is_infinite(a) || pd_is_infinite(b)) return floorf(a / b);
  return rintf((a - pd_remainder(a, b)) / b);
}
template <> PD_DEVICE double pd_floor_divide(double a, double b) {
  if (b == 0 || pd_is_infinite(a) || pd_is_infinite(b)) return floor(a / b);
  return rint((a - pd_remainder(a, b)) / b);
}

// Philox4x32-10, as in scalar/philox.h: the block with counter (index div 4, stream), key seed.
PD_DEVICE void pd_random_block(unsigned (&word)[4], long long index, long long stream, long long seed) {
  const unsigned long long block = (unsigned long long)index >> 2;
  unsigned c0 = (unsigned)block, c1 = (unsigned)(block >> 32), c2 = (unsigned)stream;
  unsigned c3 = (unsigned)((unsigned long long)stream >> 32);
  unsigned k0 = (unsigned)seed, k1 = (unsigned)((unsigned long long)seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned high0 = __umulhi(0xD2511F53u, c0), high2 = __umulhi(0xCD9E8D57u, c2);
    const unsigned low0 = 0xD2511F53u * c0, low2 = 0xCD9E8D57u * c2;
    c0 = high2 ^ c1 ^ k0, c1 = low2, c2 = high0 ^ c3 ^ k1, c3 = low0;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  word[0] = c0, word[1] = c1, word[2] = c2, word[3] = c3;
}
// Word (index mod 4) of it.
PD_DEVICE int pd_random_bits(long long index, long long stream, long long seed) {
  unsigned word[4];
  pd_random_block(word, index, stream, seed);
  const unsigned low = index & 1 ? word[1] : word[0], high = index & 1 ? word[3] : word[2];
  return (int)(index & 2 ? high : low);
}

// ---- Coordinates: division by a number known at launch, as a multiplication ----

// For 0 <= n < 2^31: n / count == (high word of n * magic, plus n) >> shift.
struct Divisor {
  long long count;
  unsigned magic, shift;
};

PD_DEVICE int divide(int n, const Divisor& by) { return (int)((__umulhi((unsigned)n, by.magic) + (unsigned)n) >> by.shift); }
PD_DEVICE long long divide(long long n, const Divisor& by) {
  if ((n >> 31) == 0 && (by.count >> 31) == 0) return divide((int)n, by);
  return n / by.count;
}
// Takes the fastest coordinate off a linear index.
template <class Index> PD_DEVICE Index next_coordinate(Index& rest, const Divisor& extent) {
  const Index quotient = divide(rest, extent);
  const Index coordinate = rest - quotient * (Index)extent.count;
  rest = quotient;
  return coordinate;
}
