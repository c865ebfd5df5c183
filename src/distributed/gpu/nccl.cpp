// SPDX-License-Identifier: Apache-2.0
// Ranks on GPUs by NCCL. Every call is enqueued in the caller's stream, also in one that captures: a collective is a
// kernel of the step's graph then.
#include "distributed/gpu/nccl.h"

#include <cstdlib>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/one_line.h"
#include "distributed/stores.h"
#include "gpu/driver/driver.h"

namespace paoding {
namespace gpu {
namespace {

struct LoadedNccl {
  Library library;
  Nccl table;
  std::string problem;
  int version = 0;

  LoadedNccl() : library({"libnccl.so.2"}), problem(library.problem()) {
    if (!library.loaded()) return;
    try {
#define PD_NCCL_LOAD(name, result, parameters) table.name = library.symbol<result(*) parameters>(#name);
      PD_NCCL_FUNCTIONS(PD_NCCL_LOAD)
#undef PD_NCCL_LOAD
      table.ncclGetVersion(&version);
      if (version < nccl::kLeastVersion)
        problem = fmt::format("{} is version {}, needed is 2.18", library.path(), version);
    } catch (const Error& error) {
      problem = error.what();
    }
  }
};

const LoadedNccl& loaded_nccl() {
  static const LoadedNccl* loaded = new LoadedNccl();
  return *loaded;
}

}  // namespace

const Nccl* nccl_functions() { return nccl_problem().empty() ? &loaded_nccl().table : nullptr; }
const std::string& nccl_problem() { return loaded_nccl().problem; }
const Library& nccl_library() { return loaded_nccl().library; }
int nccl_version() { return loaded_nccl().version; }

}  // namespace gpu

namespace {

namespace nccl = gpu::nccl;

nccl::DataType nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return nccl::kFloat64;
    case DType::f32: return nccl::kFloat32;
    case DType::f16: return nccl::kFloat16;
    case DType::bf16: return nccl::kBfloat16;
    case DType::i64: return nccl::kInt64;
    case DType::i32: return nccl::kInt32;
    default: return nccl::kUint8;
  }
}

