// SPDX-License-Identifier: Apache-2.0
// Group kernels through NVRTC for sm_90a: they compile, and keep everything in registers.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iostream>

#include "gpu/codegen/group_cases.h"
#include "gpu/codegen/group_text.h"
#include "gpu/driver/nvrtc.h"

namespace paoding::gpu {
namespace {

struct Use {
  int registers = 0;
  int frame_bytes = 0;  // local memory: spills and arrays that did not fit registers
};

/// Reads a cubin's facts of its kernel in section ".nv.info": attribute 0x2f is the registers, 0x11 the frame size.
Use read_use(const std::vector<char>& cubin) {
  auto at = [&](std::size_t offset, auto value) {
    std::memcpy(&value, cubin.data() + offset, sizeof(value));
    return value;
  };
  const auto sections = at(40, std::uint64_t{});
  const auto entry_size = at(58, std::uint16_t{}), count = at(60, std::uint16_t{}), names = at(62, std::uint16_t{});
  const auto names_at = at(sections + std::size_t{names} * entry_size + 24, std::uint64_t{});
  Use use;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t header = sections + i * entry_size;
    const std::string name = cubin.data() + names_at + at(header, std::uint32_t{});
    if (name != ".nv.info") continue;
    std::size_t place = at(header + 24, std::uint64_t{});
    const std::size_t end = place + at(header + 32, std::uint64_t{});
    while (place + 4 <= end) {
      const auto format = at(place, std::uint8_t{}), attribute = at(place + 1, std::uint8_t{});
      const auto size = at(place + 2, std::uint16_t{});
      if (format == 4 && attribute == 0x2f) use.registers = std::max(use.registers, at(place + 8, std::int32_t{}));
      if (format == 4 && attribute == 0x11) use.frame_bytes = std::max(use.frame_bytes, at(place + 8, std::int32_t{}));
      place += 4 + (format == 4 ? size : 0u);
    }
  }
  return use;
}

struct Named {
  std::string name;
  Group group;
};

std::vector<Named> workloads() {
  std::vector<Named> all;
  auto lerp = [&](const std::string& name, const Strides& extents, DType dtype, const Strides& w, int dx, int dy) {
    all.push_back({name + ", both", lerp_grad(extents, dtype, w, dx, dy)});
    all.push_back({name + ", dx", lerp_grad(extents, dtype, w, dx, -1)});
    all.push_back({name + ", dy", lerp_grad(extents, dtype, w, -1, dy)});
  };
  lerp("lerp_grad [16,102400] f32", {16, 102400}, f32, {0, 0}, 0, 0);
  lerp("lerp_grad [16,102400] f32, w [102400]", {16, 102400}, f32, {0, 1}, 0, 0);
  lerp("lerp_grad [16,102400] f32, w full", {16, 102400}, f32, {102400, 1}, 0, 0);
  lerp("lerp_grad [16,204800] f64", {16, 204800}, f64, {0, 0}, 0, 0);
  lerp("lerp_grad x [16,1,1,1], y [16,3,224,224]", {16, 3, 224, 224}, f32, {0, 0, 0, 0}, 0b1110, 0);
  lerp("lerp_grad x [16,1,1,1], y [16,3,244,244], w [3,1,244]", {16, 3, 244, 244}, f32, {0, 244, 0, 1}, 0b1110, 0);
  lerp("lerp_grad x [64,1,512,1], y [64,256,1,128], w [256,512,128]", {64, 256, 512, 128}, f32, {0, 512 * 128, 128, 1},
       0b1010, 0b0100);
  for (const DType dtype : {f32, bf16}) {
    const std::string kind = " " + std::string(to_string(dtype));
    all.push_back({"sum over rows [6400,2048]" + kind, sums({6400, 2048}, dtype, {1})});
    all.push_back({"sum over rows [6400,512]" + kind, sums({6400, 512}, dtype, {1})});
    all.push_back({"sum over rows [65536,4096]" + kind, sums({65536, 4096}, dtype, {1})});
    all.push_back({"conv bias [1000,16,28,28]" + kind, sums({1000, 16, 28, 28}, dtype, {0b1101})});
    all.push_back({"conv bias [256,64,112,112]" + kind, sums({256, 64, 112, 112}, dtype, {0b1101})});
    all.push_back({"conv bias [1000,64,7,7]" + kind, sums({1000, 64, 7, 7}, dtype, {0b1101})});
    all.push_back({"row sums [8192,1024]" + kind, sums({8192, 1024}, dtype, {2})});
  }
  all.push_back({"64-bit offsets [65536,65536]", sums({65536, 65536}, f32, {1, 2, 0})});
  all.push_back({"gates [1,512]", lstm_gates(1, 512)});
  all.push_back({"gates [32,512]", lstm_gates(32, 512)});
  all.push_back({"gates [128,512]", lstm_gates(128, 512)});
  for (const DType dtype : {f32, bf16}) {
    const std::string kind = " " + std::string(to_string(dtype));
    all.push_back({"softmax [65536,1024]" + kind, softmax({65536, 1024}, dtype, 2)});
    all.push_back({"softmax over channels [32,64,112,112]" + kind, softmax({32, 64, 112, 112}, dtype, 2)});
    all.push_back({"cross entropy [6400,7709]" + kind, cross_entropy(6400, 7709, dtype)});
    all.push_back({"cross entropy with bias [6400,7709]" + kind, cross_entropy(6400, 7709, dtype, true)});
    all.push_back({"softmax [6400,7709]" + kind, softmax({6400, 7709}, dtype, 2)});
    all.push_back({"layer_norm [8192,1024]" + kind, layer_norm({8192, 1024}, dtype, 2)});
    all.push_back({"layer_norm_grad [8192,1024]" + kind, layer_norm_grad({8192, 1024}, dtype, 2)});
    all.push_back({"layer_norm_grad [4096,4096]" + kind, layer_norm_grad({4096, 4096}, dtype, 2)});
    all.push_back({"softmax of long rows [512,50257]" + kind, softmax({512, 50257}, dtype, 2)});
    all.push_back({"softmax of longer rows [512,200000]" + kind, softmax({512, 200000}, dtype, 2)});
  }
  return all;
}

Use use_of(const TextLaunch& plan) { return read_use(compile(plan.source, plan.entry + ".cu", "sm_90a")); }

TEST(GroupCubin, WorkloadsStayInRegisters) {
  if (nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << nvrtc_problem();
  for (const Named& named : workloads()) {
    SCOPED_TRACE(named.name);
    const TextLaunch plan =
        plan_group(canonical(named.group), std::vector<int>(named.group.operands(), 256), named_target("h200"))
            .launches.at(0);
    const std::vector<char> cubin = compile(plan.source, plan.entry + ".cu", "sm_90a");
    const Use use = read_use(cubin);
    EXPECT_EQ(use.frame_bytes, 0) << plan.why;
    EXPECT_GT(use.registers, 0);
    // Three CTAs of 256 threads per SM; where rows are held, two.
    EXPECT_LE(use.registers, named.group.reductions.empty() ? 80 : 128) << plan.why;
    if (const char* folder = getenv("PAODING_KEEP_CUBINS")) {
      std::ofstream(std::string(folder) + "/" + named.name.substr(0, named.name.find('/')) + ".cubin")
          .write(cubin.data(), static_cast<std::streamsize>(cubin.size()));
    }
    if (getenv("PAODING_EXPLAIN") != nullptr) {
      std::cout << named.name << ": " << use.registers << " registers, floor " << plan.floor_us << " us\n    "
                << plan.why << "\n";
    }
  }
}

TEST(GroupCubin, RandomGroupsCompile) {
  if (nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << nvrtc_problem();
  std::mt19937 rng(20);
  for (int i = 0; i < 40; ++i) {
    const Group group = random_group(rng);
    Target chip = named_target("h200");
    chip.sm_count = i % 3 == 0 ? 1 : i % 3 == 1 ? 4 : 132;
    const TextPlan plan = plan_group(canonical(group), std::vector<int>(group.operands(), 256), chip);
    for (const TextLaunch& launch : plan.launches) {
      SCOPED_TRACE(to_string(group) + launch.why);
      // An array that is indexed by a number known too late would be longer than the few registers that may be spilled.
      EXPECT_LE(use_of(launch).frame_bytes, 16);
    }
  }
}

}  // namespace
}  // namespace paoding::gpu
