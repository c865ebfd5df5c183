// SPDX-License-Identifier: Apache-2.0
#include "gpu/codegen/vertical_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/check.h"
#include "base/rounding.h"
#include "gpu/codegen/group_schedule.h"
#include "gpu/codegen/group_text.h"
#include "gpu/codegen/group_writer.h"
#include "gpu/codegen/text_kernel.h"
#include "gpu/kernels/kernel_prelude.h"
#include "group/partition.h"

namespace paoding::gpu {
namespace {

constexpr std::int64_t kThreadsPerSm = 1024;  // which have 64 registers each: all of a CTA, or of two
constexpr std::int64_t kChainCtasPerSm = 2;
// Limits of a partition: a larger one does not wait for launches, and the next stage does not find it in the SM's
// cache.
constexpr std::int64_t kMostPoints = 64 << 10, kMostShareBytes = 192 << 10;
constexpr std::int64_t kSectorBytes =
    32;  // the least that is fetched: partitions that lie side by side fetch each other's
// Cost of a kernel beside its work, and of a stage (some latencies of L2 and its barriers); then the part of L2's rate
// that a kernel of few microseconds reaches, and a stage on its SM (H200: the stages of an attention step by the SM's
// clock).
constexpr double kKernelUs = 1.3, kStageUs = 0.8, kAloneRate = 0.4, kStageRate = 0.6;

// A kernel may count on a multiple of four at which its vectors begin, which other partitions would not have.
bool moves_out_of_fours(const Group& partition, std::size_t i, std::int64_t step) {
  if (step % 4 == 0 || !draws_numbers(partition)) return false;
  const int axes = static_cast<int>(partition.extents.size());
  for (int axis = 0; axis < axes; ++axis) {
    if (is_in_fours(partition.indices[i], axis)) return true;
  }
  return false;
}

// Numbers of the iteration point beyond 32 bits: whether they are is decided by the first partition alone.
bool has_wide_index(const Group& group) {
  return std::ranges::any_of(group.indices, [&](const GroupIndex& index) {
    std::int64_t reach = std::abs(index.start);
    for (std::size_t axis = 0; axis < group.extents.size(); ++axis) {
      reach += std::abs(index.strides[axis]) * group.extents[axis];
    }
    return needs_wide_index(reach);
  });
}

std::int64_t ctas_per_sm(std::int64_t partitions, const Target& target) {
  return std::clamp<std::int64_t>(ceil_div(partitions, std::int64_t{target.sm_count}), 1, kChainCtasPerSm);
}
int threads_of(std::int64_t partitions, const Target& target) {
  return static_cast<int>(kThreadsPerSm / ctas_per_sm(partitions, target));
}

std::string refusal_of(const TextLaunch& launch, int threads) {
  if (launch.grid[0] == 0) return "nothing to do";
  if (launch.block != static_cast<unsigned>(threads)) return fmt::format("{} threads, not {}", launch.block, threads);
  if (launch.workspace_bytes > 0 || launch.ticket_count > 0) return "its sums need several CTAs";
  if (launch.cluster > 1 || launch.shared_bytes > 0) return "it is a cluster's work";
  return "";
}

// The shared memory that a kernel's sums are added up in: all stages have the same.
constexpr std::string_view kScratch = "__shared__ double shared[";

std::size_t take_scratch(std::string* text) {
  const std::size_t at = text->find(kScratch);
  if (at == std::string::npos) return 0;
  const std::size_t number = at + kScratch.size(), end = text->find("];", number);
  std::size_t doubles = 0;
  std::from_chars(text->data() + number, text->data() + end, doubles);
  text->replace(at, end + 2 - at, "double* const shared = sums_of_stages;");
  PD_ASSERT(text->find(kScratch) == std::string::npos, "a kernel has one scratch");
  return doubles;
}

// A stage is the kernel as a function without its waits and checks, since the launch has done them.
std::string as_stage(const TextLaunch& launch) {
  std::string text = as_function(own_text(launch));
  replace_all(&text, "  grid_dependency_wait();\n", "");
  replace_all(&text, kBegin, "");
  return text;
}

// Bytes that are fetched and written for a partition.
std::int64_t partition_bytes(const Group& group, int axis) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < group.operands(); ++i) {
    const std::int64_t size = size_bytes(operand_dtype(group, i)),
                       step = std::abs(partition_step(group, i, axis)) * size;
    const std::int64_t elements = distinct_elements(group, i) / (step == 0 ? 1 : partition_count(group, axis));
    bytes +=
        elements *
        (step == 0 || elements == 1 ? size : std::clamp<std::int64_t>(kSectorBytes * size / step, size, kSectorBytes));
  }
  return bytes;
}

}  // namespace

FusedStage plan_stage(const Group& group, int axis, std::span<const int> alignment, const Target& target) {
  FusedStage stage;
  const Group partition = first_partition(group, axis);
  if (partition.points() == 0) stage.refusal = "it has no points";
  if (partition.points() > kMostPoints || partition_bytes(group, axis) > kMostShareBytes)
    stage.refusal = "a partition is too large";
  if (has_wide_index(group)) stage.refusal = "numbers of its points need 64 bits";
  if (!stage.refusal.empty()) return stage;
  std::vector<int> aligned;
  for (std::size_t i = 0; i < group.operands(); ++i) {
    const std::int64_t step = partition_step(group, i, axis) * size_bytes(operand_dtype(group, i));
    stage.steps.push_back(step);
    aligned.push_back(static_cast<int>(step == 0 ? alignment[i] : std::min<std::int64_t>(alignment[i], step & -step)));
  }
  for (const GroupIndex& index : group.indices) {
    const std::size_t i = stage.index_steps.size();
    stage.index_steps.push_back(axis == kWholeGroup ? 0 : index.strides[static_cast<std::size_t>(axis)]);
    if (moves_out_of_fours(partition, i, stage.index_steps[i])) {
      stage.refusal = "its random numbers would begin within a block of four";
      return stage;
    }
  }
  Target one_sm = target;
  one_sm.sm_count = 1;
  const int threads = threads_of(partition_count(group, axis), target);
  stage.launch = plan_group(canonical(partition), aligned, one_sm, threads).launches.at(0);
  stage.refusal = refusal_of(stage.launch, threads);
  return stage;
}

