// SPDX-License-Identifier: Apache-2.0
// Rules about the work of GPUs, on traces made by hand whose gains are computed by hand. The limits are those of an
// H200: 3,949 bytes a ns of a copy, 790 and 393 TFLOP/s in half and TF32.
#include "findings/kernel_rules.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/expected_gain.h"
#include "tests/support/made_trace.h"

namespace paoding::findings {
namespace {

using namespace profile;

struct MadeKernel {
  std::string name, op, shapes, types;
  double us = 0;
  int ctas = 1056;
  int stream = 7;
  std::string around = "";  // a range around the op
  std::string concrete = "";
};

// Steps whose kernels follow each other without gaps, launched long before they run, on a GPU of that name.
class MadeSteps {
 public:
  MadeSteps(const std::vector<MadeKernel>& kernels, const std::string& device = "NVIDIA H200", int steps = 8) {
    Trace& trace = made_.trace();
    if (!device.empty()) trace.add_limit({.device = 0, .name = device, .sms = 132, .threads_of_sm = 2048});
    double all = 0;
    for (const MadeKernel& kernel : kernels) all += kernel.us;
    const double period = all + 20 * static_cast<double>(kernels.size()) + 100;
    for (int k = 0; k < steps; ++k) {
      const double at = period * k;
      made_.step(at, at + period);
      double host = at + 2, gpu = at + 20 * static_cast<double>(kernels.size()) + 20;
      for (const MadeKernel& kernel : kernels) {
        add(kernel, host, gpu);
        host += 20;
        gpu += kernel.us;
      }
      made_.host(SpanKind::wait, "cudaDeviceSynchronize", host, gpu + 3);
    }
  }
  MadeTrace& made() { return made_; }
  Trace finish() { return made_.finish(); }

 private:
  void add(const MadeKernel& kernel, double host, double gpu) {
    Trace& trace = made_.trace();
    if (!kernel.around.empty()) made_.host(SpanKind::range, kernel.around, host - 0.5, host + 8);
    if (!kernel.op.empty()) {
      const SpanId op = made_.host(SpanKind::op, kernel.op, host, host + 7);
      if (!kernel.shapes.empty()) trace.add_argument(op, trace.add_column("shapes", ArgumentType::text), kernel.shapes);
      if (!kernel.types.empty()) trace.add_argument(op, trace.add_column("types", ArgumentType::text), kernel.types);
    }
    made_.launch(host + 1, gpu, gpu + kernel.us - 1, kernel.name, kernel.stream);
    const auto span = static_cast<SpanId>(trace.size() - 1);
    trace.add_argument(span, trace.add_column("grid", ArgumentType::text), std::to_string(kernel.ctas) + "x1x1");
    trace.add_argument(span, trace.add_column("block", ArgumentType::text), "128x1x1");
  }

