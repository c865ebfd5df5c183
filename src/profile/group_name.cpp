// SPDX-License-Identifier: Apache-2.0
// What a fused group is called in reports: its ops in order, those of one origin in braces behind it.
#include <fmt/format.h>

#include <map>
#include <utility>

#include "profile/report.h"

namespace paoding::profile {
namespace {

constexpr std::size_t kLongestGroupName = 60;

struct Op {
  std::string_view name;
  int count = 0;
};

// Ops that one composed op or gradient consists of.
struct Origin {
  std::string_view name;  // "softmax_grad"; empty for ops of their own
  std::vector<Op> ops;
};

std::vector<Origin> origins_of(const Trace& trace, const Site& site) {
  std::vector<Origin> origins;
  std::map<std::string_view, std::size_t> origin_at;
  std::map<std::pair<std::size_t, std::string_view>, std::size_t> op_at;  // in their origins
  for (std::uint32_t m = site.members_begin; m < site.members_end; ++m) {
    const std::string_view title = trace.text(trace.members()[m].op);
    const std::size_t slash = title.rfind('/');
    const std::string_view origin = slash == title.npos ? "" : title.substr(0, slash);
    const std::string_view op = slash == title.npos ? title : title.substr(slash + 1);
    const auto [at, is_new_origin] = origin_at.try_emplace(origin, origins.size());
    if (is_new_origin) origins.push_back({origin, {}});
    std::vector<Op>& ops = origins[at->second].ops;
    const auto [found, is_new_op] = op_at.try_emplace({at->second, op}, ops.size());
    if (is_new_op) ops.push_back({op, 0});
    ops[found->second].count += 1;
  }
  return origins;
}

}  // namespace

std::string group_name(const Trace& trace, const Site& site) {
  std::string name = (site.op == 0 ? "group" : std::string(trace.text(site.op))) + ": ";
  bool is_first = true;
  for (const Origin& origin : origins_of(trace, site)) {
    const bool has_braces = !origin.name.empty() && origin.ops.size() > 1;
    std::string begin;
    if (!origin.name.empty()) begin = std::string(origin.name) + (has_braces ? "{" : "/");
    for (std::size_t i = 0; i < origin.ops.size(); ++i) {
      std::string part = is_first ? "" : "+";
      if (i == 0) part += begin;
      part += origin.ops[i].name;
      if (origin.ops[i].count > 1) part += fmt::format("*{}", origin.ops[i].count);
      if (!is_first && name.size() + part.size() > kLongestGroupName) {
        return name +
               fmt::format("+...{} ({} ops)", i > 0 && has_braces ? "}" : "", site.members_end - site.members_begin);
      }
      name += part;
      is_first = false;
    }
    if (has_braces) name += "}";
  }
  return name;
}

}  // namespace paoding::profile