nccl::Operation nccl_operation(Reduction reduction) {
  return reduction == Reduction::max ? nccl::kMax : reduction == Reduction::min ? nccl::kMin : nccl::kSum;
}

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(const RankPlace& place, int device_index, const ConnectOptions& options)
      : place_(place), gpu_(device_index), options_(options), table_(*gpu::nccl_functions()) {
    // NVLink multicast gains nothing in one machine, and its sums are not the same bits in every run. Graphs and eager
    // calls never meet on this communicator, so that no events between them are needed.
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0);
    const gpu::GpuDevice& device = gpu::GpuDevice::get(device_index);
    device.make_current();
    nccl::UniqueId id{};
    if (rank() == 0) {
      check(table_.ncclGetUniqueId(&id), "ncclGetUniqueId");
      options_.store->set("nccl/id", std::string(id.bytes, sizeof id.bytes));
    }
    meet("nccl/here");  // the next call waits for all without end
    const std::string shared = options_.store->get("nccl/id", options_.connect_timeout);
    PD_ASSERT(shared.size() == sizeof id.bytes, "rank 0 left an id");
    shared.copy(id.bytes, sizeof id.bytes);
    check(table_.ncclCommInitRank(&communicator_, size(), id, rank()), "ncclCommInitRank");
    warm_up(device);
  }
  ~NcclCommunicator() override {
    // A communicator that a rank is missing from would wait for it; graphs that have captured it are gone by now.
    const nccl::Communicator mine = taken();
    if (mine != nullptr) table_.ncclCommAbort(mine);
  }

  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  Device device() const override { return Device::cuda(gpu_); }
  std::string name() const override {
    const int version = gpu::nccl_version();
    return fmt::format("nccl {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }

  void all_reduce(const void* in, void* out, std::int64_t count, DType dtype, Reduction reduction,
                  void* stream) override {
    check(table_.ncclAllReduce(in, out, static_cast<std::size_t>(count), nccl_type(dtype), nccl_operation(reduction),
                               mine(), static_cast<CUstream>(stream)),
          "ncclAllReduce");
  }
  void reduce_scatter(const void* in, void* out, std::int64_t count, DType dtype, Reduction reduction,
                      void* stream) override {
    check(table_.ncclReduceScatter(in, out, static_cast<std::size_t>(count), nccl_type(dtype),
                                   nccl_operation(reduction), mine(), static_cast<CUstream>(stream)),
          "ncclReduceScatter");
  }
  void all_gather(const void* in, void* out, std::int64_t count, DType dtype, void* stream) override {
    check(table_.ncclAllGather(in, out, static_cast<std::size_t>(count), nccl_type(dtype), mine(),
                               static_cast<CUstream>(stream)),
          "ncclAllGather");
  }
  void broadcast(const void* in, void* out, std::int64_t count, DType dtype, int root, void* stream) override {
    check(table_.ncclBroadcast(in, out, static_cast<std::size_t>(count), nccl_type(dtype), root, mine(),
                               static_cast<CUstream>(stream)),
          "ncclBroadcast");
  }

  void barrier() override {
    mine();
    meet(fmt::format("nccl/barrier/{}", barriers_++));
  }

  void abort(const std::string& reason) noexcept override {
    try {
      {
        const std::lock_guard lock(mutex_);
        if (reason_.empty()) reason_ = reason;
      }
      if (const nccl::Communicator mine = taken(); mine != nullptr) table_.ncclCommAbort(mine);
    } catch (...) {  // then it is of no use already
    }
  }

 private:
  // Waits until all ranks have come here.
  void meet(const std::string& key) {
    options_.store->set(fmt::format("{}/{}", key, rank()), "here");
    for (int other = 0; other < size(); ++other) {
      try {
        options_.store->get(fmt::format("{}/{}", key, other), options_.timeout);
      } catch (const Error& error) {
        fail(ErrorKind::device, "rank {} of {}: rank {} does not come: {}", rank(), size(), other, error.what());
      }
    }
  }

  // Channels are made before the first capture, which would have to wait for the other ranks.
  void warm_up(const gpu::GpuDevice& device) {
    constexpr std::int64_t kBytes = std::int64_t{1} << 20;
    const gpu::DeviceMemory memory(device, kBytes);
    const gpu::Stream stream(device);
    void* const at = memory.pointer();
    for (const std::int64_t count : {std::int64_t{1}, kBytes / 4}) {
      all_reduce(at, at, count, DType::f32, Reduction::sum, stream.get());
    }
    stream.wait_idle();
  }

  nccl::Communicator mine() {
    const std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) fail(ErrorKind::device, "rank {} of {}: {}", rank(), size(), reason_);
    return communicator_;
  }
  nccl::Communicator taken() {
    const std::lock_guard lock(mutex_);
    return std::exchange(communicator_, nullptr);
  }

  void check(nccl::Result result, const char* what) const {
    if (result == nccl::kSuccess) return;
    const char* const more = table_.ncclGetLastError(nullptr);
    fail(ErrorKind::device, "rank {} of {}, {}: {}{}{}", rank(), size(), what, table_.ncclGetErrorString(result),
         more == nullptr || *more == '\0' ? "" : ": ", more == nullptr ? "" : one_line(more));
  }

  const RankPlace place_;
  const int gpu_;
  const ConnectOptions options_;
  const gpu::Nccl& table_;
  std::mutex mutex_;
  nccl::Communicator communicator_ = nullptr;  // nullptr after an abort
  std::string reason_;                         // of an abort
  int barriers_ = 0;
};

}  // namespace

std::shared_ptr<Communicator> connect_by_nccl(const RankPlace& place, int index, const ConnectOptions& options) {
  return std::make_shared<NcclCommunicator>(place, index, options);
}

std::string missing_nccl() {
  const std::string& problem = gpu::nccl_problem();
  if (problem.empty()) return "";
  return "NCCL, by which ranks on GPUs reach each other: " + problem +
         "\nhint: the Python package nvidia-nccl-cu13 has it, and PyTorch brings it; PAODING_CUDA_PATH names more "
         "folders";
}

}  // namespace paoding
