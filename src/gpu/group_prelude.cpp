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

constexpr std::string_view kSums = R"cuda(
// ---- How elements are combined ----

template <class T> PD_DEVICE T least() {
  if constexpr (kSame<T, float>) return __uint_as_float(0xff800000u);
  else if constexpr (kSame<T, double>) return __longlong_as_double((long long)0xfff0000000000000ull);
  else return (T)1 << (8 * sizeof(T) - 1);
}
template <class T> PD_DEVICE T greatest() {
  if constexpr (kSame<T, float> || kSame<T, double>) return -least<T>();
  else return ~least<T>();
}
struct Sum {
  template <class T> static PD_DEVICE T of(T a, T b) { return a + b; }
  template <class T> static PD_DEVICE T none() { return T(0); }
};
struct Prod {
  template <class T> static PD_DEVICE T of(T a, T b) { return a * b; }
  template <class T> static PD_DEVICE T none() { return T(1); }
};
struct Max {
  template <class T> static PD_DEVICE T of(T a, T b) { return pd_max(a, b); }
  template <class T> static PD_DEVICE T none() { return least<T>(); }
};
struct Min {
  template <class T> static PD_DEVICE T of(T a, T b) { return pd_min(a, b); }
  template <class T> static PD_DEVICE T none() { return greatest<T>(); }
};
// Sets every element to what combining nothing gives.
template <class Op, class T> PD_DEVICE void clear(T& value) { value = Op::template none<T>(); }
template <class Op, class T, int kCount> PD_DEVICE void clear(T (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) clear<Op>(values[i]);
}

// ---- Across threads, always in the same order ----

// Over groups of kWidth neighbouring lanes (a power of two, at most 32); every lane gets the result.
template <class Op, int kWidth, class T> PD_DEVICE T combine_lanes(T value) {
#pragma unroll
  for (int offset = kWidth / 2; offset > 0; offset /= 2) {
    value = Op::of(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  return value;
}

// Over groups of kWidth neighbouring threads (a power of two); every thread gets the result. The whole CTA calls it.
template <class Op, int kWidth, class T> PD_DEVICE T combine_threads(T value, void* shared) {
  if constexpr (kWidth <= 32) return combine_lanes<Op, kWidth>(value);
  else {
    T* of_warp = (T*)shared;
    value = combine_lanes<Op, 32>(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    const int first = (int)threadIdx.x / kWidth * (kWidth / 32);
    value = of_warp[first];
#pragma unroll
    for (int i = 1; i < kWidth / 32; ++i) value = Op::of(value, of_warp[first + i]);
    return value;
  }
}

// kCount results of warps, in shared memory; every lane of the threads that call it gets the result.
template <class Op, int kCount, class T> PD_DEVICE T combine_warps(const T* of_warp) {
  if constexpr (kCount > 8) return combine_lanes<Op, kCount>(of_warp[threadIdx.x % kCount]);
  else {
    T value = of_warp[0];
#pragma unroll
    for (int i = 1; i < kCount; ++i) value = Op::of(value, of_warp[i]);
    return value;
  }
}

// Columns: threads are kRows rows of kLanes lanes, each with kVector neighbouring columns in `sum`.
// Afterwards shared[c] holds the result of column c (kLanes * kVector of them), for every thread to read.
template <class Op, int kLanes, int kRows, int kVector, class T>
PD_DEVICE void combine_columns(const T (&sum)[kVector], void* shared) {
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
        value = Op::of(value, __shfl_xor_sync(0xffffffffu, value, offset));
      }
    }
    if (row % kRowsInWarp == 0) part[row / kRowsInWarp * kColumns + lane * kVector + v] = value;
  }
  __syncthreads();
  if constexpr (kPartRows > 1) {
    for (int c = threadIdx.x; c < kColumns; c += kLanes * kRows) {
      T value = part[c];
#pragma unroll
      for (int r = 1; r < kPartRows; ++r) value = Op::of(value, part[r * kColumns + c]);
      part[c] = value;
    }
    __syncthreads();
  }
}

// ---- Across CTAs: each leaves its partial results in the workspace, the last one to come combines them ----

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

// Combines `parts` partial tiles of `elements` each, elements [first, first + width) of them, in index order whatever the
// order of arrival. `width` is a power of two up to kThreads; thread t < width gets element first + t.
template <class Op, int kThreads, class T>
PD_DEVICE T combine_parts(const T* part, int parts, long long elements, long long first, int width, void* shared) {
  T* sums = (T*)shared;
  const int element = threadIdx.x & (width - 1), split = kThreads / width, which = threadIdx.x / width;
  T sum = Op::template none<T>();
  if (first + element < elements) {
    const T* at = part + first + element;
    int p = which;
    for (; p + 15 * split < parts; p += 16 * split) {
      T loaded[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) loaded[i] = __ldcg(at + (p + i * split) * elements);
#pragma unroll
      for (int i = 0; i < 16; ++i) sum = Op::of(sum, loaded[i]);
    }
    if (p < parts) {
      T loaded[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        loaded[i] = p + i * split < parts ? __ldcg(at + (p + i * split) * elements) : Op::template none<T>();
      }
#pragma unroll
      for (int i = 0; i < 16; ++i) sum = Op::of(sum, loaded[i]);
    }
  }
  for (int offset = width; offset < 32; offset *= 2) sum = Op::of(sum, __shfl_xor_sync(0xffffffffu, sum, offset));
  const int rows = width < 32 ? kThreads / 32 : split, row_width = width < 32 ? 32 : width;
  __syncthreads();
  sums[threadIdx.x] = sum;
  __syncthreads();
  sum = sums[element];
  for (int r = 1; r < rows; ++r) sum = Op::of(sum, sums[r * row_width + element]);
  return sum;
}

// Combines `parts` values `step` apart in index order.
template <class Op, class T> PD_DEVICE T fold_parts(const T* at, int parts, long long step) {
  T value = Op::template none<T>();
  for (int p = 0; p < parts; p += 16) {
    T loaded[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) loaded[i] = p + i < parts ? __ldcg(at + (p + i) * step) : Op::template none<T>();
#pragma unroll
    for (int i = 0; i < 16; ++i) value = Op::of(value, loaded[i]);
  }
  return value;
}

// The power of two that combine_parts works in: all elements at once if there are few, the CTA's threads otherwise.
template <int kThreads> PD_DEVICE int part_width(long long elements) {
  int width = 1;
  while (width < kThreads && width < elements) width *= 2;
  return width;
}
)cuda";

}  // namespace

std::string_view group_prelude() {
  static const std::string text = std::string(kElements) + std::string(scalar_prelude()) + std::string(kSums);
  return text;
}

}  // namespace paoding::gpu
