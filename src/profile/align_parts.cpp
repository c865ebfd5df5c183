// SPDX-License-Identifier: Apache-2.0
#include "profile/align_parts.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

namespace paoding::profile {

namespace {

using Numbers = std::vector<std::size_t>;
using Counts = std::map<std::string, int, std::less<>>;

constexpr double kAlike = 0.5;  // the least share of common ops

std::string parent_of(const std::string& scope) {
  const std::size_t slash = scope.rfind('/');
  return slash == scope.npos ? "" : scope.substr(0, slash);
}

int depth_of(const std::string& scope) {
  return scope.empty() ? 0 : 1 + static_cast<int>(std::ranges::count(scope, '/'));
}

bool is_in(const std::string& scope, const std::string& around) {
  return around.empty() || scope == around || (scope.starts_with(around) && scope[around.size()] == '/');
}

int sum_of(const Counts& counts) {
  int sum = 0;
  for (const auto& [name, count] : counts) sum += count;
  return sum;
}

int common(const Counts& x, const Counts& y) {
  int both = 0;
  for (const auto& [name, count] : x) {
    if (const auto found = y.find(name); found != y.end()) both += std::min(count, found->second);
  }
  return both;
}

// "softmax_grad" of "softmax_grad/mul": the composed op that an op came from.
std::string origin_of(const std::string& op) { return op.substr(0, op.find('/')); }

// The ops of a part or, `as_origins`, the composed ops that they came from.
Counts ops_of(const StepPart& part, bool as_origins) {
  Counts counts;
  for (const std::string& op : part.members) {
    int& count = counts[as_origins ? origin_of(op) : op.substr(op.rfind('/') + 1)];  // npos + 1 is 0
    count = as_origins ? 1 : count + 1;
  }
  return counts;
}

struct Work {
  explicit Work(const StepPart& part) : is_op(part.is_op), ops(ops_of(part, false)), origins(ops_of(part, true)) {}
  bool is_like(const Work& other) const {
    return is_op && other.is_op && (are_alike(ops, other.ops) || are_alike(origins, other.origins));
  }
  static bool are_alike(const Counts& x, const Counts& y) {
    const int least = std::min(sum_of(x), sum_of(y));
    return least > 0 && common(x, y) >= kAlike * least;
  }

  bool is_op;
  Counts ops, origins;
};

// Beyond so many comparisons, which no program of this world takes, parts stay as they are.
constexpr std::size_t kMostPairs = 4'000'000;

class Aligner {
 public:
  Aligner(const std::vector<StepPart>& a, const std::vector<StepPart>& b) : a_(a), b_(b) {
    for (std::size_t i = 0; i < a.size(); ++i) left_a_.push_back(i);
    for (std::size_t i = 0; i < b.size(); ++i) left_b_.push_back(i);
    for (const StepPart& part : a) scopes_of_a_.push_back(part.scope);
    for (const StepPart& part : a) work_a_.emplace_back(part);
    for (const StepPart& part : b) work_b_.emplace_back(part);
  }

  std::vector<AlignedParts> align() {
    pair_by(Alignment::same, [](const StepPart& p, const std::string& scope) { return whole_key(p, scope); });
    if (a_.size() * b_.size() <= kMostPairs) map_scopes();
    pair_by(Alignment::renamed, [](const StepPart& p, const std::string& scope) { return whole_key(p, scope); });
    pair_by(Alignment::resized, [](const StepPart& p, const std::string& scope) {
      return std::tuple(p.is_op, scope, p.name, std::string(), std::int64_t{0}, 0.0);
    });
    regroup();
    for (const std::size_t i : left_a_) made_.push_back({Alignment::vanished, {i}, {}});
    for (const std::size_t i : left_b_) made_.push_back({Alignment::appeared, {}, {i}});
    return std::move(made_);
  }

 private:
  static std::tuple<bool, std::string, std::string, std::string, std::int64_t, double> whole_key(
      const StepPart& p, const std::string& scope) {
    return {p.is_op, scope, p.name, p.shape, p.bytes, p.flops};
  }

