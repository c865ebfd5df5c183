// SPDX-License-Identifier: Apache-2.0
// Without a GPU these check the loading and the error texts; tests that need a GPU are skipped there.
#include "gpu/driver/driver.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/target.h"
#include "gpu/driver/nvrtc.h"

namespace paoding::gpu {
namespace {

#define PD_SKIP_WITHOUT_GPU() \
  if (GpuDevice::count() == 0) GTEST_SKIP() << "NOT CHECKED: no GPU here: " << driver_problem()

std::string message_of(CUresult result) {
  try {
    check(result, "cuLaunchKernel(k)");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    return error.what();
  }
  return "";
}

TEST(Driver, EitherWorksOrSaysWhyNot) {
  if (driver() == nullptr) {
    EXPECT_FALSE(driver_problem().empty());
    EXPECT_EQ(GpuDevice::count(), 0);
    try {
      GpuDevice::get(0);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::device);
      EXPECT_NE(std::string(error.what()).find(driver_problem()), std::string::npos) << error.what();
    }
  } else {
    EXPECT_TRUE(driver_problem().empty());
  }
}

TEST(Driver, IsTheSameFromEveryThread) {
  const Driver* seen[4] = {};
  std::vector<std::thread> threads;
  for (const Driver*& one : seen) threads.emplace_back([&one] { one = driver(); });
  for (std::thread& thread : threads) thread.join();
  for (const Driver* one : seen) EXPECT_EQ(one, driver());
}

TEST(Driver, EveryFunctionIsInTheToolkitsOwnStubOfLibcuda) {
  SearchPlaces places;
  places.use_loader = false;
  places.use_system = false;
  places.paoding_cuda_path = "/usr/local/cuda/lib/stubs:/usr/local/cuda/lib64/stubs";
  Library stub({"libcuda.so"}, places);
  if (!stub.loaded()) GTEST_SKIP() << "NOT CHECKED: needs a CUDA toolkit with stubs";
  Driver table;
  std::string problem;
  EXPECT_TRUE(load_functions(stub, &table, &problem)) << problem;
  EXPECT_NE(table.cuMemAlloc, nullptr);
  EXPECT_EQ(reinterpret_cast<void*>(table.cuMemAlloc), stub.find<void*>("cuMemAlloc_v2"));
  EXPECT_EQ(reinterpret_cast<void*>(table.cuStreamGetCaptureInfo), stub.find<void*>("cuStreamGetCaptureInfo_v3"));
}

TEST(Driver, ALibraryWithoutTheFunctionsIsRefusedByName) {
  Library math({"libm.so.6"});
  ASSERT_TRUE(math.loaded());
  Driver table;
  std::string problem;
  EXPECT_FALSE(load_functions(math, &table, &problem));
  EXPECT_NE(problem.find("too old"), std::string::npos) << problem;
  EXPECT_NE(problem.find("it has no cuInit, "), std::string::npos) << problem;
  EXPECT_NE(problem.find(" more"), std::string::npos) << problem;
}

TEST(Driver, AFailedCallIsAnErrorWithItsText) {
  EXPECT_EQ(message_of(CUDA_SUCCESS), "");
  std::string text = message_of(CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text.find("cuLaunchKernel(k): CUDA"), 0u) << text;
  EXPECT_EQ(text.find("stepwise"), std::string::npos) << text;
  auto call = [](int) { return CUDA_ERROR_INVALID_VALUE; };
  try {
    PD_CUDA(call(17));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("call(17): "), 0u) << error.what();
  }
}

TEST(Driver, AFaultThatPoisonsTheGpuSaysHowToFindTheStep) {
  for (CUresult sticky : {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_MISALIGNED_ADDRESS}) {
    EXPECT_NE(message_of(sticky).find(
                  "\nhint: the GPU's context is lost, and with it all that was on the device, parameters too"),
              std::string::npos);
  }
}

TEST(Driver, WritesVersionsAsPeopleSayThem) {
  EXPECT_EQ(version_text(13000), "13.0");
  EXPECT_EQ(version_text(12080), "12.8");
}

TEST(Driver, OwningTypesMoveAndNeverCopy) {
  static_assert(!std::is_copy_constructible_v<DeviceMemory> && std::is_nothrow_move_constructible_v<DeviceMemory>);
  static_assert(!std::is_copy_constructible_v<PinnedMemory> && std::is_nothrow_move_assignable_v<PinnedMemory>);
  static_assert(!std::is_copy_constructible_v<Stream> && std::is_nothrow_move_assignable_v<Stream>);
  static_assert(!std::is_copy_constructible_v<Event> && std::is_nothrow_move_assignable_v<Event>);
  static_assert(!std::is_copy_constructible_v<Module> && std::is_nothrow_move_assignable_v<Module>);
  DeviceMemory empty, other(std::move(empty));
  EXPECT_EQ(other.address(), 0u);
}

