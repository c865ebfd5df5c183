// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/order.h"

#include <algorithm>

#include "runtime/gpu/commit_guard.h"

namespace paoding {
namespace {

// The list of launches walked as the tree that it was.
class Order {
 public:
  Order(const std::vector<Launch>& launches, const GuardPlan& guards, const HostLaunches& on_host)
      : launches_(launches), guards_(guards), on_host_(on_host) {}

  std::vector<LaunchEntry> take() {
    auto guard = guards_.guards.begin();
    for (std::size_t i = 0; i < launches_.size();) {
      const std::size_t next = add(i, &beside_);
      // After all that the launches of before the commit are in.
      for (; guard != guards_.guards.end() && *guard < next; ++guard)
        order_.push_back({LaunchEntry::Kind::guard, *guard});
      i = next;
    }
    return std::move(order_);
  }

 private:
  // The choice that stands last in a list of launches, where only its branches are after it.
  struct Beside {
    std::shared_ptr<LaunchEntry::Held> choice = {};
    std::size_t end = 0;
  };

  void walk(std::size_t begin, std::size_t end) {
    Beside beside;
    for (std::size_t i = begin; i < end;) i = add(i, &beside);
  }

  // Adds the entries of the launch; returns the launch after them.
  std::size_t add(std::size_t i, Beside* beside) {
    const Launch& launch = launches_[i];
    const auto segment = std::ranges::lower_bound(on_host_, i, {}, [](const auto& each) { return each.first; });
    if (segment != on_host_.end() && segment->first == i) {
      order_.push_back({LaunchEntry::Kind::host, i});
      return segment->second;
    }
    if (std::ranges::binary_search(guards_.polls, i)) order_.push_back({LaunchEntry::Kind::poll, i});
    if (launch.kind == Launch::Kind::run) order_.push_back({LaunchEntry::Kind::launch, i});
    if (launch.kind != Launch::Kind::select) return i + 1;  // jumps are where bodies end
    if (!holds_host(launch, i) && belongs_to(*beside, i)) {
      beside->choice->selects.push_back(i);
      beside->end = launch.end;
      add_branches(launch, nullptr);
      return launch.end;
    }
    const auto held = std::make_shared<LaunchEntry::Held>();
    const bool is_loop = launch.step->kind == Step::Kind::repeat, is_asked = holds_host(launch, i);
    order_.push_back({is_asked ? LaunchEntry::Kind::asked : LaunchEntry::Kind::choice, i, held});
    if (is_loop) {
      add_loop(launch, i, held, is_asked);
    } else if (is_asked) {
      add_branches(launch, held.get());
    } else if (is_conditional(launch)) {
      add_branches(launch, held.get());
    } else {
      held->selects.push_back(i);
      *beside = {held, launch.end};
      add_branches(launch, nullptr);
    }
    return launch.end;
  }

  // Whether a segment on the CPU is in a branch, or in the body or the condition of a loop.
  bool holds_host(const Launch& select, std::size_t i) const {
    const bool is_loop = select.step->kind == Step::Kind::repeat;
    const std::size_t begin = is_loop ? launches_[select.end - 1].targets[0] : i;
    const auto first = std::ranges::lower_bound(on_host_, begin, {}, [](const auto& each) { return each.first; });
    return first != on_host_.end() && first->first < select.end;
  }

  // Whether the choice can be made with the one beside it: its index is there by then. Turns of a loop have one step's
  // words, and so do not.
  bool belongs_to(const Beside& beside, std::size_t i) const {
    constexpr std::size_t kMost = 8;
    const Launch& launch = launches_[i];
    if (beside.choice == nullptr || beside.end != i || is_conditional(launch)) return false;
    const std::vector<std::size_t>& selects = beside.choice->selects;
    const auto is_of_step = [&](std::size_t select) { return launches_[select].step == launch.step; };
    if (selects.size() == kMost || std::ranges::any_of(selects, is_of_step)) return false;
    if (launches_[selects.front()].is_commit != launch.is_commit) return false;  // a guard may stand between them
    const int index = launch.addresses[0].first;
    for (std::size_t j = selects.front(); j < i; ++j) {
      if (launches_[j].kind != Launch::Kind::run) continue;
      for (std::size_t k = launches_[j].step->reads; k < launches_[j].addresses.size(); ++k) {
        if (launches_[j].addresses[k].first == index) return false;
      }
    }
    return true;
  }

