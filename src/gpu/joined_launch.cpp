// SPDX-License-Identifier: Apache-2.0
#include "gpu/joined_launch.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/hash.h"
#include "cuda_text.h"
#include "gpu/kernel_prelude.h"
#include "gpu/text_kernel.h"

namespace paoding::gpu {
namespace {

constexpr std::size_t kMostMembers = 128;     // a power of two: each CTA looks its own up by halves
constexpr std::size_t kMostTexts = 4;         // they share the registers of the largest
constexpr std::size_t kMostBytes = 30 << 10;  // of parameters; a kernel may have 32,764 bytes of them
constexpr std::size_t kBeforeOperands = 1, kBehindOperands = 2;  // words of Member: first and text; the Room's

constexpr std::string_view kHead = "extern \"C\" __global__ void __launch_bounds__(";

// What is a kernel's own: its text behind the prelude.
std::string_view own_text(const TextLaunch& launch) {
  const std::string_view source = launch.source, prelude = kernel_prelude();
  return source.substr(source.find(prelude) + prelude.size());
}

// "256, 4": threads and CTAs on an SM that the kernel is compiled for.
std::string_view launch_bounds(std::string_view own) {
  const std::size_t begin = own.find(kHead) + kHead.size();
  return own.substr(begin, own.find(')', begin) - begin);
}

bool needs_only_operands(const TextLaunch& launch) {
  return launch.grid[0] > 0 && launch.grid[1] == 1 && launch.grid[2] == 1 && launch.cluster == 1 &&
         launch.shared_bytes == 0 && !launch.is_alone && !launch.is_cooperative && launch.maps.empty() &&
         own_text(launch).find(kHead) != std::string_view::npos;
}

void replace(std::string* text, std::string_view what, std::string_view by) {
  for (std::size_t at = text->find(what); at != std::string::npos; at = text->find(what, at + by.size())) {
    text->replace(at, what.size(), by);
  }
}

// The kernel as a function `run` that is told which CTA it is.
std::string as_function(std::string_view own) {
  std::string text(own);
  const std::size_t head = text.find(kHead), parameters = text.find('(', head + kHead.size());
  PD_ASSERT(parameters != std::string::npos, "a kernel has parameters");
  text.replace(head, parameters - head, "PD_DEVICE void run");
  replace(&text, "const Sizes size) {", "const Sizes& size, const unsigned cta) {");
  replace(&text, "blockIdx.x", "cta");
  return text;
}

}  // namespace

std::vector<std::vector<std::size_t>> joins_of(std::span<const JoinMember> kernels) {
  struct Join {
    std::vector<std::size_t> members;
    std::vector<std::string_view> texts;
    std::uint64_t ctas = 0;
    std::size_t operands = 0, words = 0;
  };
  std::vector<Join> joins;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const TextLaunch& launch = *kernels[i].launch;
    if (!needs_only_operands(launch)) continue;
    const std::string_view bounds = launch_bounds(own_text(launch));
    const auto takes = [&](const Join& join) {
      const bool is_new = std::find(join.texts.begin(), join.texts.end(), launch.source) == join.texts.end();
      const std::size_t words = kBeforeOperands + std::max(join.operands, kernels[i].operands) + kBehindOperands +
                                std::max(join.words, launch.sizes.size());
      const TextLaunch& first = *kernels[join.members[0]].launch;
      return launch.block == first.block && launch_bounds(own_text(first)) == bounds &&
             join.members.size() < kMostMembers && join.texts.size() + (is_new ? 1 : 0) <= kMostTexts &&
             (join.members.size() + 1) * words * sizeof(std::uint64_t) <= kMostBytes &&
             join.ctas + launch.grid[0] <= std::uint64_t{std::numeric_limits<std::int32_t>::max()};
    };
    auto join = std::find_if(joins.begin(), joins.end(), takes);
    if (join == joins.end()) join = joins.emplace(joins.end());
    if (std::find(join->texts.begin(), join->texts.end(), launch.source) == join->texts.end()) {
      join->texts.push_back(launch.source);
    }
    join->members.push_back(i);
    join->ctas += launch.grid[0];
    join->operands = std::max(join->operands, kernels[i].operands);
    join->words = std::max(join->words, launch.sizes.size());
  }
  std::vector<std::vector<std::size_t>> lists;
  for (Join& join : joins) {
    if (join.members.size() >= 2) lists.push_back(std::move(join.members));
  }
  return lists;
}

