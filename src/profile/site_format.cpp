// SPDX-License-Identifier: Apache-2.0
#include "profile/site_format.h"

#include <algorithm>

namespace paoding::profile {
namespace {

// A reader refuses more members of a group, since a broken file could claim any number of them.
constexpr std::size_t kMostMembersInAFile = 1 << 16;

// No launch of any GPU has more CTAs along an axis, or more of the rest; products of them do not overflow.
bool take_launch(BodyReader& body, LaunchShape* launch) {
  constexpr std::int64_t kMostCtas = (std::int64_t{1} << 31) - 1, kMostAcross = 65'535, kMostOfCta = 1 << 20;
  for (std::int64_t& extent : launch->grid) extent = body.signed_number();
  for (std::int64_t* of : {&launch->threads, &launch->registers, &launch->shared_bytes}) *of = body.signed_number();
  const auto is_in = [](std::int64_t value, std::int64_t least, std::int64_t most) {
    return value >= least && value <= most;
  };
  constexpr std::int64_t kMostInAll = std::int64_t{1} << 40;
  return is_in(launch->grid[0], 1, kMostCtas) && is_in(launch->grid[1], 1, kMostAcross) &&
         is_in(launch->grid[2], 1, kMostAcross) && launch->ctas() <= kMostInAll &&
         is_in(launch->threads, 0, kMostOfCta) && is_in(launch->registers, 0, kMostOfCta) &&
         is_in(launch->shared_bytes, 0, kMostOfCta);
}

}  // namespace

void append_site(BodyWriter& body, const SiteInfo& info) {
  for (const std::string* text : {&info.name, &info.op, &info.scope, &info.instance}) body.text(*text);
  body.number(static_cast<std::uint64_t>(info.kind));
  body.number(static_cast<std::uint64_t>(info.copy));
  static_assert(2 * kUnits <= kHasKernel);
  body.number((info.async ? 1u : 0u) | static_cast<unsigned>(info.unit) << 1 | (info.kernel.empty() ? 0 : kHasKernel) |
              (info.shapes.empty() ? 0 : kHasShapes) | (info.launch.is_known() ? kHasLaunch : 0));
  body.signed_number(info.bytes);
  body.real(info.flops);
  // The last of too many members stands for the rest, so that the shares of the others stay right.
  const std::size_t members = std::min(info.members.size(), kMostMembersInAFile);
  body.number(members);
  for (std::size_t m = 0; m < members; ++m) {
    const SiteInfo::Member& member = info.members[m];
    const bool is_rest = m + 1 == kMostMembersInAFile && info.members.size() > kMostMembersInAFile;
    std::int64_t bytes = member.bytes;
    for (std::size_t more = m + 1; is_rest && more < info.members.size(); ++more) bytes += info.members[more].bytes;
    body.text(is_rest ? "other ops" : member.op);
    body.signed_number(bytes);
  }
  if (!info.kernel.empty()) body.text(info.kernel);
  if (!info.shapes.empty()) body.text(info.shapes);
  if (!info.launch.is_known()) return;
  const LaunchShape& launch = info.launch;
  for (const std::int64_t extent : launch.grid) body.signed_number(extent);
  for (const std::int64_t of : {launch.threads, launch.registers, launch.shared_bytes}) body.signed_number(of);
}

bool take_site(BodyReader& body, SiteInfo* info) {
  for (std::string* text : {&info->name, &info->op, &info->scope, &info->instance}) *text = body.text();
  const std::uint64_t kind = body.number(), copy = body.number();
  const std::uint64_t flags = body.number(), async_and_unit = flags & ~(kHasKernel | kHasShapes | kHasLaunch);
  info->bytes = body.signed_number();
  info->flops = body.real();
  const std::uint64_t members = body.count();
  if (async_and_unit >= 2 * kUnits || members > kMostMembersInAFile) return false;
  info->async = (async_and_unit & 1) != 0;
  info->unit = static_cast<Unit>(async_and_unit >> 1);
  if (body.is_broken() || kind >= kSpanKinds || copy > static_cast<std::uint64_t>(Copy::host_to_host)) return false;
  info->kind = static_cast<SpanKind>(kind);
  info->copy = static_cast<Copy>(copy);
  for (std::uint64_t m = 0; m < members && !body.is_broken(); ++m) {
    std::string op(body.text());
    info->members.push_back({std::move(op), body.signed_number()});
  }
  if ((flags & kHasKernel) != 0) info->kernel = body.text();
  if ((flags & kHasShapes) != 0) info->shapes = body.text();
  return ((flags & kHasLaunch) == 0 || take_launch(body, &info->launch)) && !body.is_broken();
}

}  // namespace paoding::profile
