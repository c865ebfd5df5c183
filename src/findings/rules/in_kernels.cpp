// SPDX-License-Identifier: Apache-2.0
#include "findings/kernel_rules.h"
#include "findings/rules.h"

namespace paoding::findings {

namespace {

using KernelRule = void (*)(const KernelWorks& works, Candidates* out);

// Rules about tensor cores, CTAs, clocks and collectives of GPUs mean nothing where kernels run on the CPU.
void find_on_cpu(const KernelWorks& works, Candidates* out) {
  for (const KernelRule find : {find_pointwise_chain, find_layout_kernels, find_far_from_bandwidth}) find(works, out);
  out->say_nothing(Kind::slow_product, "no recording says how fast products of its CPU can be");
  for (const Kind kind : {Kind::late_launches, Kind::sync_in_step, Kind::pageable_copies, Kind::exposed_copies,
                          Kind::small_grid, Kind::exact_f32_product, Kind::odd_dimensions, Kind::sinking_clocks}) {
    out->say_nothing(kind, "kernels ran on the CPU");
  }
}

}  // namespace

void find_in_kernels(const Steps& steps, Candidates* out) {
  const KernelWorks works(steps);
  if (works.are_on_cpu()) return find_on_cpu(works, out);
  for (const KernelRule find : {find_pointwise_chain, find_layout_kernels, find_gradient_fills, find_small_grid,
                                find_exact_f32_product, find_odd_dimensions, find_far_from_bandwidth, find_slow_product,
                                find_exposed_collectives, find_straggler_rank, find_sinking_clocks}) {
    find(works, out);
  }
}

}  // namespace paoding::findings
