// SPDX-License-Identifier: Apache-2.0
// Names of kernels as profilers of PyTorch, JAX and ROCm have them.
#include "findings/kernel_kind.h"

#include <gtest/gtest.h>

#include "findings/kernel_form.h"

namespace paoding::findings {
namespace {

struct NamedKernel {
  std::string_view name, op;
  KernelKind kind;
};

TEST(KernelKinds, FollowFromNamesOfLibraries) {
  using enum KernelKind;
  const NamedKernel kAll[] = {
      {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute", "", product},
      {"void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4>(cutlass::Params)", "", product},
      {"ampere_sgemm_32x32_sliced1x4_tn", "", product},
      {"nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", "", product},
      {"Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x32x64_MI16x16x1", "", product},
      {"gemm_fusion_dot_1", "", product},
      {"void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(cublasGemvParams)", "",
       product},
      {"void cublasLt::splitKreduce_kernel<32, 16, int, float, float>(cublasLt::cublasSplitKParams<float>)", "",
       product_part},
      {"sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x32", "", convolution},
      {"void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int, int)", "", convolution},
      {"igemm_bwd_gtcx2_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8", "", convolution},
      {"void pointwise_mult_and_sum_complex<float2, 8, 4>(float2*, float2*)", "aten::cudnn_convolution", convolution},
      {"ampere_sgemm_128x64_nn", "aten::cudnn_convolution", convolution},
      {"void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(int)",
       "aten::cudnn_convolution", layout},
      {"void nhwcAddPaddingKernel<__nv_bfloat16, __nv_bfloat16, float, true>(int)", "aten::cudnn_convolution", layout},
      {"void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128>>()", "", attention},
      {"void elemWiseRNNcell<float, float, float, (cudnnRNNMode_t)2>(int, int)", "", recurrence},
      {"void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float, float)", "", normalization},
      {"void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*)", "", softmax},
      {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>()", "",
       reduction},
      {"void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> "
       ">(int)",
       "", fill},
      {"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> "
       ">(int)",
       "aten::add", pointwise},
      {"void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
       "{lambda()#3}, std::array<char*, 2ul>, 4, at::native::memory::LoadWithCast<1>>(int)",
       "aten::copy_", cast},
      {"void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(int)",
       "aten::copy_", copy},
      {"void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>(float*)", "",
       layout},
      {"void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long>(int)", "", gather},
      {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>>(int)", "",
       optimizer},
      {"void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>>(int*)", "", sort},
      {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "", collective},
      {"ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "", collective},
      {"triton_poi_fused__native_batch_norm_legit_no_training_relu_0", "", pointwise},
      {"triton_red_fused_add_mean_mul_pow_rsqrt_0", "", reduction},
      {"void fbgemm_gpu::permute_2D_data_kernel<false, int, int>(int)", "", layout},
      {"void vllm::reshape_and_cache_flash_kernel<__hip_bfloat16, __hip_bfloat16>(int)", "", gather},
      {"somebodys_kernel", "", other},
      {"somebodys_kernel", "aten::mm", product},
  };
  for (const NamedKernel& one : kAll) {
    EXPECT_EQ(to_string(kind_of_kernel(one.name, one.op)), to_string(one.kind)) << one.name;
  }
}

TEST(KernelKinds, OfFusionsFollowFromAllMembers) {
  EXPECT_EQ(kind_of_kernel("loop_convert_fusion", "fusion: convert*2"), KernelKind::cast);
  EXPECT_EQ(kind_of_kernel("loop_convert_fusion", "fusion: convert*3+mul"), KernelKind::pointwise);
  EXPECT_EQ(kind_of_kernel("fusion_201", "fusion: ge+select_n*3+reduce_max+sub+exp"), KernelKind::reduction);
  EXPECT_EQ(kind_of_kernel("input_reduce_fusion", "fusion: convert*2+reduce_max"), KernelKind::reduction);
}

TEST(KernelForm, SaysWhoMultiplies) {
  using enum Arithmetic::By;
  struct Named {
    std::string_view name;
    Arithmetic arithmetic;
  };
  const Named kAll[] = {
      {"sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_"
       "kernel",
       {ordinary_lanes, Unit::f32}},
      {"sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_tensor16x8x8",
       {tensor_cores, Unit::tf32}},
      {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1", {tensor_cores, Unit::half}},
      {"sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_warpgroupsize1x1x1", {tensor_cores, Unit::tf32}},
      {"volta_sgemm_128x64_nt", {ordinary_lanes, Unit::f32}},
      {"volta_scudnn_128x64_relu_interior_nn_v1", {ordinary_lanes, Unit::f32}},
      {"volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", {tensor_cores, Unit::half}},
      {"ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", {tensor_cores, Unit::half}},
      {"void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x64_16x6_nt_align4>(int)", {tensor_cores, Unit::tf32}},
      {"void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>(int)", {ordinary_lanes, Unit::f32}},
      {"void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>(int)",
       {tensor_cores, Unit::half}},
      {"nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", {tensor_cores, Unit::half}},
      {"nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", {tensor_cores, Unit::half}},
      {"Cijk_Ailk_Bljk_SB_MT64x64x16_MI16x16x4x1", {tensor_cores, Unit::f32}},
      {"Cijk_Alik_Bljk_BBS_BH_MT256x32x64_MI16x16x1", {tensor_cores, Unit::half}},
      {"void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false>(int)", {ordinary_lanes, Unit::f32}},
      {"somebodys_kernel", {unknown, Unit::none}},
  };
  for (const Named& one : kAll) {
    EXPECT_EQ(static_cast<int>(arithmetic_of(one.name).by), static_cast<int>(one.arithmetic.by)) << one.name;
    EXPECT_EQ(static_cast<int>(arithmetic_of(one.name).unit), static_cast<int>(one.arithmetic.unit)) << one.name;
  }
}

TEST(KernelForm, SaysElementsOfAThread) {
  const ElementwiseForm add = elementwise_form(
      "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> "
      ">(int)");
  EXPECT_EQ(add.elements_of_thread, 4);
  EXPECT_EQ(add.arrays, 3);
  const ElementwiseForm nsight = elementwise_form(
      "void at::native::vectorized_elementwise_kernel<(int)8, at::native::BUnaryFunctor<float>, std::array<char *, "
      "(unsigned "
      "long)2>>(int, T2, T3)");
  EXPECT_EQ(nsight.elements_of_thread, 8);
  EXPECT_EQ(nsight.arrays, 2);
  const ElementwiseForm strided = elementwise_form(
      "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<float, "
      "float> "
      "> >(int)");
  EXPECT_EQ(strided.elements_of_thread, 2);
  EXPECT_EQ(strided.arrays, 3);
  EXPECT_EQ(elementwise_form("void at::native::reduce_kernel<512, 1>(int)").elements_of_thread, 0);
  EXPECT_EQ(element_bytes("void f<at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, MulFunctor<float> > >(int)"),
            2);
  EXPECT_EQ(element_bytes("void f<float, 4>(double*)"), 4);
  EXPECT_EQ(element_bytes("f"), 0);
  EXPECT_EQ(alignment_of("cutlass_80_tensorop_s1688gemm_128x64_32x6_nt_align1"), 1);
  EXPECT_EQ(alignment_of("sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize32x32x8_ffma_aligna4_alignc4_execute"), 4);
  EXPECT_EQ(alignment_of("ampere_sgemm_128x64_nt"), 0);
}

}  // namespace
}  // namespace paoding::findings
