// SPDX-License-Identifier: Apache-2.0
// The explicit list of kernels, in the order in which they are tried.
#pragma once

namespace paoding {

void register_built_in_kernels();
void register_matmul_cpu();
void register_matmul_gpu();
void register_index_gpu();

}  // namespace paoding
