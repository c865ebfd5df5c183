// SPDX-License-Identifier: Apache-2.0
// Section T: transformers that are asked for and not written yet. Their rows stand here so that nobody takes
// their absence for a result.
#include "cli/bench/case.h"

namespace paoding::cli::bench {

Cases transformer_cases() {
  struct Asked {
    const char *name, *what, *waits_for;
    double goal_ms, floor_ms;
  };
  const Asked all[] = {
      {"gpt2/token_bf16", "one decoded token, B 1, cache of 1,024", "an attention over a cache kept on the device",
       0.12, 0.065},
      {"xlnet_block/training_bf16", "B 32, T 512, d 1024, 16 heads", "a fused attention", 0, 0},
  };
  Cases cases;
  for (const Asked& row : all) {
    Case c;
    c.section = 'T';
    c.name = c.kind = row.name;
    c.what = row.what;
    c.dtype = DType::bf16;
    c.on_cpu = false;
    c.waits_for = row.waits_for;
    c.goal.wall = 1e3 * row.goal_ms;
    c.need.floor_us = 1e3 * row.floor_ms;
    cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace paoding::cli::bench
