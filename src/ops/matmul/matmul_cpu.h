// SPDX-License-Identifier: Apache-2.0
// The CPU's implementations of matmul, a file each. A refusal is empty when the implementation can do the call.
#pragma once

#include <memory>
#include <string>

#include "ops/kernel.h"

namespace paoding {

/// One to four rows, or columns, of f32 times a matrix: a matter of reading the matrix once.
std::string vector_matmul_refusal(const KernelCall& call);
std::unique_ptr<PreparedKernel> prepare_vector_matmul(const KernelCall& call, const Device& device);

/// f64 in blocks that fit the caches.
std::string blocked_matmul_refusal(const KernelCall& call);
std::unique_ptr<PreparedKernel> prepare_blocked_matmul(const KernelCall& call, const Device& device);

/// Everything, slowly.
std::unique_ptr<PreparedKernel> prepare_matmul_loops(const KernelCall& call, const Device& device);

}  // namespace paoding