double alone_us(const Group& group, const Target& target) {
  return kKernelUs + double(group.min_bytes()) / (kAloneRate * target.cached_bytes_per_us);
}

double stage_us(const Group& group, int axis, const Target& target) {
  const double turns = double(ceil_div(partition_count(group, axis), std::int64_t{target.sm_count}));
  const double rate = kStageRate * target.cached_bytes_per_us / target.sm_count;
  return kStageUs + turns * double(partition_bytes(group, axis)) / rate;
}

std::int64_t most_partitions(const Target& target) { return kChainCtasPerSm * target.sm_count; }

VerticalLaunch::VerticalLaunch(std::span<const FusedStage* const> stages, std::int64_t partitions,
                               const Target& target) {
  std::string kernels, sizes, calls;
  std::size_t scratch = 0;
  for (std::size_t p = 0; p < stages.size(); ++p) {
    const FusedStage& stage = *stages[p];
    std::string text = as_stage(stage.launch);
    scratch = std::max(scratch, take_scratch(&text));
    kernels += fmt::format("namespace kernel{} {{\n{}}}\n", p, text);

    const bool has_sizes = !stage.launch.sizes.empty();
    const std::size_t operands = stage.steps.size(), indices = stage.index_steps.size();
    sizes += fmt::format(
        "  struct {{\n    void* operands[{0}];\n    long long steps[{0}];\n{1}    unsigned long long turns;\n{2}  }} "
        "of{3};\n",
        operands, indices > 0 ? fmt::format("    long long index_steps[{}];\n", indices) : "",
        has_sizes ? fmt::format("    kernel{}::Sizes sizes;\n", p) : "", p);
    calls += fmt::format("  {{\n    kernel{0}::Sizes sizes{1};\n", p,
                         has_sizes ? fmt::format(" = size.of{}.sizes", p) : "{}");
    for (std::size_t i = 0; i < indices; ++i) {
      const std::string start = fmt::format("idx{}_start", i);
      if (text.find(start) == std::string::npos) continue;  // not read
      const bool is_wide = text.find(start + "_wide") != std::string::npos;
      calls += fmt::format("    sizes.{0}{1} += ({2})(partition * size.of{3}.index_steps[{4}]);\n", start,
                           is_wide ? "_wide" : "", is_wide ? "long long" : fmt::format("kernel{}::Index", p), p, i);
    }
    std::string arguments;
    for (std::size_t i = 0; i < operands; ++i) {
      arguments +=
          fmt::format("AnyPointer{{(char*)size.of{0}.operands[{1}] + partition * size.of{0}.steps[{1}]}}, ", p, i);
    }
    calls += fmt::format(
        "    for (unsigned turn = 0; turn < size.of{0}.turns; ++turn) {{\n      kernel{0}::run({1}none, sizes, "
        "turn);\n      __syncthreads();\n    }}\n  }}\n",
        p, arguments);

    operands_at_.push_back(launch_.sizes.size());
    operand_count_.push_back(operands);
    launch_.sizes.resize(launch_.sizes.size() + operands);
    for (const auto& steps : {stage.steps, stage.index_steps}) {
      for (const std::int64_t step : steps) launch_.sizes.push_back(static_cast<std::uint64_t>(step));
    }
    launch_.sizes.push_back(stage.launch.grid[0]);
    launch_.sizes.insert(launch_.sizes.end(), stage.launch.sizes.begin(), stage.launch.sizes.end());
    launch_.floor_us += stage.launch.floor_us;
  }
  name_entry(
      "vertical",
      fmt::format(
          "// {} kernels one after the other, every CTA its partition of each.\n{}\n{}\n"
          "{}{}struct Sizes {{\n{}}};\n\n{}{}, {}) $entry(\n"
          "    const LaunchScratch scratch, const __grid_constant__ Sizes size) {{\n  grid_dependency_wait();\n{}"
          "  const LaunchScratch none = {{}};\n  const long long partition = blockIdx.x;\n{}}}\n",
          stages.size(), kernel_prelude(), any_pointer_text(),
          scratch > 0 ? fmt::format("__shared__ double sums_of_stages[{}];\n", scratch) : "", kernels, sizes,
          kKernelHead, threads_of(partitions, target), ctas_per_sm(partitions, target), kBegin, calls));
  launch_.grid[0] = static_cast<unsigned>(partitions);
  launch_.block = static_cast<unsigned>(threads_of(partitions, target));
  launch_.leaves_stamp = true;
  launch_.overlaps_before = overlaps_before(target, launch_);
  launch_.why = fmt::format("{} kernels one after the other in {} CTAs", stages.size(), partitions);
}

void VerticalLaunch::place(std::size_t member, void* const* operands, void* /*workspace*/, void* /*tickets*/) {
  for (std::size_t i = 0; i < operand_count_[member]; ++i) {
    launch_.sizes[operands_at_[member] + i] = reinterpret_cast<std::uint64_t>(operands[i]);
  }
}

}  // namespace paoding::gpu
