// SPDX-License-Identifier: Apache-2.0
// The constants and the order of the steps are those of tile_math.cpp, which names their sources.
#if defined(__x86_64__)

#include <cstring>

#include "cpu/fused_vectors.h"

namespace paoding {
namespace {

constexpr int kUnordered = 3, kLess = 17, kLessEqual = 18, kEqual = 0;  // predicates of vcmpps
constexpr std::size_t kCodeBytes = 64 << 10;

}  // namespace

VectorAssembler::VectorAssembler(VectorIsa isa, DType compute)
    : Xbyak::CodeGenerator(kCodeBytes, Xbyak::DontSetProtectRWE),
      is_wide_(isa == VectorIsa::avx512),
      is_f32_(compute == f32) {}

// One 64-bit value or two of 32 bits.
std::uint64_t VectorAssembler::pattern_of(double value) const {
  std::uint64_t bits = 0;
  const auto narrow = static_cast<float>(value);
  is_f32_ ? std::memcpy(&bits, &narrow, sizeof narrow) : std::memcpy(&bits, &value, sizeof value);
  return is_f32_ ? bits | bits << 32 : bits;
}

void VectorAssembler::broadcast_literal(const Vector& d, double value) {
  const Xbyak::Label& label = literals_[pattern_of(value)];
  broadcast(d, ptr[rip + label]);
}

void VectorAssembler::write_literals() {
  align(64);
  L(numbers_);
  for (std::uint32_t lane = 0; lane < 16; ++lane) dd(lane);
  for (auto& [pattern, label] : literals_) {
    L(label);
    for (int i = 0; i < every_bytes() / 8; ++i) dq(pattern);
  }
}

// Wide ones say how many bits every lane reads.
void VectorAssembler::bit_and(const Vector& d, const Vector& a, const Operand& b) {
  !is_wide_ ? vpand(d, a, b) : is_f32_ ? vpandd(d, a, b) : vpandq(d, a, b);
}
void VectorAssembler::bit_or(const Vector& d, const Vector& a, const Operand& b) {
  !is_wide_ ? vpor(d, a, b) : is_f32_ ? vpord(d, a, b) : vporq(d, a, b);
}
void VectorAssembler::bit_xor(const Vector& d, const Vector& a, const Operand& b) {
  !is_wide_ ? vpxor(d, a, b) : is_f32_ ? vpxord(d, a, b) : vpxorq(d, a, b);
}

void VectorAssembler::add(const Vector& d, const Vector& a, const Operand& b) {
  is_f32_ ? vaddps(d, a, b) : vaddpd(d, a, b);
}
void VectorAssembler::move(const Vector& d, const Operand& a) { is_f32_ ? vmovups(d, a) : vmovupd(d, a); }
void VectorAssembler::broadcast(const Vector& d, const Operand& a) {
  if (is_f32_) return vbroadcastss(d, a);
  is_wide_ ? vbroadcastsd(Xbyak::Zmm(d.getIdx()), a) : vbroadcastsd(ymm(d), a);
}

void VectorAssembler::binary(Prim prim, const Vector& d, const Vector& a, const Operand& b) {
  switch (prim) {
    case Prim::add: return add(d, a, b);
    case Prim::sub: return is_f32_ ? vsubps(d, a, b) : vsubpd(d, a, b);
    case Prim::mul: return is_f32_ ? vmulps(d, a, b) : vmulpd(d, a, b);
    case Prim::div: return is_f32_ ? vdivps(d, a, b) : vdivpd(d, a, b);
    default: return extreme(prim == Prim::maximum, d, a, b, is_f32_);
  }
}

// ---- truths ----------------------------------------------------------------------------------

void VectorAssembler::compare(int how, Mask d, const Vector& a, const Operand& b, bool is_f32) {
  const auto predicate = static_cast<std::uint8_t>(how);
  if (is_wide_) return is_f32 ? vcmpps(k(d), a, b, predicate) : vcmppd(k(d), a, b, predicate);
  const Vector truth = as_wide_as(a, d.index);
  is_f32 ? vcmpps(truth, a, b, predicate) : vcmppd(truth, a, b, predicate);
}

void VectorAssembler::compare(Prim prim, Mask d, const Vector& a, const Operand& b) {
  compare(prim == Prim::less ? kLess : prim == Prim::less_equal ? kLessEqual : kEqual, d, a, b, is_f32_);
}

void VectorAssembler::compare_integers(Prim prim, bool is_number_first, Mask d, const Vector& element,
                                       const Address& number) {
  if (is_wide_) {
    constexpr int kIntegerEqual = 0, kIntegerLess = 1, kIntegerLessEqual = 2, kNotLess = 5, kGreater = 6;
    const int how = prim == Prim::equal  ? kIntegerEqual
                    : prim == Prim::less ? (is_number_first ? kGreater : kIntegerLess)
                    : is_number_first    ? kNotLess
                                         : kIntegerLessEqual;
    return vpcmpd(k(d), element, number, static_cast<std::uint8_t>(how));
  }
  const Vector truth = as_wide_as(element, d.index);
  if (prim == Prim::equal) {
    vpcmpeqd(truth, element, number);
  } else if ((prim == Prim::less) == is_number_first) {
    vpcmpgtd(truth, element, number);
  } else {
    vmovdqu(truth, number);
    vpcmpgtd(truth, truth, element);
  }
  if (prim == Prim::less_equal) {  // the complement of greater
    const Vector ones = as_wide_as(element, s(1).getIdx());
    vpcmpeqd(ones, ones, ones);
    vpxor(truth, truth, ones);
  }
  if (!is_f32_) vpmovsxdq(full(d.index), truth);
}

void VectorAssembler::logical(Prim prim, Mask d, Mask a, Mask b) {
  if (is_wide_) {
    if (prim == Prim::logical_not) return knotw(k(d), k(a));
    return prim == Prim::logical_and ? kandw(k(d), k(a), k(b)) : korw(k(d), k(a), k(b));
  }
  if (prim == Prim::logical_not) {
    vpcmpeqd(s(0), s(0), s(0));
    return vpxor(full(d.index), full(a.index), s(0));
  }
  prim == Prim::logical_and ? vpand(full(d.index), full(a.index), full(b.index))
                            : vpor(full(d.index), full(a.index), full(b.index));
}

void VectorAssembler::select(const Vector& d, Mask mask, const Operand& yes, const Vector& no) {
  if (is_wide_) return is_f32_ ? vblendmps(d | k(mask), no, yes) : vblendmpd(d | k(mask), no, yes);
  is_f32_ ? vblendvps(d, no, yes, full(mask.index)) : vblendvpd(d, no, yes, full(mask.index));
}

void VectorAssembler::merge(const Vector& d, Mask mask, const Vector& a) {
  if (is_wide_) return is_f32_ ? vmovaps(d | k(mask), a) : vmovapd(d | k(mask), a);
  is_f32_ ? vblendvps(d, d, a, as_wide_as(d, mask.index)) : vblendvpd(d, d, a, as_wide_as(d, mask.index));
}

void VectorAssembler::number_of(const Vector& d, Mask mask) {
  if (!is_wide_) return bit_and(d, full(mask.index), every(1));
  broadcast_literal(s(0), 1);
  is_f32_ ? vmovaps(d | k(mask) | T_z, s(0)) : vmovapd(d | k(mask) | T_z, s(0));
}

// The instructions give b where either is NaN.
void VectorAssembler::extreme(bool largest, const Vector& d, const Vector& a, const Operand& b, bool is_f32) {
  compare(kUnordered, m0(), a, a, is_f32);
  if (is_f32) {
    largest ? vmaxps(d, a, b) : vminps(d, a, b);
    is_wide_ ? vmovaps(d | k(m0()), a) : vblendvps(d, d, a, as_wide_as(d, m0().index));
  } else {
    largest ? vmaxpd(d, a, b) : vminpd(d, a, b);
    is_wide_ ? vmovapd(d | k(m0()), a) : vblendvpd(d, d, a, as_wide_as(d, m0().index));
  }
}

// ---- functions -------------------------------------------------------------------------------

void VectorAssembler::magnitude(const Vector& d, const Vector& a) {
  bit_and(d, a, is_f32_ ? every_bits(0x7fffffff) : literal(0x7fffffffffffffff));
}

void VectorAssembler::round_to(int mode, const Vector& d, const Vector& a) {
  const auto how = static_cast<std::uint8_t>(mode);
  if (is_wide_) return is_f32_ ? vrndscaleps(d, a, how) : vrndscalepd(d, a, how);
  is_f32_ ? vroundps(d, a, how) : vroundpd(d, a, how);
}

void VectorAssembler::unary(Prim prim, const Vector& d, const Vector& a) {
  constexpr int kQuiet = 8;  // inexact results raise no exception
  switch (prim) {
    case Prim::neg: return bit_xor(d, a, is_f32_ ? every_bits(0x80000000) : literal(1ull << 63));
    case Prim::abs: return magnitude(d, a);
    case Prim::round: return round_to(kQuiet | 0, d, a);
    case Prim::floor: return round_to(kQuiet | 1, d, a);
    case Prim::ceil: return round_to(kQuiet | 2, d, a);
    case Prim::trunc: return round_to(kQuiet | 3, d, a);
    case Prim::sqrt: return is_f32_ ? vsqrtps(d, a) : vsqrtpd(d, a);
    case Prim::rsqrt:
      is_f32_ ? vsqrtps(s(0), a) : vsqrtpd(s(0), a);
      broadcast_literal(d, 1);
      return binary(Prim::div, d, d, s(0));
    case Prim::exp: vmovaps(d, a); return exp(d);
    case Prim::expm1: return expm1(d, a);
    case Prim::tanh: return tanh(d, a);
    case Prim::sigmoid: return sigmoid(d, a);
    default: return erf(d, a);
  }
}

// d = c0, then d = d * x + c for the others.
void VectorAssembler::polynomial(const Vector& d, const Vector& x, std::initializer_list<double> coefficients) {
  for (const double* c = coefficients.begin(); c != coefficients.end(); ++c) {
    if (c == coefficients.begin()) {
      broadcast_literal(d, *c);
    } else {
      multiply_add(d, x, *c);
    }
  }
}

// s(0): n in the low bits, s(3): e^r - 1 of a = n log(2) + r. Uses s(1) and s(2).
void VectorAssembler::reduce(const Vector& a) {
  const Vector shifted = s(0), whole = s(1), r = s(2), p = s(3);
  broadcast_literal(shifted, 1.442695041f);
  broadcast_literal(whole, 12582912.0f);
  vfmadd213ps(shifted, a, whole);
  vsubps(whole, shifted, whole);
  vmovaps(r, a);
  vfnmadd231ps(r, whole, every(0.693145752f));
  vfnmadd231ps(r, whole, every(1.42860677e-6f));
  polynomial(p, r, {1.394756837e-03f, 8.367246948e-03f, 4.166626558e-02f, 1.666653752e-01f, 0.5f});
  vmulps(p, p, r);
  vfmadd213ps(p, r, r);
}

void VectorAssembler::power_of_two(const Vector& d, const Vector& n) {
  vpslld(d, n, 23);
  vpaddd(d, d, every_bits(0x3f800000));
}

// NaN stays: the instructions give their second argument.
void VectorAssembler::bound(const Vector& d, double least, double most) {
  broadcast_literal(s(0), least);
  vmaxps(d, s(0), d);
  broadcast_literal(s(0), most);
  vminps(d, s(0), d);
}

void VectorAssembler::exp(const Vector& d) {
  bound(d, -104.0f, 89.0f);
  reduce(d);
  vpsrad(s(1), s(0), 1);
  vpsubd(s(0), s(0), s(1));
  power_of_two(s(1), s(1));
  power_of_two(s(0), s(0));
  vaddps(s(3), s(3), every(1.0f));
  vmulps(d, s(3), s(1));
  vmulps(d, d, s(0));
}

void VectorAssembler::copy_sign(const Vector& d, const Vector& sign) {
  broadcast_literal(s(0), -0.0);
  if (is_wide_) return vpternlogd(d, sign, s(0), 0xd8);  // where s(0) is set the bit of `sign`, else of d
  vandnps(d, s(0), d);
  vandps(s(0), s(0), sign);
  vorps(d, d, s(0));
}

void VectorAssembler::expm1(const Vector& d, const Vector& a) {
  vmovaps(d, a);
  bound(d, -30.0f, 89.0f);
  reduce(d);
  vpsubd(s(0), s(0), every_bits(1));
  power_of_two(s(0), s(0));
  vsubps(d, s(0), every(0.5f));
  vfmadd231ps(d, s(0), s(3));
  vaddps(d, d, d);
  copy_sign(d, a);
}

void VectorAssembler::tanh(const Vector& d, const Vector& a) {
  magnitude(d, a);
  broadcast_literal(s(0), 10.0f);
  vminps(d, s(0), d);
  vmulps(d, d, every(-2.0f));
  reduce(d);
  power_of_two(s(0), s(0));
  broadcast_literal(d, 1.0f);
  vsubps(d, d, s(0));
  vfnmadd231ps(d, s(0), s(3));
  broadcast_literal(s(1), 2.0f);
  vsubps(s(1), s(1), d);
  vdivps(d, d, s(1));
  copy_sign(d, a);
}

void VectorAssembler::sigmoid(const Vector& d, const Vector& a) {
  bit_or(d, a, every_bits(0x80000000));
  exp(d);
  broadcast_literal(s(1), 1.0f);
  vaddps(s(2), s(1), d);
  bit_xor(s(3), s(3), s(3));
  compare(kLess, m0(), a, s(3), true);
  merge(s(1), m0(), d);
  vdivps(d, s(1), s(2));
  compare(kUnordered, m0(), a, a, true);
  merge(d, m0(), a);
}

void VectorAssembler::erf(const Vector& d, const Vector& a) {
  // Far from 0 in d.
  magnitude(d, a);
  broadcast_literal(s(0), 4.0f);
  vminps(d, s(0), d);
  polynomial(s(3), d,
             {-1.123647417e-05f, 3.228509740e-04f, -3.642633557e-03f, 2.376239933e-02f, -1.062372327e-01f,
              -6.351511478e-01f, -1.286485344e-01f});
  vfmsub213ps(s(3), d, d);
  vmovaps(d, s(3));
  reduce(d);
  power_of_two(s(0), s(0));
  broadcast_literal(d, 1.0f);
  vsubps(d, d, s(0));
  vmulps(s(0), s(0), s(3));
  vsubps(d, d, s(0));
  copy_sign(d, a);
  // Near it.
  vmulps(s(1), a, a);
  polynomial(
      s(2), s(1),
      {-5.976896500e-04f, 4.990980495e-03f, -2.676556632e-02f, 1.128180251e-01f, -3.761249483e-01f, 1.283791512e-01f});
  vfmadd213ps(s(2), a, a);
  magnitude(s(1), a);
  broadcast_literal(s(0), 0.92f);
  compare(kLess, m0(), s(0), s(1), true);
  select(d, m0(), d, s(2));
}

void VectorAssembler::round_to_bf16(const Vector& d, const Vector& a) {
  vpsrld(s(0), a, 16);
  bit_and(s(1), s(0), every_bits(1));
  vpaddd(s(1), s(1), every_bits(0x7fff));
  vpaddd(s(1), s(1), a);
  bit_or(s(0), s(0), every_bits(0x40));
  compare(kUnordered, m0(), a, a, true);
  vpsrld(d, s(1), 16);
  merge(d, m0(), s(0));
}

}  // namespace paoding

#endif
