// SPDX-License-Identifier: Apache-2.0
#include "profile/site_format.h"

#include <algorithm>

namespace paoding::profile {
namespace {

// A reader refuses more members of a group, since a broken file could claim any number of them.
constexpr std::size_t kMostMembers = 1 << 16;

}  // namespace

void append_site(BodyWriter& body, const SiteInfo& info) {
  for (const std::string* text : {&info.name, &info.op, &info.scope, &info.instance}) body.text(*text);
  body.number(static_cast<std::uint64_t>(info.kind));
  body.number(static_cast<std::uint64_t>(info.copy));
  static_assert(2 * kUnits <= kHasKernel);
  body.number((info.async ? 1u : 0u) | static_cast<unsigned>(info.unit) << 1 | (info.kernel.empty() ? 0 : kHasKernel));
  body.signed_number(info.bytes);
  body.real(info.flops);
  // The last of too many members stands for the rest, so that the shares of the others stay right.
  const std::size_t members = std::min(info.members.size(), kMostMembers);
  body.number(members);
  for (std::size_t m = 0; m < members; ++m) {
    const SiteInfo::Member& member = info.members[m];
    const bool is_rest = m + 1 == kMostMembers && info.members.size() > kMostMembers;
    std::int64_t bytes = member.bytes;
    for (std::size_t more = m + 1; is_rest && more < info.members.size(); ++more) bytes += info.members[more].bytes;
    body.text(is_rest ? "other ops" : member.op);
    body.signed_number(bytes);
  }
  if (!info.kernel.empty()) body.text(info.kernel);
}

bool take_site(BodyReader& body, SiteInfo* info) {
  for (std::string* text : {&info->name, &info->op, &info->scope, &info->instance}) *text = body.text();
  const std::uint64_t kind = body.number(), copy = body.number();
  const std::uint64_t flags = body.number(), async_and_unit = flags & ~kHasKernel;
  info->bytes = body.signed_number();
  info->flops = body.real();
  const std::uint64_t members = body.count();
  if (async_and_unit >= 2 * kUnits || members > kMostMembers) return false;
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
  return !body.is_broken();
}

}  // namespace paoding::profile
