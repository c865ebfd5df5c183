// SPDX-License-Identifier: Apache-2.0
// The work of an instruction of XLA's, or of a step of ours, whose shapes have inputs and results.
#pragma once

#include <string_view>

#include "findings/kernel_kind.h"
#include "findings/op_work.h"

namespace paoding::findings {

/// The operations of a product say how long its inner sums are; 0: not known.
OpWork work_of_hlo(std::string_view shapes, KernelKind kind, double flops);

}  // namespace paoding::findings
