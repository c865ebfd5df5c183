// SPDX-License-Identifier: Apache-2.0
// The parts of cuDNN's convolutions that timing them against our own needs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/kernel.h"

namespace paoding {

/// The name of the row.
inline constexpr const char* kCudnnRow = "cudnn";

/// Whether the op's table has the row.
bool has_cudnn_row(const OpDef& op);
/// Why cuDNN cannot do the call, whatever is faster; empty when it may.
std::string cudnn_refusal(const KernelCall& call);
/// The key under which the fastest kernel for the call is kept.
std::string timing_key(const KernelCall& call);
/// Memory beside the operands that cudnn_kernels() may use.
std::int64_t cudnn_workspace_bytes(const KernelCall& call);

struct CudnnKernel {
  std::string engine;
  std::unique_ptr<PreparedKernel> kernel;
};
/// The call by up to `most` engines, the best by cuDNN's own judgement first. Error (unsupported, device) where there
/// is none.
std::vector<CudnnKernel> cudnn_kernels(const KernelCall& call, const Device& device, std::size_t most);

}  // namespace paoding
