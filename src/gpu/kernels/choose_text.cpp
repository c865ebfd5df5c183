// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/choose_text.h"

#include "cuda_text.h"
#include "gpu/codegen/text_kernel.h"

namespace paoding::gpu {
namespace {

TextLaunch plan_choice(const std::string& name, std::vector<std::string> operands, std::string call, SizeFields sizes,
                       const Target& target) {
  TextParts parts;
  parts.name = name;
  parts.threads = 32;
  parts.functions = k_choose_cu;
  parts.operands = std::move(operands);
  parts.call = std::move(call);
  parts.ctas = 1;
  parts.sizes = std::move(sizes);
  TextLaunch launch = make_text_kernel(parts);
  launch.overlaps_before = overlaps_before(target, launch);
  return launch;
}

}  // namespace

TextLaunch plan_choose_words(std::span<const WordChoice> choices, const Target& target) {
  SizeFields sizes;
  std::vector<std::string> operands;
  std::string call;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    operands.push_back(input_parameter(choices[i].index, fmt::format("index{}", i)));
    operands.push_back(fmt::format("const unsigned* outer{}", i));
    operands.push_back(fmt::format("unsigned* not_taken{}", i));
    call += fmt::format("{0}choose_words(index{1}, outer{1}, not_taken{1}, {2})", i == 0 ? "" : ";\n  ", i,
                        sizes.number(fmt::format("count{}", i), choices[i].count));
  }
  return plan_choice("choose_words", std::move(operands), std::move(call), std::move(sizes), target);
}

TextLaunch plan_choose_body(DType index, std::int64_t count, const Target& target) {
  SizeFields sizes;
  sizes.number("count", count);
  return plan_choice("choose_body",
                     {input_parameter(index, "index"), "const unsigned* outer", "unsigned long long handle"},
                     "choose_body(index, outer, handle, size)", std::move(sizes), target);
}

TextLaunch plan_choose_turn(DType index, std::int64_t turns_between, const Target& target) {
  SizeFields sizes;
  sizes.number("turns_between", turns_between);
  return plan_choice(
      "choose_turn",
      {input_parameter(index, "index"), "const unsigned* outer", "unsigned long long handle", "const unsigned* flag",
       "unsigned* cancelled", "unsigned* turns", "const unsigned long long* faults", "unsigned long long fault_words"},
      "choose_turn(index, outer, handle, flag, cancelled, turns, faults, fault_words, size)", std::move(sizes), target);
}

}  // namespace paoding::gpu
