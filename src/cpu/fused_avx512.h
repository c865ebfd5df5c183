// SPDX-License-Identifier: Apache-2.0
// Machine code of single vector operations, AVX-512: what fused_avx512.cpp builds its loops from. Every operation gives
// the bits of the tile routine of the same name.
#pragma once

#include <cstdint>
#include <map>

#include "paoding/scalar.h"
#include "paoding/types.h"
#include "xbyak/xbyak.h"

namespace paoding {

class VectorAssembler : public Xbyak::CodeGenerator {
 public:
  using Zmm = Xbyak::Zmm;
  using Xmm = Xbyak::Xmm;
  using Opmask = Xbyak::Opmask;
  using Operand = Xbyak::Operand;

  explicit VectorAssembler(DType compute);

 protected:
  bool is_f32() const { return is_f32_; }
  int lanes() const { return is_f32_ ? 16 : 8; }
  int size() const { return is_f32_ ? 4 : 8; }

  /// A number in every lane, from memory behind the code.
  Xbyak::Address every(double value);
  Xbyak::Address every_bits(std::uint32_t bits) { return bits_in_every(bits); }
  void broadcast_literal(const Zmm& d, double value);
  /// To be called behind the last instruction.
  void write_literals();

  /// d = prim(a). Functions of f32 use s(0)..s(3) and m(0); d is no register of an argument.
  void unary(Prim prim, const Zmm& d, const Zmm& a);
  /// d = prim(a, b), b possibly one element of memory in every lane.
  void binary(Prim prim, const Zmm& d, const Zmm& a, const Operand& b);
  void compare(Prim prim, const Opmask& d, const Zmm& a, const Operand& b);
  /// d = what compares as `larger` of a and b; a NaN of either stays. Registers of any width.
  void extreme(bool largest, const Xmm& d, const Xmm& a, const Operand& b);
  /// Rounds to bf16: the low half of every lane of d.
  void round_to_bf16(const Zmm& d, const Zmm& a);

  void add(const Xmm& d, const Xmm& a, const Operand& b);
  void move(const Xmm& d, const Operand& a);
  void broadcast(const Zmm& d, const Operand& a);

  static Zmm s(int i) { return Zmm(28 + i); }
  static Opmask m(int i) { return Opmask(6 + i); }

 private:
  std::uint64_t bits_of(double value) const;
  Xbyak::Address bits_in_every(std::uint64_t bits);
  void multiply_add(const Zmm& d, const Zmm& b, double c) { vfmadd213ps(d, b, every(c)); }  // d = d * b + c
  void reduce(const Zmm& a);
  void power_of_two(const Zmm& d, const Zmm& n);
  void bound(const Zmm& d, double least, double most);
  void exp(const Zmm& d);
  void expm1(const Zmm& d, const Zmm& a);
  void tanh(const Zmm& d, const Zmm& a);
  void sigmoid(const Zmm& d, const Zmm& a);
  void erf(const Zmm& d, const Zmm& a);
  void polynomial(const Zmm& d, const Zmm& x, std::initializer_list<double> coefficients);
  void copy_sign(const Zmm& d, const Zmm& sign);
  void magnitude(const Zmm& d, const Zmm& a);
  void round_to(int mode, const Zmm& d, const Zmm& a);

  bool is_f32_;
  std::map<std::uint64_t, Xbyak::Label> literals_;
};

}  // namespace paoding
