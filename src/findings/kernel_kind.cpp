// SPDX-License-Identifier: Apache-2.0
#include "findings/kernel_kind.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace paoding::findings {
namespace {

struct KernelWord {
  std::string_view word;
  KernelKind kind;
};

bool has(std::string_view text, std::string_view word) { return text.find(word) != text.npos; }

using enum KernelKind;

// Looked for in this order anywhere in a name; letters are small.
constexpr auto kWords = std::to_array<KernelWord>({
    // Inductor's names hold those of all the ops that it fused: the beginning says its kind
    {"triton_poi_", pointwise},
    {"triton_red_", reduction},
    {"triton_per_", reduction},
    {"triton_for_", optimizer},
    {"triton_tem_", product},
    {"nccldevkernel", collective},
    {"ncclkernel", collective},
    {"rccl", collective},
    {"nvshmem", collective},
    {"cross_device_reduce", collective},
    {"all_reduce", collective},
    {"allreduce", collective},
    {"reduce_scatter", collective},
    {"all_gather", collective},
    {"allgather", collective},
    {"all_to_all", collective},
    {"_dispatch_deep_ep", collective},
    // of FBGEMM, whose own name would make them products
    {"fbgemm_gpu::permute", layout},
    {"fp8_quantize", cast},
    {"fp8rowwise_to", cast},
    {"get_fp8_qparam", reduction},
    {"_to_hfp8", cast},
    {"hfp8_to_", cast},
    {"fbgemm_gpu::_", other},
    // parts of products and convolutions
    {"splitkreduce", product_part},
    {"splitk_reduce", product_part},
    {"reducesplitk", product_part},
    {"reduce_split_k", product_part},
    {"offsetskernel", product_part},
    {"init_device_workspace", product_part},
    {"reduce_wgrad", product_part},
    {"kern_precompute_indices", product_part},
    {"postgsu", product_part},
    {"finalize_matmul", product_part},
    {"epilogue::impl", product_part},
    {"subtensoropwithscalar", fill},
    {"subtensoropwithcast", cast},
    {"scalepackedtensor", fill},
    // orders and types of tensors
    {"addpadding", layout},
    {"nchwtonhwc", layout},
    {"nhwctonchw", layout},
    {"batched_transpose", layout},
    {"transpose_", layout},
    {"tensortransform", layout},
    {"converttensor", layout},
    {"catarray", layout},
    {"input_concatenate", layout},
    {"concatenate_fusion", layout},
    {"permute_pooled", layout},
    {"genericpermute", layout},
    {"tensor_permute", layout},
    {"transpose_fusion", layout},
    {"wrapped_transpose", layout},
    {"wrapped_concatenate", layout},
    // caches of keys and values, and turns of them, whose names hold "flash" and "embedding"
    {"reshape_and_cache", gather},
    {"kv_indices", gather},
    {"kvcache", gather},
    {"rotary", pointwise},
    {"masked_fill", pointwise},
    // attention before products, since its names hold theirs
    {"flash", attention},
    {"fmha", attention},
    {"attention", attention},
    {"_sdpa_", attention},
    {"attn_fwd", attention},
    {"attn_bwd", attention},
    {"mha_", attention},
    // recurrences
    {"lstm", recurrence},
    {"rnn", recurrence},
    {"gru_cell", recurrence},
    {"gru_", recurrence},
    {"recurrence", recurrence},
    // norms: their names hold "reduce" and "elementwise"
    {"batch_norm", normalization},
    {"batchnorm", normalization},
    {"miopenbatchnorm", normalization},
    {"bn_fw", normalization},
    {"bn_bw", normalization},
    {"layer_norm", normalization},
    {"layernorm", normalization},
    {"rms_norm", normalization},
    {"rmsnorm", normalization},
    {"rowwisemoments", normalization},
    {"gammabeta", normalization},
    {"groupnorm", normalization},
    {"group_norm", normalization},
    {"softmax", softmax},
    {"nll_loss", reduction},
    {"classnll", reduction},
    {"cross_entropy", reduction},
    // convolutions
    {"mult_and_sum_complex", convolution},
    {"flip_filter", convolution},
    {"implicit_convolve", convolution},
    {"explicit_convolve", convolution},
    {"implicit_gemm", convolution},
    {"implicitgemm", convolution},
    {"dgrad", convolution},
    {"wgrad", convolution},
    {"fprop", convolution},
    {"scudnn", convolution},
    {"hcudnn", convolution},
    {"winograd", convolution},
    {"fft2d", convolution},
    {"gcgemm", convolution},
    {"igemm_fwd", convolution},
    {"igemm_bwd", convolution},
    {"igemm_wrw", convolution},
    {"im2col", convolution},
    {"im2d2col", convolution},
    {"col2im", convolution},
    {"conv2d", convolution},
    {"conv3d", convolution},
    {"conv_depthwise", convolution},
    {"miopenconv", convolution},
    {"naive_conv", convolution},
    {"miopensp3", convolution},
    {"convolve", convolution},
    // products
    {"nvjet", product},
    {"gemm", product},
    {"cijk_", product},
    {"gemv", product},
    {"matmul", product},
    {"dot_kernel", reduction},
    {"reduce_1block_kernel", reduction},
    {"bf16xbf16", product},
    {"triton_mm", product},
    {"cublaslt", product_part},
    {"product", product},
    // optimizers and other lists of tensors
    {"multi_tensor_apply", optimizer},
    {"adam_", optimizer},
    {"fusedadam", optimizer},
    {"_fused_sgd", optimizer},
    // by index
    {"embedding", gather},
    {"index_select", gather},
    {"indexselect", gather},
    {"index_put", gather},
    {"index_elementwise", gather},
    {"indexing_backward", gather},
    {"index_kernel", gather},
    {"indexfunc", gather},
    {"scatter", gather},
    {"gather", gather},
    {"compute_grad_weight", gather},
    {"vectorized_gather", gather},
    {"krn_partial", gather},
    {"compute_num_of_partial", gather},
    {"take_kernel", gather},
    {"linearize_index", gather},
    {"permute_indices", gather},
    {"max_pool", pooling},
    {"avg_pool", pooling},
    {"average_pool", pooling},
    {"adaptive", pooling},
    {"mlopooling", pooling},
    {"upsample", pooling},
    {"select_and_scatter", pooling},
    // order
    {"radixsort", sort},
    {"radix_sort", sort},
    {"devicescan", sort},
    {"device_scan", sort},
    {"bitonic", sort},
    {"sortkv", sort},
    {"mergesort", sort},
    {"topk", sort},
    {"devicereducebykey", sort},
    {"deviceselect", sort},
    {"devicecompact", sort},
    {"deviceuniquebykey", sort},
    {"scan_", sort},
    {"cumsum", sort},
    // random
    {"distribution_", random},
    {"dropout", random},
    {"philox", random},
    {"threefry", random},
    {"curand", random},
    {"rng_", random},
    {"randperm", random},
    // sums
    {"reduce_kernel", reduction},
    {"devicereduce", reduction},
    {"device_reduce", reduction},
    {"reduce_fusion", reduction},
    {"lpnorm", reduction},
    {"input_reduce", reduction},
    {"nrm2", reduction},
    {"asum_kernel", reduction},
    {"sum_", reduction},
    // elementwise: fills and copies among them first
    {"fillfunctor", fill},
    {"memset", fill},
    {"fill_kernel", fill},
    {"fillbuffer", fill},
    {"broadcast_in_dim", fill},
    {"direct_copy", copy},
    {"tofloat32_copy", cast},
    {"bfloat16_copy", cast},
    {"float16_copy", cast},
    {"half_copy", cast},
    {"copybuffer", copy},
    {"wrapped_copy", copy},
    {"copy_fusion", copy},
    {"copy_kernel", copy},
    {"memcpy32_post", copy},
    {"copy_device_to_device", copy},
    {"wrapped_convert", cast},
    {"convert_fusion", cast},
    {"elementwise", pointwise},
    {"fusedropout", random},
    {"pointwise", pointwise},
    {"loop_", pointwise},
    {"wrapped_", pointwise},
    {"act_and_mul", pointwise},
    {"arange", fill},
    {"triu_tril", pointwise},
    {"op_tensor", pointwise},
    {"optensor", pointwise},
    {"activation", pointwise},
    {"addbias", pointwise},
    {"scal_kernel", pointwise},
    {"axpy_kernel", pointwise},
});

// Names of ATen's ops without "aten::" and a trailing "_", and of JAX's primitives.
constexpr auto kOps = std::to_array<KernelWord>({
    {"mm", product},
    {"addmm", product},
    {"_addmm_activation", product},
    {"bmm", product},
    {"baddbmm", product},
    {"addbmm", product},
    {"mv", product},
    {"addmv", product},
    {"linear", product},
    {"matmul", product},
    {"_scaled_mm", product},
    {"_int_mm", product},
    {"dot_general", product},
    {"dot", product},
    {"convolution", convolution},
    {"_convolution", convolution},
    {"cudnn_convolution", convolution},
    {"cudnn_convolution_relu", convolution},
    {"cudnn_convolution_add_relu", convolution},
    {"cudnn_convolution_transpose", convolution},
    {"cudnn_convolution_backward", convolution},
    {"cudnn_convolution_backward_input", convolution},
    {"cudnn_convolution_backward_weight", convolution},
    {"convolution_backward", convolution},
    {"miopen_convolution", convolution},
    {"_conv_depthwise2d", convolution},
    {"conv_depthwise3d", convolution},
    {"conv_general_dilated", convolution},
    {"slow_conv2d_forward", convolution},
    {"_cudnn_rnn", recurrence},
    {"_cudnn_rnn_backward", recurrence},
    {"miopen_rnn", recurrence},
    {"_thnn_fused_lstm_cell", recurrence},
    {"_thnn_fused_gru_cell", recurrence},
    {"_scaled_dot_product_flash_attention", attention},
    {"_scaled_dot_product_flash_attention_backward", attention},
    {"_scaled_dot_product_efficient_attention", attention},
    {"_scaled_dot_product_efficient_attention_backward", attention},
    {"_scaled_dot_product_cudnn_attention", attention},
    {"_scaled_dot_product_cudnn_attention_backward", attention},
    {"_flash_attention_forward", attention},
    {"_flash_attention_backward", attention},
    {"_efficient_attention_forward", attention},
    {"_efficient_attention_backward", attention},
    {"native_layer_norm", normalization},
    {"native_layer_norm_backward", normalization},
    {"cudnn_batch_norm", normalization},
    {"cudnn_batch_norm_backward", normalization},
    {"native_batch_norm", normalization},
    {"native_batch_norm_backward", normalization},
    {"miopen_batch_norm", normalization},
    {"miopen_batch_norm_backward", normalization},
    {"native_group_norm", normalization},
    {"native_group_norm_backward", normalization},
    {"_fused_rms_norm", normalization},
    {"_softmax", softmax},
    {"_log_softmax", softmax},
    {"_softmax_backward_data", softmax},
    {"_log_softmax_backward_data", softmax},
    {"sum", reduction},
    {"mean", reduction},
    {"amax", reduction},
    {"amin", reduction},
    {"max", reduction},
    {"min", reduction},
    {"argmax", reduction},
    {"argmin", reduction},
    {"norm", reduction},
    {"linalg_vector_norm", reduction},
    {"var", reduction},
    {"var_mean", reduction},
    {"std", reduction},
    {"any", reduction},
    {"all", reduction},
    {"prod", reduction},
    {"_local_scalar_dense", copy},
    {"nll_loss_forward", reduction},
    {"nll_loss_backward", pointwise},
    {"reduce_sum", reduction},
    {"reduce_max", reduction},
    {"reduce_min", reduction},
    {"cat", layout},
    {"_to_copy", cast},
    {"copy", copy},
    {"transpose", layout},
    {"concatenate", layout},
    {"convert_element_type", cast},
    {"fill", fill},
    {"zero", fill},
    {"zeros", fill},
    {"zeros_like", fill},
    {"ones_like", fill},
    {"broadcast_in_dim", fill},
    {"arange", fill},
    {"iota", fill},
    {"embedding", gather},
    {"embedding_dense_backward", gather},
    {"index", gather},
    {"index_select", gather},
    {"index_put", gather},
    {"_index_put_impl", gather},
    {"gather", gather},
    {"scatter", gather},
    {"scatter_add", gather},
    {"dynamic_slice", layout},
    {"dynamic_update_slice", layout},
    {"max_pool2d_with_indices", pooling},
    {"max_pool2d_with_indices_backward", pooling},
    {"avg_pool2d", pooling},
    {"avg_pool2d_backward", pooling},
    {"_adaptive_avg_pool2d", pooling},
    {"_adaptive_avg_pool2d_backward", pooling},
    {"reduce_window_max", pooling},
    {"select_and_scatter_add", pooling},
    {"sort", sort},
    {"topk", sort},
    {"cumsum", sort},
    {"native_dropout", random},
    {"native_dropout_backward", pointwise},
    {"bernoulli", random},
    {"normal", random},
    {"uniform", random},
    {"threefry2x32", random},
    {"add", pointwise},
    {"sub", pointwise},
    {"mul", pointwise},
    {"div", pointwise},
    {"neg", pointwise},
    {"exp", pointwise},
    {"log", pointwise},
    {"sqrt", pointwise},
    {"rsqrt", pointwise},
    {"pow", pointwise},
    {"tanh", pointwise},
    {"sigmoid", pointwise},
    {"relu", pointwise},
    {"gelu", pointwise},
    {"silu", pointwise},
    {"where", pointwise},
    {"clamp_min", pointwise},
    {"threshold_backward", pointwise},
    {"gelu_backward", pointwise},
    {"silu_backward", pointwise},
    {"tanh_backward", pointwise},
    {"sigmoid_backward", pointwise},
    {"masked_fill", pointwise},
    {"addcmul", pointwise},
    {"addcdiv", pointwise},
    {"lerp", pointwise},
    {"integer_pow", pointwise},
    {"select_n", pointwise},
    {"logistic", pointwise},
    {"max_pool", pooling},
    {"add_any", pointwise},
});

// "aten::add_" as "add", "AddBackward0" as it is.
std::string_view op_word(std::string_view op) {
  for (const std::string_view space : {"aten::", "torch::", "prims::"}) {
    if (op.starts_with(space)) op.remove_prefix(space.size());
  }
  if (op.size() > 1 && op.ends_with('_')) op.remove_suffix(1);
  return op;
}

// The kind of a fusion of XLA's, named as the reader of its profiles does it: "fusion: convert*3+mul". A kernel that is
// named for one of its members does the others' work too.
constexpr std::string_view kFusion = "fusion: ";

KernelKind kind_of_fusion(KernelKind by_name, std::string_view members) {
  if (by_name != other && by_name != cast && by_name != copy && by_name != layout && by_name != fill) return by_name;
  bool computes = false, reduces = false;
  while (!members.empty()) {
    const std::size_t plus = members.find('+');
    std::string_view member = members.substr(0, plus);
    members = plus == members.npos ? std::string_view() : members.substr(plus + 1);
    member = member.substr(0, member.find('*'));
    reduces = reduces || member.starts_with("reduce_") || member == "reduce";
    bool moves = false;
    for (const std::string_view word :
         {"convert", "convert_element_type", "copy", "transpose", "reshape", "broadcast", "broadcast_in_dim", "bitcast",
          "slice", "dynamic_slice", "concatenate", "pad", "squeeze", "fusion", "split", "dynamic_update_slice"}) {
      moves = moves || member == word;
    }
    computes = computes || !moves;
  }
  if (reduces) return reduction;
  return computes || by_name == other ? pointwise : by_name;
}

}  // namespace

