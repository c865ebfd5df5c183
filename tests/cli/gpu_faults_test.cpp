// SPDX-License-Identifier: Apache-2.0
// Messages for a GPU that cannot be used or fails: no driver, one that is too old, no visible GPU, a file that is not
// the library of its name, too little memory. PAODING_CUDA_PATH puts libraries in place of NVIDIA's.
#include <fmt/format.h>

#include "paoding/paoding.h"
#include "tests/cli/cli_run.h"

namespace paoding::cli_run {
namespace {

bool has_gpu() { return Device::best().kind == DeviceKind::cuda; }

class GpuFaults : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    write("tanh.txt", "paoding graph 1\nx = input f32[4]\ny = tanh(x)\nfetch y\n");
    write("product.txt", "paoding graph 1\nx = input f64[4,4]\ny = matmul(x, x)\nfetch y\n");
  }

  // A folder with a library that loads under this name, and has none of its functions: the one of mathematics.
  std::string in_place_of(const std::string& name) const {
    const fs::path folder = folder_ / ("in_place_of_" + name);
    fs::create_directories(folder);
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      const std::size_t begin = line.find('/');
      if (begin == std::string::npos || !has(line, "/libm.so.6")) continue;
      fs::copy_file(line.substr(begin), folder / name);
      return folder.string();
    }
    ADD_FAILURE() << "this process has no libm.so.6 to copy";
    return "";
  }

  // On a GPU, with this folder in front of those that were searched before, and no kernel kept.
  Ran on_gpu_with(const std::string& folder, const std::string& arguments) const {
    const char* before = std::getenv("PAODING_CUDA_PATH");
    return run(arguments + " --device cuda",
               fmt::format("PAODING_CACHE_DIR= PAODING_CUDA_PATH='{}:{}'", folder, before == nullptr ? "" : before));
  }
};

void expect_error(const Ran& ran, std::initializer_list<const char*> parts) {
  EXPECT_EQ(ran.code, 1) << ran.out << ran.err;
  EXPECT_LT(ran.err.size(), 1000u) << ran.err;
  for (const char* part : parts) EXPECT_TRUE(has(ran.err, part)) << part << ": " << ran.err;
}

TEST_F(GpuFaults, WithoutADriverItIsSaidWhatIsMissing) {
  if (has_gpu()) GTEST_SKIP() << "NOT CHECKED: needs a machine without a GPU";
  expect_error(run("run $D/tanh.txt --random 1 --device cuda"), {"no usable GPU driver", "libcuda.so.1"});
}

TEST_F(GpuFaults, ADriverThatIsTooOldIsNamedWithWhatItLacks) {
  const std::string folder = in_place_of("libcuda.so.1");
  expect_error(on_gpu_with(folder, "run $D/tanh.txt --random 1"), {"is too old, it has no ", folder.c_str()});
  const Ran doctor = run("doctor", "PAODING_CUDA_PATH=" + folder);
  EXPECT_EQ(doctor.code, 0) << doctor.err;
  EXPECT_TRUE(has(doctor.out, "is too old")) << doctor.out;
  EXPECT_EQ(run("run $D/tanh.txt --random 1 --device best", "PAODING_CUDA_PATH=" + folder).code, 0) << "on the CPU";
}

TEST_F(GpuFaults, AGpuThatMayNotBeSeenIsNoGpu) {
  if (!has_gpu()) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  if (std::getenv("PAODING_CUDA_PATH") != nullptr) GTEST_SKIP() << "NOT CHECKED: a driver that is not NVIDIA's";
  expect_error(run("run $D/tanh.txt --random 1 --device cuda", "CUDA_VISIBLE_DEVICES="), {"CUDA_ERROR_NO_DEVICE"});
  EXPECT_EQ(run("run $D/tanh.txt --random 1 --device best", "CUDA_VISIBLE_DEVICES=").code, 0) << "on the CPU";
}

TEST_F(GpuFaults, ALibraryThatIsNotWhatItsNameSaysIsNamed) {
  if (!has_gpu()) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  expect_error(on_gpu_with(in_place_of("libnvrtc.so.13"), "run $D/tanh.txt --random 1"),
               {"libnvrtc.so.13", "nvrtcVersion"});
  expect_error(on_gpu_with(in_place_of("libcublasLt.so.13"), "run $D/product.txt --random 1"),
               {"libcublasLt.so.13", "cublasLtGetVersion"});
}

TEST_F(GpuFaults, TooLittleMemoryIsFoundBeforeAnythingRuns) {
  if (!has_gpu()) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  Graph g;
  const Value x = g.input("x", f32, {1'000'000, 1'000'000});
  g.fetch("y", sum(tanh(x)));
  CompileOptions options;
  options.device = Device::cuda(0);
  try {
    const Program program(g, options);
    ADD_FAILURE() << "4 TB fit";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    // Twice: the next one is fed while a step runs.
    EXPECT_TRUE(has(error.what(), "the program needs 80000000")) << error.what();
    EXPECT_TRUE(has(error.what(), "are free; the most at once are x (4000000000000 bytes, an input)")) << error.what();
  }
}

TEST_F(GpuFaults, AParameterThatIsTooLargeIsNamed) {
  if (!has_gpu()) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  Graph g;
  g.fetch("y", sum(g.parameter("w", f32, {1'000'000, 1'000'000})));
  try {
    const Parameters parameters(g, Device::cuda(0));
    ADD_FAILURE() << "4 TB fit";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    EXPECT_TRUE(has(error.what(),
                    "parameter 'w', f32[1000000,1000000]: cuda:0: 4000000000000 bytes of device memory are "
                    "needed, "))
        << error.what();
  }
}

}  // namespace
}  // namespace paoding::cli_run
