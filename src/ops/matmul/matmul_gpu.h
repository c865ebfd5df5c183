// SPDX-License-Identifier: Apache-2.0
// The parts of cuBLASLt's products that timing their algorithms needs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/kernel.h"

namespace paoding {

/// The name of the row.
inline constexpr const char* kCublasLtRow = "cublaslt";

/// The key under which it is kept which algorithm is fastest for a call that the row takes.
std::string product_key(const KernelCall& call);
/// Memory beside the operands that cublaslt_kernels() may use.
std::int64_t cublaslt_workspace_bytes(const KernelCall& call);
/// The call by the algorithm that is taken where none was timed, and by those up to `most` that the library's
/// heuristics name for it, best first by their own judgement. Error (unsupported, device) where there is none.
std::vector<std::unique_ptr<PreparedKernel>> cublaslt_kernels(const KernelCall& call, const Device& device, int most);

}  // namespace paoding