JoinedLaunch::JoinedLaunch(const std::vector<JoinMember>& members, const Target& target) {
  std::vector<const TextLaunch*> texts;
  std::vector<std::size_t> text_of, text_operands;
  std::size_t words = 1;
  for (const JoinMember& member : members) {
    std::size_t t = 0;
    while (t < texts.size() && texts[t]->source != member.launch->source) ++t;
    if (t == texts.size()) texts.push_back(member.launch), text_operands.push_back(member.operands);
    text_of.push_back(t);
    operands_.push_back(member.operands);
    most_operands_ = std::max(most_operands_, member.operands);
    words = std::max(words, member.launch->sizes.size());
    launch_.floor_us += member.launch->floor_us;
  }
  member_words_ = kBeforeOperands + most_operands_ + kBehindOperands + words;

  std::string functions, calls;
  for (std::size_t t = 0; t < texts.size(); ++t) {
    functions += fmt::format("\nnamespace text_{} {{\n{}}}\n", t, as_function(own_text(*texts[t])));
    std::string operands;
    for (std::size_t i = 0; i < text_operands[t]; ++i)
      operands += fmt::format("AnyPointer{{member.operands[{}]}}, ", i);
    calls += fmt::format("    case {0}: text_{0}::run({1}own, *(const text_{0}::Sizes*)member.sizes, cta); return;\n",
                         t, operands);
  }
  const std::string_view bounds = launch_bounds(own_text(*texts[0]));
  const std::string text = fmt::format(
      "// {} kernels in one launch.\n{}{}\nconstexpr int kMembers = {}, kMostMembers = {}, kOperands = {}, kWords = "
      "{};\n"
      "{}\n{}{}) $entry(\n    const Room room, const __grid_constant__ Sizes size) {{\n"
      "  const Member& member = size.members[member_of(size, blockIdx.x)];\n"
      "  const unsigned cta = blockIdx.x - member.first;\n"
      "  const Room own = {{member.workspace, member.tickets, room.fault, room.failed}};\n"
      "  switch (member.text) {{\n{}  }}\n}}\n",
      members.size(), kernel_prelude(), functions, members.size(), kMostMembers,
      std::max<std::size_t>(most_operands_, 1), words, k_joined_launch_cu, kHead, bounds, calls);
  launch_.entry = fmt::format("joined_{:016x}", fnv1a(text));
  launch_.source = text;
  replace(&launch_.source, "$entry", launch_.entry);

  launch_.sizes.assign(members.size() * member_words_, 0);
  unsigned ctas = 0;
  for (std::size_t m = 0; m < members.size(); ++m) {
    const TextLaunch& launch = *members[m].launch;
    launch_.sizes[word_of(m)] = ctas | static_cast<std::uint64_t>(text_of[m]) << 32;
    std::copy(launch.sizes.begin(), launch.sizes.end(),
              launch_.sizes.begin() +
                  static_cast<std::ptrdiff_t>(word_of(m) + kBeforeOperands + most_operands_ + kBehindOperands));
    ctas += launch.grid[0];
  }
  launch_.grid[0] = ctas;
  launch_.block = members[0].launch->block;
  launch_.overlaps_before = overlaps_before(target, launch_);
  launch_.why = fmt::format("{} kernels of {} texts in one launch: {} CTAs", members.size(), texts.size(), ctas);
}

void JoinedLaunch::place(std::size_t member, void* const* operands, void* workspace, void* tickets) {
  std::uint64_t* words = launch_.sizes.data() + word_of(member) + kBeforeOperands;
  for (std::size_t i = 0; i < operands_[member]; ++i) words[i] = reinterpret_cast<std::uint64_t>(operands[i]);
  words[most_operands_] = reinterpret_cast<std::uint64_t>(workspace);
  words[most_operands_ + 1] = reinterpret_cast<std::uint64_t>(tickets);
}

}  // namespace paoding::gpu
