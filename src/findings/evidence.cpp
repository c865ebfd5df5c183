// SPDX-License-Identifier: Apache-2.0
#include "findings/evidence.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "profile/kernel_name.h"

namespace paoding::findings {

namespace {
constexpr std::size_t kMostExamples = 8;
}  // namespace

void Evidence::add(const Evidence& more) {
  all_.insert(all_.end(), more.all_.begin(), more.all_.end());
  sum_ += more.sum_;
}

double Evidence::longest() const { return all_.empty() ? 0 : std::ranges::max(all_, {}, &Lost::ns).ns; }

Examples Evidence::examples(const Steps& steps) const {
  const profile::Trace& trace = steps.trace();
  struct Same {
    std::string name;
    std::size_t count = 0;
    double ns = 0;
    std::vector<Lost> worst = {};              // a few, in order
    std::map<std::size_t, Lost> of_step = {};  // the worst of each
  };
  const auto is_worse = [](const Lost& a, const Lost& b) { return a.ns != b.ns ? a.ns > b.ns : a.span < b.span; };
  std::vector<Same> same;
  std::unordered_map<std::string, std::size_t> of_name;
  std::unordered_map<profile::SiteId, std::size_t> of_site;
  for (const Lost& lost : all_) {
    const auto [site, is_new_site] = of_site.try_emplace(trace.site_id(lost.span), 0);
    if (is_new_site) {
      const std::string name = trace.on_gpu(lost.span) ? profile::short_kernel_name(trace.name(lost.span))
                                                       : std::string(trace.name(lost.span));
      const auto [found, is_new] = of_name.try_emplace(name, same.size());
      if (is_new) same.push_back({.name = name});
      site->second = found->second;
    }
    Same& own = same[site->second];
    own.count += 1, own.ns += lost.ns;
    own.worst.insert(std::ranges::upper_bound(own.worst, lost, is_worse), lost);
    if (own.worst.size() > kMostExamples) own.worst.pop_back();
    Lost& in_step = own.of_step.try_emplace(steps.step_of(lost.span), lost).first->second;
    if (is_worse(lost, in_step)) in_step = lost;
  }
  for (Same& one : same) {
    if (one.of_step.size() < 2) continue;
    one.worst.clear();
    for (const auto& [step, lost] : one.of_step) one.worst.push_back(lost);
    std::ranges::sort(one.worst, is_worse);
  }
  Examples made;
  if (same.empty()) return made;
  std::ranges::stable_sort(same, std::ranges::greater(), &Same::ns);
  const auto first = std::ranges::min_element(same, is_worse, [](const Same& one) { return one.worst.front(); });
  std::rotate(same.begin(), first, first + 1);
  if (same.size() > kMostExamples) same.resize(kMostExamples);
  for (std::size_t turn = 0; turn < kMostExamples; ++turn) {
    for (std::size_t k = 0; k < same.size() && made.spans.size() < kMostExamples; ++k) {
      if (turn < same[k].worst.size()) {
        const Lost& lost = same[k].worst[turn];
        const std::size_t step = steps.step_of(lost.span);
        made.spans.push_back({.span = lost.span,
                              .kind = k,
                              .ns = std::llround(lost.ns),
                              .step = step == Steps::kOutside ? 0 : step + steps.first_number()});
      }
    }
  }
  for (const Same& one : same) made.kinds.push_back({one.name, one.count, std::llround(one.ns)});
  return made;
}

}  // namespace paoding::findings
