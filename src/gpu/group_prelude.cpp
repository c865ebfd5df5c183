// SPDX-License-Identifier: Apache-2.0
#include "gpu/group_prelude.h"

#include <string>

namespace paoding::gpu {
namespace {

constexpr std::string_view kElements = R"cuda(
#define PD_DEVICE __device__ __forceinline__

// ---- Element types: how an element is stored, and the type that arithmetic on it is done in ----

struct F16 { unsigned short bits; };
struct BF16 { unsigned short bits; };
struct Bool { unsigned char bits; };

template <class A, class B> inline constexpr bool kSame = false;
template <class A> inline constexpr bool kSame<A, A> = true;

template <class T> struct ComputeOf { using Type = T; };
template <> struct ComputeOf<F16> { using Type = float; };
template <> struct ComputeOf<BF16> { using Type = float; };
template <> struct ComputeOf<unsigned char> { using Type = int; };
template <> struct ComputeOf<Bool> { using Type = bool; };
template <class T> using Compute = typename ComputeOf<T>::Type;

#ifdef PD_EMULATE
PD_DEVICE float half_to_float(unsigned short bits) { return paoding::f16_to_float(bits); }
PD_DEVICE unsigned short float_to_half(float value) { return paoding::float_to_f16(value); }
PD_DEVICE unsigned short float_to_bfloat(float value) { return paoding::float_to_bf16(value); }
#else
PD_DEVICE float half_to_float(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
PD_DEVICE unsigned short float_to_half(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
PD_DEVICE unsigned short float_to_bfloat(float value) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#endif

// The bits that T stores for a computed value, in the low bytes of a word (the low word first for 8 bytes).
template <class T, class Value> PD_DEVICE unsigned long long stored_bits(Value value) {
  if constexpr (kSame<T, double>) return (unsigned long long)__double_as_longlong((double)value);
  else if constexpr (kSame<T, float>) return __float_as_uint((float)value);
  else if constexpr (kSame<T, F16>) return float_to_half((float)value);
  else if constexpr (kSame<T, BF16>) return float_to_bfloat((float)value);
  else if constexpr (kSame<T, long long>) return (unsigned long long)(long long)value;
  else if constexpr (kSame<T, int>) return (unsigned)(int)value;
  else if constexpr (kSame<T, unsigned char>) return (unsigned char)(int)value;
  else return value != Value(0) ? 1u : 0u;
}

template <class T> PD_DEVICE Compute<T> value_of(unsigned long long bits) {
  if constexpr (kSame<T, double>) return __longlong_as_double((long long)bits);
  else if constexpr (kSame<T, float>) return __uint_as_float((unsigned)bits);
  else if constexpr (kSame<T, F16>) return half_to_float((unsigned short)bits);
  else if constexpr (kSame<T, BF16>) return __uint_as_float((unsigned)bits << 16);
  else if constexpr (kSame<T, long long>) return (long long)bits;
  else if constexpr (kSame<T, int>) return (int)(unsigned)bits;
  else if constexpr (kSame<T, unsigned char>) return (int)(unsigned char)bits;
  else return (unsigned char)bits != 0;
}

// The cast primitive: rounds to T and widens back to the type arithmetic is done in.
template <class T, class Value> PD_DEVICE Compute<T> convert_to(Value value) { return value_of<T>(stored_bits<T>(value)); }

// ---- Vectors: kCount elements of T as 32-bit words, moved in pieces of up to 16 bytes ----

template <class T, int kCount> struct Pack {
  static constexpr int kBytes = kCount * (int)sizeof(T);
  unsigned word[(kBytes + 3) / 4];

  PD_DEVICE Compute<T> get(int i) const {
    if constexpr (sizeof(T) == 8) return value_of<T>(word[2 * i] | (unsigned long long)word[2 * i + 1] << 32);
    else if constexpr (sizeof(T) == 4) return value_of<T>(word[i]);
    else if constexpr (sizeof(T) == 2) return value_of<T>((word[i / 2] >> (16 * (i % 2))) & 0xffffu);
    else return value_of<T>((word[i / 4] >> (8 * (i % 4))) & 0xffu);
  }
  // Elements are put in order: the first one of a word clears the rest of it.
  template <class Value> PD_DEVICE void put(int i, Value value) {
    const unsigned long long bits = stored_bits<T>(value);
    if constexpr (sizeof(T) == 8) word[2 * i] = (unsigned)bits, word[2 * i + 1] = (unsigned)(bits >> 32);
    else if constexpr (sizeof(T) == 4) word[i] = (unsigned)bits;
    else {
      constexpr int kInWord = 4 / (int)sizeof(T);
      const unsigned placed = (unsigned)bits << (8 * (int)sizeof(T) * (i % kInWord));
      word[i / kInWord] = i % kInWord == 0 ? placed : word[i / kInWord] | placed;
    }
  }
};

// kOnce: nothing writes this memory while the kernel runs, so the read-only path may serve it.
template <bool kOnce, class Piece> PD_DEVICE Piece read(const void* address) {
  if constexpr (kOnce) return __ldg((const Piece*)address);
  else return *(const Piece*)address;
}

template <bool kOnce, class T, int kCount> PD_DEVICE void load(Pack<T, kCount>& pack, const T* from) {
  constexpr int kBytes = Pack<T, kCount>::kBytes;
  if constexpr (kBytes % 16 == 0) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      const uint4 piece = read<kOnce, uint4>((const uint4*)from + i);
      pack.word[4 * i] = piece.x, pack.word[4 * i + 1] = piece.y;
      pack.word[4 * i + 2] = piece.z, pack.word[4 * i + 3] = piece.w;
    }
  } else if constexpr (kBytes == 8) {
    const uint2 piece = read<kOnce, uint2>(from);
    pack.word[0] = piece.x, pack.word[1] = piece.y;
  } else if constexpr (kBytes == 4) pack.word[0] = read<kOnce, unsigned>(from);
  else if constexpr (kBytes == 2) pack.word[0] = read<kOnce, unsigned short>(from);
  else pack.word[0] = read<kOnce, unsigned char>(from);
}

template <class T, int kCount> PD_DEVICE void store(T* to, const Pack<T, kCount>& pack) {
  constexpr int kBytes = Pack<T, kCount>::kBytes;
  if constexpr (kBytes % 16 == 0) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      ((uint4*)to)[i] =
          make_uint4(pack.word[4 * i], pack.word[4 * i + 1], pack.word[4 * i + 2], pack.word[4 * i + 3]);
    }
  } else if constexpr (kBytes == 8) *(uint2*)to = make_uint2(pack.word[0], pack.word[1]);
  else if constexpr (kBytes == 4) *(unsigned*)to = pack.word[0];
  else if constexpr (kBytes == 2) *(unsigned short*)to = (unsigned short)pack.word[0];
  else *(unsigned char*)to = (unsigned char)pack.word[0];
}

