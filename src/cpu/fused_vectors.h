// SPDX-License-Identifier: Apache-2.0
// Machine code of single vector operations, in AVX-512 or in AVX2, from which fused_code.cpp builds its loops. Every
// operation gives the bits of the tile routine of the same name. With AVX-512 truths are bits of mask registers, single
// elements are read by every lane, and the last elements are those of a mask; with AVX2 truths are vectors of all ones
// and zeros, and an element that every lane reads lies in memory once for each.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>

#include "base/target.h"
#include "paoding/scalar.h"
#include "paoding/types.h"
#include "xbyak/xbyak.h"

namespace paoding {

class VectorAssembler : public Xbyak::CodeGenerator {
 public:
  using Vector = Xbyak::Xmm;  // of any width
  using Operand = Xbyak::Operand;
  using Address = Xbyak::Address;
  /// Truths of a vector's elements.
  struct Mask {
    int index;  // of a mask register, or of a vector register with AVX2
  };

  VectorAssembler(VectorIsa isa, DType compute);

 protected:
  bool is_wide() const { return is_wide_; }
  bool is_f32() const { return is_f32_; }
  int lanes() const { return (is_wide_ ? 64 : 32) / size(); }
  int size() const { return is_f32_ ? 4 : 8; }
  /// Bytes in memory of an element that every lane reads.
  int every_bytes() const { return is_wide_ ? 8 : 32; }

  Vector full(int index) const { return Vector(is_wide_ ? Operand::ZMM : Operand::YMM, index); }
  /// The register for a 32-bit value in each lane.
  Vector counting(int index) const {
    return Vector(is_f32_ ? (is_wide_ ? Operand::ZMM : Operand::YMM) : (is_wide_ ? Operand::YMM : Operand::XMM), index);
  }
  /// Registers for the steps of one operation; m0() is s(3) with AVX2.
  Vector s(int i) const { return full((is_wide_ ? 28 : 12) + i); }
  Mask m0() const { return {is_wide_ ? 6 : 15}; }
  static Vector xmm(const Vector& a) { return Vector(Operand::XMM, a.getIdx()); }
  static Xbyak::Ymm ymm(const Vector& a) { return Xbyak::Ymm(a.getIdx()); }

  /// A constant for every lane, from memory after the code.
  Address every(double value) { return literal(pattern_of(value)); }
  Address every_bits(std::uint32_t bits) { return literal(bits | static_cast<std::uint64_t>(bits) << 32); }
  /// The operand that every lane reads of every_bytes() at `base`.
  template <class Place>
  Address in_every_lane(const Place& base) const {
    return is_wide_ ? Xbyak::util::ptr_b[base] : Xbyak::util::ptr[base];
  }
  void broadcast_literal(const Vector& d, double value);
  /// Must be called after the last instruction.
  void write_literals();

  /// d = prim(a). Functions of f32 use s(0)..s(3) and m0(); d is no register of an argument.
  void unary(Prim prim, const Vector& d, const Vector& a);
  /// d = prim(a, b), b possibly an operand that every lane reads.
  void binary(Prim prim, const Vector& d, const Vector& a, const Operand& b);
  void compare(Prim prim, Mask d, const Vector& a, const Operand& b);
  /// Compares 32-bit values, one in each lane; for a tile of f64 they are in the lower half of a vector. Uses
  /// s(1).
  void compare_integers(Prim prim, bool is_number_first, Mask d, const Vector& element, const Address& number);
  void logical(Prim prim, Mask d, Mask a, Mask b);
  void select(const Vector& d, Mask mask, const Operand& yes, const Vector& no);
  /// d = a where the mask says so.
  void merge(const Vector& d, Mask mask, const Vector& a);
  /// 1 or 0.
  void number_of(const Vector& d, Mask mask);
  /// d = the one of a and b that compares as `larger`; a NaN of either stays. Registers of any width; uses m0().
  void extreme(bool largest, const Vector& d, const Vector& a, const Operand& b, bool is_f32);
  /// Rounds to bf16: the low half of every lane of d. Uses s(0), s(1), m0().
  void round_to_bf16(const Vector& d, const Vector& a);

  void add(const Vector& d, const Vector& a, const Operand& b);
  void move(const Vector& d, const Operand& a);
  void broadcast(const Vector& d, const Operand& a);

  // ---- memory: fused_memory.cpp ------------------------------------------------------------

  /// From here on "the rest" is the first elements of a vector, as many as rcx says. `place`: of every_bytes() of the
  /// stack, from rsp on.
  void begin_rest(int place);
  /// d = 0, 1, .. plus rax and `first`, in 32 bits each.
  void lane_numbers(const Vector& d, int first);
  void load(DType stored, const Vector& d, const Address& from, bool is_rest);
  void load(Mask d, const Address& from, bool is_rest);
  void store(DType stored, const Address& to, const Vector& value, bool is_rest);
  void store(const Address& to, Mask value, bool is_rest);
  /// Past the caches, to an address that is a multiple of a vector's bytes.
  void stream(const Address& to, const Vector& value) { is_f32_ ? vmovntps(to, value) : vmovntpd(to, value); }
  /// d = a for elements of the rest.
  void merge_rest(const Vector& d, const Vector& a);
  /// Combines the elements into f64 in memory, one for each.
  void combine_into(bool is_sum, bool is_largest, const Address& to, const Vector& value, bool is_rest);

  static Address behind(const Address& base, int bytes) { return Xbyak::util::ptr[base.getRegExp() + bytes]; }

 private:
  std::uint64_t pattern_of(double value) const;
  Address literal(std::uint64_t pattern) { return in_every_lane(Xbyak::util::rip + literals_[pattern]); }
  void multiply_add(const Vector& d, const Vector& b, double c) { vfmadd213ps(d, b, every(c)); }  // d = d * b + c
  void reduce(const Vector& a);
  void power_of_two(const Vector& d, const Vector& n);
  void bound(const Vector& d, double least, double most);
  void exp(const Vector& d);
  void expm1(const Vector& d, const Vector& a);
  void tanh(const Vector& d, const Vector& a);
  void sigmoid(const Vector& d, const Vector& a);
  void erf(const Vector& d, const Vector& a);
  void polynomial(const Vector& d, const Vector& x, std::initializer_list<double> coefficients);
  void copy_sign(const Vector& d, const Vector& sign);
  void magnitude(const Vector& d, const Vector& a);
  void round_to(int mode, const Vector& d, const Vector& a);
  void compare(int how, Mask d, const Vector& a, const Operand& b, bool is_f32);
  void bit_and(const Vector& d, const Vector& a, const Operand& b);
  void bit_or(const Vector& d, const Vector& a, const Operand& b);
  void bit_xor(const Vector& d, const Vector& a, const Operand& b);
  static Xbyak::Opmask k(Mask mask) { return Xbyak::Opmask(mask.index); }
  static Xbyak::Opmask rest() { return Xbyak::Opmask(1); }
  static Vector as_wide_as(const Vector& d, int index) { return d.copyAndSetIdx(index); }
  void combine_half(bool is_sum, bool is_largest, const Address& to, const Vector& value, bool is_rest, int first);
  template <class Each>
  void each_of_rest(Each each);

  bool is_wide_, is_f32_;
  int rest_place_ = 0;
  std::map<std::uint64_t, Xbyak::Label> literals_;
  Xbyak::Label numbers_;  // 0, 1, .. 15
};

}  // namespace paoding