  // Those left whose keys are alike, in order of appearance. Scopes of A are called as in B where that is known.
  template <class Key>
  void pair_by(Alignment how, Key key) {
    std::map<decltype(key(a_[0], std::string())), Numbers> waiting;
    for (const std::size_t i : left_b_) waiting[key(b_[i], b_[i].scope)].push_back(i);
    Numbers left;
    std::set<std::size_t> taken;
    std::map<decltype(key(a_[0], std::string())), std::size_t> given;
    for (const std::size_t i : left_a_) {
      const auto own = key(a_[i], scopes_of_a_[i]);
      const auto found = waiting.find(own);
      std::size_t& at = given[own];
      if (found == waiting.end() || at == found->second.size()) {
        left.push_back(i);
        continue;
      }
      const std::size_t other = found->second[at++];
      taken.insert(other);
      made_.push_back({how, {i}, {other}});
    }
    left_a_ = std::move(left);
    std::erase_if(left_b_, [&](std::size_t i) { return taken.contains(i); });
  }

  // ---- scopes of other names ----

  // All scopes with those around them.
  static std::vector<std::string> all_scopes(const std::vector<StepPart>& parts) {
    std::vector<std::string> scopes;
    std::set<std::string> seen;
    for (const StepPart& part : parts) {
      for (std::string scope = part.scope; !scope.empty() && seen.insert(scope).second; scope = parent_of(scope)) {
        scopes.push_back(scope);
      }
    }
    std::ranges::stable_sort(scopes, {}, depth_of);
    return scopes;
  }

  // The parts inside of a scope, by places in it.
  static Counts inside(const std::vector<StepPart>& parts, const std::vector<std::string>& names,
                       const std::string& scope) {
    Counts counts;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!is_in(names[i], scope)) continue;
      for (const std::string& op : parts[i].members) ++counts[op];
    }
    return counts;
  }

  // From the outside in: a scope that B has not becomes the one of B's beside it, which A has not, that most of its ops
  // are in too.
  void map_scopes() {
    const std::vector<std::string> of_a = all_scopes(a_), of_b = all_scopes(b_);
    std::set<std::string> free_b(of_b.begin(), of_b.end());
    for (const std::string& scope : of_a) free_b.erase(scope);
    std::vector<std::string> names_b;
    for (const StepPart& part : b_) names_b.push_back(part.scope);
    std::map<std::string, Counts> inside_b;
    for (const std::string& scope : free_b) inside_b[scope] = inside(b_, names_b, scope);
    const std::set<std::string> known_b(of_b.begin(), of_b.end());
    for (const std::string& scope : of_a) {
      const std::string now = renamed(scope);
      if (known_b.contains(now)) continue;
      const Counts own = inside(a_, scopes_of_a_, now);
      const std::string* best = nullptr;
      double most = kAlike;
      for (const std::string& other : of_b) {
        if (!free_b.contains(other) || parent_of(other) != parent_of(now)) continue;
        const int both = common(own, inside_b[other]);
        const double alike = static_cast<double>(both) / std::max(1, sum_of(own) + sum_of(inside_b[other]) - both);
        if (alike < most || (best != nullptr && alike == most)) continue;
        most = alike, best = &other;
      }
      if (best == nullptr) continue;
      free_b.erase(*best);
      renamed_.emplace_back(now, *best);
      for (std::string& name : scopes_of_a_) {
        if (is_in(name, now)) name = *best + name.substr(now.size());
      }
    }
  }

  std::string renamed(std::string scope) const {
    for (const auto& [from, to] : renamed_) {
      if (is_in(scope, from)) scope = to + scope.substr(from.size());
    }
    return scope;
  }

  // ---- ops that were fused or split ----

