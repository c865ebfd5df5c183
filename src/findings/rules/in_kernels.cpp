// SPDX-License-Identifier: Apache-2.0
#include "findings/kernel_rules.h"
#include "findings/rules.h"

namespace paoding::findings {

void find_in_kernels(const Steps& steps, Candidates* out) {
  const KernelWorks works(steps);
  for (const auto find : {find_pointwise_chain, find_layout_kernels, find_gradient_fills, find_small_grid,
                          find_exact_f32_product, find_odd_dimensions, find_far_from_bandwidth, find_slow_product,
                          find_exposed_collectives, find_straggler_rank, find_sinking_clocks}) {
    find(works, out);
  }
}

}  // namespace paoding::findings