template <bool kOnce, class T> PD_DEVICE Compute<T> load_one(const T* from) {
  Pack<T, 1> pack;
  load<kOnce>(pack, from);
  return pack.get(0);
}

// The first `count` elements one by one, `step` apart: strided, misaligned or ragged operands.
template <bool kOnce, class T, int kCount, class Index>
PD_DEVICE void load_each(Pack<T, kCount>& pack, const T* from, Index step, int count) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) pack.put(i, i < count ? load_one<kOnce>(from + i * step) : Compute<T>(0));
}

template <class T, int kCount, class Index>
PD_DEVICE void store_each(T* to, Index step, int count, const Pack<T, kCount>& pack) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i < count) {
      Pack<T, 1> one;
      one.put(0, pack.get(i));
      store(to + i * step, one);
    }
  }
}

template <bool kAccumulate, class T, class Value> PD_DEVICE void store_sum(T* to, Value value) {
  Pack<T, 1> pack;
  if constexpr (kAccumulate) pack.put(0, (Value)load_one<false>(to) + value);
  else pack.put(0, value);
  store(to, pack);
}
)cuda";

constexpr std::string_view kScalars = R"cuda(
// ---- Scalar functions of the primitives ----

template <class T> PD_DEVICE T pd_abs(T a) { return a < T(0) ? -a : a; }
template <> PD_DEVICE float pd_abs(float a) { return fabsf(a); }
template <> PD_DEVICE double pd_abs(double a) { return fabs(a); }
// NaN if either is: a NaN first argument fails the comparison's complement, a NaN second one fails b == b.
template <class T> PD_DEVICE T pd_min(T a, T b) { return !(b < a) && b == b ? a : b; }
template <class T> PD_DEVICE T pd_max(T a, T b) { return !(a < b) && b == b ? a : b; }
PD_DEVICE float pd_tanh(float a) { return tanhf(a); }
PD_DEVICE double pd_tanh(double a) { return tanh(a); }
// expf overflows to infinity below -88, which gives 0, as it should.
PD_DEVICE float pd_sigmoid(float a) { return __fdividef(1.0f, 1.0f + expf(-a)); }
PD_DEVICE double pd_sigmoid(double a) { return 1.0 / (1.0 + exp(-a)); }

