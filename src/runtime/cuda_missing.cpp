// SPDX-License-Identifier: Apache-2.0
// What a build without CUDA's headers says when it is asked for a GPU.
#include "base/check.h"
#include "runtime/executor.h"

#if !PAODING_WITH_CUDA

namespace paoding {

namespace {
[[noreturn]] void no_gpu() {
  fail(ErrorKind::device, "this build of paoding has no GPU back end\nhint: `make deps-gpu`, then build again");
}
}  // namespace

std::unique_ptr<Executor> make_gpu_executor(const Plan&, const ExecutorOptions&) { no_gpu(); }
std::unique_ptr<DeviceBuffer> make_gpu_buffer(std::int64_t, const Device&) { no_gpu(); }

}  // namespace paoding

#endif
