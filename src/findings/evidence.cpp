// SPDX-License-Identifier: Apache-2.0
#include "findings/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "findings/words.h"
#include "profile/kernel_name.h"

namespace paoding::findings {

namespace {
constexpr std::size_t kMostExamples = 8;
}  // namespace

bool Affected::are_all() const { return 10 * steps >= 9 * of; }

double Affected::each(double sum) const {
  return sum / static_cast<double>(std::max<std::size_t>(1, are_all() ? of : steps));
}

std::string Affected::have() const {
  if (are_all()) return "A step has";
  return fmt::format("{} of {} steps {}", steps, of, steps == 1 ? "has" : "have");
}

std::string Affected::in_steps() const { return are_all() ? "" : fmt::format("In {} of {} steps: ", steps, of); }

std::string Affected::part(double sum) const {
  const std::string part = time_text(each(sum)), step = time_text(step_ns);
  return are_all() ? fmt::format("{} of a step of {}", part, step)
                   : fmt::format("{} of each of those ({} on average)", part, step);
}

Affected affected(const Steps& steps, std::vector<std::size_t> in) {
  std::ranges::sort(in);
  in.erase(std::unique(in.begin(), in.end()), in.end());
  std::erase_if(in, [&](std::size_t step) { return step >= steps.count(); });
  Affected made{.steps = in.size(), .of = steps.count(), .step_ns = static_cast<double>(steps.average_ns())};
  if (made.are_all()) return made;
  made.step_ns = 0;
  for (const std::size_t step : in) {
    made.step_ns += static_cast<double>(steps.lengths()[step]) / static_cast<double>(in.size());
  }
  return made;
}

Affected Evidence::affected(const Steps& steps) const {
  std::vector<std::size_t> in;
  for (const Lost& lost : all_) {
    const std::size_t step = steps.step_of(lost.span);
    if (lost.ns > 0 && (in.empty() || in.back() != step)) in.push_back(step);
  }
  return findings::affected(steps, std::move(in));
}

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