// The quotient rounded down, the remainder with b's sign; of integers by 0 both are 0. The least integer by -1 wraps.
template <class T> PD_DEVICE T pd_floor_divide(T a, T b) {
  if (b == 0) return 0;
  if (b == -1) return (T)(0 - (unsigned long long)a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
template <class T> PD_DEVICE T pd_remainder(T a, T b) {
  if (b == 0 || b == -1) return 0;
  const T rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
template <> PD_DEVICE float pd_remainder(float a, float b) {
  const float rest = fmodf(a, b);
  if (rest == 0.0f) return copysignf(0.0f, b);
  return (rest < 0.0f) != (b < 0.0f) ? rest + b : rest;
}
template <> PD_DEVICE double pd_remainder(double a, double b) {
  const double rest = fmod(a, b);
  if (rest == 0.0) return copysign(0.0, b);
  return (rest < 0.0) != (b < 0.0) ? rest + b : rest;
}
template <> PD_DEVICE float pd_floor_divide(float a, float b) {
  if (b == 0.0f) return a / b;
  const float rest = fmodf(a, b), whole = rintf((a - rest) / b);
  return rest != 0.0f && (rest < 0.0f) != (b < 0.0f) ? whole - 1.0f : whole;
}
template <> PD_DEVICE double pd_floor_divide(double a, double b) {
  if (b == 0.0) return a / b;
  const double rest = fmod(a, b), whole = rint((a - rest) / b);
  return rest != 0.0 && (rest < 0.0) != (b < 0.0) ? whole - 1.0 : whole;
}

// Philox4x32-10 (Salmon et al. 2011): word index % 4 of the block with counter (index / 4, stream) and key seed.
PD_DEVICE int pd_random_bits(long long index, long long stream, long long seed) {
  const unsigned long long number = (unsigned long long)index >> 2;
  unsigned w0 = (unsigned)number, w1 = (unsigned)(number >> 32);
  unsigned w2 = (unsigned)stream, w3 = (unsigned)((unsigned long long)stream >> 32);
  unsigned key0 = (unsigned)seed, key1 = (unsigned)((unsigned long long)seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned low0 = 0xD2511F53u * w0, high0 = __umulhi(0xD2511F53u, w0);
    const unsigned low2 = 0xCD9E8D57u * w2, high2 = __umulhi(0xCD9E8D57u, w2);
    w0 = high2 ^ w1 ^ key0, w1 = low2, w2 = high0 ^ w3 ^ key1, w3 = low0;
    key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
  }
  const unsigned word = (unsigned)index & 3u;
  return (int)(word < 2u ? (word == 0u ? w0 : w1) : (word == 2u ? w2 : w3));
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
)cuda";

constexpr std::string_view kSums = R"cuda(
// ---- Sums across threads, always in the same order ----

// Over groups of kWidth neighbouring lanes (a power of two, at most 32); every lane gets the sum.
template <int kWidth, class T> PD_DEVICE T sum_lanes(T value) {
#pragma unroll
  for (int offset = kWidth / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

// Over groups of kWidth neighbouring threads (a power of two); every thread gets the sum. The whole CTA calls it.
template <int kWidth, class T> PD_DEVICE T sum_threads(T value, void* shared) {
  if constexpr (kWidth <= 32) return sum_lanes<kWidth>(value);
  else {
    T* warp_sums = (T*)shared;
    value = sum_lanes<32>(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
    __syncthreads();
    const int first = (int)threadIdx.x / kWidth * (kWidth / 32);
    value = warp_sums[first];
#pragma unroll
    for (int i = 1; i < kWidth / 32; ++i) value += warp_sums[first + i];
    return value;
  }
}

// Column sums: threads are kRows rows of kLanes lanes, each with kVector neighbouring columns in `sum`.
// Afterwards shared[c] holds the sum of column c (kLanes * kVector of them), for every thread to read.
template <int kLanes, int kRows, int kVector, class T> PD_DEVICE void sum_columns(const T (&sum)[kVector], void* shared) {
  constexpr int kColumns = kLanes * kVector;
  constexpr int kRowsInWarp = kLanes >= 32 ? 1 : 32 / kLanes < kRows ? 32 / kLanes : kRows;
  constexpr int kPartRows = kRows / kRowsInWarp;
  T* part = (T*)shared;
  const int lane = threadIdx.x % kLanes, row = threadIdx.x / kLanes;
  __syncthreads();
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
    T value = sum[v];
    if constexpr (kRowsInWarp > 1) {
#pragma unroll
      for (int offset = kLanes * kRowsInWarp / 2; offset >= kLanes; offset /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, offset);
      }
    }
    if (row % kRowsInWarp == 0) part[row / kRowsInWarp * kColumns + lane * kVector + v] = value;
  }
  __syncthreads();
  if constexpr (kPartRows > 1) {
    for (int c = threadIdx.x; c < kColumns; c += kLanes * kRows) {
      T value = part[c];
#pragma unroll
      for (int r = 1; r < kPartRows; ++r) value += part[r * kColumns + c];
      part[c] = value;
    }
    __syncthreads();
  }
}

// ---- Sums across CTAs: each leaves its partial sums in the workspace, the last one to come adds them up ----

// True in the CTA that is the last of `parts` to arrive; the ticket is then zero again for the next launch.
PD_DEVICE bool is_last_arriver(unsigned* ticket, unsigned parts) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(ticket, 1u) == parts - 1;
    if (is_last) *ticket = 0;
  }
  __syncthreads();
  if (is_last) __threadfence();
  return is_last;
}

// Sums `parts` partial tiles of `elements` each, elements [first, first + width) of them, in index order whatever the
// order of arrival. `width` is a power of two up to kThreads; thread t < width gets element first + t.
template <int kThreads, class T>
PD_DEVICE T sum_parts(const T* part, int parts, long long elements, long long first, int width, void* shared) {
  T* sums = (T*)shared;
  const int element = threadIdx.x & (width - 1), split = kThreads / width, which = threadIdx.x / width;
  T sum = T(0);
  if (first + element < elements) {
    const T* at = part + first + element;
    int p = which;
    for (; p + 15 * split < parts; p += 16 * split) {
      T loaded[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) loaded[i] = __ldcg(at + (p + i * split) * elements);
#pragma unroll
      for (int i = 0; i < 16; ++i) sum += loaded[i];
    }
    if (p < parts) {
      T loaded[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) loaded[i] = p + i * split < parts ? __ldcg(at + (p + i * split) * elements) : T(0);
#pragma unroll
      for (int i = 0; i < 16; ++i) sum += loaded[i];
    }
  }
  for (int offset = width; offset < 32; offset *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  const int rows = width < 32 ? kThreads / 32 : split, row_width = width < 32 ? 32 : width;
  __syncthreads();
  sums[threadIdx.x] = sum;
  __syncthreads();
  sum = sums[element];
  for (int r = 1; r < rows; ++r) sum += sums[r * row_width + element];
  return sum;
}

// The power of two that sum_parts works in: all elements at once if there are few, the CTA's threads otherwise.
template <int kThreads> PD_DEVICE int part_width(long long elements) {
  int width = 1;
  while (width < kThreads && width < elements) width *= 2;
  return width;
}
)cuda";

}  // namespace

std::string_view group_prelude() {
  static const std::string text = std::string(kElements) + std::string(kScalars) + std::string(kSums);
  return text;
}

}  // namespace paoding::gpu
