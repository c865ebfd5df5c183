// SPDX-License-Identifier: Apache-2.0
#include "gpu/driver/loaded_kernel.h"

#include <array>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/target.h"
#include "gpu/driver/kernel_cache.h"
#include "gpu/driver/nvrtc.h"

namespace paoding::gpu {
namespace {
constexpr unsigned kPortableCluster = 8;  // CTAs

CUtensorMapDataType type_of(const TensorMap& map) {
  switch (map.dtype) {
    case DType::f16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::bf16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    default: return map.is_rounded ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  }
}

CUtensorMap made_map(const TensorMap& map, void* memory) {
  const Driver& driver = required_driver();
  if (driver.cuTensorMapEncodeTiled == nullptr || driver.cuTensorMapEncodeIm2col == nullptr) {
    fail(ErrorKind::device, "this NVIDIA driver does not describe operands to TMA: 525.60 or newer does");
  }
  CUtensorMap made;
  const auto size = static_cast<cuuint64_t>(size_bytes(map.dtype));
  const auto rank = static_cast<cuuint32_t>(map.extents.size());
  const std::vector<cuuint64_t> extents(map.extents.begin(), map.extents.end());
  std::vector<cuuint64_t> stride_bytes;
  for (const std::int64_t stride : map.strides) stride_bytes.push_back(static_cast<cuuint64_t>(stride) * size);
  std::vector<cuuint32_t> each(rank, 1);
  const auto in_row = static_cast<cuuint32_t>(128 / size), rows = static_cast<cuuint32_t>(map.tile_rows);
  if (!map.windows) {
    std::vector<cuuint32_t> tile(rank, 1);
    tile.front() = in_row, tile.back() = rows;
    if (map.tile_columns > 0) {
      tile[1] = static_cast<cuuint32_t>(map.tile_columns), tile[2] = rows / tile[1], tile[3] = 1;
    }
    PD_CUDA(driver.cuTensorMapEncodeTiled(&made, type_of(map), rank, memory, extents.data(), stride_bytes.data(),
                                          tile.data(), each.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                                          map.is_plain ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
                                          CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    return made;
  }
  int first[2], beyond[2];  // where the first window begins, and how far beyond the image windows do not begin any more
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& [from, step, count] = *map.windows;
    first[i] = static_cast<int>(from[i]);
    beyond[i] = static_cast<int>(from[i] + (count[i] - 1) * step[i] + 1 - map.extents[1 + i]);
    each[1 + i] = static_cast<cuuint32_t>(step[i]);
  }
  PD_CUDA(driver.cuTensorMapEncodeIm2col(&made, type_of(map), rank, memory, extents.data(), stride_bytes.data(), first,
                                         beyond, in_row, rows, each.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                                         CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return made;
}

// Needed above 48 KB; the source's own static shared memory counts too. The limit holds for all launches of the
// function, of other sizes too, so it is never lowered.
void ask_for_shared(CUfunction function, unsigned bytes) {
  static std::mutex mutex;
  static std::map<CUfunction, unsigned> asked;
  const std::lock_guard lock(mutex);
  unsigned& most = asked[function];
  if (bytes <= most) return;
  PD_CUDA(required_driver().cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                               static_cast<int>(bytes)));
  most = bytes;
}

void* memory_of(const TensorMap& map, void* const* operands, const LaunchScratch& scratch) {
  void* const start = map.operand == TensorMap::kWorkspace ? scratch.workspace : operands[map.operand];
  return static_cast<char*>(start) + map.offset;
}

}  // namespace

CUfunction load_kernel(const GpuDevice& device, const KernelSource& source, const std::string& entry) {
  static std::mutex mutex;
  static std::map<std::pair<int, Hash128>, Module> modules;
  const std::string arch = device.target().arch();
  const auto cubin = KernelCache::shared().cubin(source, arch, entry + ".cu");
  const std::lock_guard lock(mutex);
  const auto key = std::pair(device.index(), source.hash());
  auto it = modules.find(key);
  if (it == modules.end()) it = modules.emplace(key, Module(device, *cubin, entry)).first;
  return it->second.function(entry);
}

LoadedKernel::LoadedKernel(const GpuDevice& device, const TextLaunch& launch, std::size_t operands)
    : launch_(&launch), function_(load_kernel(device, launch.source, launch.entry)), operands_(operands) {
  const Driver& driver = required_driver();
  device.make_current();
  if (launch.shared_bytes > 0) ask_for_shared(function_, launch.shared_bytes);
  if (launch.cluster > kPortableCluster) {
    PD_CUDA(driver.cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  }
}

void LoadedKernel::start(CUstream stream, void* const* operands, const LaunchScratch& scratch) const {
  std::vector<void*> arguments;  // made when a run is captured, not when it is launched
  arguments.reserve(operands_ + 2 + launch_->maps.size());
  for (std::size_t i = 0; i < operands_; ++i) arguments.push_back(const_cast<void**>(&operands[i]));
  arguments.push_back(const_cast<LaunchScratch*>(&scratch));
  static std::uint64_t no_sizes = 0;  // a kernel that has none takes a byte all the same
  arguments.push_back(launch_->sizes.empty() ? &no_sizes : const_cast<std::uint64_t*>(launch_->sizes.data()));
  std::vector<CUtensorMap> maps;
  for (const TensorMap& map : launch_->maps) maps.push_back(made_map(map, memory_of(map, operands, scratch)));
  for (CUtensorMap& map : maps) arguments.push_back(&map);
  std::array<CUlaunchAttribute, 3> attributes;
  unsigned count = 0;
  if (launch_->cluster > 1) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[count++].value.clusterDim = {launch_->cluster, 1, 1};
  }
  if (launch_->is_cooperative) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attributes[count++].value.cooperative = 1;
  }
  if (launch_->overlaps_before) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[count++].value.programmaticStreamSerializationAllowed = 1;
  }
  const Driver& driver = required_driver();
  if (count == 0) {  // drivers before CUDA 12 know only this call
    PD_CUDA(driver.cuLaunchKernel(function_, launch_->grid[0], launch_->grid[1], launch_->grid[2], launch_->block, 1, 1,
                                  launch_->shared_bytes, stream, arguments.data(), nullptr));
    return;
  }
  CUlaunchConfig config{};
  config.gridDimX = launch_->grid[0], config.gridDimY = launch_->grid[1], config.gridDimZ = launch_->grid[2];
  config.blockDimX = launch_->block, config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = launch_->shared_bytes;
  config.hStream = stream;
  config.attrs = attributes.data(), config.numAttrs = count;
  PD_CUDA(driver.cuLaunchKernelEx(&config, function_, arguments.data(), nullptr));
}

// Registers, and shared memory of a fixed size, are the compiler's choice.
LaunchShape LoadedKernel::shape() const {
  const auto attribute = [&](CUfunction_attribute which) {
    const Driver& driver = required_driver();
    int value = 0;
    const bool is_known =
        driver.cuFuncGetAttribute != nullptr && driver.cuFuncGetAttribute(&value, which, function_) == CUDA_SUCCESS;
    return is_known ? value : 0;
  };
  return {.grid = {launch_->grid[0], launch_->grid[1], launch_->grid[2]},
          .threads = launch_->block,
          .registers = attribute(CU_FUNC_ATTRIBUTE_NUM_REGS),
          .shared_bytes = launch_->shared_bytes + attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)};
}

namespace {

class TextKernel : public PreparedKernel {
 public:
  TextKernel(const GpuDevice& device, std::shared_ptr<const TextPlan> text, std::size_t operands)
      : text_(std::move(text)) {
    for (const TextLaunch& launch : text_->launches) kernels_.emplace_back(device, launch, operands);
  }

  void run(const KernelRun& run) const override {
    void* stamp = run.stamp;
    for (const LoadedKernel& kernel : kernels_) {
      kernel.start(static_cast<CUstream>(run.stream), run.operands,
                   {run.scratch, run.tickets, run.fault, run.failed, std::exchange(stamp, nullptr)});
    }
  }
  void raise(const std::uint64_t* fault) const override { text_->raise(fault); }
  LaunchShape launch() const override { return kernels_.empty() ? LaunchShape{} : kernels_.front().shape(); }

 private:
  std::shared_ptr<const TextPlan> text_;
  std::vector<LoadedKernel> kernels_;
};

}  // namespace

std::unique_ptr<PreparedKernel> load_text(const GpuDevice& device, std::shared_ptr<const TextPlan> text,
                                          std::size_t operands) {
  return std::make_unique<TextKernel>(device, std::move(text), operands);
}

}  // namespace paoding::gpu
