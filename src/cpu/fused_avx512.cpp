// SPDX-License-Identifier: Apache-2.0
// The loop of a fused routine: whole vectors, several at a time, then what is left under a mask.
#include "cpu/fused_routine.h"

#if defined(__x86_64__)

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <map>
#include <mutex>
#include <string>

#include "base/env.h"
#include "cpu/fused_avx512.h"
#include "hwy/targets.h"
#include "xbyak/xbyak_util.h"

namespace paoding {
namespace {

using Kind = Meaning::Kind;
using ValueKind = FusedLayout::Value::Kind;

constexpr int kVectors = FusedLayout::kVectors;

class Emitter : public VectorAssembler, public FusedCode {
 public:
  Emitter(const FusedRun& run, const FusedLayout& layout)
      : VectorAssembler(layout.compute), run_(run), layout_(layout) {
    choose_unroll();
    write();
    setProtectModeRE();
  }

  TileRoutine routine() const override { return getCode<TileRoutine>(); }

 private:
  using Reg64 = Xbyak::Reg64;
  using Address = Xbyak::Address;

  static constexpr int kRegisters[] = {Operand::RDI, Operand::RDX, Operand::RBX, Operand::RBP,
                                       Operand::R8,  Operand::R9,  Operand::R10, Operand::R11,
                                       Operand::R12, Operand::R13, Operand::R14, Operand::R15};
  static_assert(std::size(kRegisters) == FusedLayout::kStreams);

  Reg64 index() const { return rax; }
  Reg64 count() const { return rcx; }
  Reg64 slots() const { return rsi; }

  void choose_unroll() {
    const int sums = static_cast<int>(layout_.sums.size());
    int work = 0;
    for (const Instruction& i : run_.instructions) {
      const bool is_function = i.meaning.kind == Kind::prim && i.meaning.prim >= Prim::exp &&
                               i.meaning.prim <= Prim::erf && i.meaning.prim != Prim::sqrt;
      work += is_function ? 20 : 1;
    }
    unroll_ = work > 40 ? 1 : work > 16 ? 2 : 4;
    while (unroll_ > 1 && layout_.vectors + sums * unroll_ > kVectors) unroll_ /= 2;
    first_sum_ = layout_.vectors;
    first_scalar_ = first_sum_ + sums * unroll_;
  }

  // ---- operands ------------------------------------------------------------------------

  Zmm vector(int value) const { return Zmm(layout_.values[static_cast<std::size_t>(value)].reg); }
  Opmask mask(int value) const { return Opmask(2 + layout_.values[static_cast<std::size_t>(value)].reg); }
  Zmm sum(std::size_t which, int part) const { return Zmm(first_sum_ + static_cast<int>(which) * unroll_ + part); }
  static Opmask rest() { return Opmask(1); }

  Address at(std::uint16_t slot, int bytes, int part) {
    const auto found = std::find(layout_.streams.begin(), layout_.streams.end(), slot);
    const Reg64 base(kRegisters[found - layout_.streams.begin()]);
    return ptr[base + index() * bytes + part * lanes() * bytes];
  }

  // Scalars that have no register are read from the stack.
  bool has_register(std::size_t scalar) const { return first_scalar_ + static_cast<int>(scalar) < kVectors; }
  Zmm scalar_register(std::size_t scalar) const { return Zmm(first_scalar_ + static_cast<int>(scalar)); }
  Address on_stack(std::size_t scalar) { return ptr_b[rsp + static_cast<int>(scalar) * 8]; }

  // A vector argument as a register; a scalar without one goes through `spare`.
  Zmm in_register(int arg, const Zmm& spare) {
    if (arg >= 0) return vector(arg);
    const auto scalar = static_cast<std::size_t>(-1 - arg);
    if (has_register(scalar)) return scalar_register(scalar);
    broadcast(spare, ptr[rsp + static_cast<int>(scalar) * 8]);
    return spare;
  }

  // Calls use(operand) with a register or memory.
  template <class Use>
  void with_operand(int arg, Use use) {
    if (arg >= 0) return use(vector(arg));
    const auto scalar = static_cast<std::size_t>(-1 - arg);
    if (has_register(scalar)) return use(scalar_register(scalar));
    use(on_stack(scalar));
  }

  // ---- the routine -----------------------------------------------------------------------

