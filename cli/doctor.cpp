// SPDX-License-Identifier: Apache-2.0
// paoding doctor: lists the machine's devices and libraries, those that were not found, and how to get them.
#include <hwy/targets.h>
#include <oneapi/dnnl/dnnl.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/check.h"
#include "base/env.h"
#include "base/target.h"
#include "command.h"
#include "cpu/fused_routine.h"
#include "cpu/parallel.h"
#include "paoding/distributed.h"
#include "paoding/version.h"

#if PAODING_WITH_CUDA
#include <unistd.h>

#include "distributed/gpu/nccl.h"
#include "gpu/driver/driver.h"
#include "gpu/driver/kernel_cache.h"
#include "gpu/driver/nvrtc.h"
#include "gpu/driver/proof.h"
#include "gpu/libraries/cublaslt.h"
#include "gpu/libraries/cudnn.h"
#include "gpu/profile/cupti_library.h"
#endif

namespace paoding::cli {
namespace {

void print_row(std::string_view name, std::string_view text) { print("  {:<14}{}\n", name, text); }

// The value after the first "key : value" of a /proc file.
std::string proc_value(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t start = line.find_first_not_of(" \t:", key.size());
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "unknown";
}

// The best instruction set that both this CPU and the kernels have; the kernels leave three sets out.
std::string highway_target() {
  const auto both =
      hwy::SupportedTargets() & HWY_TARGETS & ~static_cast<std::int64_t>(HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL);
  return hwy::TargetName(both & -both);  // better targets are lower bits
}

void print_cpu() {
  print("CPU\n");
  print_row("model", proc_value("/proc/cpuinfo", "model name"));
  print_row("cores", fmt::format("{}, {} threads for kernels", std::thread::hardware_concurrency(), max_threads()));
  print_row("SIMD", fmt::format("{} (Highway's choice)", highway_target()));
  print_row("fused tiles", fused_isa() != VectorIsa::scalar
                               ? fmt::format("yes: groups run as machine code made for them, {}",
                                             fused_isa() == VectorIsa::avx512 ? "AVX-512" : "AVX2")
                               : "no, which needs AVX2 and PAODING_FUSE_TILES not 0: groups run instruction by "
                                 "instruction, up to five times as slow");
  print_row("memory", fmt::format("{}, {} available", proc_value("/proc/meminfo", "MemTotal"),
                                  proc_value("/proc/meminfo", "MemAvailable")));
  const dnnl_version_t* version = dnnl_version();
  const std::string no_gloo = missing_for_ranks(DeviceKind::cpu);
  print_row("Gloo", no_gloo.empty() ? "yes: several processes can train together (--ranks)" : no_gloo);
  print_row("oneDNN", fmt::format("{}.{}.{}", version->major, version->minor, version->patch));
}

#if PAODING_WITH_CUDA
void print_library(const char* name, const gpu::Library& library, const std::string& problem,
                   const std::string& version, const char* use, const char* remedy) {
  if (library.loaded() && problem.empty()) {
    return print_row(name, fmt::format("{} {}", version, library.path()));
  }
  print_row(name, fmt::format("not usable: {}", problem));
  print_row("", fmt::format("it is for {}; {}", use, remedy));
}

void print_gpu_libraries() {
  print("\nNVIDIA's libraries (loaded when there; nothing needs them on the CPU)\n");
  constexpr const char* kInstall =
      "install a CUDA toolkit or NVIDIA's pip packages, or name their folder in PAODING_CUDA_PATH";
  int version = 0;
  if (gpu::driver() != nullptr) gpu::driver()->cuDriverGetVersion(&version);
  print_library("driver", gpu::driver_library(), gpu::driver_problem(), "CUDA " + gpu::version_text(version),
                "running on a GPU", "install NVIDIA's driver; in a container, start it with access to the GPUs");
  print_library("NVRTC", gpu::nvrtc_library(), gpu::nvrtc_problem(), gpu::version_text(gpu::nvrtc_version()),
                "compiling kernels", kInstall);
  const std::string cublaslt_version =
      gpu::cublaslt() == nullptr ? "" : fmt::format("{}", gpu::cublaslt()->cublasLtGetVersion());
  print_library("cuBLASLt", gpu::cublaslt_library(), gpu::cublaslt_problem(), cublaslt_version,
                "matrix products on a GPU", kInstall);
  const std::string cudnn_version =
      gpu::cudnn_functions() == nullptr ? "" : fmt::format("{}", gpu::cudnn_functions()->cudnnGetVersion());
  print_library("cuDNN", gpu::cudnn_library(), gpu::cudnn_problem(), cudnn_version, "some convolutions on a GPU",
                "install cuDNN 9 (NVIDIA's pip package nvidia-cudnn-cu13), or name its folder in PAODING_CUDA_PATH");
  const int nccl = gpu::nccl_version();
  print_library("NCCL", gpu::nccl_library(), gpu::nccl_problem(),
                fmt::format("{}.{}.{}", nccl / 10000, nccl / 100 % 100, nccl % 100), "training on several GPUs",
                "install NVIDIA's pip package nvidia-nccl-cu13, or name its folder in PAODING_CUDA_PATH");
  print_library("CUPTI", gpu::cupti_library(), gpu::cupti_problem(), fmt::format("{}", gpu::cupti_version()),
                "GPU times in profiles", kInstall);
}

void print_gpus() {
  print("\nGPUs\n");
  const int count = gpu::GpuDevice::count();
  if (count == 0) print_row("none", "the CPU is used");
  for (int i = 0; i < count; ++i) {
    const std::string name = fmt::format("cuda:{}", i);
    try {
      const Target& gpu = gpu::GpuDevice::get(i).target();
      print_row(name, fmt::format("{}, compute capability {}.{} ({}), {} SMs, {:.1f} GiB, {:.0f} MiB of L2", gpu.name,
                                  gpu.major, gpu.minor, gpu.arch(), gpu.sm_count,
                                  static_cast<double>(gpu.memory_bytes) / (1 << 30),
                                  static_cast<double>(gpu.last_cache_bytes) / (1 << 20)));
      print_row("", fmt::format("{}", gpu::proof_text(gpu::proof_of(gpu.major, gpu.minor))));
    } catch (const Error& error) {
      print_row(name, fmt::format("cannot be used: {}", error.what()));
    }
  }
}

void print_kernel_cache() {
  namespace fs = std::filesystem;
  print("\nKernel cache\n");
  const fs::path folder = gpu::KernelCache::folder_from_environment();
  if (folder.empty())
    return print_row("folder", "none: kernels are compiled anew by every process (PAODING_CACHE_DIR)");
  std::error_code error;
  if (!fs::exists(folder, error)) {
    return print_row("folder", fmt::format("{}, not there yet: the first kernel makes it", folder.string()));
  }
  if (!fs::is_directory(folder, error) || access(folder.c_str(), R_OK | W_OK | X_OK) != 0) {
    return print_row("folder", fmt::format("{}: cannot be written, so kernels are compiled anew by every process; "
                                           "make it writable or set PAODING_CACHE_DIR",
                                           folder.string()));
  }
  std::int64_t files = 0;
  std::uintmax_t bytes = 0;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const std::uintmax_t size = it->file_size(ignored);
    if (it->path().extension() != ".cubin" || ignored) continue;
    ++files;
    bytes += size;
  }
  print_row("folder",
            fmt::format("{}: {} kernels, {:.1f} MB", folder.string(), files, static_cast<double>(bytes) / 1e6));
}

void print_gpu_parts() {
  print_gpu_libraries();
  print_gpus();
  print_kernel_cache();
}
#else
void print_gpu_parts() {
  print("\nGPUs\n");
  print_row("none", "this build has no GPU back end: CUDA's headers were not found when paoding was built");
}
#endif

void print_environment() {
  print("\nEnvironment (value, else what holds without one)\n");
  for (const EnvVariable& variable : env_variables()) {
    const auto value = env_value(variable.name);
    print("  {:<24}{:<24}  {}\n", variable.name,
          value ? "\"" + *value + "\"" : fmt::format("not set [{}]", variable.fallback), variable.meaning);
  }
}

int examine() {
  print("paoding {}, best device {} (train, predict and serve use the CPU unless --device says otherwise)\n\n",
        PAODING_VERSION, to_string(Device::best()));
  print_cpu();
  print_gpu_parts();
  print_environment();
  return kOk;
}

}  // namespace

void add_doctor(CLI::App& app, Commands* commands) {
  CLI::App* sub = app.add_subcommand(
      "doctor",
      "Say what this machine has and what is missing\n\n"
      "CPU, threads and instruction set; every library that is looked for, where it was found or why not and what to "
      "do;\n"
      "GPUs; the kernel cache; environment variables. A machine without a GPU is healthy: the exit code is 0.");
  sub->footer(
      "Examples:\n"
      "  paoding doctor\n"
      "  PAODING_CUDA_PATH=/opt/cuda-13 paoding doctor         # is this toolkit found?");
  commands->push_back({sub, [] { return examine(); }});
}

}  // namespace paoding::cli
