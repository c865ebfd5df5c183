// SPDX-License-Identifier: Apache-2.0
// The loop of a fused routine: whole vectors, several at a time, then the remaining elements under a mask.
#include "cpu/fused_routine.h"
#include "cpu/this_cpu.h"

#if defined(__x86_64__)

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <limits>
#include <map>
#include <mutex>
#include <string>

#include "base/env.h"
#include "cpu/fused_vectors.h"
#include "hwy/targets.h"
#include "xbyak/xbyak_util.h"

namespace paoding {
namespace {

using Kind = Meaning::Kind;
using ValueKind = FusedLayout::Value::Kind;

class Emitter : public VectorAssembler, public FusedCode {
 public:
  Emitter(const FusedRun& run, const FusedLayout& layout)
      : VectorAssembler(layout.isa, layout.compute), run_(run), layout_(layout), vectors_(fused_vectors(layout.isa)) {
    choose_unroll();
    write();
    setProtectModeRE();
  }

  TileRoutine routine() const override { return getCode<TileRoutine>(); }

 private:
  using Reg64 = Xbyak::Reg64;

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
      work += is_function ? 20 : i.meaning.kind == Kind::prefetch ? 0 : 1;
    }
    unroll_ = work > 40 ? 1 : work > 16 ? 2 : 4;
    while (unroll_ > 1 && layout_.vectors + sums * unroll_ > vectors_) unroll_ /= 2;
    first_sum_ = layout_.vectors;
    first_scalar_ = first_sum_ + sums * unroll_;
  }

  // ---- operands ------------------------------------------------------------------------

  int register_of(int value) const { return layout_.values[static_cast<std::size_t>(value)].reg; }
  Vector vector(int value) const { return full(register_of(value)); }
  Mask mask(int value) const { return {is_wide() ? 2 + register_of(value) : register_of(value)}; }
  Vector sum(std::size_t which, int part) const { return full(first_sum_ + static_cast<int>(which) * unroll_ + part); }

  Reg64 pointer(std::uint16_t slot) const {
    const auto found = std::find(layout_.streams.begin(), layout_.streams.end(), slot);
    return Reg64(kRegisters[found - layout_.streams.begin()]);
  }
  Address at(std::uint16_t slot, int bytes, int part) {
    return ptr[pointer(slot) + index() * bytes + part * lanes() * bytes];
  }

  // Scalars that have no register are read from the stack.
  bool has_register(std::size_t scalar) const { return first_scalar_ + static_cast<int>(scalar) < vectors_; }
  Vector scalar_register(std::size_t scalar) const { return full(first_scalar_ + static_cast<int>(scalar)); }
  Address on_stack(std::size_t scalar) const { return in_every_lane(rsp + scalar_place(scalar)); }

  // The stack holds scalars, targets, the mask of the rest, and the stack pointer of the caller.
  int scalar_place(std::size_t scalar) const { return static_cast<int>(scalar) * every_bytes(); }
  int target_place(std::size_t target) const { return scalar_place(layout_.scalars.size() + target); }
  int rest_place() const { return target_place(layout_.targets.size()); }
  int caller_place() const { return rest_place() + every_bytes(); }