  void write() {
    const std::array<Reg64, 6> saved = {rbx, rbp, r12, r13, r14, r15};
    for (const Reg64& reg : saved) push(reg);
    const int stack = static_cast<int>(layout_.scalars.size() + layout_.targets.size()) * 8;
    if (stack > 0) sub(rsp, stack);
    read_count();
    read_scalars();
    find_targets();
    for (std::size_t i = 0; i < layout_.streams.size(); ++i)
      mov(Reg64(kRegisters[i]), ptr[slots() + layout_.streams[i] * 8]);
    for (std::size_t which = 0; which < layout_.sums.size(); ++which) {
      for (int part = 0; part < unroll_; ++part) broadcast_literal(sum(which, part), identity(which));
    }
    xor_(eax, eax);
    loop(unroll_);
    if (unroll_ > 1) loop(1);
    write_rest();
    for (std::size_t which = 0; which < layout_.sums.size(); ++which) finish_sum(which);
    vzeroupper();
    if (stack > 0) Xbyak::CodeGenerator::add(rsp, stack);
    for (std::size_t i = saved.size(); i-- > 0;) pop(saved[i]);
    ret();
    write_literals();
    if (layout_.targets.empty()) return;
    align(64);
    L(numbers_);
    for (std::uint32_t lane = 0; lane < 16; ++lane) dd(lane);
  }

  // How many elements a tile has, of (self: rdi, slots: rsi, shape: rdx).
  void read_count() {
    mov(count(), 1);
    if (!run_.one_col) mov(count(), ptr[rdx + offsetof(TileShape, cols)]);
    if (!run_.one_row) imul(count(), ptr[rdx + offsetof(TileShape, rows)]);
  }

  void read_scalars() {
    for (std::size_t i = 0; i < layout_.scalars.size(); ++i) {
      mov(rax, ptr[slots() + layout_.scalars[i] * 8]);
      if (has_register(i)) {
        broadcast(scalar_register(i), ptr[rax]);
      } else if (is_f32()) {
        mov(eax, ptr[rax]);
        mov(ptr[rsp + static_cast<int>(i) * 8], eax);
      } else {
        mov(rax, ptr[rax]);
        mov(ptr[rsp + static_cast<int>(i) * 8], rax);
      }
    }
  }

  // The number less the first index, in 32 bits: tiles are shorter.
  void find_targets() {
    constexpr int kMost = 1 << 30;
    for (std::size_t i = 0; i < layout_.targets.size(); ++i) {
      const FusedLayout::Target& target = layout_.targets[i];
      mov(rdx, ptr[slots() + target.number * 8]);
      target.is_wide ? mov(rdx, ptr[rdx]) : movsxd(rdx, dword[rdx]);
      sub(rdx, ptr[slots() + target.index * 8]);
      mov(rax, -1);
      cmp(rdx, rax);
      cmovl(rdx, rax);
      mov(rax, kMost);
      cmp(rdx, rax);
      cmovg(rdx, rax);
      mov(dword[rsp + target_place(i)], edx);
    }
  }
  int target_place(std::size_t target) const { return static_cast<int>(layout_.scalars.size() + target) * 8; }

  void compare_index(const Instruction& instruction, const FusedLayout::Step& step, int part) {
    const int s0 = s(0).getIdx();
    const Xmm element = is_f32() ? Xmm(s(0)) : Xmm(Xbyak::Ymm(s0));
    vpbroadcastd(element, eax);
    vpaddd(element, element, ptr[rip + numbers_]);
    if (part > 0) vpaddd(element, element, every_bits(static_cast<std::uint32_t>(part * lanes())));
    constexpr int kEqual = 0, kLess = 1, kLessEqual = 2, kNotLess = 5, kGreater = 6;
    const bool is_number_first = instruction.meaning.scalar_args == 1;
    const int how = instruction.meaning.prim == Prim::equal  ? kEqual
                    : instruction.meaning.prim == Prim::less ? (is_number_first ? kGreater : kLess)
                    : is_number_first                        ? kNotLess
                                                             : kLessEqual;
    vpcmpd(mask(step.out), element, ptr_b[rsp + target_place(static_cast<std::size_t>(step.target))],
           static_cast<std::uint8_t>(how));
  }

  // While `parts` whole vectors are left.
  void loop(int parts) {
    Xbyak::Label next, done;
    const int step = parts * lanes();
    sub(count(), step);
    L(next);
    cmp(index(), count());
    jg(done, T_NEAR);
    for (int part = 0; part < parts; ++part) write_body(part, false);
    Xbyak::CodeGenerator::add(index(), step);
    jmp(next, T_NEAR);
    L(done);
    Xbyak::CodeGenerator::add(count(), step);
  }

  void write_rest() {
    Xbyak::Label done;
    sub(count(), index());
    jz(done, T_NEAR);
    // The low bits of a mask; the pointers in the registers it takes are saved on the way.
    push(rdi);
    mov(edi, -1);
    bzhi(edi, edi, ecx);
    kmovw(rest(), edi);
    pop(rdi);
    write_body(0, true);
    L(done);
  }

