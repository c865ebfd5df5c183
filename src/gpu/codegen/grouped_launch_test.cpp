// SPDX-License-Identifier: Apache-2.0
// Kernels that are in one launch: which ones, that the source compiles by NVRTC, and that they give the bits that they
// give alone.
#include "gpu/codegen/grouped_launch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "gpu/codegen/group_cases.h"
#include "gpu/driver/nvrtc.h"
#include "tests/gpu/cuda_emulation/emulated_kernels.h"

namespace paoding::gpu {
namespace {

// A group's launch and memory for its operands, workspace and tickets.
struct Kernel {
  Group group;
  TextLaunch launch;

  explicit Kernel(const Group& made, int sm_count = 132) : group(canonical(made)) {
    Target target = named_target("h200");
    target.sm_count = sm_count;
    launch = plan_group(group, std::vector<int>(group.operands(), 256), target).launches.at(0);
  }
  FusedMember member() const { return {&launch, group.operands()}; }
};

class Memory {
 public:
  // `bytes` of 0x7f, or random ones that are finite in every type.
  Memory(std::size_t bytes, std::mt19937* random) : bytes_(bytes + 512, 0x7f) {
    start_ = bytes_.data() + (256 - reinterpret_cast<std::uintptr_t>(bytes_.data()) % 256);
    size_ = bytes;
    if (random == nullptr) return;
    for (std::size_t i = 0; i < bytes; ++i) start_[i] = static_cast<char>((*random)() % 0x3f);
  }
  Memory(const Memory&) = delete;
  Memory(Memory&&) = default;
  char* start() const { return start_; }
  std::string held() const { return {start_, size_}; }

 private:
  std::vector<char> bytes_;
  char* start_;
  std::size_t size_;
};

// A kernel's memory, the same for the same seed.
struct Held {
  std::vector<Memory> operands;
  Memory workspace;
  std::vector<unsigned> tickets;
  std::vector<void*> pointers;

  Held(const Kernel& kernel, unsigned seed)
      : workspace(static_cast<std::size_t>(kernel.launch.workspace_bytes), nullptr),
        tickets(static_cast<std::size_t>(kernel.launch.ticket_count) + 1) {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < kernel.group.operands(); ++i) {
      std::int64_t last = 0;
      for (std::size_t axis = 0; axis < kernel.group.extents.size(); ++axis) {
        last += operand_strides(kernel.group, i)[axis] * (kernel.group.extents[axis] - 1);
      }
      const auto bytes = static_cast<std::size_t>((last + 1) * size_bytes(operand_dtype(kernel.group, i)));
      operands.emplace_back(bytes, i < kernel.group.loads.size() ? &random : nullptr);
    }
    for (const Memory& operand : operands) pointers.push_back(operand.start());
  }
};

std::vector<unsigned> shuffled(unsigned count) {
  std::vector<unsigned> order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937(count));
  return order;
}

std::vector<Kernel> mixed_kernels() {
  std::vector<Kernel> kernels;
  for (const std::int64_t rows : {3, 64, 700}) {
    kernels.emplace_back(lerp_grad({rows, 1024}, f32, {0, 0}, 0, 0));
    kernels.emplace_back(lerp_grad({rows, 2048}, f32, {0, 0}, 0, 0));
    kernels.emplace_back(lerp_grad({rows, 515}, bf16, {0, 0}, 0, 0));
    kernels.emplace_back(sums({rows, 260}, f32, {0b01, 0b10, 0b00, 0b11}), 4);
  }
  kernels.emplace_back(sums({20011}, f32, {0b1}), 4);
  return kernels;
}

std::vector<FusedMember> members_of(const std::vector<Kernel>& kernels) {
  std::vector<FusedMember> members;
  for (const Kernel& kernel : kernels) members.push_back(kernel.member());
  return members;
}

std::vector<FusedMember> picked(const std::vector<FusedMember>& members, const std::vector<std::size_t>& places) {
  std::vector<FusedMember> list;
  for (const std::size_t place : places) list.push_back(members[place]);
  return list;
}