  // A vector argument as a register; a scalar without one goes through `spare`.
  Vector in_register(int arg, const Vector& spare) {
    if (arg >= 0) return vector(arg);
    const auto scalar = static_cast<std::size_t>(-1 - arg);
    if (has_register(scalar)) return scalar_register(scalar);
    broadcast(spare, ptr[rsp + scalar_place(scalar)]);
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
    mov(rax, rsp);
    sub(rsp, caller_place() + 8);
    and_(rsp, -32);
    mov(ptr[rsp + caller_place()], rax);
    read_count();
    read_scalars();
    find_targets();
    for (std::size_t i = 0; i < layout_.streams.size(); ++i)
      mov(Reg64(kRegisters[i]), ptr[slots() + layout_.streams[i] * 8]);
    for (std::size_t which = 0; which < layout_.sums.size(); ++which) {
      for (int part = 0; part < unroll_; ++part) broadcast_literal(sum(which, part), identity(which));
    }
    if (streams()) {
      Xbyak::Label unaligned;
      are_streams_aligned();
      mov(eax, 0);
      jnz(unaligned, T_NEAR);
      is_streaming_ = true;
      loop(unroll_);
      is_streaming_ = false;
      L(unaligned);
    } else {
      xor_(eax, eax);
    }
    loop(unroll_);
    if (unroll_ > 1) loop(1);
    write_rest();
    for (std::size_t which = 0; which < layout_.sums.size(); ++which) finish_sum(which);
    vzeroupper();
    mov(rsp, ptr[rsp + caller_place()]);
    for (std::size_t i = saved.size(); i-- > 0;) pop(saved[i]);
    ret();
    write_literals();
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
      } else {
        broadcast(s(0), ptr[rax]);
        is_wide() ? vmovq(ptr[rsp + scalar_place(i)], xmm(s(0))) : vmovups(ptr[rsp + scalar_place(i)], s(0));
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
      if (is_wide()) {
        mov(dword[rsp + target_place(i)], edx);
      } else {
        vmovd(xmm(s(0)), edx);
        vpbroadcastd(s(0), xmm(s(0)));
        vmovdqu(ptr[rsp + target_place(i)], s(0));
      }
    }
  }

  void compare_index(const Instruction& instruction, const FusedLayout::Step& step, int part) {
    const Vector element = counting(s(0).getIdx());
    lane_numbers(element, part * lanes());
    compare_integers(instruction.meaning.prim, instruction.meaning.scalar_args == 1, mask(step.out), element,
                     in_every_lane(rsp + target_place(static_cast<std::size_t>(step.target))));
  }

  bool streams() const {
    return std::ranges::any_of(run_.instructions, [](const Instruction& i) { return i.meaning.streams; });
  }

  // Zero if all that is written past the caches begins where a vector may.
  void are_streams_aligned() {
    xor_(eax, eax);
    for (const Instruction& instruction : run_.instructions) {
      if (instruction.meaning.streams) or_(rax, pointer(instruction.out));
    }
    test(eax, lanes() * size() - 1);
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
    begin_rest(rest_place());
    write_body(0, true);
    L(done);
  }

  void write_body(int part, bool is_rest) {
    for (std::size_t i = 0; i < run_.instructions.size(); ++i) {
      for (const FusedLayout::Input& input : layout_.steps[i].loads) {
        load_value(layout_.compute, input.slot, input.value, part, is_rest);
      }
      write_instruction(i, part, is_rest);
    }
  }

  void write_instruction(std::size_t i, int part, bool is_rest) {
    const Instruction& instruction = run_.instructions[i];
    const FusedLayout::Step& step = layout_.steps[i];
    const Meaning& m = instruction.meaning;
    switch (m.kind) {
      case Kind::load: load_value(m.stored, instruction.a, step.out, part, is_rest); break;
      case Kind::store:
        if (is_streaming_ && m.streams && !is_mask(step.args[0])) {
          stream(at(instruction.out, size(), part), vector(step.args[0]));
        } else {
          store_value(m.stored, instruction.out, step.args[0], part, is_rest);
        }
        break;
      case Kind::convert: convert(m, step); break;
      case Kind::index: break;  // where it is compared
      case Kind::prefetch: prefetch(instruction, part); break;
      case Kind::prim:
        step.target == FusedLayout::kNone ? compute(m.prim, step) : compare_index(instruction, step, part);
        break;
      default: accumulate(i, part, is_rest); break;
    }
    if (step.out >= 0 && run_.is_stored[i]) {
      store_value(layout_.compute, instruction.out, step.out, part, is_rest);
    }
  }

  // ---- memory ------------------------------------------------------------------------------

  bool is_mask(int value) const { return layout_.values[static_cast<std::size_t>(value)].kind == ValueKind::mask; }

  void load_value(DType stored, std::uint16_t slot, int value, int part, bool is_rest) {
    if (is_mask(value)) return load(mask(value), at(slot, 1, part), is_rest);
    load(stored, vector(value), at(slot, static_cast<int>(size_bytes(stored)), part), is_rest);
  }

  void store_value(DType stored, std::uint16_t slot, int value, int part, bool is_rest) {
    if (is_mask(value)) return store(at(slot, 1, part), mask(value), is_rest);
    store(stored, at(slot, static_cast<int>(size_bytes(stored)), part), vector(value), is_rest);
  }

  void prefetch(const Instruction& instruction, int part) {
    constexpr int kLine = 64;
    const int bytes = static_cast<int>(size_bytes(instruction.meaning.stored));
    if (part * lanes() * bytes % kLine != 0) return;
    prefetcht1(behind(at(instruction.a, bytes, part), instruction.meaning.ahead));
  }

  // ---- arithmetic ----------------------------------------------------------------------------

  void convert(const Meaning& m, const FusedLayout::Step& step) {
    const Vector d = vector(step.out);
    if (m.compute == boolean) {
      number_of(d, mask(step.args[0]));
    } else if (m.stored == DType::bf16) {
      round_to_bf16(d, vector(step.args[0]));
      vpslld(d, d, 16);
    } else {
      const Vector half = is_wide() ? Vector(ymm(s(0))) : xmm(s(0));
      vcvtps2ph(half, vector(step.args[0]), 0);
      vcvtph2ps(d, half);
    }
  }

  void compute(Prim prim, const FusedLayout::Step& step) {
    switch (prim) {
      case Prim::less:
      case Prim::less_equal:
      case Prim::equal: {
        const Vector a = in_register(step.args[0], s(0));
        return with_operand(step.args[1], [&](const Operand& b) { compare(prim, mask(step.out), a, b); });
      }
      case Prim::select: {
        const Vector no = in_register(step.args[2], s(0));
        return with_operand(step.args[1],
                            [&](const Operand& yes) { select(vector(step.out), mask(step.args[0]), yes, no); });
      }
      case Prim::logical_and:
      case Prim::logical_or: return logical(prim, mask(step.out), mask(step.args[0]), mask(step.args[1]));
      case Prim::logical_not: return logical(prim, mask(step.out), mask(step.args[0]), {});
      default: break;
    }
    if (step.args[1] == FusedLayout::kNone) return unary(prim, vector(step.out), in_register(step.args[0], s(0)));
    const Vector a = in_register(step.args[0], s(0));
    with_operand(step.args[1], [&](const Operand& b) { binary(prim, vector(step.out), a, b); });
  }

  // ---- reductions ----------------------------------------------------------------------------

  Combine combine_of(std::size_t which) const { return run_.instructions[layout_.sums[which]].meaning.combine; }

  double identity(std::size_t which) const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return combine_of(which) == Combine::sum ? 0 : combine_of(which) == Combine::max ? -kInfinity : kInfinity;
  }

  void combine(Combine how, const Vector& d, const Vector& a, const Operand& b) {
    how == Combine::sum ? add(d, a, b) : extreme(how == Combine::max, d, a, b, is_f32());
  }

  void accumulate(std::size_t i, int part, bool is_rest) {
    const Instruction& instruction = run_.instructions[i];
    const Vector value = vector(layout_.steps[i].args[0]);
    if (!instruction.cols_reduced) return accumulate_columns(instruction, value, part, is_rest);
    const auto found = std::find(layout_.sums.begin(), layout_.sums.end(), i);
    const Vector total = sum(static_cast<std::size_t>(found - layout_.sums.begin()), part);
    if (!is_rest) {
      // The extreme of a new and an old value is found in a register of neither.
      if (instruction.meaning.combine == Combine::sum) return add(total, total, value);
      extreme(instruction.meaning.combine == Combine::max, s(0), total, value, is_f32());
      return move(total, s(0));
    }
    combine(instruction.meaning.combine, s(0), total, value);
    merge_rest(total, s(0));
  }

  void accumulate_columns(const Instruction& instruction, const Vector& value, int part, bool is_rest) {
    const Combine how = instruction.meaning.combine;
    combine_into(how == Combine::sum, how == Combine::max, at(instruction.out, 8, part), value, is_rest);
  }

  // All lanes into one; then into the accumulator, which is f64, or to the result.
  void finish_sum(std::size_t which) {
    const Instruction& instruction = run_.instructions[layout_.sums[which]];
    const Combine how = instruction.meaning.combine;
    const Vector total = sum(which, 0), other = s(0), joined = s(1);
    for (int part = 1; part < unroll_; ++part) {
      combine(how, joined, total, sum(which, part));
      move(total, joined);
    }
    const Vector t = xmm(total), o = xmm(other), j = xmm(joined);
    if (is_wide()) {
      const Xbyak::Zmm whole(total.getIdx());
      is_f32() ? vextractf32x8(ymm(other), whole, 1) : vextractf64x4(ymm(other), whole, 1);
      combine(how, ymm(joined), ymm(total), ymm(other));
    } else {
      move(joined, total);
    }
    is_wide() ? vextractf32x4(o, ymm(joined), 1) : vextractf128(o, ymm(joined), 1);
    combine(how, t, j, o);
    if (is_f32()) {
      vpermilps(o, t, 0x4e);
      combine(how, j, t, o);
      vpermilps(o, j, 0xb1);
    } else {
      vmovapd(j, t);
      vpermilpd(o, t, 1);
    }
    combine(how, t, j, o);
    mov(rax, ptr[slots() + instruction.out * 8]);
    if (instruction.meaning.kind == Kind::reduce) return is_f32() ? vmovss(ptr[rax], t) : vmovsd(ptr[rax], t);
    is_f32() ? vcvtss2sd(j, t, t) : vmovapd(j, t);
    vmovsd(o, ptr[rax]);
    how == Combine::sum ? vaddsd(t, o, j) : extreme(how == Combine::max, t, o, j, false);
    vmovsd(ptr[rax], t);
  }

  const FusedRun& run_;
  const FusedLayout& layout_;
  int vectors_;  // registers for values, sums and scalars
  int unroll_ = 1, first_sum_ = 0, first_scalar_ = 0;
  bool is_streaming_ = false;  // in a loop whose streams are aligned
};

