// SPDX-License-Identifier: Apache-2.0
// The errors of a build without CUDA's headers when it is asked for a GPU.
#include "base/check.h"
#include "runtime/device_tensor.h"
#include "runtime/executor.h"
#include "runtime/gpu/tuning.h"
#include "runtime/kernel_environment.h"
#include "runtime/placed/placed_plan.h"
#include "runtime/target.h"
#include "schedule/schedule.h"

#if !PAODING_WITH_CUDA

namespace paoding {

namespace {
[[noreturn]] void no_gpu() {
  fail(ErrorKind::device, "this build of paoding has no GPU back end\nhint: build it where CUDA's headers are");
}
}  // namespace

std::unique_ptr<Executor> make_gpu_executor(const Plan&, const ExecutorOptions&) { no_gpu(); }
std::unique_ptr<DeviceBuffer> make_gpu_buffer(std::int64_t, const Device&) { no_gpu(); }
void read_gpu_memory(const Device&, const void*, Tensor*) { no_gpu(); }
std::shared_ptr<SharedFailure> make_gpu_failure(const Device&) { no_gpu(); }
std::unique_ptr<PlacedPlan> make_placed_gpu_plan(PlacedSource, const Device&, const PlacedOptions&) { no_gpu(); }
void fuse_launches(const Plan&, Schedule*) {}  // plans without kernels have nothing to fuse
void clear_gpu_memory(const Device&, void*, std::int64_t, void*) { no_gpu(); }
TargetPtr target_of_gpu(int) { no_gpu(); }
void compile_kernels_of(const Plan&, const CompileOptions&) { no_gpu(); }
std::shared_ptr<TimedChoices> process_timed_choices() { return nullptr; }
std::vector<std::string> time_choices(const Plan&, const Device&) { no_gpu(); }
StepNeeds lower_for_gpu(Step&, const Target&) { return {}; }  // its plan can be looked at all the same

}  // namespace paoding

#endif