  // Begins at the innermost scope that has them: parts that only moved are one row, and so are those with the same ops.
  void regroup() {
    constexpr int kDeepest = 64;
    int deepest = 0;
    for (const std::size_t i : left_a_) deepest = std::max(deepest, depth_of(scopes_of_a_[i]));
    for (const std::size_t i : left_b_) deepest = std::max(deepest, depth_of(b_[i].scope));
    for (int depth = std::min(deepest, kDeepest); depth >= 0; --depth) {
      pair_by(Alignment::renamed,
              [&](const StepPart& p, const std::string& scope) { return whole_key(p, up_to(scope, depth)); });
      if (left_a_.size() * left_b_.size() > kMostPairs) continue;
      std::map<std::string, std::pair<Numbers, Numbers>> places;
      // A part further out may do the work of several scopes, so it is matched after theirs.
      for (const std::size_t i : left_a_) {
        if (depth_of(scopes_of_a_[i]) >= depth) places[up_to(scopes_of_a_[i], depth)].first.push_back(i);
      }
      for (const std::size_t i : left_b_) {
        if (depth_of(b_[i].scope) >= depth) places[up_to(b_[i].scope, depth)].second.push_back(i);
      }
      for (const auto& [scope, parts] : places) regroup(parts.first, parts.second);
    }
  }

  static std::string up_to(const std::string& scope, int depth) {
    std::size_t end = 0;
    for (int i = 0; i < depth && end != scope.npos; ++i) end = scope.find('/', i == 0 ? 0 : end + 1);
    return depth == 0 ? "" : scope.substr(0, end);
  }

  // Matches parts that are linked by common ops, each connected set at once.
  void regroup(const Numbers& of_a, const Numbers& of_b) {
    std::set<std::size_t> free_a(of_a.begin(), of_a.end()), free_b(of_b.begin(), of_b.end());
    for (const std::size_t first : of_a) {
      if (!free_a.contains(first)) continue;
      AlignedParts row{Alignment::regrouped, {first}, {}};
      for (std::size_t at_a = 0, at_b = 0; at_a < row.a.size() || at_b < row.b.size();) {
        if (at_a < row.a.size()) {
          const Work& work = work_a_[row.a[at_a++]];
          free_a.erase(row.a[at_a - 1]);
          move_if(free_b, row.b, [&](std::size_t i) { return work.is_like(work_b_[i]); });
        } else {
          const Work& work = work_b_[row.b[at_b++]];
          move_if(free_a, row.a, [&](std::size_t i) { return work.is_like(work_a_[i]); });
        }
      }
      if (row.b.empty()) continue;
      if (row.a.size() != row.b.size()) row.how = row.a.size() > row.b.size() ? Alignment::fused : Alignment::split;
      std::erase_if(left_a_, [&](std::size_t i) { return std::ranges::count(row.a, i) > 0; });
      std::erase_if(left_b_, [&](std::size_t i) { return std::ranges::count(row.b, i) > 0; });
      made_.push_back(std::move(row));
    }
  }

  template <class Is>
  static void move_if(std::set<std::size_t>& from, Numbers& to, Is is) {
    for (auto i = from.begin(); i != from.end();) {
      if (!is(*i)) {
        ++i;
        continue;
      }
      to.push_back(*i);
      i = from.erase(i);
    }
  }

  const std::vector<StepPart>&a_, &b_;
  std::vector<Work> work_a_, work_b_;
  Numbers left_a_, left_b_;
  std::vector<std::string> scopes_of_a_;  // as B calls them
  std::vector<std::pair<std::string, std::string>> renamed_;
  std::vector<AlignedParts> made_;
};

}  // namespace

std::string_view to_string(Alignment alignment) {
  switch (alignment) {
    case Alignment::same: return "same";
    case Alignment::resized: return "resized";
    case Alignment::renamed: return "renamed";
    case Alignment::fused: return "fused";
    case Alignment::split: return "split";
    case Alignment::regrouped: return "regrouped";
    case Alignment::vanished: return "vanished";
    case Alignment::appeared: return "appeared";
  }
  return "?";
}

std::vector<AlignedParts> align(const std::vector<StepPart>& a, const std::vector<StepPart>& b) {
  return Aligner(a, b).align();
}

}  // namespace paoding::profile