TEST(GrowingDeviceMemory, KeepsItsAddressAndWhatIsInItWhenItGrows) {
  PD_SKIP_WITHOUT_GPU();
  const Driver& cuda = required_driver();
  GrowingDeviceMemory memory(GpuDevice::get(0), 1000);
  const CUdeviceptr at = memory.address();
  const std::vector<unsigned char> written(1000, 0xa5);
  PD_CUDA(cuda.cuMemcpyHtoD(at, written.data(), written.size()));
  ASSERT_TRUE(memory.grow(std::size_t{100} << 20));
  EXPECT_EQ(memory.address(), at);
  EXPECT_GE(memory.size_bytes(), std::size_t{100} << 20);
  std::vector<unsigned char> read(1000, 0);
  PD_CUDA(cuda.cuMemcpyDtoH(read.data(), at, read.size()));
  EXPECT_EQ(read, written);
  PD_CUDA(cuda.cuMemcpyHtoD(at + (std::size_t{100} << 20) - 1000, written.data(), written.size()));
  EXPECT_FALSE(memory.grow(static_cast<std::size_t>(GpuDevice::get(0).target().memory_bytes) * 2));
}

TEST(GpuDevice, RefusesAnIndexThatIsNotThere) {
  PD_SKIP_WITHOUT_GPU();
  EXPECT_THROW(GpuDevice::get(GpuDevice::count()), Error);
  EXPECT_THROW(GpuDevice::get(-1), Error);
}

TEST(GpuDevice, DescribesTheGpu) {
  PD_SKIP_WITHOUT_GPU();
  const Target& gpu = GpuDevice::get(0).target();
  EXPECT_FALSE(gpu.name.empty());
  EXPECT_GE(gpu.major, 5);
  EXPECT_GT(gpu.sm_count, 0);
  EXPECT_GT(gpu.last_cache_bytes, 0);
  EXPECT_GT(gpu.memory_bytes, 1 << 28);
  EXPECT_GE(gpu.shared_bytes, 48 * 1024);
}

TEST(GpuDevice, MemoryIsAlignedAndMoves) {
  PD_SKIP_WITHOUT_GPU();
  DeviceMemory one(GpuDevice::get(0), 1000);
  CUdeviceptr address = one.address();
  EXPECT_EQ(address % 256, 0u);
  DeviceMemory two;
  two = std::move(one);
  EXPECT_EQ(two.address(), address);
  EXPECT_EQ(two.size_bytes(), 1000u);
  EXPECT_EQ(DeviceMemory(GpuDevice::get(0), 0).address(), 0u);
  EXPECT_THROW(DeviceMemory(GpuDevice::get(0), std::size_t{1} << 60), Error);
}

TEST(GpuDevice, RunsAKernelInAStreamAndInAGraph) {
  PD_SKIP_WITHOUT_GPU();
  if (nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << nvrtc_problem();
  GpuDevice& device = GpuDevice::get(0);
  const Driver& cuda = required_driver();
  std::vector<char> cubin = compile("extern \"C\" __global__ void twice(int* x) { x[threadIdx.x] *= 2; }", "twice.cu",
                                    device.target().arch());
  Module module(device, cubin, "twice.cu");
  CUfunction kernel = module.function("twice");
  EXPECT_THROW(module.function("thrice"), Error);

  PinnedMemory host(device, 64 * sizeof(int));
  DeviceMemory memory(device, 64 * sizeof(int));
  Stream stream(device);
  Event start(device, true), stop(device, true);
  int* values = reinterpret_cast<int*>(host.bytes());
  for (int i = 0; i < 64; ++i) values[i] = i;
  CUdeviceptr address = memory.address();
  void* arguments[] = {&address};

  start.record(stream.get());
  PD_CUDA(cuda.cuMemcpyHtoDAsync(address, values, 64 * sizeof(int), stream.get()));
  PD_CUDA(cuda.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, stream.get(), arguments, nullptr));
  PD_CUDA(cuda.cuMemcpyDtoHAsync(values, address, 64 * sizeof(int), stream.get()));
  stop.record(stream.get());
  stop.wait_done();
  EXPECT_TRUE(stop.is_done());
  EXPECT_GT(stop.milliseconds_since(start), 0.0f);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(values[i], 2 * i);

  CUgraph graph = nullptr;
  PD_CUDA(cuda.cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  PD_CUDA(cuda.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, stream.get(), arguments, nullptr));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  PD_CUDA(cuda.cuStreamGetCaptureInfo(stream.get(), &status, nullptr, nullptr, nullptr, nullptr, nullptr));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  PD_CUDA(cuda.cuStreamEndCapture(stream.get(), &graph));
  std::size_t nodes = 0;
  PD_CUDA(cuda.cuGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 1u);
  CUgraphExec executable = nullptr;
  PD_CUDA(cuda.cuGraphInstantiate(&executable, graph, 0));
  PD_CUDA(cuda.cuGraphUpload(executable, stream.get()));
  for (int i = 0; i < 3; ++i) PD_CUDA(cuda.cuGraphLaunch(executable, stream.get()));
  PD_CUDA(cuda.cuMemcpyDtoHAsync(values, address, 64 * sizeof(int), stream.get()));
  stream.wait_idle();
  for (int i = 0; i < 64; ++i) EXPECT_EQ(values[i], 16 * i);
  PD_CUDA(cuda.cuGraphExecDestroy(executable));
  PD_CUDA(cuda.cuGraphDestroy(graph));
}

}  // namespace
}  // namespace paoding::gpu
