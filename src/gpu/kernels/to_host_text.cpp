// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/to_host_text.h"

#include "cuda_text.h"
#include "gpu/codegen/text_kernel.h"

namespace paoding::gpu {

TextLaunch plan_log_value(std::int64_t room) {
  TextParts parts;
  parts.name = "log_value";
  parts.threads = 512;
  parts.functions = k_to_host_cu;
  parts.operands = {"const unsigned char* from", "unsigned long long bytes", "unsigned long long launch",
                    "unsigned long long* log"};
  parts.call = "log_value(from, bytes, launch, log, size)";
  parts.ctas = 1;
  parts.sizes.wide_number("room", room);
  return make_text_kernel(parts);
}

TextLaunch plan_completion_flag(std::span<const std::int64_t> bytes, const Target& target) {
  TextParts parts;
  parts.name = "completion_flag";
  parts.functions = k_to_host_cu;
  parts.operands = {"unsigned* ended", "unsigned* told"};
  // The counter is this kernel's alone, so it need not be waited for.
  parts.call =
      "const unsigned count = *ended + 1;\n  grid_dependency_wait();\n  __syncthreads();\n"
      "  if (threadIdx.x == 0) *ended = count;\n";
  for (std::size_t i = 0; i < kMostMoved; ++i) {
    parts.operands.push_back(fmt::format("unsigned char* to{}", i));
    parts.operands.push_back(fmt::format("const unsigned char* from{}", i));
    parts.call += fmt::format("  move_value(to{0}, from{0}, {1});\n", i,
                              parts.sizes.number(fmt::format("bytes{}", i), i < bytes.size() ? bytes[i] : 0));
  }
  parts.call += "  set_completion_flag(told, count)";
  parts.waits_for_grid_dependency = parts.leaves_stamp = true;
  parts.ctas = 1;
  TextLaunch launch = make_text_kernel(parts);
  launch.overlaps_before = overlaps_before(target, launch);
  return launch;
}

TextLaunch plan_pack(std::span<const std::int64_t> bytes, const Target& target) {
  TextParts parts;
  parts.name = "pack_results";
  parts.threads = 64;
  parts.functions = k_to_host_cu;
  parts.operands = {"unsigned char* to"};
  std::int64_t at = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    parts.operands.push_back(fmt::format("const unsigned char* from{}", i));
    parts.call += fmt::format("{}pack(to + {}, from{}, {})", i == 0 ? "" : ";\n  ",
                              parts.sizes.number(fmt::format("at{}", i), at), i,
                              parts.sizes.number(fmt::format("bytes{}", i), bytes[i]));
    at += (bytes[i] + 15) / 16 * 16;
  }
  parts.ctas = 1;
  TextLaunch launch = make_text_kernel(parts);
  launch.overlaps_before = overlaps_before(target, launch);
  return launch;
}

}  // namespace paoding::gpu
