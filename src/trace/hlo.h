// SPDX-License-Identifier: Apache-2.0
// XLA's programs as its profiles carry them (HloProto): what an instruction computes, for which op of the user's, on
// which shapes and in which line. Only what is asked for is decoded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace paoding::trace {

/// An instruction. Text that is a view is part of the file.
struct HloOp {
  std::string_view name;     // "loop_add_fusion.3"
  std::string_view opcode;   // "fusion"
  std::string_view op_name;  // "jit(step)/jvp()/dot_general": what the user wrote; empty where XLA made it up
  std::string shape;         // "f32[128,64]"
  std::string operands;      // "f32[128,32], f32[32,64]"
  std::int64_t bytes = 0;    // of all of those; 0: not known
  double flops = 0;          // of products; 0: not known
  std::string source;        // "model.py:17"; empty where it is not said
  std::vector<std::string_view> members;  // what a fusion is made of: last words of op_name, or opcodes; in order
};

class HloModule {
 public:
  /// Of the bytes of a HloProto, which stay where they are. What is broken is left out.
  explicit HloModule(std::string_view proto);
  HloModule(HloModule&&) = default;
  HloModule& operator=(HloModule&&) = default;
  HloModule(const HloModule&) = delete;  // views point into it
  HloModule& operator=(const HloModule&) = delete;

  /// By the instruction's name; nullptr where there is none.
  const HloOp* find(std::string_view instruction);
  /// By the name of the kernel that was made for it, in which '.' and '-' are '_'; nullptr where there is none, or more
  /// than one.
  const HloOp* find_kernel(std::string_view kernel);
  bool is_broken() const { return is_broken_; }

 private:
  struct Instruction {
    std::string_view name, message;
  };
  struct Computation {
    std::vector<std::uint32_t> instructions;
  };
  void add_computation(std::string_view message);
  void add_frames(std::string_view message);
  const HloOp* decode(std::uint32_t index);
  void add_members(std::uint64_t computation, HloOp* op) const;
  std::string source_of(std::string_view metadata) const;
  double product_flops(std::string_view dimensions, std::string_view left, std::string_view shape) const;

  struct Place {
    std::uint64_t file = 0, line = 0;
  };
  std::vector<Instruction> instructions_;
  std::unordered_map<std::string_view, std::uint32_t> by_name_;
  std::unordered_map<std::string, std::uint32_t> by_kernel_;  // kSeveral: of more than one
  std::unordered_map<std::uint64_t, std::uint32_t> by_id_;
  std::unordered_map<std::uint64_t, Computation> computations_;
  std::unordered_map<std::uint32_t, HloOp> decoded_;
  std::vector<std::string_view> files_;
  std::vector<Place> places_;
  std::vector<std::uint64_t> frames_;  // the place of each
  bool is_broken_ = false;
};

/// The last word of "jit(step)/jvp()/dot_general", and what stands before it: "jit(step)/jvp()".
std::string_view last_word(std::string_view op_name);
std::string_view scope_of(std::string_view op_name);

}  // namespace paoding::trace
