// SPDX-License-Identifier: Apache-2.0
// The families of ops; each registers its blocks. all_ops.cpp calls them all: an explicit list, so that a static
// library loses none.
#pragma once

namespace paoding {

void register_elementwise_ops();
void register_constants();
void register_views();
void register_view_forms();
void register_joins();
void register_function_ops();
void register_bitwise_ops();
void register_comparison_ops();
void register_activation_ops();
void register_reduction_ops();
void register_index_ops();
void register_check_indices();
void register_dynamic_ops();
void register_mask_ops();
void register_sort_ops();
void register_matmul();
void register_matmul_packed();
void register_einsum();
void register_convolution();
void register_convolution_pool();
void register_convolution_add();
void register_pooling();
void register_scan();
void register_assign();
void register_branch();
void register_while();
void register_checkpoint();
void register_softmax_ops();
void register_loss_ops();
void register_norm_ops();
void register_group_norm();
void register_random_ops();
void register_sampling_ops();
void register_position_ops();
void register_attention();
void register_collectives();
void register_recurrent_ops();
void register_lstm_recurrence();
void register_gru_recurrence();
void register_rnn_recurrence();
void register_group();

}  // namespace paoding
