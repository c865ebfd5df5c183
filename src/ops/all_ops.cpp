// SPDX-License-Identifier: Apache-2.0
// The explicit list of op families.
#include "ops/families.h"

namespace paoding {

void register_built_in_ops() {
  register_elementwise_ops();
  register_constants();
  register_views();
  register_view_forms();
  register_joins();
  register_function_ops();
  register_comparison_ops();
  register_bitwise_ops();
  register_activation_ops();
  register_reduction_ops();
  register_index_ops();
  register_check_indices();
  register_dynamic_ops();
  register_mask_ops();
  register_sort_ops();
  register_matmul();
  register_matmul_packed();
  register_einsum();
  register_convolution();
  register_pooling();
  register_convolution_pool();
  register_convolution_add();
  register_scan();
  register_assign();
  register_branch();
  register_while();
  register_checkpoint();
  register_softmax_ops();
  register_loss_ops();
  register_norm_ops();
  register_group_norm();
  register_random_ops();
  register_sampling_ops();
  register_position_ops();
  register_attention();
  register_collectives();
  register_recurrent_ops();
  register_lstm_recurrence();
  register_gru_recurrence();
  register_rnn_recurrence();
  register_group();
}

}  // namespace paoding
