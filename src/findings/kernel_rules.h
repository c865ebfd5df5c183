// SPDX-License-Identifier: Apache-2.0
// Rules about the work of GPUs, each in a file of its own (rules/): they read kernels with their kinds and sizes.
#pragma once

#include <vector>

#include "findings/candidate.h"
#include "findings/kernel_work.h"

namespace paoding::findings {

void find_pointwise_chain(const KernelWorks& works, Candidates* out);
void find_layout_kernels(const KernelWorks& works, Candidates* out);
void find_gradient_fills(const KernelWorks& works, Candidates* out);
void find_small_grid(const KernelWorks& works, Candidates* out);
void find_exact_f32_product(const KernelWorks& works, Candidates* out);
void find_odd_dimensions(const KernelWorks& works, Candidates* out);
void find_far_from_bandwidth(const KernelWorks& works, Candidates* out);
void find_slow_product(const KernelWorks& works, Candidates* out);
void find_exposed_collectives(const KernelWorks& works, Candidates* out);
void find_straggler_rank(const KernelWorks& works, Candidates* out);
void find_sinking_clocks(const KernelWorks& works, Candidates* out);

/// Kernels that follow each other on a stream, do elementwise work on equally many elements and could be one.
struct PointwiseChain {
  std::vector<const KernelWork*> kernels;
  double ns = 0, casts_ns = 0;       // of all of them; of casts among them
  double least_ns = 0, most_ns = 0;  // as one kernel: if all that else is read comes from outside, if nothing does
  /// Casts there and back take most of it: it asks for another type along the way.
  bool is_of_casts() const { return casts_ns * 2 > ns; }
};
std::vector<PointwiseChain> pointwise_chains(const KernelWorks& works);

}  // namespace paoding::findings
