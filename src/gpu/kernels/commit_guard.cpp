// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/commit_guard.h"

#include "cuda_text.h"
#include "gpu/codegen/text_kernel.h"

namespace paoding::gpu {

TextLaunch plan_commit_guard(std::int64_t fault_words) {
  TextParts parts;
  parts.name = "commit_guard";
  parts.functions = k_commit_guard_cu;
  parts.operands = {"unsigned* failed", "const unsigned* cancelled", "unsigned long long* words",
                    "unsigned long long* report"};
  parts.call = "commit_guard(failed, cancelled, words, report, size)";
  parts.ctas = 1;
  parts.sizes.number("words", fault_words);
  return make_text_kernel(parts);
}

TextLaunch plan_cancellation_poll() {
  TextParts parts;
  parts.name = "poll_cancellation";
  parts.threads = 32;
  parts.functions = k_cancellation_poll_cu;
  parts.operands = {"const unsigned* flag", "unsigned* cancelled"};
  parts.call = "poll_cancellation(flag, cancelled)";
  parts.ctas = 1;
  return make_text_kernel(parts);
}

}  // namespace paoding::gpu
