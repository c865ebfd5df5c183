// SPDX-License-Identifier: Apache-2.0
// The CPU's implementations of matmul, a file each. A refusal is empty when the implementation can do the call.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cpu/onednn.h"
#include "ops/kernel.h"
#include "ops/matmul/matmul_shape.h"

namespace paoding {

/// One to four rows, or columns, of f32 or bf16 times a matrix: a matter of reading the matrix once.
std::string vector_matmul_refusal(const KernelCall& call);
std::unique_ptr<PreparedKernel> prepare_vector_matmul(const KernelCall& call, const Device& device);

/// oneDNN's, for f32 and bf16.
std::string onednn_matmul_refusal(const KernelCall& call);
/// The same with b packed so, without a batch; the strides that the call has for b do not matter.
std::string onednn_packed_refusal(const KernelCall& call, const dnnl::memory::desc& packed);
std::unique_ptr<PreparedKernel> prepare_onednn_matmul(const MatmulShape& shape, const dnnl::memory::desc& packed);
/// oneDNN's sgemm, where it is faster than the primitive; otherwise null.
std::unique_ptr<PreparedKernel> prepare_sgemm(const MatmulShape& shape);
/// Why a matrix of an operand is too large for it, or its rows too far apart; empty when it is not.
std::string onednn_size_refusal(DType dtype, const MatmulOperand& operand, std::int64_t rows, std::int64_t columns,
                                std::string_view name);
/// Whether one thread is done with so many multiplications before a second has woken up.
bool is_serial_product(std::int64_t multiplications);

/// In blocks that fit the caches: f64, and of f32 where that is faster than oneDNN, gradients of weights.
std::string blocked_matmul_refusal(const KernelCall& call);
std::unique_ptr<PreparedKernel> prepare_blocked_matmul(const KernelCall& call, const Device& device);

/// Everything, slowly.
std::unique_ptr<PreparedKernel> prepare_matmul_loops(const KernelCall& call, const Device& device);

}  // namespace paoding
