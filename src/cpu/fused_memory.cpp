// SPDX-License-Identifier: Apache-2.0
// How fused routines read and write tiles. The rest, fewer elements than a vector has, is read and written under a
// mask; AVX2 has none for elements of 8 and 16 bits, so those of the rest go one by one.
#if defined(__x86_64__)

#include "cpu/fused_vectors.h"

namespace paoding {

// Calls each(i) for the first element and writes the jumps that end the rest after it or a later one.
template <class Each>
void VectorAssembler::each_of_rest(Each each) {
  Xbyak::Label done;
  for (int i = 0; i + 1 < lanes(); ++i) {
    if (i > 0) {
      cmp(rcx, i);
      jle(done, T_NEAR);
    }
    each(i);
  }
  L(done);
}

void VectorAssembler::begin_rest(int place) {
  if (is_wide_) {
    // The low bits of a mask; the pointer in the register it takes is saved on the way.
    push(rdi);
    mov(edi, -1);
    bzhi(edi, edi, ecx);
    kmovw(rest(), edi);
    pop(rdi);
    return;
  }
  rest_place_ = place;
  const Vector count = counting(s(0).getIdx());
  vmovd(xmm(count), ecx);
  vpbroadcastd(count, xmm(count));
  vpcmpgtd(count, count, ptr[rip + numbers_]);
  if (!is_f32_) vpmovsxdq(s(0), count);
  vmovups(ptr[rsp + rest_place_], s(0));
}

void VectorAssembler::lane_numbers(const Vector& d, int first) {
  if (is_wide_) {
    vpbroadcastd(d, eax);
  } else {
    vmovd(xmm(d), eax);
    vpbroadcastd(d, xmm(d));
  }
  vpaddd(d, d, ptr[rip + numbers_]);
  if (first > 0) vpaddd(d, d, every_bits(static_cast<std::uint32_t>(first)));
}

void VectorAssembler::load(DType stored, const Vector& d, const Address& from, bool is_rest) {
  const bool is_half = stored == DType::bf16 || stored == DType::f16;
  if (is_wide_) {
    const Vector limited = is_rest ? d | rest() | T_z : d;
    if (!is_half) return move(limited, from);
    stored == DType::bf16 ? vpmovzxwd(limited, from) : vcvtph2ps(limited, from);
  } else if (!is_half) {
    if (!is_rest) return move(d, from);
    vmovups(s(0), ptr[rsp + rest_place_]);
    return is_f32_ ? vmaskmovps(d, s(0), from) : vmaskmovpd(d, s(0), from);
  } else if (!is_rest) {
    stored == DType::bf16 ? vpmovzxwd(d, from) : vcvtph2ps(d, from);
  } else {
    const Vector some = xmm(s(0));
    vpxor(some, some, some);
    each_of_rest([&](int i) { vpinsrw(some, some, behind(from, 2 * i), static_cast<std::uint8_t>(i)); });
    stored == DType::bf16 ? vpmovzxwd(d, some) : vcvtph2ps(d, some);
  }
  if (stored == DType::bf16) vpslld(d, d, 16);
}

void VectorAssembler::load(Mask d, const Address& from, bool is_rest) {
  const Vector bytes = xmm(s(0));
  if (is_wide_) {
    if (is_rest) {
      vmovdqu8(bytes | rest() | T_z, from);
    } else {
      is_f32_ ? vmovdqu8(bytes, from) : vmovq(bytes, from);
    }
    return vptestmb(k(d), bytes, bytes);
  }
  if (is_rest) {
    vpxor(bytes, bytes, bytes);
    each_of_rest([&](int i) { vpinsrb(bytes, bytes, behind(from, i), static_cast<std::uint8_t>(i)); });
  } else {
    is_f32_ ? vmovq(bytes, from) : vmovd(bytes, from);
  }
  const Vector truth = full(d.index), zero = s(1);
  vpxor(zero, zero, zero);
  if (is_f32_) {
    vpmovzxbd(truth, bytes);
    vpcmpgtd(truth, truth, zero);
  } else {
    vpmovzxbq(truth, bytes);
    vpcmpgtq(truth, truth, zero);
  }
}

void VectorAssembler::store(DType stored, const Address& to, const Vector& value, bool is_rest) {
  if (is_wide_) {
    const Address limited = is_rest ? to | rest() : to;
    if (stored == DType::bf16) {
      round_to_bf16(s(2), value);
      vpmovdw(limited, s(2));
    } else if (stored == DType::f16) {
      vcvtps2ph(limited, value, 0);
    } else {
      is_f32_ ? vmovups(limited, value) : vmovupd(limited, value);
    }
    return;
  }
  if (stored != DType::bf16 && stored != DType::f16) {
    if (!is_rest) return is_f32_ ? vmovups(to, value) : vmovupd(to, value);
    vmovups(s(0), ptr[rsp + rest_place_]);
    return is_f32_ ? vmaskmovps(to, s(0), value) : vmaskmovpd(to, s(0), value);
  }
  const Vector halves = xmm(s(0));
  if (stored == DType::bf16) {
    round_to_bf16(s(2), value);
    vextracti128(halves, ymm(s(2)), 1);
    vpackusdw(halves, xmm(s(2)), halves);
  } else {
    vcvtps2ph(halves, value, 0);
  }
  if (!is_rest) return vmovdqu(to, halves);
  each_of_rest([&](int i) { vpextrw(behind(to, 2 * i), halves, static_cast<std::uint8_t>(i)); });
}

void VectorAssembler::store(const Address& to, Mask value, bool is_rest) {
  const Vector bytes = xmm(s(0));
  if (is_wide_) {
    vpmovm2b(bytes, k(value));
    vpandd(bytes, bytes, every_bits(0x01010101));
    if (is_rest) return vmovdqu8(to | rest(), bytes);
    return is_f32_ ? vmovdqu8(to, bytes) : vmovq(to, bytes);
  }
  const Vector truth = full(value.index);
  vextracti128(bytes, ymm(truth), 1);
  if (is_f32_) {
    vpackssdw(bytes, xmm(truth), bytes);
  } else {
    vshufps(bytes, xmm(truth), bytes, 0x88);
    vpackssdw(bytes, bytes, bytes);
  }
  vpacksswb(bytes, bytes, bytes);
  vpand(bytes, bytes, every_bits(0x01010101));
  if (!is_rest) return is_f32_ ? vmovq(to, bytes) : vmovd(to, bytes);
  each_of_rest([&](int i) { vpextrb(behind(to, i), bytes, static_cast<std::uint8_t>(i)); });
}

void VectorAssembler::merge_rest(const Vector& d, const Vector& a) {
  if (is_wide_) return move(d | rest(), a);
  vmovups(s(3), ptr[rsp + rest_place_]);
  merge(d, {s(3).getIdx()}, a);
}

// `value`: f64, the elements from `first` on of the vector that the rest is of.
void VectorAssembler::combine_half(bool is_sum, bool is_largest, const Address& to, const Vector& value, bool is_rest,
                                   int first) {
  const Vector old = s(1), sum = s(2);
  const auto limit = Xbyak::Opmask(first == 0 ? 1 : 7);
  const auto read_limit = [&] {  // of AVX2, into s(1)
    is_f32_ ? vpmovsxdq(s(1), ptr[rsp + rest_place_ + first * 4]) : vmovupd(s(1), ptr[rsp + rest_place_]);
  };
  if (!is_rest) {
    vmovupd(old, to);
  } else if (is_wide_) {
    vmovupd(old | limit | T_z, to);
  } else {
    read_limit();
    vmaskmovpd(old, s(1), to);
  }
  is_sum ? vaddpd(sum, old, value) : extreme(is_largest, sum, old, value, false);
  if (!is_rest) {
    vmovupd(to, sum);
  } else if (is_wide_) {
    vmovupd(to | limit, sum);
  } else {
    read_limit();
    vmaskmovpd(to, s(1), sum);
  }
}

void VectorAssembler::combine_into(bool is_sum, bool is_largest, const Address& to, const Vector& value, bool is_rest) {
  if (!is_f32_) return combine_half(is_sum, is_largest, to, value, is_rest, 0);
  const int upper = lanes() / 2;
  if (is_wide_) {
    vcvtps2pd(s(0), ymm(value));
    combine_half(is_sum, is_largest, to, s(0), is_rest, 0);
    vextractf32x8(ymm(s(3)), Xbyak::Zmm(value.getIdx()), 1);
    vcvtps2pd(s(0), ymm(s(3)));
    if (is_rest) kshiftrw(Xbyak::Opmask(7), rest(), 8);
  } else {
    vcvtps2pd(s(0), xmm(value));
    combine_half(is_sum, is_largest, to, s(0), is_rest, 0);
    vextractf128(xmm(s(3)), ymm(value), 1);
    vcvtps2pd(s(0), xmm(s(3)));
  }
  combine_half(is_sum, is_largest, behind(to, upper * 8), s(0), is_rest, upper);
}

}  // namespace paoding

#endif