  MadeTrace made_;
};

const std::string kAdd =
    "void at::native::vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<float>, std::array<char*, "
    "2ul> >(int)";
const std::string kNvjet = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT";
const std::string kBf16 = R"(["c10::BFloat16", "c10::BFloat16"])";

MadeKernel product(double us) {  // aligned, as fast as such are: 137 GFLOP in 183 us
  return {kNvjet, "aten::mm", "[[4096, 4096], [4096, 4096]]", kBf16, us, 132};
}

TEST(PointwiseChain, ReadsAndWritesOnce) {
  // Three kernels that read and write 67 MB each, at the memory's rate: one takes 34 us, and none less than the
  // longest.
  const MadeKernel scale = {kAdd, "aten::mul", "[[16777216], []]", R"(["float", "Scalar"])", 40, 32768};
  expect_gain(MadeSteps({product(190), scale, scale, scale}).finish(), Kind::pointwise_chain, {80, 86},
              "torch.compile");
  expect_nothing(MadeSteps({product(190), scale, product(190), scale}).finish(), Kind::pointwise_chain);
  const MadeKernel smaller = {kAdd, "aten::mul", "[[8388608], []]", R"(["float", "Scalar"])", 20, 16384};
  expect_nothing(MadeSteps({product(190), scale, smaller}).finish(), Kind::pointwise_chain);
}

TEST(PointwiseChain, KnowsSizesByTheGrid) {
  // 32,768 CTAs of 128 threads that take 4 elements each are as many.
  const MadeKernel scale = {kAdd, "", "", "", 40, 32768};
  expect_gain(MadeSteps({product(190), scale, scale, scale}).finish(), Kind::pointwise_chain, {80, 86});
  const MadeKernel unknown = {"void at::native::somebodys_elementwise(int)", "", "", "", 40, 32768};
  EXPECT_NE(
      why_silent(MadeSteps({product(190), unknown, unknown}).finish(), Kind::pointwise_chain).find("record_shapes"),
      std::string::npos);
}

TEST(LayoutKernels, AreConversionsOfConvolutions) {
  // Every call has one, which stays in the cautious case: the layout is entered and left somewhere.
  const MadeKernel into = {"void cudnn::ops::nchwToNhwcKernel<float>(int)", "aten::cudnn_convolution", "", "", 20};
  const MadeKernel out = {"void cudnn::ops::nhwcToNchwKernel<float>(int)", "aten::cudnn_convolution", "", "", 30};
  const MadeKernel convolution = {"sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_warpgroupsize1x1x1",
                                  "aten::cudnn_convolution", "", "", 50};
  expect_gain(MadeSteps({product(190), into, convolution, out}).finish(), Kind::layout_kernels, {0, 50},
              "channels_last");
  // One of many converts: its algorithm is in one layout only.
  expect_nothing(MadeSteps({into, convolution, convolution, convolution}).finish(), Kind::layout_kernels);
}

TEST(LayoutKernels, AreNotBlamedWhereNothingWouldTakeThemOver) {
  const MadeKernel cast = {
      "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda()>(int)", "aten::copy_",
      "[[8, 8], [8, 8]]", R"(["c10::BFloat16", "float"])", 8};
  expect_nothing(MadeSteps({product(190), cast, product(190)}).finish(), Kind::layout_kernels);
}

TEST(LayoutKernels, SayWhatIsCastFromWhatToWhat) {
  const std::string shapes = "[[8192, 4096], [8192, 4096], []]";
  const MadeKernel up = {
      "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda, "
      "at::native::memory::LoadWithCast<1>>(int)",
      "aten::copy_",
      shapes,
      R"(["float", "c10::BFloat16", "Scalar"])",
      100,
      32768};
  const MadeKernel down = {
      "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda>(int)",
      "aten::copy_",
      shapes,
      R"(["c10::BFloat16", "float", "Scalar"])",
      50,
      32768};
  const MadeKernel add = {kAdd, "aten::mul", "[[16777216], []]", R"(["float", "Scalar"])", 40, 32768};
  const Findings all = find(MadeSteps({product(190), up, add, down}).finish());
  const auto found = std::ranges::find(all.found, Kind::layout_kernels, &Finding::kind);
  ASSERT_NE(found, all.found.end()) << all.abstained;
  EXPECT_NE(found->text.find(" From bf16 to f32 (1 call a step), f32 to bf16 (1 call a step)."), std::string::npos)
      << found->text;
  EXPECT_EQ(found->op, "aten::copy_");
  EXPECT_EQ(found->operands, "bf16[8192,4096] -> f32[8192,4096]");
  EXPECT_EQ(all.no_shapes, "");
}

TEST(GradientFills, AreAddedToAfterwards) {
  const MadeKernel fill = {"void at::native::multi_tensor_apply_kernel<at::native::ZeroFunctor>(int)",
                           "aten::_foreach_zero_",
                           "",
                           "",
                           30,
                           132,
                           7,
                           "Optimizer.zero_grad#SGD.zero_grad"};
  const MadeKernel sum = {kAdd,
                          "aten::add_",
                          "[[16777216], [16777216]]",
                          R"(["float", "float"])",
                          60,
                          132,
                          7,
                          "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"};
  expect_gain(MadeSteps({product(190), fill, product(190), sum}).finish(), Kind::gradient_fills, {30, 90},
              "set_to_none");
  expect_nothing(MadeSteps({product(190), sum}).finish(), Kind::gradient_fills);
}

TEST(SmallGrid, CouldUseAllMultiprocessors) {
  // 8 CTAs of 132 for 100 us: all would take 6.1, twice as many 12.1.
  const MadeKernel few = {"void at::native::reduce_kernel<512, 1>(int)", "aten::sum", "", "", 100, 8};
  expect_gain(MadeSteps({product(190), few}).finish(), Kind::small_grid, {87, 93});
  const MadeKernel many = {"void at::native::reduce_kernel<512, 1>(int)", "aten::sum", "", "", 100, 128};
  expect_nothing(MadeSteps({product(190), many}).finish(), Kind::small_grid);
  EXPECT_NE(why_silent(MadeSteps({product(190), few}, "").finish(), Kind::small_grid).find("multiprocessors"),
            std::string::npos);
}

TEST(SmallGrid, OfScansAlongFewRowsAndNotOfSorts) {
  const MadeKernel scan = {"void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float>>(float*)",
                           "aten::cumsum",
                           "[[8, 65536], []]",
                           R"(["float", "Scalar"])",
                           100,
                           8};
  expect_gain(MadeSteps({product(190), scan}).finish(), Kind::small_grid, {87, 93});
  MadeKernel sort = scan;
  sort.name = "void at::native::radixSortKVInPlace<2, -1, 32, 4, float, long, unsigned int>(int)";
  sort.op = "aten::sort";
  expect_nothing(MadeSteps({product(190), sort}).finish(), Kind::small_grid);
}

TEST(SmallGrid, OfEqualPartsInARowCouldBeOneLaunch) {
  // Six softmax of 22 CTAs each are 132 CTAs as one launch, which takes no less than one of them did.
  const MadeKernel part = {"void softmax_warp_forward<float, float, float, 11, false, false>(int)",
                           "aten::_softmax",
                           "[[22, 64], [], []]",
                           R"(["float", "Scalar", "Scalar"])",
                           60,
                           22};
  const Findings all = find(MadeSteps({product(190), part, part, part, part, part, part}).finish());
  const auto found = std::ranges::find(all.found, Kind::small_grid, &Finding::kind);
  ASSERT_NE(found, all.found.end());
  EXPECT_NEAR(static_cast<double>(found->replayed_high_ns) / 1e3, 5 * 60, 10);
  // Two of them stay two launches, each of which could use all multiprocessors: 60 us with 22 CTAs are 10 with 132.
  expect_gain(MadeSteps({product(190), part, part}).finish(), Kind::small_grid, {80, 100});
}

TEST(ExactF32Product, WouldTakeTensorCores) {
  // 137 GFLOP in 2,690 us. TF32: 350 us at the rate of large ones; a turn of 132 tiles is lost, so 365, and half more.
  const std::string name =
      "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_warpsize4x2x1_ffma_aligna4_alignc4";
  const MadeKernel exact = {name, "aten::mm", "[[4096, 4096], [4096, 4096]]", R"(["float", "float"])", 2691, 512};
  expect_gain(MadeSteps({exact}).finish(), Kind::exact_f32_product, {2690 - 547, 2690 - 350},
              "set_float32_matmul_precision");
  // A V100 has no TF32, a P100 no tensor cores.
  const Findings v100 = find(MadeSteps({exact}, "Tesla V100-SXM2-32GB").finish());
  ASSERT_FALSE(v100.found.empty());
  EXPECT_NE(v100.found.front().change.find("float16"), std::string::npos);
  expect_nothing(MadeSteps({exact}, "Quadro GP100").finish(), Kind::exact_f32_product);
  EXPECT_NE(why_silent(MadeSteps({exact}, "").finish(), Kind::exact_f32_product), "");
  const MadeKernel vector = {"void gemv2T_kernel_val<int, int, float>(int)",
                             "aten::mv",
                             "[[4096, 4096], [4096]]",
                             R"(["float", "float"])",
                             100,
                             512};
  expect_nothing(MadeSteps({product(190), vector}).finish(), Kind::exact_f32_product);
}

TEST(ExactF32Product, KnowsTheWorkOfFourierTransformsWithoutAStride) {
  // Such convolutions have a stride of 1: 7.4 GFLOP, 18.8 us of TF32. At least it takes the share that was measured.
  const MadeKernel transforms = {"void fft2d_r2c_64x64<float>(float2*, float const*, int)",
                                 "aten::cudnn_convolution",
                                 "[[32, 64, 56, 56], [64, 64, 3, 3]]",
                                 R"(["float", "float"])",
                                 301,
                                 2048};
  expect_gain(MadeSteps({product(190), transforms}).finish(), Kind::exact_f32_product,
              {300 - 300 * 903.0 / 1905.0, 300 - 18.8}, "allow_tf32");
  MadeKernel half = transforms;
  half.types = R"(["c10::Half", "c10::Half"])";
  expect_nothing(MadeSteps({product(190), half}).finish(), Kind::exact_f32_product);
}

TEST(OddDimensions, WouldBePadded) {
  // [2048 x 1001] by [1001 x 1001], padded to 1008: 4.2 GFLOP at 790 TFLOP/s and a launch are 9.3 us, half more and 5
  // are 18.9.
  const MadeKernel odd = {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64_32x6_nn_align1>(int)",
                          "aten::mm",
                          "[[2048, 1001], [1001, 1001]]",
                          kBf16,
                          101,
                          256};
  expect_gain(MadeSteps({product(190), odd}).finish(), Kind::odd_dimensions, {81, 91}, "multiple of 8");
  const MadeKernel even = {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64_32x6_nn_align8>(int)",
                           "aten::mm",
                           "[[2048, 1008], [1008, 1008]]",
                           kBf16,
                           21,
                           256};
  expect_nothing(MadeSteps({product(190), even}).finish(), Kind::odd_dimensions);
}

TEST(FarFromBandwidth, IsMeasuredByTheDevicesRate) {
  // 268 MB in 400 us: 68 at the rate of a copy, 136 at half of it.
  const MadeKernel sum = {"void at::native::reduce_kernel<512, 1>(int)",
                          "aten::sum",
                          "[[67108864], []]",
                          R"(["float", "Scalar"])",
                          401,
                          1056};
  expect_gain(MadeSteps({product(190), sum}).finish(), Kind::far_from_bandwidth, {264, 332});
  const MadeKernel fast = {"void at::native::reduce_kernel<512, 1>(int)",
                           "aten::sum",
                           "[[67108864], []]",
                           R"(["float", "Scalar"])",
                           80,
                           1056};
  expect_nothing(MadeSteps({product(190), fast}).finish(), Kind::far_from_bandwidth);
  EXPECT_NE(why_silent(MadeSteps({product(190), sum}, "").finish(), Kind::far_from_bandwidth), "");
}

TEST(SlowProduct, TakesLongerThanItsSizeExplains) {
  // 137 GFLOP: 174 us at 790 TFLOP/s, with the last turn and a launch 183; half more and 5 are 280.
  expect_gain(MadeSteps({product(1001)}).finish(), Kind::slow_product, {720, 817}, "max-autotune");
  expect_nothing(MadeSteps({product(250)}).finish(), Kind::slow_product);
  EXPECT_NE(why_silent(MadeSteps({{kNvjet, "aten::mm", "", "", 100}}).finish(), Kind::slow_product).find("shapes"),
            std::string::npos);
}

TEST(ExposedCollectives, AreThoseThatNothingHides) {
  const MadeKernel reduce = {
      "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "", "", "", 51, 24};
  expect_gain(MadeSteps({product(190), reduce}).finish(), Kind::exposed_collectives, {10, 50}, "bucket_cap_mb");
  EXPECT_NE(why_silent(MadeSteps({product(190), reduce}).finish(), Kind::straggler_rank).find("one rank"),
            std::string::npos);
}

TEST(SinkingClocks, AreSeenInSamplesOnly) {
  EXPECT_NE(why_silent(MadeSteps({product(190)}).finish(), Kind::sinking_clocks).find("no samples"), std::string::npos);
  MadeTrace made;
  made.trace().add_limit({.device = 0, .name = "NVIDIA H200", .sms = 132});
  const CounterId clock = made.trace().add_counter(0, "SM clock");
  constexpr int kSteps = 24;
  for (int k = 0; k < kSteps; ++k) {  // from the middle on at nine tenths of the clock
    const double at = 400.0 * k, us = k < kSteps / 2 ? 180 : 200;
    made.trace().add_sample({clock, static_cast<std::int64_t>(at * 1000), k < kSteps / 2 ? 1980 : 1782});
    made.step(at, at + 400);
    made.launch(at + 2, at + 20, at + 20 + us, kNvjet, 7, "aten::mm");
    made.host(SpanKind::wait, "cudaDeviceSynchronize", at + 10, at + 23 + us);
  }
  // 20 us of every second step.
  expect_gain(made.finish(), Kind::sinking_clocks, {5, 10}, "nvidia-smi");
}

}  // namespace
}  // namespace paoding::findings
