// SPDX-License-Identifier: Apache-2.0
// How elements are stored and computed with, and the arguments that every kernel gets.
#define PD_DEVICE __device__ __forceinline__
// Shared memory whose size the launch says, 16 bytes aligned.
#ifdef PD_EMULATE
#define PD_DYNAMIC_SHARED(type, name) type* const name = (type*)::emulation::dynamic_shared()
#else
#define PD_DYNAMIC_SHARED(type, name)       \
  extern __shared__ uint4 pd_dynamic_shared[]; \
  type* const name = (type*)pd_dynamic_shared
#endif

// Beside its operands and sizes. `tickets` are zero before the first launch, and every launch leaves them so; `fault`
// is two words of the launch's own, all ones; `failed`, where there is one, is not zero once the launch is called off;
// `stamp`, where there is one, is where the launch leaves when it began.
struct LaunchScratch {
  void* workspace;
  unsigned* tickets;
  unsigned long long* fault;
  const unsigned* failed;
  unsigned long long* stamp;
};
// An operand as TMA knows it (TensorMap of text_launch.h).
struct alignas(64) Map {
  unsigned long long words[16];
};

// Called before a kernel's first access to memory, since a launch may start before the one in front of it has ended
// (TextLaunch::overlaps_before): waits until it has, with all that it wrote, and lets the next one start.
PD_DEVICE void grid_dependency_wait() {
#if !defined(PD_EMULATE) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// The chip's clock in ns, which all its SMs share and nothing resets; it goes in steps of 32 (H200).
PD_DEVICE unsigned long long gpu_clock() {
#ifdef PD_EMULATE
  return ::emulation::gpu_clock();
#else
  unsigned long long ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
  return ns;
#endif
}
// Called by one thread of every CTA, after grid_dependency_wait().
PD_DEVICE void leave_stamp(const LaunchScratch& scratch) {
  if (scratch.stamp != nullptr && (blockIdx.x | blockIdx.y | blockIdx.z) == 0) *scratch.stamp = gpu_clock();
}
// Asked after that wait: a run that has failed writes no parameter.
PD_DEVICE bool is_called_off(const LaunchScratch& scratch) { return scratch.failed != nullptr && *scratch.failed != 0; }

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
template <class T> PD_DEVICE unsigned pair_of(float low, float high) {
  if constexpr (kSame<T, F16>) return float_to_half(low) | (unsigned)float_to_half(high) << 16;
  else return float_to_bfloat(low) | (unsigned)float_to_bfloat(high) << 16;
}
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
// Two elements in a word, by one instruction.
template <class T> PD_DEVICE unsigned pair_of(float low, float high) {
  unsigned word;
  if constexpr (kSame<T, F16>) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
#endif

// Prepares a value for rounding to 16 bits, as to_odd() of base/to_odd.h does: a value that no float holds becomes its
// neighbour towards 0 with its last bit set, so that it is rounded once.
template <class Value> PD_DEVICE float odd_float(Value value) {
  if constexpr (kSame<Value, double>) {
    const float nearest = (float)value;
    if ((double)nearest == value || value != value) return nearest;
    const unsigned bits = __float_as_uint(nearest) - (((double)nearest > value) != (value < 0));
    return __uint_as_float(bits | 1u);
  } else if constexpr (kSame<Value, long long>) {
    if (value >= 1ll << 53 || value <= -(1ll << 53)) value = (value & ~1023ll) | ((value & 1023) != 0 ? 1024 : 0);
    return odd_float((double)value);
  } else if constexpr (kSame<Value, int>) return odd_float((double)value);
  else return (float)value;
}

// The bits that T stores for a computed value, in the low bytes of a word (the low word first for 8 bytes).
template <class T, class Value> PD_DEVICE unsigned long long stored_bits(Value value) {
  if constexpr (kSame<T, double>) return (unsigned long long)__double_as_longlong((double)value);
  else if constexpr (kSame<T, float>) return __float_as_uint((float)value);
  else if constexpr (kSame<T, F16>) return float_to_half(odd_float(value));
  else if constexpr (kSame<T, BF16>) return float_to_bfloat(odd_float(value));
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

// A vector as computed: rounded when it is stored, two elements of 16 bits at a time.
template <class T, int kCount> struct Draft {
  Compute<T> value[kCount];

  template <class Value> PD_DEVICE void put(int i, Value computed) {
    if constexpr (kSame<T, Bool>) value[i] = computed != Value(0);
    else value[i] = (Compute<T>)computed;
  }
  PD_DEVICE Pack<T, kCount> pack() const {
    Pack<T, kCount> packed;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if constexpr (sizeof(T) != 2 || kCount % 2 != 0) packed.put(i, value[i]);
      else if (i % 2 == 0) packed.word[i / 2] = pair_of<T>(value[i], value[i + 1]);
    }
    return packed;
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

// Loads 4, 8 or 16 bytes that other CTAs have written in this launch; this SM's L1 may hold an older copy of them.
template <class T, int kCount> PD_DEVICE void load_past_l1(Pack<T, kCount>& pack, const T* from) {
  constexpr int kBytes = Pack<T, kCount>::kBytes;
  if constexpr (kBytes == 16) {
    const uint4 piece = __ldcg((const uint4*)from);
    pack.word[0] = piece.x, pack.word[1] = piece.y, pack.word[2] = piece.z, pack.word[3] = piece.w;
  } else if constexpr (kBytes == 8) {
    const uint2 piece = __ldcg((const uint2*)from);
    pack.word[0] = piece.x, pack.word[1] = piece.y;
  } else pack.word[0] = __ldcg((const unsigned*)from);
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

template <class T, int kCount> PD_DEVICE void store(T* to, const Draft<T, kCount>& draft) { store(to, draft.pack()); }

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
PD_DEVICE void store_each(T* to, Index step, int count, const Draft<T, kCount>& draft) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i < count) {
      Pack<T, 1> one;
      one.put(0, draft.value[i]);
      store(to + i * step, one);
    }
  }
}

template <class T, class Value> PD_DEVICE void store_one(T* to, Value value) {
  Pack<T, 1> pack;
  pack.put(0, value);
  store(to, pack);
}
