// SPDX-License-Identifier: Apache-2.0
// The explicit list of kernels, in the order in which they are tried.
#pragma once

namespace paoding {

void register_built_in_kernels();
void register_matmul_cpu();
void register_matmul_packed_cpu();
void register_convolution_cpu();
void register_convolution_loops(const char* op);
void register_pooling_cpu();
void register_attention_gpu();
void register_matmul_gpu();
void register_index_gpu();
void register_convolution_cudnn_gpu();
void register_convolution_patch_gpu();
void register_convolution_product_gpu();
void register_convolution_tma_gpu();
void register_convolution_gemm_gpu();
void register_convolution_channel_gpu();
void register_convolution_gpu();
void register_pool_rows_gpu();
void register_pool_blocks_gpu();
void register_pooling_gpu();
void register_sort_gpu();
void register_cumsum_gpu();
void register_recurrence_gpu();
void register_cell_step_gpu();
void register_index_cpu();
void register_sort_cpu();
void register_recurrence_cpu();
void register_attention_cpu();
void register_collectives_cpu();
void register_collectives_gpu();

}  // namespace paoding
