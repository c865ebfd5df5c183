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
      const std::size_t next = add(i);
      // Behind all that the launches of before the commit are in.
      for (; gate != gates_.gates.end() && *gate < next; ++gate) order_.push_back({Started::Kind::gate, *gate});
      i = next;
    }
    return std::move(order_);
  }

 private:
  void walk(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end;) i = add(i);
  }

  // What the launch consists of; what comes behind that.
  std::size_t add(std::size_t i) {
    const Launch& launch = launches_[i];
    const auto stretch = std::ranges::find(on_host_, i, [](const auto& each) { return each.first; });
    if (stretch != on_host_.end()) {
      order_.push_back({Started::Kind::host, i});
      return stretch->second;
    }
    if (std::ranges::binary_search(gates_.looks, i)) order_.push_back({Started::Kind::look, i});
    if (launch.kind == Launch::Kind::run) order_.push_back({Started::Kind::launch, i});
    if (launch.kind != Launch::Kind::select) return i + 1;  // jumps are where bodies end
    const std::size_t choice = order_.size();
    order_.push_back({Started::Kind::choice, i});
    if (launch.step->kind == Step::Kind::repeat) {
      add_loop(launch, i, choice);
    } else {
      add_branches(launch, choice);
    }
    return launch.end;
  }

  void add_branches(const Launch& select, std::size_t choice) {
    std::vector<std::pair<std::size_t, std::size_t>> bodies;
    for (std::size_t k = 0; k < select.targets.size(); ++k) {
      const bool is_last = k + 1 == select.targets.size();
      const std::size_t first = order_.size();
      walk(select.targets[k], is_last ? select.end : select.targets[k + 1] - 1);
      bodies.emplace_back(first, order_.size());
    }
    if (!is_conditional(select)) return;
    order_[choice].held = std::make_shared<Started::Held>(Started::Held{std::move(bodies), order_.size(), false});
  }

  // A turn is the body and, for the next one, the condition.
  void add_loop(const Launch& select, std::size_t i, std::size_t choice) {
    const std::size_t first = order_.size(), jump = select.end - 1;
    walk(select.targets[1], jump);
    walk(launches_[jump].targets[0], i);
    const std::size_t end = order_.size() + 1;
    const auto held = std::make_shared<Started::Held>(Started::Held{{{first, end}}, end, true});
    order_.push_back({Started::Kind::again, i, held});
    order_[choice].held = held;
  }

  const std::vector<Launch>& launches_;
  const GatePlan& gates_;
  const HostLaunches& on_host_;
  std::vector<Started> order_;
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
