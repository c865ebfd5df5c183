// SPDX-License-Identifier: Apache-2.0
// The numbers and the order of the steps are those of tile_math.cpp, which says where they come from.
#if defined(__x86_64__)

#include <cstring>

#include "cpu/fused_avx512.h"

namespace paoding {
namespace {

constexpr int kUnordered = 3, kLess = 17, kLessEqual = 18, kEqual = 0;  // predicates of vcmpps
constexpr std::size_t kCodeBytes = 64 << 10;

}  // namespace

VectorAssembler::VectorAssembler(DType compute)
    : Xbyak::CodeGenerator(kCodeBytes, Xbyak::DontSetProtectRWE), is_f32_(compute == f32) {}

Xbyak::Address VectorAssembler::bits_in_every(std::uint64_t bits) { return ptr_b[rip + literals_[bits]]; }

std::uint64_t VectorAssembler::bits_of(double value) const {
  std::uint64_t bits = 0;
  const auto narrow = static_cast<float>(value);
  is_f32_ ? std::memcpy(&bits, &narrow, sizeof narrow) : std::memcpy(&bits, &value, sizeof value);
  return bits;
}

Xbyak::Address VectorAssembler::every(double value) { return bits_in_every(bits_of(value)); }

void VectorAssembler::broadcast_literal(const Zmm& d, double value) {
  const Xbyak::Label& label = literals_[bits_of(value)];
  broadcast(d, ptr[rip + label]);
}

void VectorAssembler::write_literals() {
  align(8);
  for (auto& [bits, label] : literals_) {
    L(label);
    dq(bits);  // little-endian: its low half is the 32-bit literal
  }
}

void VectorAssembler::add(const Xmm& d, const Xmm& a, const Operand& b) { is_f32_ ? vaddps(d, a, b) : vaddpd(d, a, b); }
void VectorAssembler::move(const Xmm& d, const Operand& a) { is_f32_ ? vmovups(d, a) : vmovupd(d, a); }
void VectorAssembler::broadcast(const Zmm& d, const Operand& a) { is_f32_ ? vbroadcastss(d, a) : vbroadcastsd(d, a); }

void VectorAssembler::binary(Prim prim, const Zmm& d, const Zmm& a, const Operand& b) {
  switch (prim) {
    case Prim::add: return add(d, a, b);
    case Prim::sub: return is_f32_ ? vsubps(d, a, b) : vsubpd(d, a, b);
    case Prim::mul: return is_f32_ ? vmulps(d, a, b) : vmulpd(d, a, b);
    case Prim::div: return is_f32_ ? vdivps(d, a, b) : vdivpd(d, a, b);
    default: return extreme(prim == Prim::maximum, d, a, b);
  }
}

void VectorAssembler::compare(Prim prim, const Opmask& d, const Zmm& a, const Operand& b) {
  const int how = prim == Prim::less ? kLess : prim == Prim::less_equal ? kLessEqual : kEqual;
  is_f32_ ? vcmpps(d, a, b, static_cast<std::uint8_t>(how)) : vcmppd(d, a, b, static_cast<std::uint8_t>(how));
}

// The instructions give b where either is NaN.
void VectorAssembler::extreme(bool largest, const Xmm& d, const Xmm& a, const Operand& b) {
  if (is_f32_) {
    vcmpps(m(0), a, a, kUnordered);
    largest ? vmaxps(d, a, b) : vminps(d, a, b);
    vmovaps(d | m(0), a);
  } else {
    vcmppd(m(0), a, a, kUnordered);
    largest ? vmaxpd(d, a, b) : vminpd(d, a, b);
    vmovapd(d | m(0), a);
  }
}

void VectorAssembler::magnitude(const Zmm& d, const Zmm& a) {
  if (is_f32_) return vpandd(d, a, every_bits(0x7fffffff));
  vpandq(d, a, bits_in_every(0x7fffffffffffffff));
}

void VectorAssembler::round_to(int mode, const Zmm& d, const Zmm& a) {
  is_f32_ ? vrndscaleps(d, a, static_cast<std::uint8_t>(mode)) : vrndscalepd(d, a, static_cast<std::uint8_t>(mode));
}

void VectorAssembler::unary(Prim prim, const Zmm& d, const Zmm& a) {
  constexpr int kQuiet = 8;  // no exception for what is inexact
  switch (prim) {
    case Prim::neg: return is_f32_ ? vpxord(d, a, every_bits(0x80000000)) : vpxorq(d, a, bits_in_every(1ull << 63));
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
void VectorAssembler::polynomial(const Zmm& d, const Zmm& x, std::initializer_list<double> coefficients) {
  for (const double* c = coefficients.begin(); c != coefficients.end(); ++c) {
    if (c == coefficients.begin()) {
      broadcast_literal(d, *c);
    } else {
      multiply_add(d, x, *c);
    }
  }
}

// s(0): n in the low bits, s(3): e^r - 1 of a = n log(2) + r. Uses s(1) and s(2).
void VectorAssembler::reduce(const Zmm& a) {
  const Zmm shifted = s(0), whole = s(1), r = s(2), p = s(3);
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

void VectorAssembler::power_of_two(const Zmm& d, const Zmm& n) {
  vpslld(d, n, 23);
  vpaddd(d, d, every_bits(0x3f800000));
}

// NaN stays: the instructions give their second argument.
void VectorAssembler::bound(const Zmm& d, double least, double most) {
  broadcast_literal(s(0), least);
  vmaxps(d, s(0), d);
  broadcast_literal(s(0), most);
  vminps(d, s(0), d);
}

void VectorAssembler::exp(const Zmm& d) {
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

void VectorAssembler::copy_sign(const Zmm& d, const Zmm& sign) {
  vbroadcastss(s(0), ptr[rip + literals_[0x80000000]]);
  vpternlogd(d, sign, s(0), 0xd8);  // where s(0) is set the bit of `sign`, else of d
}

void VectorAssembler::expm1(const Zmm& d, const Zmm& a) {
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

void VectorAssembler::tanh(const Zmm& d, const Zmm& a) {
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

void VectorAssembler::sigmoid(const Zmm& d, const Zmm& a) {
  vpord(d, a, every_bits(0x80000000));
  exp(d);
  broadcast_literal(s(1), 1.0f);
  vaddps(s(2), s(1), d);
  vpxord(s(3), s(3), s(3));
  vcmpps(m(0), a, s(3), kLess);
  vmovaps(s(1) | m(0), d);
  vdivps(d, s(1), s(2));
  vcmpps(m(0), a, a, kUnordered);
  vmovaps(d | m(0), a);
}

void VectorAssembler::erf(const Zmm& d, const Zmm& a) {
  // Far from 0 in d.
  magnitude(d, a);
  broadcast_literal(s(0), 4.0f);
  vminps(d, s(0), d);
  polynomial(s(3), d,
             {-1.123647417e-05f, 3.228509740e-04f, -3.642633557e-03f, 2.376239933e-02f, -1.062372327e-01f,
              -6.351511478e-01f, -1.286485344e-01f});
  broadcast_literal(s(0), 0.92f);
  vcmpps(m(1), s(0), d, kLess);
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
  vblendmps(d | m(1), s(2), d);
}

void VectorAssembler::round_to_bf16(const Zmm& d, const Zmm& a) {
  vpsrld(s(0), a, 16);
  vpandd(s(1), s(0), every_bits(1));
  vpaddd(s(1), s(1), every_bits(0x7fff));
  vpaddd(s(1), s(1), a);
  vpord(s(0), s(0), every_bits(0x40));
  vcmpps(m(0), a, a, kUnordered);
  vpsrld(d, s(1), 16);
  vmovdqa32(d | m(0), s(0));
}

}  // namespace paoding

#endif
