// SPDX-License-Identifier: Apache-2.0
#include "gpu/choose_text.h"

#include "cuda_text.h"
#include "gpu/text_kernel.h"

namespace paoding::gpu {
namespace {

TextLaunch plan_choice(const std::string& name, DType index, std::vector<std::string> operands, std::string arguments,
                       SizeFields sizes, const Target& target) {
  TextParts parts;
  parts.name = name;
  parts.threads = 32;
  parts.functions = k_choose_cu;
  parts.operands = {input_parameter(index, "index"), "const unsigned* outer"};
  for (std::string& operand : operands) parts.operands.push_back(std::move(operand));
  parts.call = fmt::format("{}(index, outer, {}, size)", name, arguments);
  parts.ctas = 1;
  parts.sizes = std::move(sizes);
  TextLaunch launch = make_text_kernel(parts);
  launch.overlaps_before = overlaps_before(target, launch);
  return launch;
}

}  // namespace

TextLaunch plan_choose_words(DType index, std::int64_t count, const Target& target) {
  SizeFields sizes;
  sizes.number("count", count);
  return plan_choice("choose_words", index, {"unsigned* not_taken"}, "not_taken", sizes, target);
}

TextLaunch plan_choose_body(DType index, std::int64_t count, const Target& target) {
  SizeFields sizes;
  sizes.number("count", count);
  return plan_choice("choose_body", index, {"unsigned long long handle"}, "handle", sizes, target);
}

TextLaunch plan_choose_turn(DType index, std::int64_t turns_between, const Target& target) {
  SizeFields sizes;
  sizes.number("turns_between", turns_between);
  return plan_choice("choose_turn", index,
                     {"unsigned long long handle", "const unsigned* flag", "unsigned* cancelled", "unsigned* turns",
                      "const unsigned long long* faults", "unsigned long long fault_words"},
                     "handle, flag, cancelled, turns, faults, fault_words", sizes, target);
}

}  // namespace paoding::gpu
