// SPDX-License-Identifier: Apache-2.0
// Short names of kernels, which traces of PyTorch and JAX have whole.
#include "profile/kernel_name.h"

#include <gtest/gtest.h>

namespace paoding::profile {
namespace {

TEST(KernelName, IsTheFunctionAndTheWordThatTellsItApart) {
  const std::pair<const char*, const char*> names[] = {
      {"void at::native::vectorized_elementwise_kernel<8, at::native::FillFunctor<c10::BFloat16>, std::array<char*, "
       "1ul> "
       ">(int, at::native::FillFunctor<c10::BFloat16>, std::array<char*, 1ul>)",
       "vectorized_elementwise_kernel<FillFunctor>"},
      {"void at::native::vectorized_elementwise_kernel<8, at::native::BinaryFunctor<float, float, float, "
       "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int)",
       "vectorized_elementwise_kernel<MulFunctor>"},
      {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
       "namespace)::TensorListMetadata<2>, at::native::(anonymous namespace)::FusedSgdMathFunctor<float, 2>, "
       "double>(int)",
       "multi_tensor_apply_kernel<FusedSgdMathFunctor>"},
      {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>, unsigned "
       "int, float, 4> >(at::native::ReduceOp<float>)",
       "reduce_kernel<MeanOps>"},
      {"void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, kernel_grad_params)",
       "dgrad_engine"},
      {"void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 128, true, 1>(float)", "bn_bw_1C11_kernel_new"},
      {"void at::native::vectorized_elementwise_kernel<8, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, "
       "at::native::(anonymous namespace)::threshold_kernel_impl<c10::BFloat16>(at::TensorIteratorBase&)::{lambda(c10::"
       "BFloat16)#1}>, std::array<char*, 3ul> >(int)",
       "vectorized_elementwise_kernel<threshold_kernel_impl>"},
      {"void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x64_16x6_nt_align4>(cutlass_80::Params)",
       "Kernel2<cutlass_80_tensorop_s1688gemm_128x64_16x6_nt_align4>"},
      {"void outer<int>::inner<float>(int)", "inner"},
      {"_ZN5cudnn3ops4gemmIfEEvPKf", "gemm"},
  };
  for (const auto& [name, wanted] : names) {
    EXPECT_EQ(short_kernel_name(name), wanted) << name;
  }
}

TEST(KernelName, StaysAsItIsWhereItIsNoFunctionOfCpp) {
  for (const char* name :
       {"nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "fusion: gt+select_n", "Memcpy HtoD (Pinned -> Device)",
        "volta_sgemm_64x64_nt", "", "<", "(", "::", "_Znot mangled", "operator()", "a<b", "a(b"}) {
    EXPECT_FALSE(short_kernel_name(name).empty() && name[0] != 0) << name;
  }
  EXPECT_EQ(short_kernel_name("nvjet_sm90_tst_256x128_64x4"), "nvjet_sm90_tst_256x128_64x4");
  EXPECT_EQ(short_kernel_name("Memcpy HtoD (Pinned -> Device)"), "Memcpy HtoD (Pinned -> Device)");
  EXPECT_EQ(short_kernel_name("fusion: gt+select_n"), "fusion: gt+select_n");
  EXPECT_EQ(short_kernel_name("_Znot mangled"), "_Znot mangled");
}

}  // namespace
}  // namespace paoding::profile