  void write_body(int part, bool is_rest) {
    for (std::size_t i = 0; i < run_.instructions.size(); ++i) {
      for (const FusedLayout::Input& input : layout_.steps[i].loads) {
        const bool is_mask = layout_.values[static_cast<std::size_t>(input.value)].kind == ValueKind::mask;
        load(is_mask ? boolean : layout_.compute, input.slot, input.value, part, is_rest);
      }
      write_instruction(i, part, is_rest);
    }
  }

  void write_instruction(std::size_t i, int part, bool is_rest) {
    const Instruction& instruction = run_.instructions[i];
    const FusedLayout::Step& step = layout_.steps[i];
    const Meaning& m = instruction.meaning;
    switch (m.kind) {
      case Kind::load: load(m.stored, instruction.a, step.out, part, is_rest); break;
      case Kind::store: store(m.stored, instruction.out, step.args[0], part, is_rest); break;
      case Kind::convert: convert(m, step); break;
      case Kind::index: break;  // where it is compared
      case Kind::prim:
        step.target == FusedLayout::kNone ? compute(m.prim, step) : compare_index(instruction, step, part);
        break;
      default: accumulate(i, part, is_rest); break;
    }
    if (step.out >= 0 && run_.is_stored[i]) {
      const bool is_mask = layout_.values[static_cast<std::size_t>(step.out)].kind == ValueKind::mask;
      store(is_mask ? boolean : layout_.compute, instruction.out, step.out, part, is_rest);
    }
  }

  // ---- memory ------------------------------------------------------------------------------

  void load(DType stored, std::uint16_t slot, int value, int part, bool is_rest) {
    if (stored == boolean) {
      const Address from = at(slot, 1, part);
      const Xmm bytes(s(0).getIdx());
      if (is_rest) {
        vmovdqu8(bytes | rest() | T_z, from);
      } else {
        is_f32() ? vmovdqu8(bytes, from) : vmovq(bytes, from);
      }
      vptestmb(mask(value), bytes, bytes);
      return;
    }
    const Zmm d = is_rest ? vector(value) | rest() | T_z : vector(value);
    switch (stored) {
      case DType::bf16:
        vpmovzxwd(d, at(slot, 2, part));
        vpslld(vector(value), vector(value), 16);
        break;
      case DType::f16: vcvtph2ps(d, at(slot, 2, part)); break;
      default: move(d, at(slot, size(), part)); break;
    }
  }

  void store(DType stored, std::uint16_t slot, int value, int part, bool is_rest) {
    if (stored == boolean) {
      const Xmm bytes(s(0).getIdx());
      vpmovm2b(bytes, mask(value));
      vpandd(bytes, bytes, every_bits(0x01010101));
      const Address to = at(slot, 1, part);
      if (is_rest) {
        vmovdqu8(to | rest(), bytes);
      } else {
        is_f32() ? vmovdqu8(to, bytes) : vmovq(to, bytes);
      }
      return;
    }
    const auto limited = [&](Address to) { return is_rest ? to | rest() : to; };
    switch (stored) {
      case DType::bf16:
        round_to_bf16(s(2), vector(value));
        vpmovdw(limited(at(slot, 2, part)), s(2));
        break;
      case DType::f16: vcvtps2ph(limited(at(slot, 2, part)), vector(value), 0); break;
      default: {
        const Address to = limited(at(slot, size(), part));
        is_f32() ? vmovups(to, vector(value)) : vmovupd(to, vector(value));
      }
    }
  }

  // ---- arithmetic ----------------------------------------------------------------------------

  void convert(const Meaning& m, const FusedLayout::Step& step) {
    const Zmm d = vector(step.out);
    if (m.compute == boolean) {
      broadcast_literal(s(0), 1);
      is_f32() ? vmovaps(d | mask(step.args[0]) | T_z, s(0)) : vmovapd(d | mask(step.args[0]) | T_z, s(0));
    } else if (m.stored == DType::bf16) {
      round_to_bf16(d, vector(step.args[0]));
      vpslld(d, d, 16);
    } else {
      const Xbyak::Ymm half(s(0).getIdx());
      vcvtps2ph(half, vector(step.args[0]), 0);
      vcvtph2ps(d, half);
    }
  }