std::string_view to_string(KernelKind kind) {
  static constexpr std::array<std::string_view, kKernelKinds> kNames = {
      "other",         "product",   "convolution", "part of a product", "attention", "recurrence",
      "normalization", "softmax",   "reduction",   "pointwise",         "layout",    "cast",
      "copy",          "fill",      "gather",      "pooling",           "optimizer", "sort",
      "random",        "collective"};
  return kNames[static_cast<std::size_t>(kind)];
}

// The name of the function without its arguments, which hold names of types: a kernel that takes "ncclWork*" is not one
// of NCCL by that. Templates stay, since ATen's ops stand in them.
std::string_view without_parameters(std::string_view name) {
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>' && i > 0 && name[i - 1] != '-') --depth;
    if (name[i] == '(' && depth == 0 && i > 0) {
      if (name.substr(i).starts_with("(anonymous")) continue;
      return name.substr(0, i);
    }
  }
  return name;
}

std::string kernel_word(std::string_view kernel) {
  std::string small(without_parameters(kernel));
  std::ranges::transform(small, small.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return small;
}

KernelKind kind_of_kernel(std::string_view kernel) {
  const std::string small = kernel_word(kernel);
  for (const KernelWord& known : kWords) {
    if (!has(small, known.word)) continue;
    if (known.kind == copy && has(small, "withcast")) return cast;
    return known.kind;
  }
  return other;
}

KernelKind kind_of_op(std::string_view op) {
  const std::string_view word = op_word(op);
  for (const KernelWord& known : kOps) {
    if (known.word == word) return known.kind;
  }
  return other;
}

KernelKind kind_of_kernel(std::string_view kernel, std::string_view op) {
  const KernelKind by_name = kind_of_kernel(kernel);
  if (op.starts_with(kFusion)) return kind_of_fusion(by_name, op.substr(kFusion.size()));
  const KernelKind by_op = kind_of_op(op);
  if (by_name == other) return by_op;
  if (by_op == other) return by_name;
  // ATen's elementwise kernels do the work of many ops; a copy that an op of a layout makes changes the order.
  if (by_name == pointwise && (by_op == fill || by_op == cast || by_op == layout || by_op == random || by_op == gather))
    return by_op;
  if (by_name == copy && (by_op == cast || by_op == layout)) return by_op;
  if (by_name == reduction && (by_op == normalization || by_op == softmax)) return by_op;
  if (by_op == convolution && (by_name == product || by_name == reduction || by_name == pointwise)) return by_op;
  return by_name;
}

}  // namespace paoding::findings