  // `held` of a conditional node.
  void add_branches(const Launch& select, LaunchEntry::Held* held) {
    std::vector<std::pair<std::size_t, std::size_t>> bodies;
    for (std::size_t k = 0; k < select.targets.size(); ++k) {
      const bool is_last = k + 1 == select.targets.size();
      const std::size_t first = order_.size();
      walk(select.targets[k], is_last ? select.end : select.targets[k + 1] - 1);
      bodies.emplace_back(first, order_.size());
    }
    if (held == nullptr) return;
    held->bodies = std::move(bodies);
    held->end = order_.size();
  }

  // A turn is the body and, for the next one, the condition.
  void add_loop(const Launch& select, std::size_t i, const std::shared_ptr<LaunchEntry::Held>& held, bool is_asked) {
    const std::size_t first = order_.size(), jump = select.end - 1;
    walk(select.targets[1], jump);
    walk(launches_[jump].targets[0], i);
    if (!is_asked) order_.push_back({LaunchEntry::Kind::again, i, held});
    held->bodies = {{first, order_.size()}};
    held->end = order_.size();
    held->is_loop = true;
  }

  const std::vector<Launch>& launches_;
  const GuardPlan& guards_;
  const HostLaunches& on_host_;
  std::vector<LaunchEntry> order_;
  Beside beside_;  // of the whole list
};

// The order cut into segments.
class Cut {
 public:
  Cut(const std::vector<Launch>& launches, const std::vector<LaunchEntry>& order)
      : launches_(launches), order_(order) {}

  std::vector<Segment> take() {
    walk(0, order_.size());
    if (segments_.empty()) add(Segment::Kind::graph, 0, 0);  // a program without launches has a graph all the same
    return std::move(segments_);
  }

 private:
  static constexpr std::size_t kBehind = ~std::size_t{0};  // all that a choice consists of

  void walk(std::size_t begin, std::size_t end) {
    std::size_t first = begin;
    const auto cut = [&](std::size_t at) {
      if (first != at) add(Segment::Kind::graph, first, at);
      first = at;
    };
    for (std::size_t k = begin; k < end; ++k) {
      const LaunchEntry& entry = order_[k];
      const Launch& launch = launches_[entry.launch];
      if (launch.is_commit && prints_) cut(k);
      prints_ |= launch.step->kind == Step::Kind::print;
      if (entry.kind != LaunchEntry::Kind::host && entry.kind != LaunchEntry::Kind::asked) continue;
      cut(k);
      if (entry.kind == LaunchEntry::Kind::host) {
        add(Segment::Kind::host, k, k + 1);
        first = k + 1;
      } else {
        add_choice(k, *entry.held);
        first = entry.held->end;
        k = first - 1;
      }
    }
    cut(end);
  }

  void add(Segment::Kind kind, std::size_t first, std::size_t end) {
    const bool prints = kind == Segment::Kind::graph && std::exchange(prints_, false);
    segments_.push_back({.kind = kind, .prints = prints, .first = first, .end = end, .next = segments_.size() + 1});
  }

  void add_choice(std::size_t k, const LaunchEntry::Held& held) {
    const std::size_t choice = segments_.size(), after_body = held.is_loop ? choice : kBehind;
    add(Segment::Kind::asked, k, k + 1);
    std::vector<std::size_t> targets;
    if (held.is_loop) targets.push_back(kBehind);  // where its condition is false
    for (const auto& [begin, end] : held.bodies) {
      const std::size_t start = segments_.size();
      walk(begin, end);
      targets.push_back(segments_.size() == start ? after_body : start);
      lead(start, segments_.size(), after_body);
    }
    segments_[choice].targets = std::move(targets);
    lead(choice, kBehind, segments_.size());
  }

  // Segments from the first on that lead to one lead to another.
  void lead(std::size_t first, std::size_t from, std::size_t to) {
    for (std::size_t i = first; i < segments_.size(); ++i) {
      if (segments_[i].next == from) segments_[i].next = to;
      std::ranges::replace(segments_[i].targets, from, to);
    }
  }

  const std::vector<Launch>& launches_;
  const std::vector<LaunchEntry>& order_;
  std::vector<Segment> segments_;
  bool prints_ = false;
};

}  // namespace

std::vector<Segment> segments_of(const std::vector<Launch>& launches, const std::vector<LaunchEntry>& order) {
  return Cut(launches, order).take();
}

bool is_conditional(const Launch& launch) {
  return launch.kind == Launch::Kind::select &&
         (launch.step->kind == Step::Kind::repeat || launch.step->is_conditional);
}

std::vector<LaunchEntry> order_of(const std::vector<Launch>& launches, const GuardPlan& guards,
                                  const HostLaunches& on_host, bool packs_results) {
  std::vector<LaunchEntry> order = Order(launches, guards, on_host).take();
  if (packs_results && !launches.empty()) order.push_back({LaunchEntry::Kind::results, launches.size() - 1});
  return order;
}

}  // namespace paoding