  void compute(Prim prim, const FusedLayout::Step& step) {
    switch (prim) {
      case Prim::less:
      case Prim::less_equal:
      case Prim::equal: {
        const Zmm a = in_register(step.args[0], s(0));
        return with_operand(step.args[1], [&](const Operand& b) { compare(prim, mask(step.out), a, b); });
      }
      case Prim::select: {
        const Zmm no = in_register(step.args[2], s(0));
        return with_operand(step.args[1], [&](const Operand& yes) {
          const Zmm d = vector(step.out) | mask(step.args[0]);
          is_f32() ? vblendmps(d, no, yes) : vblendmpd(d, no, yes);
        });
      }
      case Prim::logical_and: return kandw(mask(step.out), mask(step.args[0]), mask(step.args[1]));
      case Prim::logical_or: return korw(mask(step.out), mask(step.args[0]), mask(step.args[1]));
      case Prim::logical_not: return knotw(mask(step.out), mask(step.args[0]));
      default: break;
    }
    if (step.args[1] == FusedLayout::kNone) return unary(prim, vector(step.out), in_register(step.args[0], s(0)));
    const Zmm a = in_register(step.args[0], s(0));
    with_operand(step.args[1], [&](const Operand& b) { binary(prim, vector(step.out), a, b); });
  }

  // ---- reductions ----------------------------------------------------------------------------

  Combine combine_of(std::size_t which) const { return run_.instructions[layout_.sums[which]].meaning.combine; }

  double identity(std::size_t which) const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return combine_of(which) == Combine::sum ? 0 : combine_of(which) == Combine::max ? -kInfinity : kInfinity;
  }

  void combine(Combine how, const Xmm& d, const Xmm& a, const Operand& b) {
    how == Combine::sum ? add(d, a, b) : extreme(how == Combine::max, d, a, b);
  }

  void accumulate(std::size_t i, int part, bool is_rest) {
    const Instruction& instruction = run_.instructions[i];
    const Zmm value = vector(layout_.steps[i].args[0]);
    if (!instruction.cols_reduced) return accumulate_columns(instruction, value, part, is_rest);
    const auto found = std::find(layout_.sums.begin(), layout_.sums.end(), i);
    const Zmm total = sum(static_cast<std::size_t>(found - layout_.sums.begin()), part);
    if (!is_rest) {
      // The extreme of a new and an old value is found in a register of neither.
      if (instruction.meaning.combine == Combine::sum) return add(total, total, value);
      extreme(instruction.meaning.combine == Combine::max, s(0), total, value);
      return move(total, s(0));
    }
    combine(instruction.meaning.combine, s(0), total, value);
    move(total | rest(), s(0));
  }

  // Into sums of f64, eight columns at a time.
  void accumulate_columns(const Instruction& instruction, const Zmm& value, int part, bool is_rest) {
    const auto base = at(instruction.out, 8, part);
    const auto half = [&](const Zmm& wide, const Address& to, const Opmask& limit) {
      const Zmm old = s(1), sum = s(2);
      vmovupd(is_rest ? old | limit | T_z : old, to);
      if (instruction.meaning.combine == Combine::sum) {
        vaddpd(sum, old, wide);
      } else {
        const bool largest = instruction.meaning.combine == Combine::max;
        vcmppd(m(0), old, old, 3);
        largest ? vmaxpd(sum, old, wide) : vminpd(sum, old, wide);
        vmovapd(sum | m(0), old);
      }
      vmovupd(is_rest ? to | limit : to, sum);
    };
    if (!is_f32()) return half(value, base, rest());
    vcvtps2pd(s(0), Xbyak::Ymm(value.getIdx()));
    half(s(0), base, rest());
    const Xbyak::Ymm upper(s(3).getIdx());
    vextractf32x8(upper, value, 1);
    vcvtps2pd(s(0), upper);
    if (is_rest) kshiftrw(m(1), rest(), 8);
    half(s(0), at_bytes(base, 64), m(1));
  }

  Address at_bytes(const Address& base, int bytes) { return ptr[base.getRegExp() + bytes]; }

