// SPDX-License-Identifier: Apache-2.0
#include "gpu/driver/nvrtc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace paoding::gpu {
namespace {

#define PD_SKIP_WITHOUT_NVRTC() \
  if (nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << nvrtc_problem()

constexpr const char* kAdd = R"(extern "C" __global__ void add(float* out, const float* a, const float* b, int n) {
  auto sum = [](auto x, auto y) { return x + y; };
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = sum(a[i], b[i]);
}
)";

std::string error_of(const std::string& source, const std::string& arch) {
  try {
    compile(source, "broken.cu", arch);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    return error.what();
  }
  return "";
}

TEST(Nvrtc, EitherLoadsOrSaysWhyNot) {
  EXPECT_EQ(nvrtc() == nullptr, !nvrtc_problem().empty());
  if (nvrtc() != nullptr) {
    EXPECT_GE(nvrtc_version(), 12000);
  }
}

TEST(Nvrtc, CompilesAKernelToACubin) {
  PD_SKIP_WITHOUT_NVRTC();
  std::vector<char> cubin = compile(kAdd, "add.cu", "sm_90a");
  ASSERT_GT(cubin.size(), 64u);
  EXPECT_EQ(std::memcmp(cubin.data(),
                        "\x7f"
                        "ELF",
                        4),
            0);
  EXPECT_NE(std::string(cubin.begin(), cubin.end()).find(".text.add"), std::string::npos);
}

TEST(Nvrtc, OptionsOfTheCallReachTheCompiler) {
  PD_SKIP_WITHOUT_NVRTC();
  std::string source = "extern \"C\" __global__ void k(int* x) { *x = VALUE; }";
  std::vector<std::string> options = {"-DVALUE=3"};
  EXPECT_FALSE(compile(source, "k.cu", "sm_90a", options).empty());
  EXPECT_THROW(compile(source, "k.cu", "sm_90a"), Error);
}

TEST(Nvrtc, ASourceWithTexturesOrLaunchesGetsTheWholeLanguage) {
  PD_SKIP_WITHOUT_NVRTC();
  const std::string texture =
      "extern \"C\" __global__ void k(cudaTextureObject_t t, float* x) { *x = tex1Dfetch<float>(t, 3); }";
  EXPECT_FALSE(compile(texture, "texture.cu", "sm_90a").empty());
  const std::vector<std::string>& of_texture = default_options(texture);
  EXPECT_EQ(std::ranges::count(of_texture, "--minimal"), 0);
  const std::vector<std::string>& of_add = default_options(kAdd);
  EXPECT_EQ(std::ranges::count(of_add, "--minimal"), nvrtc_version() >= 12040 ? 1 : 0);
}

TEST(Nvrtc, ABrokenKernelShowsTheLogAndTheLine) {
  PD_SKIP_WITHOUT_NVRTC();
  std::string source =
      "extern \"C\" __global__ void k(float* x) {\n  int a = 1;\n  x[0] = a + missing;\n}\n// end\n// far\n";
  std::string text = error_of(source, "sm_90a");
  EXPECT_EQ(text.find("nvrtc: broken.cu does not compile for sm_90a"), 0u) << text;
  EXPECT_NE(text.find("identifier \"missing\" is undefined"), std::string::npos) << text;
  EXPECT_NE(text.find(">    3 |   x[0] = a + missing;\n"), std::string::npos) << text;
  EXPECT_NE(text.find("     2 |   int a = 1;\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("far"), std::string::npos) << text;
}

TEST(Nvrtc, AnUnknownArchitectureIsAnError) {
  PD_SKIP_WITHOUT_NVRTC();
  std::string text = error_of(kAdd, "sm_12345");
  EXPECT_NE(text.find("sm_12345"), std::string::npos) << text;
}

}  // namespace
}  // namespace paoding::gpu
