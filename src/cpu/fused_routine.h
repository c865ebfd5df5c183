// SPDX-License-Identifier: Apache-2.0
// Several instructions of a tile as one routine, written in machine code when a kernel is prepared: values that the
// tile interpreter hands from one instruction to the next through L1 stay in vector registers, so that a group is bound
// by memory and not by the interpreter. Where the CPU or an instruction does not allow it, the interpreter goes on.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/target.h"
#include "cpu/tile.h"

namespace paoding {

/// A stretch of a tile list. All its instructions have values for the same elements.
struct FusedRun {
  std::span<const Instruction> instructions;
  std::vector<bool> is_stored;            // per instruction: somebody else reads the register it writes
  bool single_row = false;                // a tile has one row
  bool one_row = false, one_col = false;  // of the values, as of an Instruction
};

/// Machine code that can be called.
class FusedCode {
 public:
  virtual ~FusedCode() = default;
  virtual TileRoutine routine() const = 0;
};

/// The instruction set of routines on this CPU: avx512 (F, BW, DQ, VL), avx2 (with FMA and F16C), or scalar where there
/// are none. PAODING_FUSE_TILES=0 means scalar, PAODING_CPU_ISA=avx2 no more than that.
VectorIsa fused_isa();
/// Registers for values, sums and single elements; four more are for the steps of a function.
int fused_vectors(VectorIsa isa);
/// Whether a stretch may contain the instruction.
bool is_fusable(const Instruction& instruction, bool single_row);
/// Whether an instruction of such a kind writes a register or an operand of its own, for each element of its argument.
bool has_result(const Meaning& meaning);
/// Whether it combines the elements of a whole tile.
bool reduces(const Meaning& meaning);

/// Appends all of an instruction that a routine's code depends on: not its strides, which are arguments.
void add_to_key(const Instruction& instruction, std::vector<std::uint32_t>* key);

/// Which registers, pointers and masks a stretch needs.
struct FusedLayout {
  static constexpr int kNone = std::numeric_limits<int>::min();
  static constexpr std::size_t kStreams = 12;  // registers for pointers
  struct Input {
    std::uint16_t slot = 0;
    int value = -1;
  };
  struct Step {
    std::vector<Input> loads;             // values read from memory before the instruction
    int args[3] = {kNone, kNone, kNone};  // values; -1 - s: scalar s
    int out = kNone;
    int target = kNone;  // of a comparison with an index: which of `targets`
  };
  struct Value {
    enum class Kind : std::uint8_t { vector, mask, index };  // an index is nowhere: it follows from the element
    Kind kind = Kind::vector;
    int reg = -1;
  };
  /// The element from which on an index is no longer less than a number, or where it equals it.
  struct Target {
    std::uint16_t index = 0, number = 0;  // slots
    bool is_wide = false;                 // the number is an i64
  };
  VectorIsa isa = VectorIsa::scalar;
  DType compute = DType::f32;  // of the vectors
  std::vector<Step> steps;     // per instruction
  std::vector<Value> values;
  std::vector<std::uint16_t> streams;  // slots whose pointers are kept
  std::vector<std::uint16_t> scalars;  // slots that hold one element
  std::vector<Target> targets;
  std::vector<std::size_t> sums;  // instructions that reduce all elements to one
  int vectors = 0;                // registers of values
};
/// Nothing when the stretch needs more than there is.
std::optional<FusedLayout> layout_of(const FusedRun& run, VectorIsa isa);

/// The routine of a stretch that has a layout; null when it is too long. Equal stretches share one.
std::shared_ptr<const FusedCode> make_fused_routine(const FusedRun& run, const FusedLayout& layout);

/// The facts that a fusion knows of slots.
struct TileRegisters {
  std::size_t operands = 0;       // the first slots
  std::vector<bool> is_register;  // per slot: no other list knows it
};

/// Replaces stretches of two and more fusable instructions of a list by one each. `code` keeps the routines' machine
/// code alive.
void fuse_instructions(const TileRegisters& registers, bool single_row, std::vector<Instruction>* list,
                       std::vector<std::shared_ptr<const FusedCode>>* code);

}  // namespace paoding