  // All lanes into one; then into the accumulator, which is f64, or to the result.
  void finish_sum(std::size_t which) {
    const Instruction& instruction = run_.instructions[layout_.sums[which]];
    const Combine how = instruction.meaning.combine;
    const Zmm total = sum(which, 0), other = s(0), joined = s(1);
    for (int part = 1; part < unroll_; ++part) {
      combine(how, joined, total, sum(which, part));
      move(total, joined);
    }
    const int t = total.getIdx(), o = other.getIdx(), j = joined.getIdx();
    is_f32() ? vextractf32x8(Xbyak::Ymm(o), total, 1) : vextractf64x4(Xbyak::Ymm(o), total, 1);
    combine(how, Xbyak::Ymm(j), Xbyak::Ymm(t), Xbyak::Ymm(o));
    is_f32() ? vextractf32x4(Xmm(o), Xbyak::Ymm(j), 1) : vextractf64x2(Xmm(o), Xbyak::Ymm(j), 1);
    combine(how, Xmm(t), Xmm(j), Xmm(o));
    if (is_f32()) {
      vpermilps(Xmm(o), Xmm(t), 0x4e);
      combine(how, Xmm(j), Xmm(t), Xmm(o));
      vpermilps(Xmm(o), Xmm(j), 0xb1);
    } else {
      vmovapd(Xmm(j), Xmm(t));
      vpermilpd(Xmm(o), Xmm(t), 1);
    }
    combine(how, Xmm(t), Xmm(j), Xmm(o));
    mov(rax, ptr[slots() + instruction.out * 8]);
    if (instruction.meaning.kind == Kind::reduce) {
      is_f32() ? vmovss(ptr[rax], Xmm(t)) : vmovsd(ptr[rax], Xmm(t));
      return;
    }
    if (is_f32()) {
      vcvtss2sd(Xmm(j), Xmm(t), Xmm(t));
    } else {
      vmovapd(Xmm(j), Xmm(t));
    }
    vmovsd(Xmm(o), ptr[rax]);
    if (how == Combine::sum) {
      vaddsd(Xmm(t), Xmm(o), Xmm(j));
    } else {
      vcmppd(m(0), Xmm(o), Xmm(o), 3);
      how == Combine::max ? vmaxsd(Xmm(t), Xmm(o), Xmm(j)) : vminsd(Xmm(t), Xmm(o), Xmm(j));
      vmovapd(Xmm(t) | m(0), Xmm(o));
    }
    vmovsd(ptr[rax], Xmm(t));
  }

  const FusedRun& run_;
  const FusedLayout& layout_;
  Xbyak::Label numbers_;  // 0, 1, ... 15
  int unroll_ = 1, first_sum_ = 0, first_scalar_ = 0;
};

// All that the code depends on.
std::vector<std::uint32_t> key_of(const FusedRun& run) {
  std::vector<std::uint32_t> key = {run.single_row};
  for (std::size_t i = 0; i < run.instructions.size(); ++i) {
    const Instruction& n = run.instructions[i];
    const Meaning& m = n.meaning;
    for (const auto part : {static_cast<std::uint32_t>(m.kind), static_cast<std::uint32_t>(m.prim),
                            static_cast<std::uint32_t>(m.combine), static_cast<std::uint32_t>(m.compute),
                            static_cast<std::uint32_t>(m.stored), static_cast<std::uint32_t>(m.scalar_args)}) {
      key.push_back(part);
    }
    for (const std::uint32_t slot : {n.out, n.a, n.b, n.c}) key.push_back(slot);
    key.push_back(n.one_row | n.one_col << 1 | n.rows_reduced << 2 | n.cols_reduced << 3 | run.is_stored[i] << 4);
  }
  return key;
}

}  // namespace

bool can_fuse_tiles() {
  static const bool can = [] {
    using Xbyak::util::Cpu;
    const Cpu cpu;
    const bool is_wanted = env_text("PAODING_FUSE_TILES").empty() || env_flag("PAODING_FUSE_TILES");
    return is_wanted && cpu.has(Cpu::tAVX512F) && cpu.has(Cpu::tAVX512BW) && cpu.has(Cpu::tAVX512DQ) &&
           cpu.has(Cpu::tAVX512VL) && cpu.has(Cpu::tBMI2);
  }();
  return can && (hwy::SupportedTargets() & HWY_AVX3) != 0;  // tests take instruction sets away from Highway
}

std::shared_ptr<const FusedCode> make_fused_routine(const FusedRun& run, const FusedLayout& layout) {
  static std::mutex mutex;
  static std::map<std::vector<std::uint32_t>, std::weak_ptr<const FusedCode>> made;
  constexpr std::size_t kMostKnown = 4096;  // then those of programs that are gone are forgotten
  const std::lock_guard lock(mutex);
  if (made.size() > kMostKnown) std::erase_if(made, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const FusedCode>& known = made[key_of(run)];
  std::shared_ptr<const FusedCode> code = known.lock();
  if (code) return code;
  try {
    known = code = std::make_shared<Emitter>(run, layout);
  } catch (const Xbyak::Error&) {
    // Longer than the memory for it, or memory that may not become executable: the interpreter goes on.
  }
  return code;
}

}  // namespace paoding

#else

namespace paoding {

bool can_fuse_tiles() { return false; }
std::shared_ptr<const FusedCode> make_fused_routine(const FusedRun&, const FusedLayout&) { return nullptr; }

}  // namespace paoding

#endif