TEST(GroupedLaunch, GivesTheBitsThatTheKernelsGiveAlone) {
  const std::vector<Kernel> kernels = mixed_kernels();
  const std::vector<FusedMember> members = members_of(kernels);
  std::vector<const TextLaunch*> texts;
  for (const Kernel& kernel : kernels) texts.push_back(&kernel.launch);
  std::vector<GroupedLaunch> grouped;
  const auto groups = launch_groups_of(members);
  for (const auto& places : groups) grouped.emplace_back(picked(members, places), named_target("h200"));
  for (const GroupedLaunch& launch : grouped) texts.push_back(&launch.launch());
  const EmulatedKernels compiled(texts);

  std::size_t compared = 0;
  for (std::size_t j = 0; j < groups.size(); ++j) {
    std::vector<Held> alone, together;
    for (std::size_t m = 0; m < groups[j].size(); ++m) {
      const Kernel& kernel = kernels[groups[j][m]];
      alone.emplace_back(kernel, 7 + m), together.emplace_back(kernel, 7 + m);
      LaunchScratch scratch{alone[m].workspace.start(), alone[m].tickets.data(), nullptr, nullptr};
      std::vector<void*> arguments;
      for (void*& pointer : alone[m].pointers) arguments.push_back(&pointer);
      std::vector<std::uint64_t> sizes = kernel.launch.sizes;
      arguments.insert(arguments.end(), {&scratch, sizes.data()});
      const Launch start = compiled.find(kernel.launch.entry);
      ASSERT_NE(start, nullptr) << compiled.log();
      const TextLaunch& launch = kernel.launch;
      ASSERT_EQ(start(arguments.data(), launch.grid[0], launch.block, shuffled(launch.grid[0]).data()), 0);
      grouped[j].place(m, together[m].pointers.data(), together[m].workspace.start(), together[m].tickets.data());
    }
    const TextLaunch& launch = grouped[j].launch();
    LaunchScratch scratch{};
    std::vector<std::uint64_t> sizes = launch.sizes;
    void* arguments[] = {&scratch, sizes.data()};
    const Launch start = compiled.find(launch.entry);
    ASSERT_NE(start, nullptr) << compiled.log();
    for (int again = 0; again < 2; ++again) {  // tickets are as they were
      ASSERT_EQ(start(arguments, launch.grid[0], launch.block, shuffled(launch.grid[0]).data()), 0);
      for (std::size_t m = 0; m < alone.size(); ++m, ++compared) {
        for (std::size_t i = 0; i < alone[m].operands.size(); ++i) {
          EXPECT_TRUE(together[m].operands[i].held() == alone[m].operands[i].held())
              << "operand " << i << " of member " << m << ", run " << again << ": " << launch.why << "\n"
              << to_string(kernels[groups[j][m]].group);
        }
      }
    }
  }
  EXPECT_GE(compared, 2 * 5u);
}

TEST(GroupedLaunch, CompilesForEveryGpu) {
  if (nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << nvrtc_problem();
  const std::vector<Kernel> kernels = mixed_kernels();
  const std::vector<FusedMember> members = members_of(kernels);
  for (const auto& places : launch_groups_of(members)) {
    const GroupedLaunch grouped(picked(members, places), named_target("h200"));
    for (const char* arch : {"sm_80", "sm_90a", "sm_100a"}) {
      EXPECT_FALSE(compile(grouped.launch().source, grouped.launch().entry + ".cu", arch).empty());
    }
  }
}

TEST(GroupedLaunch, KernelsOfOtherThreadsOrMoreThanOperandsStayAlone) {
  std::vector<Kernel> kernels(3, Kernel(lerp_grad({64, 1024}, f32, {0, 0}, 0, 0)));
  kernels[1].launch.cluster = 2;
  EXPECT_EQ(launch_groups_of(members_of(kernels)), (std::vector<std::vector<std::size_t>>{{0, 2}}));
  std::string source = kernels[2].launch.source;
  source.replace(source.find("__launch_bounds__(256"), 21, "__launch_bounds__(512");
  kernels[2].launch.source = std::move(source);
  EXPECT_TRUE(launch_groups_of(members_of(kernels)).empty());
  kernels[2] = kernels[0];
  kernels[2].launch.block += 32;  // the source allows for more than it starts
  EXPECT_TRUE(launch_groups_of(members_of(kernels)).empty());
}

TEST(GroupedLaunch, HasAtMostTheParametersOfAKernel) {
  const std::vector<Kernel> kernels(600, Kernel(lerp_grad({64, 1024}, f32, {0, 0}, 0, 0)));
  const std::vector<FusedMember> members = members_of(kernels);
  std::size_t grouped = 0;
  for (const auto& places : launch_groups_of(members)) {
    grouped += places.size();
    EXPECT_LE(
        GroupedLaunch(picked(members, places), named_target("h200")).launch().sizes.size() * sizeof(std::uint64_t),
        32'764 - sizeof(LaunchScratch));
  }
  EXPECT_EQ(grouped, kernels.size());
}

}  // namespace
}  // namespace paoding::gpu