// All that the code depends on.
std::vector<std::uint32_t> key_of(const FusedRun& run, VectorIsa isa) {
  std::vector<std::uint32_t> key = {run.single_row, static_cast<std::uint32_t>(isa)};
  for (std::size_t i = 0; i < run.instructions.size(); ++i) {
    add_to_key(run.instructions[i], &key);
    key.push_back(run.is_stored[i]);
  }
  return key;
}

}  // namespace

VectorIsa fused_isa() {
  static const VectorIsa most = [] {
    using Xbyak::util::Cpu;
    const Cpu cpu;
    const bool is_wanted = env_text("PAODING_FUSE_TILES").empty() || env_flag("PAODING_FUSE_TILES");
    if (!is_wanted || !cpu.has(Cpu::tAVX2) || !cpu.has(Cpu::tFMA) || !cpu.has(Cpu::tF16C)) return VectorIsa::scalar;
    const bool is_wide = cpu.has(Cpu::tAVX512F) && cpu.has(Cpu::tAVX512BW) && cpu.has(Cpu::tAVX512DQ) &&
                         cpu.has(Cpu::tAVX512VL) && cpu.has(Cpu::tBMI2);
    return is_wide ? VectorIsa::avx512 : VectorIsa::avx2;
  }();
  const std::int64_t allowed = allowed_instructions();
  if (most == VectorIsa::avx512 && (allowed & HWY_AVX3) != 0) return VectorIsa::avx512;
  return most != VectorIsa::scalar && (allowed & HWY_AVX2) != 0 ? VectorIsa::avx2 : VectorIsa::scalar;
}

int fused_vectors(VectorIsa isa) { return isa == VectorIsa::avx512 ? 28 : 12; }

std::shared_ptr<const FusedCode> make_fused_routine(const FusedRun& run, const FusedLayout& layout) {
  static std::mutex mutex;
  static std::map<std::vector<std::uint32_t>, std::weak_ptr<const FusedCode>> made;
  constexpr std::size_t kMostKnown = 4096;  // then those of programs that are gone are forgotten
  const std::lock_guard lock(mutex);
  if (made.size() > kMostKnown) std::erase_if(made, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const FusedCode>& known = made[key_of(run, layout.isa)];
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

VectorIsa fused_isa() { return VectorIsa::scalar; }
int fused_vectors(VectorIsa) { return 0; }
std::shared_ptr<const FusedCode> make_fused_routine(const FusedRun&, const FusedLayout&) { return nullptr; }

}  // namespace paoding

#endif
