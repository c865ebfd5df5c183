// SPDX-License-Identifier: Apache-2.0
// Sites of programs that are gone: their ids are used again, but for a recording's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>

#include "profile/recorder.h"
#include "profile/trace.h"

namespace paoding::profile {
namespace {

// Ids of sites that are held, by a name of their own each.
std::set<SiteId> hold(HeldSites* held, const std::string& name, int count, std::int64_t turns = 1) {
  const HeldSites::Scope scope(held);
  std::set<SiteId> ids;
  for (int i = 0; i < count; ++i) {
    ids.insert(Recorder::add_held_sites({.name = name + std::to_string(i), .kind = SpanKind::op}, turns).first);
  }
  return ids;
}

// Leaves the process with 0 where all is right: in a process of its own nothing has been recorded.
[[noreturn]] void leave(bool is_right) { std::_Exit(is_right ? 0 : 1); }

TEST(HeldSitesDeathTest, AreUsedAgainWhenTheirProgramIsGone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto check = [] {
    auto first = std::make_unique<HeldSites>();
    const std::set<SiteId> ids = hold(first.get(), "a", 50), loops = hold(first.get(), "loop", 5, 100);
    HeldSites others;
    const std::set<SiteId> of_others = hold(&others, "b", 50), shared = hold(&others, "a", 10);
    bool is_right =
        ids.size() == 50 && loops.size() == 5 && std::includes(ids.begin(), ids.end(), shared.begin(), shared.end());
    for (const SiteId id : of_others) is_right = is_right && !ids.contains(id);
    const SiteId stays = Recorder::add_site({.name = "a49", .kind = SpanKind::op});  // as long as the process
    first = nullptr;
    HeldSites next;
    for (const SiteId id : hold(&next, "c", 39)) {
      is_right = is_right && ids.contains(id) && !shared.contains(id) && id != stays;
    }
    is_right = is_right && hold(&next, "other loop", 5, 100) == loops;
    is_right = is_right && hold(&next, "a", 10) == shared && hold(&next, "b", 50) == of_others;
    is_right = is_right && Recorder::add_site({.name = "a49", .kind = SpanKind::op}) == stays;
    leave(is_right);
  };
  EXPECT_EXIT(check(), testing::ExitedWithCode(0), "");
}

TEST(HeldSitesDeathTest, StayOnceSomethingHasBeenRecorded) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto check = [] {
    auto first = std::make_unique<HeldSites>();
    const std::set<SiteId> ids = hold(first.get(), "a", 5);
    Recorder::start({});
    for (const SiteId id : ids) {
      const SpanScope seen(id);
    }
    first = nullptr;
    HeldSites next;
    bool is_right = true;
    for (const SiteId id : hold(&next, "b", 5)) is_right = is_right && !ids.contains(id);
    const Trace trace = Recorder::stop();
    int found = 0;
    for (const Site& site : trace.sites()) found += trace.text(site.name).starts_with("a");
    leave(is_right && found == 5);
  };
  EXPECT_EXIT(check(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace paoding::profile
