// SPDX-License-Identifier: Apache-2.0
// Sites of the recorder: facts of places in programs, by ids that spans have.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "profile/recorder.h"
#include "profile/recorder_state.h"

namespace paoding::profile {
namespace {

constinit thread_local HeldSites* holder = nullptr;

std::string facts_of(const SiteInfo& info) {
  std::string key =
      fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{} {} {} {} {} {}", info.name, info.op, info.scope, info.instance,
                  info.kernel, info.shapes, static_cast<int>(info.kind), static_cast<int>(info.copy), info.async,
                  info.bytes, info.flops, static_cast<int>(info.unit));
  if (const LaunchShape& launch = info.launch; launch.is_known()) {
    key += fmt::format("\n{}x{}x{} {} {} {}", launch.grid[0], launch.grid[1], launch.grid[2], launch.threads,
                       launch.registers, launch.shared_bytes);
  }
  for (const auto& member : info.members) key += fmt::format("\n{} {}", member.op, member.bytes);
  return key;
}

}  // namespace

HeldSites::Scope::Scope(HeldSites* sites) : around_(std::exchange(holder, sites)) {}
HeldSites::Scope::~Scope() { holder = around_; }

HeldSites::~HeldSites() { Recorder::release(first_); }

void Recorder::release(const std::vector<SiteId>& held) {
  if (held.empty()) return;
  Recording& r = recording();
  const std::lock_guard lock(r.sites_mutex);
  for (const SiteId first : held) r.release(first);
}

SiteId Recorder::add_site(const SiteInfo& info) { return add_sites(info, 1).first; }

TurnSites Recorder::add_sites(const SiteInfo& info, std::int64_t turns) {
  Recording& r = recording();
  const std::lock_guard lock(r.sites_mutex);
  SiteRange& range = r.range_of(info, turns);
  range.stays = true;
  return range.sites;
}

TurnSites Recorder::add_held_sites(const SiteInfo& info, std::int64_t turns) {
  if (holder == nullptr) return add_sites(info, turns);
  Recording& r = recording();
  const std::lock_guard lock(r.sites_mutex);
  holder->first_.reserve(holder->first_.size() + 1);
  SiteRange& range = r.range_of(info, turns);
  ++range.holders;
  holder->first_.push_back(range.sites.first);
  return range.sites;
}

SiteRange& Recorder::Recording::range_of(const SiteInfo& info, std::int64_t turns) {
  std::string key = facts_of(info);
  const auto found = site_ranges.find(key);
  if (found != site_ranges.end() && sites.at(found->second).sites.turns >= turns) return sites.at(found->second);
  constexpr std::int64_t kFew = std::int64_t{1} << 31;
  const auto free = free_sites.find(static_cast<std::uint32_t>(std::min(turns, kFew)));
  const bool is_used_again = free != free_sites.end() && !free->second.empty();
  if (!is_used_again && turns > kFew - next_site) {
    if (found != site_ranges.end()) return sites.at(found->second);
    turns = 1;
  }
  SiteId first = next_site;
  if (is_used_again) {
    first = free->second.back();
    free->second.pop_back();
  } else {
    next_site += static_cast<SiteId>(turns);
  }
  site_ranges.insert_or_assign(std::move(key), first);
  SiteRange& made = sites[first];
  made = {info, {first, static_cast<std::uint32_t>(turns)}};
  if (live != nullptr) live->add_site(first, made.sites.turns, info);
  return made;
}

void Recorder::Recording::release(SiteId first) {
  const auto at = sites.find(first);
  if (--at->second.holders > 0 || at->second.stays || has_recorded || live != nullptr) return;
  const auto key = site_ranges.find(facts_of(at->second.info));
  if (key != site_ranges.end() && key->second == first) site_ranges.erase(key);  // a wider one may have its place
  free_sites[at->second.sites.turns].push_back(first);
  sites.erase(at);
}

}  // namespace paoding::profile
