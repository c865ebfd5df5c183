// SPDX-License-Identifier: Apache-2.0
// Work bound by memory in any dtype: `paoding bench kernels`.
#pragma once

#include "cli/bench/case.h"

namespace paoding::cli::bench {

/// layer_norm forward and backward, cross entropy, Adam.
Cases kernel_variants(DType dtype);
Case adam_case(std::int64_t tensors, std::int64_t elements, DType dtype);

}  // namespace paoding::cli::bench
