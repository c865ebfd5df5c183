// SPDX-License-Identifier: Apache-2.0
#include "ops/all_kernels.h"

namespace paoding {

void register_built_in_kernels() {
  register_matmul_cpu();
  register_matmul_packed_cpu();
  register_index_cpu();
  register_sort_cpu();
  register_convolution_cpu();
  register_pooling_cpu();
  register_recurrence_cpu();
  register_attention_cpu();
  register_collectives_cpu();
#if PAODING_WITH_CUDA
  register_matmul_gpu();
  register_attention_gpu();
  register_index_gpu();
  register_convolution_cudnn_gpu();
  register_convolution_product_gpu();
  register_convolution_tma_gpu();
  register_convolution_patch_gpu();
  register_convolution_gemm_gpu();
  register_convolution_channel_gpu();
  register_convolution_gpu();
  register_pool_rows_gpu();
  register_pool_blocks_gpu();
  register_pooling_gpu();
  register_sort_gpu();
  register_cumsum_gpu();
  register_recurrence_gpu();
  register_cell_step_gpu();
  register_collectives_gpu();
#endif
}

}  // namespace paoding
