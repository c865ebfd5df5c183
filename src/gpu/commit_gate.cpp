// SPDX-License-Identifier: Apache-2.0
#include "gpu/commit_gate.h"

#include "cuda_text.h"
#include "gpu/text_kernel.h"

namespace paoding::gpu {

TextLaunch plan_commit_gate(std::int64_t fault_words) {
  TextParts parts;
  parts.name = "commit_gate";
  parts.functions = k_commit_gate_cu;
  parts.operands = {"unsigned* failed", "const unsigned* cancelled", "unsigned long long* words",
                    "unsigned long long* report"};
  parts.call = "commit_gate(failed, cancelled, words, report, size)";
  parts.ctas = 1;
  parts.sizes.number("words", fault_words);
  return make_text_kernel(parts);
}

TextLaunch plan_cancel_look() {
  TextParts parts;
  parts.name = "cancel_look";
  parts.threads = 32;
  parts.functions = k_cancel_look_cu;
  parts.operands = {"const unsigned* flag", "unsigned* cancelled"};
  parts.call = "cancel_look(flag, cancelled)";
  parts.ctas = 1;
  return make_text_kernel(parts);
}

}  // namespace paoding::gpu
