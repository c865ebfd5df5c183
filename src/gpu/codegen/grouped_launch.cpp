// SPDX-License-Identifier: Apache-2.0
#include "gpu/codegen/grouped_launch.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>

#include "base/check.h"
#include "cuda_text.h"
#include "gpu/codegen/text_kernel.h"
#include "gpu/kernels/kernel_prelude.h"

namespace paoding::gpu {
namespace {

constexpr std::size_t kMostMembers = 128;              // a power of two: each CTA looks its own up by halves
constexpr std::size_t kMostParameterBytes = 30 << 10;  // of parameters; a kernel may have 32,764 bytes of them
constexpr std::size_t kBeforeOperands = 1, kBehindOperands = 2;  // words of Member: its first CTA; the LaunchScratch's

// "256, 4": threads and CTAs on an SM that the kernel is compiled for.
std::string_view launch_bounds(std::string_view own) {
  const std::size_t begin = own.find(kKernelHead) + kKernelHead.size();
  return own.substr(begin, own.find(')', begin) - begin);
}

bool needs_only_operands(const TextLaunch& launch) {
  const bool takes_little =
      launch.cluster == 1 && launch.shared_bytes == 0 && !launch.is_alone && !launch.is_cooperative;
  return launch.grid[0] > 0 && !launch.sizes.empty() && launch.grid[1] == 1 && launch.grid[2] == 1 &&
         (takes_little || launch.ctas_at_once > 0) && launch.maps.empty() && launch.phases.empty() &&
         own_text(launch).find(kKernelHead) != std::string_view::npos;
}

// That a launch may have together with others like it.
std::uint64_t most_ctas(const TextLaunch& launch) {
  return launch.ctas_at_once > 0 ? launch.ctas_at_once : std::uint64_t{std::numeric_limits<std::int32_t>::max()};
}

std::size_t member_words(const FusedMember& member) {
  return kBeforeOperands + member.operands + kBehindOperands + member.launch->sizes.size();
}

}  // namespace

std::vector<std::vector<std::size_t>> launch_groups_of(std::span<const FusedMember> kernels) {
  std::vector<std::vector<std::size_t>> lists;
  std::vector<std::uint64_t> ctas;  // of each list
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const TextLaunch& launch = *kernels[i].launch;
    if (!needs_only_operands(launch)) continue;
    const std::size_t bytes = member_words(kernels[i]) * sizeof(std::uint64_t);
    std::size_t l = 0;
    for (; l < lists.size(); ++l) {
      const TextLaunch& first = *kernels[lists[l][0]].launch;
      if (launch.block == first.block && own_text(launch) == own_text(first) && lists[l].size() < kMostMembers &&
          (lists[l].size() + 1) * bytes <= kMostParameterBytes && ctas[l] + launch.grid[0] <= most_ctas(first)) {
        break;
      }
    }
    if (l == lists.size()) lists.emplace_back(), ctas.push_back(0);
    lists[l].push_back(i);
    ctas[l] += launch.grid[0];
  }
  std::erase_if(lists, [](const auto& list) { return list.size() < 2; });
  return lists;
}

GroupedLaunch::GroupedLaunch(const std::vector<FusedMember>& members, const Target& target)
    : operands_(members.at(0).operands), member_words_(member_words(members[0])) {
  const TextLaunch& each = *members[0].launch;
  std::string operands;
  for (std::size_t i = 0; i < operands_; ++i) operands += fmt::format("AnyPointer{{member.operands[{}]}}, ", i);
  const std::string_view own = own_text(each);
  const std::string text = fmt::format(
      "// {0} kernels in one launch.\n{1}\nnamespace alone {{\n{2}}}\n"
      "constexpr int kMembers = {0}, kMostMembers = {3}, kOperands = {4};\n{5}\n{9}\n{6}{7}) $entry(\n"
      "    const LaunchScratch scratch, const __grid_constant__ Sizes size) {{\n"
      "  const Member& member = size.members[member_of(size, blockIdx.x)];\n"
      "  const LaunchScratch own = {{member.workspace, member.tickets, scratch.fault, scratch.failed, "
      "scratch.stamp}};\n"
      "  alone::run({8}own, member.sizes, blockIdx.x - (unsigned)member.first);\n}}\n",
      members.size(), kernel_prelude(), as_function(own), kMostMembers, operands_, k_grouped_launch_cu, kKernelHead,
      launch_bounds(own), operands, any_pointer_text());
  name_entry("grouped", text);

  launch_.sizes.assign(members.size() * member_words_, 0);
  unsigned ctas = 0;
  for (std::size_t m = 0; m < members.size(); ++m) {
    const TextLaunch& launch = *members[m].launch;
    launch_.sizes[m * member_words_] = ctas;
    std::ranges::copy(launch.sizes,
                      launch_.sizes.end() -
                          static_cast<std::ptrdiff_t>((members.size() - m - 1) * member_words_ + launch.sizes.size()));
    ctas += launch.grid[0];
    launch_.floor_us += launch.floor_us;
  }
  launch_.grid[0] = ctas;
  launch_.block = each.block;
  launch_.cluster = each.cluster, launch_.is_cooperative = each.is_cooperative;
  launch_.shared_bytes = each.shared_bytes;
  launch_.leaves_stamp = each.leaves_stamp;
  launch_.overlaps_before = overlaps_before(target, launch_);
  launch_.why = fmt::format("{} kernels in one launch: {} CTAs", members.size(), ctas);
}

void GroupedLaunch::place(std::size_t member, void* const* operands, void* workspace, void* tickets) {
  for (std::size_t i = 0; i < operands_; ++i) set_operand(member, i, operands[i]);
  set_workspace(member, workspace), set_tickets(member, tickets);
}

void GroupedLaunch::set_operand(std::size_t member, std::size_t operand, void* at) {
  launch_.sizes[member * member_words_ + kBeforeOperands + operand] = reinterpret_cast<std::uint64_t>(at);
}
void GroupedLaunch::set_workspace(std::size_t member, void* workspace) { set_operand(member, operands_, workspace); }
void GroupedLaunch::set_tickets(std::size_t member, void* tickets) { set_operand(member, operands_ + 1, tickets); }

}  // namespace paoding::gpu
