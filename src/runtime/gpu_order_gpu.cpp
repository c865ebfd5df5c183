// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "runtime/gpu_gate.h"
#include "runtime/gpu_order.h"

namespace paoding {
namespace {

// The list of launches walked as the tree that it was.
class Order {
 public:
  Order(const std::vector<Launch>& launches, const GatePlan& gates, const HostLaunches& on_host)
      : launches_(launches), gates_(gates), on_host_(on_host) {}

  std::vector<Started> take() {
    auto gate = gates_.gates.begin();
    for (std::size_t i = 0; i < launches_.size();) {
      const std::size_t next = add(i, &beside_);
      // Behind all that the launches of before the commit are in.
      for (; gate != gates_.gates.end() && *gate < next; ++gate) order_.push_back({Started::Kind::gate, *gate});
      i = next;
    }
    return std::move(order_);
  }

 private:
  // The choice that stands last in a list of launches, where nothing but what it chooses among is behind it.
  struct Beside {
    std::shared_ptr<Started::Held> choice = {};
    std::size_t end = 0;
  };

  void walk(std::size_t begin, std::size_t end) {
    Beside beside;
    for (std::size_t i = begin; i < end;) i = add(i, &beside);
  }

  // What the launch consists of; what comes behind that.
  std::size_t add(std::size_t i, Beside* beside) {
    const Launch& launch = launches_[i];
    const auto stretch = std::ranges::find(on_host_, i, [](const auto& each) { return each.first; });
    if (stretch != on_host_.end()) {
      order_.push_back({Started::Kind::host, i});
      return stretch->second;
    }
    if (std::ranges::binary_search(gates_.looks, i)) order_.push_back({Started::Kind::look, i});
    if (launch.kind == Launch::Kind::run) order_.push_back({Started::Kind::launch, i});
    if (launch.kind != Launch::Kind::select) return i + 1;  // jumps are where bodies end
    if (joins(*beside, i)) {
      beside->choice->selects.push_back(i);
      beside->end = launch.end;
      add_branches(launch, nullptr);
      return launch.end;
    }
    const auto held = std::make_shared<Started::Held>();
    order_.push_back({Started::Kind::choice, i, held});
    if (launch.step->kind == Step::Kind::repeat) {
      add_loop(launch, i, held);
    } else if (is_conditional(launch)) {
      add_branches(launch, held.get());
    } else {
      held->selects.push_back(i);
      *beside = {held, launch.end};
      add_branches(launch, nullptr);
    }
    return launch.end;
  }

  // Whether the choice can be made with the one beside it: what it reads is there by then. Turns of a loop have one
  // step's words, and so do not.
  bool joins(const Beside& beside, std::size_t i) const {
    constexpr std::size_t kMost = 8;
    const Launch& launch = launches_[i];
    if (beside.choice == nullptr || beside.end != i || is_conditional(launch)) return false;
    const std::vector<std::size_t>& selects = beside.choice->selects;
    const auto is_of_step = [&](std::size_t select) { return launches_[select].step == launch.step; };
    if (selects.size() == kMost || std::ranges::any_of(selects, is_of_step)) return false;
    if (launches_[selects.front()].is_commit != launch.is_commit) return false;  // a gate may stand between them
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
  void add_branches(const Launch& select, Started::Held* held) {
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
  void add_loop(const Launch& select, std::size_t i, const std::shared_ptr<Started::Held>& held) {
    const std::size_t first = order_.size(), jump = select.end - 1;
    walk(select.targets[1], jump);
    walk(launches_[jump].targets[0], i);
    order_.push_back({Started::Kind::again, i, held});
    held->bodies = {{first, order_.size()}};
    held->end = order_.size();
    held->is_loop = true;
  }

  const std::vector<Launch>& launches_;
  const GatePlan& gates_;
  const HostLaunches& on_host_;
  std::vector<Started> order_;
  Beside beside_;  // of the whole list
};

}  // namespace

bool is_conditional(const Launch& launch) {
  return launch.kind == Launch::Kind::select &&
         (launch.step->kind == Step::Kind::repeat || launch.step->is_conditional);
}

std::vector<Started> order_of(const std::vector<Launch>& launches, const GatePlan& gates, const HostLaunches& on_host,
                              bool packs_results) {
  std::vector<Started> order = Order(launches, gates, on_host).take();
  if (packs_results && !launches.empty()) order.push_back({Started::Kind::results, launches.size() - 1});
  return order;
}

}  // namespace paoding
